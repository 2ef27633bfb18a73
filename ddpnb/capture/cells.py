"""Read the executed cells of a notebook as Python, whatever magics stand among the lines.

Called by ``statements``. A cell is parsed, never run; line numbers stay those of the cell.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Cell", "parse", "read_cells"]

# These run their body in the notebook's own namespace; what other cell magics do with theirs
# (write it to a file, run it in a shell, time it and throw it away) defines nothing here.
RUNS_HERE = {"time", "capture", "prun"}

MAGIC_LINE = re.compile(r"[%!?]|.*\?\s*$")
MAGIC_VALUE = re.compile(r"(\s*[\w ,.]+=\s*)[%!]")
STAND_IN = "get_ipython()"
"""Stands where a magic stood, as in the kernel's own translation; no script can call it."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One executed cell."""

    number: int
    text: str
    """As the user wrote it; where a cell magic was cut off, with an empty first line."""
    tree: ast.Module | None
    """None when the cell is no Python: a cell magic, or a syntax error."""
    trouble: str = ""
    """Why there is no tree."""

    def mentions(self, name: str) -> bool:
        """Whether the text has `name` as a word."""
        return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", self.text) is not None


def read_cells(sources: Sequence[str]) -> list[Cell]:
    """Return the cells that hold something, each parsed as far as it is Python."""
    cells = []
    for number, source in enumerate(sources):
        text = source.replace("\r\n", "\n").replace("\r", "\n")
        if text.strip():
            cells.append(_read_cell(number, text))
    return cells


def parse(text: str) -> ast.Module:
    """Return the tree of `text`; raise SyntaxError for whatever is wrong with it."""
    with warnings.catch_warnings():
        # Python told the user about "\d" when the cell ran.
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (ValueError, RecursionError, MemoryError) as error:
            raise SyntaxError(str(error) or "too deeply nested") from error


def _read_cell(number: int, text: str) -> Cell:
    magic = _cell_magic(text)
    if magic is None:
        return _parsed(number, text)
    name, body = magic
    if name in RUNS_HERE:
        return _parsed(number, body)
    return Cell(number=number, text=text, tree=None, trouble=f"it is a %%{name} cell")


def _parsed(number: int, text: str) -> Cell:
    try:
        return Cell(number=number, text=text, tree=_parse_around_magics(text))
    except SyntaxError as error:
        trouble = f"it is no Python (line {error.lineno}: {error.msg})"
        return Cell(number=number, text=text, tree=None, trouble=trouble)


def _cell_magic(text: str) -> tuple[str, str] | None:
    """Return the name of a cell magic and its body, with the cell's line numbers."""
    head = re.match(r"(\s*)%%(\w+)?.*\n?", text)
    if head:
        return head[2] or "", "\n" * head[0].count("\n") + text[head.end() :]
    if "run_cell_magic(" not in text:
        return None
    try:
        statements = parse(text).body
    except SyntaxError:
        return None
    # The kernel's translation: get_ipython().run_cell_magic('time', '', 'the body').
    if len(statements) == 1 and isinstance(statements[0], ast.Expr):
        call = statements[0].value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            words = [part.value for part in call.args if isinstance(part, ast.Constant)]
            if call.func.attr == "run_cell_magic" and len(words) == 3:
                return str(words[0]), "\n" + str(words[2])
    return None


def _parse_around_magics(text: str) -> ast.Module:
    """Parse a cell; lines at which Python stumbles are tried again as notebook magics."""
    lines = text.split("\n")
    try:
        return parse(text)
    except SyntaxError as error:
        first, stumble = error, error
    for _ in lines:
        number = (stumble.lineno or 1) - 1
        # Only a line that Python refuses is replaced: a docstring may well begin with "!".
        if number >= len(lines) or not _replace_magic(lines, number):
            break
        try:
            return parse("\n".join(lines))
        except SyntaxError as error:
            stumble = error
    for number in range(len(lines)):
        _replace_magic(lines, number)
    try:
        return parse("\n".join(lines))
    except SyntaxError:
        raise first from None


def _replace_magic(lines: list[str], number: int) -> bool:
    """Put the stand-in where a magic stands; False when the line is none."""
    line = lines[number]
    code = line.lstrip()
    value = MAGIC_VALUE.match(line)
    if value:
        lines[number] = value[1] + STAND_IN
    elif MAGIC_LINE.match(code) and not code.startswith("#"):
        lines[number] = line[: len(line) - len(code)] + STAND_IN
    else:
        return False
    while line.endswith("\\") and number + 1 < len(lines):
        number += 1
        line, lines[number] = lines[number], ""
    return True
