"""Follow the files of a run as one stream of records. Readers only read; any number of them may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ddpnb.lines import LineReader
from ddpnb.rank_dir import StreamFile
from ddpnb.records import Event, LogLine, parse_events
from ddpnb.rundir import RunDir
from ddpnb.timeline import Timeline

__all__ = ["Tail", "read_lines"]

_TIMELINE_BYTES = 4 << 20  # what a reader that comes late takes of it: some hours of a run


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
            if lines := self._readers[file.name].read(self._max_bytes):
                new[file.name] = lines
        self._last = None
        if new:
            self._timeline.read()  # behind the lines, so that it knows as many as it can
        for name, lines in new.items():
            records += self._timeline.date(name, lines, self._readers[name].line_begin)
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
    timeline = Timeline(run)
    timeline.read()
    lines: list[tuple[float, int, LogLine]] = []
    for order, file in enumerate(run.streams()):
        if not _is_wanted(file.rank, ranks):
            continue
        reader = _reader(run, file)
        if last is not None:
            reader.start_at_the_last(last)
        read = reader.read()
        dated = list(timeline.date(file.name, read, reader.line_begin))
        if (rest := reader.unfinished()) is not None:
            dated += timeline.date(file.name, [rest], reader.position)
        unknown = float("inf")  # not known yet, so the newest
        lines += ((unknown if line.time is None else line.time, order, line) for line in dated)
    lines.sort(key=lambda item: item[:2])
    return [line for _, _, line in (lines if last is None else lines[max(0, len(lines) - last) :])]


def _is_wanted(rank: int | None, ranks: Sequence[int] | Literal["launcher"] | None) -> bool:
    if rank is None or ranks == "launcher":
        return rank is None and ranks == "launcher"
    return ranks is None or rank in ranks


def _reader(run: RunDir, file: StreamFile) -> LineReader:
    return LineReader(file.path, file.rank, file.stream, lambda: run.holes().get(file.name))
