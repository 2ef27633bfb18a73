"""How the words of a command line become a function's arguments, as Spawn passes them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddpnb.errors import SpecError

__all__ = ["FILLED", "Parameters", "arguments"]

FILLED = ("rank", "local_rank", "world_size")
"""Parameters that the launcher Spawn fills by name."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of a function as its text shows them."""

    function: str
    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    required: frozenset[str]
    takes_more: bool
    """True when there is a *args."""

    @classmethod
    def of(cls, node: ast.FunctionDef) -> Parameters:
        """Read them from a definition."""
        args = node.args
        positional = tuple(a.arg for a in args.posonlyargs + args.args)
        required = set(positional[: len(positional) - len(args.defaults)])
        for argument, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
            if default is None:
                required.add(argument.arg)
        return cls(
            function=node.name,
            positional=positional,
            keyword_only=tuple(a.arg for a in args.kwonlyargs),
            required=frozenset(required),
            takes_more=args.vararg is not None,
        )


def arguments(
    parameters: Parameters, words: Sequence[str], filled: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the keyword arguments of the call.

    `name=value` goes to the parameter of that name, other words to the free positional parameters
    in order. A value is read as a Python literal (0.1, True, [1, 2]), and taken as text when it is
    none.

    Args:
        filled: what the launcher gives by name, e.g. rank; used where the function has such a
            parameter.
    """
    values = {name: value for name, value in filled.items() if name in parameters.positional}
    keywords = {name: value for name, value in filled.items() if name in parameters.keyword_only}
    loose: list[Any] = []
    for word in words:
        name, equals, text = word.partition("=")
        if equals and name in parameters.positional:
            values[name] = _literal(text)
        elif equals and name in parameters.keyword_only:
            keywords[name] = _literal(text)
        else:
            loose.append(_literal(word))
    free = [name for name in parameters.positional if name not in values]
    values |= dict(zip(free, loose, strict=False))
    more = loose[len(free) :]
    _check(parameters, values, keywords, more, filled)
    if more:
        return [values[name] for name in parameters.positional] + more, keywords
    positional = list(parameters.positional)
    while positional and positional[-1] not in values:
        positional.pop()
    if all(name in values for name in positional):
        return [values[name] for name in positional], keywords
    first_gap = next(i for i, name in enumerate(positional) if name not in values)
    by_name = {name: values[name] for name in positional[first_gap:] if name in values}
    return [values[name] for name in positional[:first_gap]], keywords | by_name


def _check(
    parameters: Parameters,
    values: Mapping[str, Any],
    keywords: Mapping[str, Any],
    more: Sequence[Any],
    filled: Mapping[str, Any],
) -> None:
    missing = sorted(parameters.required - set(values) - set(keywords))
    if missing:
        raise SpecError(
            f"{parameters.function}() needs {', '.join(missing)}, which nobody fills: the launcher"
            f" fills {', '.join(filled)}; give the others defaults, or arguments after the script"
        )
    if more and not parameters.takes_more:
        raise SpecError(
            f"{parameters.function}() has no parameter for {more[0]!r}; besides"
            f" {', '.join(filled)} it takes"
            f" {', '.join(n for n in parameters.positional if n not in filled) or 'nothing'}"
        )


def _literal(word: str) -> Any:
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return word
