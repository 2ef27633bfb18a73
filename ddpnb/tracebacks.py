"""Find in a traceback, or in the stacks of a live rank, the line of the script that matters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Place", "operation", "place_in_stacks", "place_in_traceback"]

# Python's traceback has a comma before `in`, faulthandler's has none.
_FRAME = re.compile(r'^ *File "([^"]+)", line (\d+),? in (\S+)', re.MULTILINE)
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3[^/]*/|^<frozen ")
_OURS = f"{Path(__file__).parent}/"
_WRAPPERS = frozenset({"wrapper", "_call_impl", "_wrapped_call_impl", "inner", "decorate_context"})
_MAIN_STACK = re.compile(r"^(Current thread|Thread) .*\(most recent call first\):$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A line of the user's own code."""

    file: str
    line: int
    text: str = ""
    """The line itself, where the file can be read."""

    def __str__(self) -> str:
        where = f"{Path(self.file).name}, line {self.line}"
        return f"{where}: {self.text}" if self.text else where


def place_in_traceback(text: str, script: Path | None, snapshot: Path) -> Place | None:
    """Return the innermost line of the user's code in a traceback as Python prints it.

    Args:
        script: the run's script, whose lines are read from `snapshot`.
    """
    return _innermost(_frames(text), script, snapshot)


def place_in_stacks(text: str, script: Path | None, snapshot: Path) -> Place | None:
    """Return where the main thread was, from the last of the stacks that faulthandler wrote."""
    blocks = _MAIN_STACK.split(text)
    # The handler runs in the main thread, whose stack is "Current thread", the last of a dump.
    current = [at for at, word in enumerate(blocks) if word == "Current thread"]
    if not current:
        return None
    frames = _frames(blocks[current[-1] + 1])
    return _innermost(frames[::-1], script, snapshot)


def operation(text: str) -> str:
    """Return what the user's innermost line called, e.g. "all_reduce"; "" if nothing is known."""
    frames = _frames(text)
    ours = [at for at, (file, _, _) in enumerate(frames) if _is_users(file)]
    below = frames[ours[-1] + 1 :] if ours else []
    names = [name for _, _, name in below if name not in _WRAPPERS]
    return names[0] if names else ""


def _is_users(file: str) -> bool:
    return not file.startswith(_OURS) and not _LIBRARY.search(file)


def _frames(text: str) -> list[tuple[str, int, str]]:
    return [(file, int(line), name) for file, line, name in _FRAME.findall(text)]


def _innermost(
    frames: list[tuple[str, int, str]], script: Path | None, snapshot: Path
) -> Place | None:
    """Return the last frame, outermost first, that is no library's: the script's own if any."""
    ours = [(file, line) for file, line, _ in frames if _is_users(file)]
    if not ours:
        return None
    file, line = ours[-1]
    source = snapshot if file == str(script) else Path(file)
    return Place(file=file, line=line, text=_line_of(source, line))


def _line_of(file: Path, number: int) -> str:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
