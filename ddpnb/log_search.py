"""Search the whole logs of a run, and show the lines around a place in them.

    python -P -m ddpnb.log_search RUN_DIR < question.json > answer.json

A pattern runs in a process of its own: one that never comes to an end would hold the kernel.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ddpnb.lines import plain_text, shown_text
from ddpnb.records import LogLine, Stream
from ddpnb.rundir import RunDir

__all__ = ["Found", "Hit", "around", "search"]

MOST_HITS = 500
SECONDS = 20.0
_CHUNK_BYTES = 1 << 20
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
        re.compile(pattern)
    except re.error as error:
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
    path = next(path for name, path in run.streams() if _is(name, rank, stream))
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
    # MULTILINE: it is first looked for in many lines at once.
    return re.compile(pattern.encode(), re.MULTILINE | (0 if case else re.IGNORECASE))


def _is(name: str, rank: int | None, stream: Stream) -> bool:
    return name == ("launcher" if rank is None else f"{rank}/{stream}")


def _search(run: RunDir, pattern: re.Pattern[bytes], ranks: Sequence[int | None] | None) -> Found:
    total = 0
    hits: list[Hit] = []
    for name, path in run.streams():
        rank = None if name == "launcher" else int(name.partition("/")[0])
        if (rank is None and ranks is None) or (ranks is not None and rank not in ranks):
            continue
        stream: Stream = "launcher"
        if rank is not None:
            stream = "stdout" if name.endswith("stdout") else "stderr"
        for offset, line in _matching(path, pattern):
            total += 1
            if len(hits) < MOST_HITS:
                text = plain_text(shown_text(line))[:_MOST_CHARACTERS]
                hits.append(Hit(rank=rank, stream=stream, offset=offset, text=text))
    return Found(total=total, hits=tuple(hits))


def _matching(path: Path, pattern: re.Pattern[bytes]) -> Iterable[tuple[int, bytes]]:
    """Yield offset and bytes of each line that matches; a chunk without a match costs no split."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        offset, rest = 0, b""
        while True:
            data = file.read(_CHUNK_BYTES)
            block = rest + data
            end = block.rfind(b"\n") + 1 if data else len(block)
            if end == 0 and data and len(block) <= 16 * _CHUNK_BYTES:
                rest = block
                continue
            end = end or len(block)
            whole, rest = block[:end], block[end:]
            if pattern.search(whole):
                at = offset
                for line in whole.split(b"\n"):
                    if pattern.search(line):
                        yield at, line
                    at += len(line) + 1
            offset += len(whole)
            if not data:
                return


def main() -> None:
    """Answer one question for a regular expression."""
    question: dict[str, Any] = json.load(sys.stdin)
    pattern = _compiled(question["pattern"], case=question["case"])
    found = _search(RunDir(Path(sys.argv[1])), pattern, question["ranks"])
    json.dump(asdict(found), sys.stdout)


if __name__ == "__main__":
    main()
