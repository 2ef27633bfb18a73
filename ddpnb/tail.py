"""Follow the files of a run as one stream of records. Readers only read; any number of them may.

A line is what a terminal would show of it: cut at the newline, decoded as UTF-8 whatever it holds,
with only the last state of a progress bar that rewrites itself with carriage returns. The file
keeps the exact bytes.
"""

from __future__ import annotations

import bisect
import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from ddpnb.records import Event, LogLine, Stream, parse_events
from ddpnb.rundir import RunDir

__all__ = ["LineReader", "Tail", "follow", "plain_text", "read_lines", "shown_text"]

_CHUNK_BYTES = 1 << 20
# Escape sequences: colours (SGR) are kept in LogLine.text; the rest would move somebody's cursor,
# or set a title.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# A lone ESC goes too, for `ESC c` resets a terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f\x80-\x9f]|\x1b(?!\[[0-9;:]*m)")


def shown_text(raw: bytes) -> str:
    """Return what a terminal shows of a line at its end; of control sequences only colours stay."""
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part), "")
    if "\x1b" in text:
        text = _ESCAPE.sub(lambda m: m[0] if _COLOUR.fullmatch(m[0]) else "", text)
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def plain_text(text: str) -> str:
    """Return a line's text without its colours."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _ESCAPE.sub("", text))


class LineReader:
    """Reads one growing file line by line; it remembers how far it has come."""

    def __init__(self, path: Path, rank: int | None, stream: Stream) -> None:
        self.path = path
        self.rank = rank
        self.stream = stream
        self.position = 0
        """Bytes of the file that have been taken."""
        self._rest = b""  # an unfinished last line
        self._rest_offset = 0
        self._dropped = 0  # bytes of the unfinished line that were overwritten and forgotten

    def read(self, max_bytes: int | None = None) -> list[LogLine]:
        """Return the lines finished since the last call.

        Args:
            max_bytes: when more than that is new, only the last so many bytes become lines; one
                line in their place says how many were passed over.
        """
        lines: list[LogLine] = []
        try:
            if self.path.stat().st_size == self.position:
                return []
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                if max_bytes is not None and size - self.position > max_bytes:
                    lines.append(self._skip_to(file, size - max_bytes))
                file.seek(self.position)
                data = file.read()
        except FileNotFoundError:
            return []
        self.position += len(data)
        data = self._rest + data
        offset = self._rest_offset
        *finished, rest = data.split(b"\n")
        for raw in finished:
            lines.append(self._line(raw, offset))
            offset += self._dropped + len(raw) + 1
            self._dropped = 0
        self._rest, self._rest_offset = rest, offset
        if len(rest) > _CHUNK_BYTES:
            self._forget_overwritten()
        return lines

    def _forget_overwritten(self) -> None:
        """Keep the last state only of a progress bar that has not ended its line for a MiB."""
        last = self._rest.rstrip(b"\r").rfind(b"\r")
        if last > 0:
            self._dropped += last
            self._rest = self._rest[last:]

    def unfinished(self) -> LogLine | None:
        """Return the last line as far as it has been written, e.g. a progress bar on its way."""
        return self._line(self._rest, self._rest_offset) if self._rest else None

    def _line(self, raw: bytes, offset: int) -> LogLine:
        return LogLine(rank=self.rank, stream=self.stream, text=shown_text(raw), offset=offset)

    def _skip_to(self, file, position: int) -> LogLine:  # type: ignore[no-untyped-def]
        """Pass over everything before the first line that begins at or behind `position`."""
        file.seek(self.position)
        left = position - self.position
        skipped = 0
        while left > 0:
            chunk = file.read(min(left, _CHUNK_BYTES))
            skipped += chunk.count(b"\n")
            left -= len(chunk)
        tail = file.readline()
        skipped += tail.endswith(b"\n")
        begin = self._rest_offset
        self.position = file.tell()
        self._rest, self._rest_offset, self._dropped = b"", self.position, 0
        text = f"… {skipped:,} lines are passed over here; {self.path.name} has them"
        return LogLine(rank=self.rank, stream=self.stream, text=text, offset=begin)


class Tail:
    """Everything of a run that is new since the last `poll`, from all its ranks."""

    def __init__(self, run: RunDir, *, max_bytes: int | None = None) -> None:
        self._run = run
        self._max_bytes = max_bytes
        self._readers: dict[str, LineReader] = {}
        self._events: dict[int, int] = {}

    def poll(self, *, final: bool = False) -> list[LogLine | Event]:
        """Return new records, each rank's own in order.

        Args:
            final: nothing more will come; lines without a newline at the end are returned too.
        """
        records: list[LogLine | Event] = []
        for rank in self._run.ranks():
            records += self._read_events(rank)
        for name, path in self._run.streams():
            if name not in self._readers:
                self._readers[name] = _reader(name, path)
            records += self._readers[name].read(self._max_bytes)
        if final:
            records += self.unfinished()
        return records

    def unfinished(self) -> list[LogLine]:
        """Return the lines that have no end yet."""
        return [
            line for reader in self._readers.values() if (line := reader.unfinished()) is not None
        ]

    def _read_events(self, rank: int) -> list[Event]:
        position = self._events.get(rank, 0)
        path = self._run.rank(rank).events
        try:
            if path.stat().st_size == position:
                return []
            with path.open("rb") as file:
                file.seek(position)
                data = file.read()
        except FileNotFoundError:
            return []
        self._events[rank] = position + data.rfind(b"\n") + 1
        return parse_events(data)


def follow(run: RunDir, *, interval: float = 0.1) -> Iterator[list[LogLine | Event]]:
    """Yield what is new, every `interval` seconds, until the run has ended and all is read."""
    tail = Tail(run)
    while not run.state()[0].done:
        yield tail.poll()
        time.sleep(interval)
    yield tail.poll(final=True)


def read_lines(
    run: RunDir, ranks: Sequence[int] | Literal["launcher"] | None = None
) -> list[LogLine]:
    """Return the lines so far with their times, merged over the ranks asked for (None: all).

    Inside one tick of 0.1 s no order between ranks is claimed; each rank's own stream is always in
    order.
    """
    times = _read_timeline(run)
    lines: list[tuple[float, int, LogLine]] = []
    for order, (name, path) in enumerate(run.streams()):
        reader = _reader(name, path)
        wanted = reader.rank is None if ranks == "launcher" else reader.rank is not None
        if not wanted or (ranks not in (None, "launcher") and reader.rank not in ranks):
            continue
        found = reader.read()
        if (rest := reader.unfinished()) is not None:
            found.append(rest)
        seen, sizes = times.get(name, ([], []))
        ends = [line.offset for line in found[1:]] + [reader.position]
        for line, end in zip(found, ends, strict=False):
            tick = bisect.bisect_left(sizes, end)
            moment = seen[tick] if tick < len(seen) else None
            lines.append((moment or float("inf"), order, _at(line, moment)))
    lines.sort(key=lambda item: item[:2])
    return [line for _, _, line in lines]


def _at(line: LogLine, moment: float | None) -> LogLine:
    return LogLine(
        rank=line.rank, stream=line.stream, text=line.text, offset=line.offset, time=moment
    )


def _read_timeline(run: RunDir) -> dict[str, tuple[list[float], list[int]]]:
    """Return for each stream the times at which it had grown, and its sizes then, in bytes."""
    times: dict[str, tuple[list[float], list[int]]] = {}
    try:
        text = run.timeline.read_bytes()
    except FileNotFoundError:
        return times
    for line in text[: text.rfind(b"\n") + 1].splitlines():
        tick = json.loads(line)
        for name, size in tick["sizes"].items():
            seen, sizes = times.setdefault(name, ([], []))
            seen.append(float(tick["time"]))
            sizes.append(int(size))
    return times


def _reader(name: str, path: Path) -> LineReader:
    if name == "launcher":
        return LineReader(path, None, "launcher")
    rank, _, stream = name.partition("/")
    return LineReader(path, int(rank), "stdout" if stream == "stdout" else "stderr")
