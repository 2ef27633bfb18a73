"""Check the arguments of a launch against the function's ``def``, and write the call.

Called by ``script``, before anything is written anywhere.
"""

from __future__ import annotations

import ast
import difflib
import keyword
from collections.abc import Collection, Mapping, Sequence

from ddpnb.capture.literals import WIDTH, literal
from ddpnb.errors import CaptureError

__all__ = ["call_text", "check_arguments"]


def check_arguments(
    name: str,
    parameters: ast.arguments,
    positional: Sequence[object],
    arguments: Mapping[str, object],
    filled: Collection[str] = (),
) -> None:
    """Raise CaptureError where ``name(*positional, **arguments)`` does not fit its parameters.

    Args:
        name: the function's name.
        parameters: what its ``def`` takes.
        positional: arguments without names.
        arguments: arguments by name.
        filled: names that the launcher gives by itself.
    """
    ordered = [argument.arg for argument in [*parameters.posonlyargs, *parameters.args]]
    if len(positional) > len(ordered) and parameters.vararg is None:
        raise CaptureError(
            f"{name}() takes at most {len(ordered)} arguments without names "
            f"({', '.join(ordered) or 'none'}), but {len(positional)} were given. "
            f"Leave some out, or add parameters to {name}."
        )
    given = set(ordered[: len(positional)])
    only_positional = {argument.arg for argument in parameters.posonlyargs}
    by_name = set(ordered) - only_positional | {one.arg for one in parameters.kwonlyargs}
    for argument in arguments:
        if argument in only_positional and parameters.kwarg is None:
            raise CaptureError(
                f"{name}() takes {argument} only without its name (its def has a `/`). "
                f"Pass it in its place: launch({name}, ...), or take the `/` out."
            )
        if argument in given and argument not in only_positional:
            raise CaptureError(
                f"{name}() is given {argument} twice, once in its place and once by name. "
                "Leave one out."
            )
        if argument not in by_name and parameters.kwarg is None:
            raise _unexpected(name, argument, by_name)
    missing = _required(parameters) - given - (set(arguments) - only_positional) - set(filled)
    for argument in [*ordered, *(one.arg for one in parameters.kwonlyargs)]:
        if argument in missing:
            raise CaptureError(
                f"{name}() needs a value for {argument}, which has no default. "
                f"Pass it: launch({name}, {argument}=...)."
            )


def call_text(
    name: str,
    positional: Sequence[object],
    arguments: Mapping[str, object],
    *,
    indent: int,
    path_name: str,
) -> tuple[str, bool]:
    """Return the call as source, without its first indent, and whether it uses ``Path``."""
    for argument in arguments:
        if not argument.isidentifier() or keyword.iskeyword(argument):
            raise CaptureError(
                f"{argument!r} cannot be the name of an argument in a script. "
                "Use letters, digits and _, or pass a dict."
            )
    parts = [
        ("", literal(value, f"argument {index} of {name}()", path_name=path_name))
        for index, value in enumerate(positional, start=1)
    ] + [
        (f"{argument}=", literal(value, argument, path_name=path_name))
        for argument, value in arguments.items()
    ]
    has_path = any(part.has_path for _, part in parts)
    flat = f"{name}({', '.join(head + part.flat for head, part in parts)})"
    if indent + len(flat) <= WIDTH:
        return flat, has_path
    inner = indent + 4
    rows = [
        f"{' ' * inner}{head}{part.laid_out(inner, inner + len(head) + 1)},\n"
        for head, part in parts
    ]
    return f"{name}(\n{''.join(rows)}{' ' * indent})", has_path


def _required(parameters: ast.arguments) -> set[str]:
    ordered = [argument.arg for argument in [*parameters.posonlyargs, *parameters.args]]
    required = set(ordered[: len(ordered) - len(parameters.defaults)])
    for argument, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
        if default is None:
            required.add(argument.arg)
    return required


def _unexpected(name: str, argument: str, known: Collection[str]) -> CaptureError:
    close = difflib.get_close_matches(argument, known, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"Leave it out, or add it to {name}."
    has = f"it has {', '.join(sorted(known))}" if known else "it has none that go by name"
    return CaptureError(f"{name}() has no parameter {argument}; {has}. {hint}")
