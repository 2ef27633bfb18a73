"""When each line was there: timeline.jsonl as read.

In it the supervisor notes ten times a second how far each stream has grown. Inside one tick no
order is claimed.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence

from ddpnb.records import LogLine, parse_json_lines
from ddpnb.rundir import RunDir

__all__ = ["Timeline"]


class Timeline:
    """Dates the lines of a run's streams, those of each stream in their order.

    Args:
        max_bytes: of a longer timeline only the end is read at first, and what was written before
            it stays without a date; None: all.
    """

    def __init__(self, run: RunDir, *, max_bytes: int | None = None) -> None:
        self._path = run.timeline
        self._max_bytes = max_bytes
        self._position = 0
        self._begins_late = False
        # By stream: the ticks at which it had grown, and its size then. Ticks are dropped when the
        # lines before them have been dated: a run of days has millions.
        self._grown: dict[str, deque[tuple[float | None, int]]] = {}
        self._newest: dict[str, float] = {}

    def read(self) -> None:
        """Take in the ticks that are new."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if self._position == 0 and self._max_bytes is not None and size > self._max_bytes:
                    self._position = size - self._max_bytes
                    self._begins_late = True
                file.seek(self._position)
                data = file.read(size - self._position)
        except FileNotFoundError:
            return
        whole = data.rfind(b"\n") + 1
        self._position += whole
        for tick in parse_json_lines(data[:whole]):
            # What a full disk has left of a tick is none.
            with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
                moment = float(tick["time"])
                for name, size in tick["sizes"].items():
                    self._add(name, moment, int(size))

    def date(self, name: str, lines: Sequence[LogLine], end: int) -> Iterator[LogLine]:
        """Yield lines of a stream with their times, as far as the timeline knows them.

        Args:
            lines: in order, and behind those of earlier calls.
            end: where the last of them ends in the stream's file, in bytes.
        """
        ticks = self._grown.setdefault(name, deque())
        ends = [*(line.offset for line in lines[1:]), end]
        for line, line_end in zip(lines, ends, strict=False):
            while ticks and ticks[0][1] < line_end:
                ticks.popleft()
            moment = ticks[0][0] if ticks else None
            # Not by dataclasses.replace, which takes three times as long, for 100,000s of lines.
            yield LogLine(
                rank=line.rank,
                stream=line.stream,
                text=line.text,
                offset=line.offset,
                time=moment,
                stands_for=line.stands_for,
            )

    def _add(self, name: str, moment: float, size: int) -> None:
        ticks = self._grown.setdefault(name, deque())
        if self._begins_late and name not in self._newest:
            ticks.append((None, size))
        else:
            # A clock that was set back must not change the order of a rank's own lines.
            ticks.append((max(moment, self._newest.get(name, moment)), size))
        self._newest[name] = max(moment, self._newest.get(name, moment))
