"""Follow the files of a run as one stream of records. Readers only read; any number of them may."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from ddpnb.lines import LineReader
from ddpnb.records import Event, LogLine, parse_events, parse_json_lines
from ddpnb.rundir import RunDir, StreamFile

__all__ = ["Tail", "read_lines"]


class Tail:
    """Everything of a run that is new since the last `poll`, from all its ranks.

    Args:
        max_bytes: most bytes of one stream that become lines at one poll; None: all.
        last: of what each stream holds at the first poll, only so many lines; None: all.
    """

    def __init__(
        self, run: RunDir, *, max_bytes: int | None = None, last: int | None = None
    ) -> None:
        self._run = run
        self._max_bytes = max_bytes
        self._last = last
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
        for file in self._run.streams():
            if file.name not in self._readers:
                self._readers[file.name] = _reader(self._run, file)
                if self._last is not None:
                    self._readers[file.name].start_at_the_last(self._last)
            records += self._readers[file.name].read(self._max_bytes)
        self._last = None
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


def read_lines(
    run: RunDir,
    ranks: Sequence[int] | Literal["launcher"] | None = None,
    *,
    last: int | None = None,
) -> list[LogLine]:
    """Return the lines so far with their times, merged over the ranks asked for (None: all).

    Inside one tick of 0.1 s no order between ranks is claimed; each rank's own stream is always in
    order.

    Args:
        last: only so many lines, the newest; of large files no more than the end is read.
    """
    found = {
        file.name: _reader(run, file) for file in run.streams() if _is_wanted(file.rank, ranks)
    }
    times = _read_timeline(run, found)
    lines: list[tuple[float, int, LogLine]] = []
    for order, (name, reader) in enumerate(found.items()):
        if last is not None:
            reader.start_at_the_last(last)
        read = reader.read()
        if (rest := reader.unfinished()) is not None:
            read.append(rest)
        dated = _dated(read, reader.position, *times.get(name, ([], [])))
        lines += ((moment, order, line) for moment, line in dated)
    lines.sort(key=lambda item: item[:2])
    return [line for _, _, line in (lines if last is None else lines[max(0, len(lines) - last) :])]


def _dated(
    lines: list[LogLine], end: int, seen: list[float], sizes: list[int]
) -> Iterator[tuple[float, LogLine]]:
    """Yield the lines of one stream with the time at which each was there; inf: not known yet."""
    ends = [*(line.offset for line in lines[1:]), end]
    for line, line_end in zip(lines, ends, strict=False):
        tick = bisect.bisect_left(sizes, line_end)
        if tick < len(seen):
            yield seen[tick], _at(line, seen[tick])
        else:
            yield float("inf"), line


def _at(line: LogLine, moment: float) -> LogLine:
    # Not by dataclasses.replace, which takes three times as long, for each of 100,000s of lines.
    return LogLine(
        rank=line.rank, stream=line.stream, text=line.text, offset=line.offset, time=moment
    )


def _read_timeline(
    run: RunDir, names: Mapping[str, object]
) -> dict[str, tuple[list[float], list[int]]]:
    """Return for each stream the times at which it had grown, and its sizes then, in bytes."""
    times: dict[str, tuple[list[float], list[int]]] = {name: ([], []) for name in names}
    try:
        text = run.timeline.read_bytes()
    except FileNotFoundError:
        return times
    for tick in parse_json_lines(text):
        if not isinstance(tick, dict) or "sizes" not in tick:
            continue  # what a full disk has left of a tick
        moment = float(tick["time"])
        for name, size in tick["sizes"].items():
            if name in times:
                seen, sizes = times[name]
                # A clock that was set back must not change the order of a rank's own lines.
                seen.append(max(moment, seen[-1]) if seen else moment)
                sizes.append(int(size))
    return times


def _is_wanted(rank: int | None, ranks: Sequence[int] | Literal["launcher"] | None) -> bool:
    if rank is None or ranks == "launcher":
        return rank is None and ranks == "launcher"
    return ranks is None or rank in ranks


def _reader(run: RunDir, file: StreamFile) -> LineReader:
    return LineReader(file.path, file.rank, file.stream, lambda: run.holes().get(file.name))
