"""Search the whole logs of a run, and show the lines around a place in them.

    python -P -m ddpnb.log_search RUN_DIR < question.json > answer.json

A search runs in a process of its own: in the kernel a long one would slow the cells down, and a
pattern that never comes to an end would hold it.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import re
import resource
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ddpnb.lines import plain_text, shown_text
from ddpnb.records import LogLine, Stream
from ddpnb.rundir import RunDir

__all__ = ["Found", "Hit", "Search", "around"]

MOST_HITS = 500
SECONDS = 20.0
_MOST_BYTES = 1 << 20
_MOST_CHARACTERS = 500
_AROUND_BYTES = 128 << 10
_AROUND_LINES = 100


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A line in which something was found."""

    rank: int | None
    """None: the launcher's own output."""
    stream: Stream
    offset: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Found:
    """The first hits, and how many there are in all."""

    total: int
    hits: tuple[Hit, ...]
    trouble: str = ""
    """Why nothing was searched, or not everything."""


class Search:
    """One search on its way: for the lines that hold a text, or match a regular expression.

    Args:
        case: capitals count.
        ranks: only these; None among them is the launcher. None: all ranks, without the launcher.
    """

    def __init__(
        self,
        run: RunDir,
        pattern: str,
        *,
        regex: bool = False,
        case: bool = False,
        ranks: Sequence[int | None] | None = None,
    ) -> None:
        self._question = {"pattern": pattern, "regex": regex, "case": case, "ranks": ranks}
        self._cancelled = False
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ddpnb.log_search", str(run.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def cancel(self) -> None:
        """Give it up; `result` returns None then."""
        self._cancelled = True
        self._process.kill()

    def result(self) -> Found | None:
        """Wait for what was found, at most `SECONDS`; None: it was cancelled."""
        try:
            told, said = self._process.communicate(json.dumps(self._question), timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            trouble = f"given up after {SECONDS:g} s: a simpler expression is faster"
            return Found(total=0, hits=(), trouble=trouble)
        if self._cancelled:
            return None
        if self._process.returncode != 0:
            why = said.strip().splitlines()[-1:] or [f"exit code {self._process.returncode}"]
            return Found(total=0, hits=(), trouble=f"the search has failed: {why[0]}")
        found = json.loads(told)
        return Found(
            total=found["total"],
            hits=tuple(Hit(**hit) for hit in found["hits"]),
            trouble=found["trouble"],
        )


def around(run: RunDir, rank: int | None, stream: Stream, offset: int) -> list[LogLine]:
    """Return the lines of a stream around a place in its file, about 200."""
    path = next(f.path for f in run.streams() if (f.rank, f.stream) == (rank, stream))
    with path.open("rb") as file:
        begin = max(0, offset - _AROUND_BYTES)
        file.seek(begin)
        data = file.read(2 * _AROUND_BYTES)
    before = data[: offset - begin].split(b"\n")[:-1][-_AROUND_LINES:]
    behind = data[offset - begin :].split(b"\n")[:_AROUND_LINES]
    at = offset - sum(len(line) + 1 for line in before)
    lines = []
    for raw in [*before, *behind]:
        lines.append(LogLine(rank=rank, stream=stream, text=shown_text(raw), offset=at))
        at += len(raw) + 1
    return lines


def _answer(run: RunDir, question: dict[str, Any]) -> Found:
    text, regex = question["pattern"], question["regex"]
    flags = 0 if question["case"] else re.IGNORECASE
    try:
        with warnings.catch_warnings(action="ignore"):  # of what a later Python may understand
            pattern = re.compile((text if regex else re.escape(text)).encode(), flags)
    except (re.error, ValueError, OverflowError) as error:  # the second: flags only text may have
        return Found(total=0, hits=(), trouble=f"not a regular expression: {error}")
    ranks = question["ranks"]
    total = 0
    hits: list[Hit] = []
    for file in run.streams():
        if file.rank is None if ranks is None else file.rank not in ranks:
            continue
        for offset, line in _matching(file.path, pattern, by_line=regex):
            total += 1
            if len(hits) < MOST_HITS:
                shown = plain_text(shown_text(line))[:_MOST_CHARACTERS]
                hits.append(Hit(rank=file.rank, stream=file.stream, offset=offset, text=shown))
    return Found(total=total, hits=tuple(hits))


def _matching(
    path: Path, pattern: re.Pattern[bytes], *, by_line: bool
) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of the lines that match.

    Args:
        by_line: the pattern may mean a line's begin or end, or match a newline: each line is tried
            by itself, which takes ten times as long.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        if by_line:
            yield from ((at, line) for at, line in _lines(file) if pattern.search(line))
            return
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file
            return
        with data:
            at = 0
            while found := pattern.search(data, at):
                begin = data.rfind(b"\n", 0, found.start()) + 1
                end = data.find(b"\n", found.start())
                end = len(data) if end < 0 else end
                yield begin, data[begin : min(end, begin + _MOST_BYTES)]
                at = end + 1


def _lines(file: Any) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of each line; one that does not end comes in pieces of 1 MiB."""
    offset = 0
    while line := file.readline(_MOST_BYTES):
        yield offset, line.rstrip(b"\n")
        offset += len(line)


def main() -> None:
    """Answer one question; who asked may have died meanwhile, so CPU time has its bound too."""
    with contextlib.suppress(ValueError, OSError):  # a lower limit holds already
        resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS)))
    question: dict[str, Any] = json.load(sys.stdin)
    json.dump(asdict(_answer(RunDir(Path(sys.argv[1])), question)), sys.stdout)


if __name__ == "__main__":
    main()
