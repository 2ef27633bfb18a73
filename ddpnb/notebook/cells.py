"""Turn a notebook cell into a script: check that it is one, and write it with its line numbers.

The file's first line is a comment in the place of the cell's `%%ddp` line, so line N of the file is
line N of the cell as the notebook numbers it, and so are the lines of a rank's traceback. Called by
`magics`; it starts nothing.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import secrets
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from IPython.core.inputtransformer2 import (
    EscapedCommand,
    HelpEnd,
    MagicAssign,
    SystemAssign,
    make_tokens_by_line,
)

from ddpnb.errors import CellError

__all__ = ["HEADER_PREFIX", "check_cell", "check_target", "script_text", "write_cell"]

HEADER_PREFIX = "# %%ddp"
"""How the first line of every file begins that was written from a cell."""

_NO_SCRIPT = {
    "%": "is a notebook magic, which a script cannot have; move it to a cell of its own",
    "!": (
        "is a shell command, which a script cannot have; move it to a cell of its own, or use"
        " subprocess.run"
    ),
    "?": "asks the notebook for help, which a script cannot; move it to a cell of its own",
}
_NOTHING = "Nothing was written or started."
_AWAITS = (
    "uses {} outside a function, which only a notebook allows; put it in `async def main()` and"
    " end the script with `asyncio.run(main())`"
)
_OUTSIDE: dict[type[ast.AST], str] = {
    ast.Await: _AWAITS.format("`await`"),
    ast.AsyncFor: _AWAITS.format("`async for`"),
    ast.AsyncWith: _AWAITS.format("`async with`"),
    ast.Yield: "uses `yield` outside a function; put it in one",
    ast.YieldFrom: "uses `yield from` outside a function; put it in one",
    ast.Return: (
        "uses `return` outside a function; put the code in a function, or end the script with"
        " `sys.exit()`"
    ),
}
_TRANSFORMERS: tuple[Any, ...] = (MagicAssign, SystemAssign, EscapedCommand, HelpEnd)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def check_cell(text: str, *, file: Path, above: int = 1) -> None:
    """Raise CellError, naming the cell's own line, when the text cannot run as a script.

    Args:
        text: the cell below its magic line.
        file: the script that it is to become.
        above: lines of the cell above `text`.
    """
    if not text.strip():
        raise CellError(
            f"there is no script below the magic's line; write {file.name} there, or run the"
            f" file as it is with %ddp {file.name}"
        )
    cell = "\n" * above + text  # so that whatever Python says of a line is true of the cell
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the ranks will say it, e.g. of "\d"
            _check_outside(ast.parse(cell, str(file)), cell)
            compile(cell, str(file), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = error.lineno or 1 + above
        found = _magic(cell)
        if found is not None and found[0] <= line:
            _refuse(cell, found[0], _NO_SCRIPT[found[1]])
        _refuse(cell, line, f"is no Python: {error.msg}", column=error.offset)
    except ValueError as error:  # NUL characters, halves of surrogate pairs
        raise CellError(
            f"the cell is no Python: {error}; nothing was written or started"
        ) from error


def script_text(text: str, *, header: str, above: int = 1) -> bytes:
    """Return the bytes of the script: the cell's text on its own lines, below the header.

    A `#!` line changes places with the header, because it counts on the very first line only.

    Args:
        text: the cell below its magic line.
        header: what the first line says behind its `# `; it begins with the magic, `%%ddp ...`.
        above: lines of the cell above `text`.
    """
    # Python looks for "coding=..." in the first comments; a magic's line may well hold it.
    comment = re.sub(r"coding(?=[:=])", "coding ", header)
    first = "# " + re.sub(r"[\x00-\x1f\x7f]", " ", comment).strip() + "\n"
    blank = "\n" * (above - 1)
    if text.startswith("#!"):
        shebang, _, rest = text.partition("\n")
        whole = f"{shebang}\n{blank}{first}{rest}"
    else:
        whole = f"{first}{blank}{text}"
    whole = whole if whole.endswith("\n") else whole + "\n"
    try:
        # A cell may declare an encoding (PEP 263); Python will read the file by it.
        encoding, _ = tokenize.detect_encoding(io.BytesIO(whole.encode()).readline)
        return whole.encode(encoding)
    except (SyntaxError, UnicodeEncodeError) as error:
        raise CellError(
            f"the cell cannot be written to a file: {error}; nothing was written or started"
        ) from error


def write_cell(script: bytes, file: Path) -> Path | None:
    """Write a script from a cell, whole or not at all; return where an older one was kept.

    A file that came from a cell is overwritten. Any other file with this name is first copied to
    NAME.bak. A missing folder is made when the folder above it exists. The file's permissions
    and a symbolic link stay.
    """
    check_target(file)
    target = file.resolve()
    try:
        _make_folder(target.parent)
        old = target.read_bytes() if target.exists() else None
        if old == script:
            return None
        if old is not None and not os.access(target, os.W_OK):
            raise CellError(f"{file} is write-protected; name another file, or allow writing to it")
        kept = None
        if old and not _is_ours(old):
            kept = _free_name(target)
            _create(kept, old, target.stat().st_mode)
        _create(target, script, 0o666 if old is None else target.stat().st_mode, new=old is None)
    except OSError as error:
        raise CellError(
            f"cannot write {file}: {error.strerror}; name a file that you can write"
        ) from error
    return kept


def check_target(file: Path) -> None:
    """Raise CellError when no script can have this name."""
    try:
        is_folder = file.is_dir()
    except OSError as error:
        raise CellError(f"no file can be named {str(file)[:80]}…: {error.strerror}") from error
    if is_folder:
        raise CellError(f"{file} is a folder; name the script to write, e.g. {file.name}/train.py")
    if file.suffix == ".ipynb":
        raise CellError(
            f"{file.name} is a notebook; the cell becomes a script, so name it e.g. {file.stem}.py"
        )
    if file.suffix != ".py":
        raise CellError(
            f"{file.name} does not end in .py; the cell is a script, so name it e.g. {file.stem}.py"
        )


def _check_outside(tree: ast.Module, cell: str) -> None:
    for node in _outside_functions(tree):
        if type(node) in _OUTSIDE:
            assert isinstance(node, (ast.expr, ast.stmt))
            before = cell.split("\n")[node.lineno - 1].encode()[: node.col_offset]
            column = len(before.decode("utf-8", "replace")) + 1
            _refuse(cell, node.lineno, _OUTSIDE[type(node)], column=column)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _FUNCTIONS):
            yield child
            yield from _outside_functions(child)


def _magic(cell: str) -> tuple[int, str] | None:
    """Return line and kind of the first magic, shell escape or `?` in text that is no Python."""
    lines = [line + "\n" for line in cell.split("\n")]
    tokens = make_tokens_by_line(lines)
    found = []
    for transformer in _TRANSFORMERS:
        hit = transformer.find(tokens)
        if hit is None:
            continue
        line = lines[hit.start_line].strip()
        kind = "?" if transformer is HelpEnd else "!" if transformer is SystemAssign else line[0]
        kind = "%" if transformer is MagicAssign else kind
        if kind in _NO_SCRIPT:
            found.append((hit.start_line + 1, kind))
    return min(found, default=None)


def _refuse(cell: str, line: int, problem: str, *, column: int | None = None) -> NoReturn:
    lines = cell.split("\n")
    shown = lines[line - 1] if line <= len(lines) else ""
    number = str(line)
    excerpt = f"    {number} | {shown}"
    if column is not None and 0 < column <= len(shown) + 1:
        # Tabs stay tabs, so that the caret stands under its character.
        indent = "".join(c if c == "\t" else " " for c in shown[: column - 1])
        excerpt += f"\n    {' ' * len(number)} | {indent}^"
    raise CellError(
        f"line {number} of the cell {problem}\n{excerpt}\nNothing was written or started."
    ) from None


def _is_ours(old: bytes) -> bool:
    head = old[:4096].decode("utf-8", "replace").split("\n")
    lines = [line for line in head if line.strip() and not line.startswith("#!")]
    return bool(lines) and lines[0].startswith(HEADER_PREFIX)


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    if not folder.parent.is_dir():
        raise CellError(f"there is no folder {folder.parent}; make it first, e.g. with !mkdir")
    folder.mkdir(exist_ok=True)


def _free_name(file: Path) -> Path:
    number = 1
    while True:
        name = file.with_name(f"{file.name}.bak{'' if number == 1 else number}")
        if not name.exists():
            return name
        number += 1


def _create(file: Path, data: bytes, mode: int, *, new: bool = False) -> None:
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as out:
            out.write(data)
        if not new:  # a new file gets what the umask leaves of 0o666
            temporary.chmod(mode & 0o7777)
        temporary.replace(file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
