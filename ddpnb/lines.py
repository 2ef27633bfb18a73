"""A log file as lines, read while it grows, and text as a terminal would show it.

A line is what a terminal would show of it: cut at the newline, decoded as UTF-8 whatever it holds,
with only the last state of a progress bar that rewrites itself with carriage returns. The file
keeps the exact bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ddpnb.records import LogLine, Stream

__all__ = ["LineReader", "plain_text", "shown_text"]

_CHUNK_BYTES = 1 << 20
_LINE_BYTES = 1 << 20
"""Of a line that does not end, what a reader keeps; the file has it whole."""
# Escape sequences: colours (SGR) are kept in LogLine.text; the rest would move somebody's cursor,
# or set a title.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# A lone ESC goes too, for `ESC c` resets a terminal.
# Marks of writing direction would make a line read otherwise than it is.
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    r"|\x1b(?!\[[0-9;:]*m)"
)


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
    """Reads one growing file line by line; it remembers how far it has come.

    Of a line longer than 1 MiB it keeps the first MiB, or the last state of a progress bar that
    rewrites itself without ever ending its line.

    Args:
        hole: returns the part of the file that was given back to the disk, as (begin, end) in
            bytes, or None; it is asked after each read, for a hole is recorded before it is made.
    """

    def __init__(
        self,
        path: Path,
        rank: int | None,
        stream: Stream,
        hole: Callable[[], tuple[int, int] | None] = lambda: None,
    ) -> None:
        self.path = path
        self.rank = rank
        self.stream = stream
        self.position = 0
        """Bytes of the file that have been taken."""
        self.behind = False
        """Whether the last read left something that was there, for its `step`."""
        self._hole = hole
        self._shown: LogLine | None = None
        self._begin(0)

    @property
    def line_begin(self) -> int:
        """Where the line begins that has no end yet, and so where the last finished one ends."""
        return self._offset

    def read(
        self, max_bytes: int | None = None, max_lines: int | None = None, *, step: int | None = None
    ) -> list[LogLine]:
        """Return the lines finished since the last call.

        Args:
            max_bytes: when more than that is new, only the last so many bytes become lines; one
                line in their place says how many were passed over.
            max_lines: the same in lines, of what `max_bytes` leaves.
            step: only the next so many bytes are read, and nothing is passed over.
        """
        lines: list[LogLine] = []
        try:
            if self.path.stat().st_size == self.position:
                return []
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                if size < self.position:
                    lines.append(self._start_over())
                if max_bytes is not None:
                    begin = _begin_of_the_last(file, self.position, size, max_bytes, max_lines)
                    if begin > self.position:
                        lines.append(self._skip_to(file, begin))
                self.behind = step is not None and size > self.position + step
                if step is not None:
                    size = min(size, self.position + step)
                file.seek(self.position)
                # Not to the end: a rank that floods its log may write faster than this reads.
                while data := file.read(min(_CHUNK_BYTES, max(0, size - self.position))):
                    hole = self._hole()
                    begin, end = hole or (0, 0)
                    if self.position < end and self.position + len(data) > begin:
                        lines += self._take(data[: max(0, begin - self.position)])
                        lines += self._jump(end)
                        file.seek(end)
                    else:
                        lines += self._take(data)
        except FileNotFoundError:
            return lines
        return lines

    def start_at_the_last(self, count: int) -> None:
        """Pass over everything but the last `count` lines, reading from the end."""
        newlines = 0
        try:
            with self.path.open("rb") as file:
                begin = size = file.seek(0, 2)
                while begin > 0 and newlines <= count:
                    end, begin = begin, max(0, begin - _CHUNK_BYTES)
                    file.seek(begin)
                    newlines += file.read(end - begin).count(b"\n")
                file.seek(begin)
                data = file.read(size - begin)
        except FileNotFoundError:
            return
        at = len(data) - data.endswith(b"\n")
        for _ in range(count):
            at = data.rfind(b"\n", 0, max(0, at))
            if at < 0:
                break
        self.position = begin + at + 1 if count else size
        self._begin(self.position)

    def unfinished(self) -> LogLine | None:
        """Return the last line as far as it has been written, e.g. a progress bar on its way."""
        if self._shown is None and self._rest:
            self._shown = self._line(bytes(self._rest))
        return self._shown

    def _begin(self, offset: int, *, in_a_line: bool = False) -> None:
        """Start a new line at this offset.

        Args:
            in_a_line: what comes first is the end of a line, whose beginning was passed over.
        """
        self._offset = offset
        self._rest = bytearray()  # the unfinished line, as far as it is kept
        self._dropped = 0  # its bytes that were overwritten and forgotten
        self._cut = 0  # its bytes behind those that are kept
        self._headless = in_a_line
        self._shown = None

    def _take(self, data: bytes) -> list[LogLine]:
        first, newline, rest = data.partition(b"\n")
        self.position += len(data)
        if not newline:
            self._extend(first)
            return []
        self._extend(first)
        lines = [self._line(bytes(self._rest))]
        offset = self._offset + self._dropped + len(self._rest) + self._cut + 1
        *whole, last = rest.split(b"\n")
        for raw in whole:
            lines.append(self._as_line(shown_text(raw), offset))
            offset += len(raw) + 1
        self._begin(offset)
        self._extend(last)
        return lines

    def _extend(self, part: bytes) -> None:
        if not part:
            return
        self._shown = None
        self._rest += part
        if len(self._rest) <= _LINE_BYTES:
            return
        last = self._rest.rstrip(b"\r").rfind(b"\r")
        if last > 0:  # a bar: only what it shows now matters
            self._dropped += last + self._cut
            self._cut = 0
            del self._rest[:last]
        self._cut += max(0, len(self._rest) - _LINE_BYTES)
        del self._rest[_LINE_BYTES:]

    def _jump(self, position: int) -> list[LogLine]:
        """Go on behind a hole, in the middle of some line."""
        lines = [self._line(bytes(self._rest))] if self._rest else []
        gone = position - self.position
        text = f"… {gone:,} bytes are gone here: the run had written more than max_log_bytes"
        lines.append(self._as_line(text, self.position))
        self.position = position
        self._begin(position, in_a_line=True)
        return lines

    def _start_over(self) -> LogLine:
        """Begin again at the start of a file that somebody has cut or replaced."""
        self.position = 0
        self._begin(0)
        return self._as_line(
            f"… {self.path.name} was cut or replaced; it is read from its start", 0
        )

    def _line(self, raw: bytes) -> LogLine:
        text = shown_text(raw)
        if self._headless:
            text = f"… {text}"
        if self._cut:
            text += f" … {self._cut:,} more bytes of this line are in {self.path.name}"
        return self._as_line(text, self._offset)

    def _as_line(self, text: str, offset: int) -> LogLine:
        return LogLine(rank=self.rank, stream=self.stream, text=text, offset=offset)

    def _skip_to(self, file: BinaryIO, position: int) -> LogLine:
        """Pass over everything before the first line that begins at or behind `position`."""
        begin, skipped, line = self._offset, 0, self._offset
        file.seek(self.position)
        left = position - self.position
        while left > 0:
            chunk = file.read(min(left, _CHUNK_BYTES))
            if not chunk:
                break
            skipped += chunk.count(b"\n")
            if (newline := chunk.rfind(b"\n")) >= 0:
                line = file.tell() - len(chunk) + newline + 1
            left -= len(chunk)
        in_a_line = line < file.tell()
        while in_a_line and (piece := file.readline(_CHUNK_BYTES)):
            in_a_line = not piece.endswith(b"\n")
            skipped += not in_a_line
        self.position = file.tell()
        self._begin(self.position, in_a_line=in_a_line)
        text = f"… {skipped:,} lines are passed over here; {self.path.name} has them"
        return LogLine(
            rank=self.rank, stream=self.stream, text=text, offset=begin, stands_for=skipped
        )


def _begin_of_the_last(
    file: BinaryIO, position: int, size: int, max_bytes: int, max_lines: int | None
) -> int:
    """Return where the last bytes, and no more than so many lines of them, begin."""
    begin = max(position, size - max_bytes)
    if max_lines is None:
        return begin
    file.seek(begin)
    data = file.read(size - begin)
    if data.count(b"\n") <= max_lines:
        return begin
    at = len(data)
    for _ in range(max_lines + 1):
        at = data.rfind(b"\n", 0, at)
    return begin + at + 1
