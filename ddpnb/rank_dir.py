"""RankDir: the part of a run's folder that one rank writes.

Host side and ranks both use this module, so it is stdlib only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ddpnb.json_files import read_json
from ddpnb.records import Event, Stream, parse_events

__all__ = ["RankDir", "StreamFile"]


class StreamFile(NamedTuple):
    """One log file of a run."""

    name: str
    """As timeline.jsonl and holes.json call it: launcher, 0/stdout, 0/stderr, ..."""
    rank: int | None
    """None: the launcher's own output."""
    stream: Stream
    path: Path


class RankDir:
    """The files of one rank."""

    def __init__(self, path: Path, rank: int) -> None:
        self.path = path
        self.stdout = path / "stdout.log"
        self.stderr = path / "stderr.log"
        self.events = path / "events.jsonl"
        self.stacks = path / "stacks.log"
        self.elastic_error = path / "torchelastic-error.json"
        self.streams = (
            StreamFile(f"{rank}/stdout", rank, "stdout", self.stdout),
            StreamFile(f"{rank}/stderr", rank, "stderr", self.stderr),
        )

    def error(self, attempt: int) -> Path:
        """Return the file that the bootstrap writes when the script of this attempt raises."""
        return self.path / f"error-{attempt}.json"

    def result(self, attempt: int) -> Path:
        """Return the file that holds what this attempt gave to `report`."""
        return self.path / f"result-{attempt}.json"

    def last(self, stem: str) -> dict[str, Any] | None:
        """Return the json of the newest attempt that left an "error" or "result" file."""
        attempts = [int(p.stem.rpartition("-")[2]) for p in self.path.glob(f"{stem}-*.json")]
        return read_json(self.path / f"{stem}-{max(attempts)}.json") if attempts else None

    def starts(self) -> list[Event]:
        """Return the `start` events, one for each attempt."""
        return [event for event in self.read_events() if event.kind == "start"]

    def read_events(self) -> Iterator[Event]:
        """Yield the complete events written so far."""
        try:
            data = self.events.read_bytes()
        except FileNotFoundError:
            return
        yield from parse_events(data)
