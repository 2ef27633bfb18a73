"""What the live view is told of a run: messages made from new records, and kept for latecomers.

Pure: no widgets, no threads, no files. Every line of a writer (a rank, or the launcher) has a
number; a browser that finds a gap in the numbers asks for it, and one that comes late asks from 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from ddpnb.records import LogLine

__all__ = ["LAUNCHER", "Feed"]

LAUNCHER = "launcher"
"""The writer of torchrun's and the supervisor's own lines; ranks are writers "0", "1", ..."""

KEPT_LINES = 5_000
"""Of each writer, for a browser that comes late; the file has all."""
KEPT_CHARACTERS = 1 << 20
"""Of each writer, in all the lines that are kept."""
KEPT_BYTES = 64 << 10
"""Of each writer, in one message."""
MOST_CHARACTERS = 300_000
"""Of one line; a browser lays out more on one line very slowly."""

Row = tuple[int, str, float, int]
"""Kind (0 stdout, 1 stderr, 2 a remark of ours), text, Unix time, offset in the stream's file."""


class _Writer:
    """The lines of one writer: all have a number, the last ones are kept."""

    def __init__(self) -> None:
        self.count = 0
        self.rows: deque[Row] = deque(maxlen=KEPT_LINES)
        self._newest = 0.0
        self._characters = 0

    def add(self, rows: list[Row]) -> None:
        """Take new rows in, those of stdout and stderr by their time."""
        rows.sort(key=lambda row: row[2])
        for kind, text, moment, offset in rows:
            # A line that the timeline did not know yet may bear a later time than its successor.
            self._newest = max(self._newest, moment)
            if len(self.rows) == self.rows.maxlen:
                self._forget_one()
            self.rows.append((kind, text, self._newest, offset))
            self._characters += len(text)
            while self._characters > KEPT_CHARACTERS and len(self.rows) > 1:
                self._forget_one()
        self.count += len(rows)

    def _forget_one(self) -> None:
        self._characters -= len(self.rows.popleft()[1])

    @property
    def first(self) -> int:
        """The number of the oldest line that is kept."""
        return self.count - len(self.rows)

    def since(self, number: int) -> dict[str, Any]:
        """Return the lines from a number on, as far as they are kept and a message may hold."""
        number = max(number, self.first)
        rows: list[Row] = []
        budget = KEPT_BYTES
        for row in reversed(self.rows):
            budget -= len(row[1]) + 32
            if len(rows) >= self.count - number or (budget < 0 and rows):
                break
            rows.append(row)
        return {"first": self.count - len(rows), "rows": rows[::-1]}


class Feed:
    """Numbers the lines of a run as they come; owns what latecomers are sent."""

    def __init__(self) -> None:
        self._writers: dict[str, _Writer] = {}

    def add(self, lines: Iterable[LogLine], now: float) -> dict[str, Any]:
        """Take new lines in; return what every browser is told: by writer, first number and rows.

        Args:
            now: Unix time in seconds, for lines of which nobody knows a better one.
        """
        new: dict[str, list[Row]] = {}
        for line in lines:
            name = LAUNCHER if line.rank is None else str(line.rank)
            new.setdefault(name, []).append(_row(line, now))
        told = {}
        for name, rows in new.items():
            writer = self._writers.setdefault(name, _Writer())
            before = writer.count
            writer.add(rows)
            # From where the message goes on: what is left out on purpose is not missing.
            told[name] = {"from": before, **writer.since(before)}
        return told

    def since(self, numbers: Mapping[str, int]) -> dict[str, Any]:
        """Return what a browser lacks.

        Args:
            numbers: by writer, the number of the first line that it has not got; writers that it
                does not name are sent from their first line.
        """
        return {
            name: writer.since(int(numbers.get(name, 0)))
            for name, writer in self._writers.items()
            if int(numbers.get(name, 0)) < writer.count
        }

    def counts(self) -> dict[str, int]:
        """Return how many lines each writer has written so far, as far as they were taken in."""
        return {name: writer.count for name, writer in self._writers.items()}


def _row(line: LogLine, now: float) -> Row:
    kind = 2 if line.offset < 0 else 1 if line.stream == "stderr" else 0
    text = line.text
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]} … (the line goes on in the log file)"
    return kind, text, line.time or round(now, 1), line.offset
