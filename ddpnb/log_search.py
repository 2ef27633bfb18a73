"""Search the whole logs of a run, and show the lines around a place in them.

    python -P -m ddpnb.log_search RUN_DIR < question.json > answer.json

A pattern runs in a process of its own: one that never comes to an end would hold the kernel.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ddpnb.lines import plain_text, shown_text
from ddpnb.records import LogLine, Stream
from ddpnb.rundir import RunDir

__all__ = ["Found", "Hit", "around", "search"]

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


def search(
    run: RunDir,
    pattern: str,
    *,
    regex: bool = False,
    case: bool = False,
    ranks: Sequence[int | None] | None = None,
) -> Found:
    """Return the lines that hold a text, or match a regular expression.

    Args:
        case: capitals count.
        ranks: only these; None among them is the launcher. None: all ranks, without the launcher.
    """
    if not regex:
        return _search(run, _compiled(re.escape(pattern), case=case), ranks)
    try:
        _compiled(pattern, case=case)
    except (re.error, ValueError) as error:  # the second: flags that are for text only
        return Found(total=0, hits=(), trouble=f"no regular expression: {error}")
    question = {"pattern": pattern, "case": case, "ranks": ranks}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "ddpnb.log_search", str(run.path)],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        trouble = f"given up after {SECONDS:g} s: a simpler expression is faster"
        return Found(total=0, hits=(), trouble=trouble)
    told = json.loads(done.stdout)
    return Found(
        total=told["total"],
        hits=tuple(Hit(**hit) for hit in told["hits"]),
        trouble=told["trouble"],
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


def _compiled(pattern: str, *, case: bool) -> re.Pattern[bytes]:
    return re.compile(pattern.encode(), 0 if case else re.IGNORECASE)


def _search(run: RunDir, pattern: re.Pattern[bytes], ranks: Sequence[int | None] | None) -> Found:
    total = 0
    hits: list[Hit] = []
    for file in run.streams():
        if file.rank is None if ranks is None else file.rank not in ranks:
            continue
        for offset, line in _lines(file.path):
            if not pattern.search(line):
                continue
            total += 1
            if len(hits) < MOST_HITS:
                text = plain_text(shown_text(line))[:_MOST_CHARACTERS]
                hits.append(Hit(rank=file.rank, stream=file.stream, offset=offset, text=text))
    return Found(total=total, hits=tuple(hits))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of each line; one that does not end comes in pieces of 1 MiB."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        offset = 0
        while line := file.readline(_MOST_BYTES):
            yield offset, line.rstrip(b"\n")
            offset += len(line)


def main() -> None:
    """Answer one question for a regular expression."""
    question: dict[str, Any] = json.load(sys.stdin)
    pattern = _compiled(question["pattern"], case=question["case"])
    found = _search(RunDir(Path(sys.argv[1])), pattern, question["ranks"])
    json.dump(asdict(found), sys.stdout)


if __name__ == "__main__":
    main()
