"""Follow the files of a run as one stream of records. Readers only read; any number of them may."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Literal

from ddpnb.lines import LineReader
from ddpnb.rank_dir import StreamFile
from ddpnb.records import Event, LogLine, parse_events
from ddpnb.rundir import RunDir
from ddpnb.timeline import Timeline

__all__ = ["Tail", "iter_lines", "read_lines"]

_STEP_BYTES = 1 << 20
_TIMELINE_BYTES = 4 << 20  # what a reader that comes late takes of it: some hours of a run


class Tail:
    """Everything of a run that is new since the last `poll`, from all its ranks.

    Args:
        max_bytes: most bytes of one stream that become lines at one poll; None: all.
        max_lines: most lines of one stream that a poll gives of these; None: all.
        step: at one poll only the next so many bytes of a stream are read, and nothing is passed
            over: what follows comes at the next poll. None: all.
        last: of what each stream holds at the first poll, only so many lines; None: all.
    """

    def __init__(
        self,
        run: RunDir,
        *,
        max_bytes: int | None = None,
        max_lines: int | None = None,
        step: int | None = None,
        last: int | None = None,
    ) -> None:
        self._run = run
        self._bounds = max_bytes, max_lines
        self._step = step
        self._last = last
        self._readers: dict[str, LineReader] = {}
        self._events: dict[int, int] = {}
        self._timeline = Timeline(run, max_bytes=_TIMELINE_BYTES)

    def poll(self, *, final: bool = False) -> list[LogLine | Event]:
        """Return new records, each rank's own in order, lines with their times as far as known.

        Args:
            final: nothing more will come; lines without a newline at the end are returned too.
        """
        records: list[LogLine | Event] = []
        for rank in self._run.ranks():
            records += self._read_events(rank)
        new = {}
        for file in self._run.streams():
            if file.name not in self._readers:
                self._readers[file.name] = _reader(self._run, file)
                if self._last is not None:
                    self._readers[file.name].start_at_the_last(self._last)
            if lines := self._readers[file.name].read(*self._bounds, step=self._step):
                new[file.name] = lines
        self._last = None
        if new:
            self._timeline.read()  # behind the lines, so that it knows as many as it can
        for name, lines in new.items():
            records += self._timeline.date(name, lines, self._readers[name].line_begin)
        if final:
            records += self.unfinished()
        return records

    @property
    def behind(self) -> bool:
        """Whether the last poll left lines that were there, for its `step`."""
        return any(reader.behind for reader in self._readers.values())

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
    """Return the lines so far as `iter_lines` yields them.

    Args:
        last: only so many lines, the newest; of large files no more than the end is read.
    """
    lines = list(iter_lines(run, ranks, last=last))
    return lines if last is None else lines[max(0, len(lines) - last) :]


def iter_lines(
    run: RunDir,
    ranks: Sequence[int] | Literal["launcher"] | None = None,
    *,
    last: int | None = None,
) -> Iterator[LogLine]:
    """Yield the lines so far with their times, merged over the ranks asked for (None: all).

    Inside one tick of 0.1 s no order between ranks is claimed; each rank's own stream is always in
    order. Files are read as far as they are needed.

    Args:
        last: of each stream only so many lines, the newest.
    """
    timeline = Timeline(run)
    timeline.read()
    wanted = [file for file in run.streams() if _is_wanted(file.rank, ranks)]
    streams = [_lines_of(run, file, timeline, last) for file in wanted]
    # A line whose time is not known yet is among the newest.
    return heapq.merge(*streams, key=lambda line: math.inf if line.time is None else line.time)


def _lines_of(
    run: RunDir, file: StreamFile, timeline: Timeline, last: int | None
) -> Iterator[LogLine]:
    reader = _reader(run, file)
    if last is not None:
        reader.start_at_the_last(last)
    behind = True
    while behind:
        lines = reader.read(step=_STEP_BYTES)
        behind = reader.behind
        yield from timeline.date(file.name, lines, reader.line_begin)
    if (rest := reader.unfinished()) is not None:
        yield from timeline.date(file.name, [rest], reader.position)


def _is_wanted(rank: int | None, ranks: Sequence[int] | Literal["launcher"] | None) -> bool:
    if rank is None or ranks == "launcher":
        return rank is None and ranks == "launcher"
    return ranks is None or rank in ranks


def _reader(run: RunDir, file: StreamFile) -> LineReader:
    return LineReader(file.path, file.rank, file.stream, lambda: run.holes().get(file.name))
