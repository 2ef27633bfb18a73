"""Write a value as Python source, if a reader of the script could have typed it.

Called by ``calls``. Only values whose text gives the very same value back are written.
"""

from __future__ import annotations

import enum
import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ddpnb.errors import CaptureError

__all__ = ["Literal", "literal"]

WIDTH = 100
MOST_ROWS = 12
MOST_NESTED = 40  # Python 3.11's parser gives up at 200 brackets; a reader does earlier


@dataclass(frozen=True, kw_only=True)
class Literal:
    """A value as source: text, or brackets around the literals of its parts."""

    opener: str
    parts: tuple[tuple[str, Literal], ...] = ()
    """Each with what stands before it: a dict's key, or nothing."""
    closer: str = ""
    has_path: bool = False
    """Whether ``Path`` is called somewhere in it."""

    @property
    def flat(self) -> str:
        """The text on one line."""
        comma = "," * (self.closer == ")" and len(self.parts) == 1)
        parts = ", ".join(f"{head}{part.flat}" for head, part in self.parts)
        return f"{self.opener}{parts}{comma}{self.closer}"

    def laid_out(self, indent: int, used: int) -> str:
        """Return the text, one part a line where a line would be too long.

        Args:
            indent: columns that the line with the opener is indented by.
            used: columns of that line that are taken by what stands around the literal.
        """
        if not self.parts or used + len(self.flat) <= WIDTH:
            return self.flat
        inner = indent + 4
        if len(self.parts) > MOST_ROWS and not any(head or part.parts for head, part in self.parts):
            # Many numbers read better as a block than as a column.
            block = textwrap.fill(
                ", ".join(part.flat.replace(" ", "\0") for _, part in self.parts) + ",",
                width=WIDTH,
                initial_indent=" " * inner,
                subsequent_indent=" " * inner,
                break_long_words=False,
                break_on_hyphens=False,
            ).replace("\0", " ")
            return f"{self.opener}\n{block}\n{' ' * indent}{self.closer}"
        rows = [
            f"{' ' * inner}{head}{part.laid_out(inner, inner + len(head) + 1)},\n"
            for head, part in self.parts
        ]
        return f"{self.opener}\n{''.join(rows)}{' ' * indent}{self.closer}"


def literal(value: object, where: str, *, path_name: str = "Path", depth: int = 0) -> Literal:
    """Return `value` as source; raise CaptureError if it is more than plain data.

    Args:
        value: what the user passed.
        where: its place in words, as ``lr`` or ``config['lr']``, for the message.
        path_name: what the script calls ``pathlib.Path``.
        depth: how many containers it lies in.
    """
    if depth > MOST_NESTED:
        raise CaptureError(
            f"{where.split('[')[0]} holds containers in containers, more than {MOST_NESTED} deep, "
            "or one that holds itself. Pass something flatter."
        )

    def inner(part: object, place: str) -> Literal:
        return literal(part, place, path_name=path_name, depth=depth + 1)

    # Exact types: a subclass (numpy.float64 is a float) would come back as something else.
    kind: Any = type(value)
    if isinstance(value, PurePath):
        return Literal(opener=f"{path_name}({_quoted(str(value))})", has_path=True)
    if kind in SCALARS:
        return Literal(opener=SCALARS[kind](value))
    if kind is dict:
        assert isinstance(value, dict)
        keys = [inner(key, f"a key of {where}") for key in value]
        parts = [inner(part, f"{where}[{key!r}]") for key, part in value.items()]
        pairs = [(f"{key.flat}: ", part) for key, part in zip(keys, parts, strict=True)]
        return _bracketed("{", pairs, "}", also=keys)
    if kind in (list, tuple):
        assert isinstance(value, list | tuple)
        parts = [inner(part, f"{where}[{index}]") for index, part in enumerate(value)]
        opener, closer = "[]" if kind is list else "()"
        return _bracketed(opener, [("", part) for part in parts], closer)
    if kind in (set, frozenset):
        assert isinstance(value, set | frozenset)
        # Sorted by text, so that the same call gives the same script.
        parts = sorted((inner(p, f"an element of {where}") for p in value), key=lambda p: p.flat)
        if not parts:
            return Literal(opener=f"{kind.__name__}()")
        opener, closer = "{}" if kind is set else ("frozenset({", "})")
        return _bracketed(opener, [("", part) for part in parts], closer)
    raise _refused(value, where)


def _bracketed(
    opener: str, parts: list[tuple[str, Literal]], closer: str, also: list[Literal] | None = None
) -> Literal:
    has_path = any(part.has_path for part in [*(part for _, part in parts), *(also or [])])
    return Literal(opener=opener, parts=tuple(parts), closer=closer, has_path=has_path)


def _refused(value: object, where: str) -> CaptureError:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    advice = "Pass plain data (numbers, strings, lists, dicts) and build the object inside."
    if isinstance(value, enum.Enum):
        advice = f"Pass its value, {value.value!r}, or its name."
    elif callable(getattr(value, "item", None)) and getattr(value, "shape", None) == ():
        advice = "Pass the plain number: value.item()."
    elif callable(getattr(value, "tolist", None)):
        advice = "Pass plain numbers, value.tolist(), or load the data inside."
    elif callable(value):
        advice = "Name it inside the function instead: then it is written into the script too."
    elif isinstance(value, int | float | str | bytes | list | tuple | dict):
        plain = next(base.__name__ for base in kind.__mro__ if base in PLAIN)
        advice = f"Pass a plain one: {plain}(value)."
    return CaptureError(
        f"{where} is of type {name}; an argument must be plain data, because it is written into "
        f"the script as text. {advice}"
    )


def _quoted(text: str) -> str:
    written = repr(text)
    is_plain = written[0] == "'" and '"' not in written
    return f'"{written[1:-1]}"' if is_plain else written


def _integer(number: int) -> str:
    # Python refuses to write more than 4300 decimal digits; it reads any number of hex digits.
    return hex(number) if number.bit_length() > 12_000 else repr(number)


def _real(number: float) -> str:
    return repr(number) if math.isfinite(number) else f'float("{number}")'


SCALARS: dict[type, Callable[[Any], str]] = {
    type(None): repr,
    type(Ellipsis): lambda value: "...",
    bool: repr,
    int: _integer,
    float: _real,
    complex: lambda number: f"complex({_real(number.real)}, {_real(number.imag)})",
    str: _quoted,
    bytes: lambda value: f"b{_quoted(value.decode('latin-1'))}" if value.isascii() else repr(value),
}
PLAIN = (bool, int, float, str, bytes, list, tuple, dict)
