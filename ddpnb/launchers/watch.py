"""What the supervisor sees of its ranks: how far each stream has grown, when each process ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ddpnb.json_files import append_json_lines, read_json
from ddpnb.launchers.tree import say
from ddpnb.process import ProcessId
from ddpnb.records import Exit, parse_events
from ddpnb.rundir import RunDir

__all__ = ["RankProcess", "Watch"]


@dataclass(kw_only=True)
class RankProcess:
    """One attempt of one rank; it owns the pidfd that tells when the process ends."""

    rank: int
    attempt: int
    process: ProcessId
    pidfd: int | None = None
    stacks_signal: int | None = None
    """The signal that makes it write down its stacks, if it is armed."""
    interrupted: bool = False
    """Whether it has been sent the SIGINT of a polite stop."""
    terminated: bool = False
    """Whether it has been sent SIGTERM because it had failed and did not leave."""
    ended: float | None = None
    """Unix time in seconds."""
    ended_at: float | None = None
    """The same by the monotonic clock."""
    exitcode: int | None = None


class Watch:
    """Writes timeline.jsonl and finds the ranks by their `start` events.

    Args:
        run: the run that is watched.
        on_pidfd: called with a pidfd that becomes readable when its process ends.
    """

    def __init__(self, run: RunDir, on_pidfd: Callable[[int], None]) -> None:
        self._run = run
        self._on_pidfd = on_pidfd
        self.sizes: dict[str, int] = {}
        """Of each stream, in bytes."""
        self.last_sign: dict[int, float] = {}
        """When each rank last wrote anything, by the monotonic clock."""
        self._events_read: dict[int, int] = {}
        self._told = False
        self._reaped: dict[int, int] = {}
        self._timeline = os.open(
            run.timeline, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        self.ranks: dict[tuple[int, int], RankProcess] = {}

    def look(self) -> None:
        """Take one look at everything: call it about ten times a second."""
        now = time.time()
        grown: dict[str, int] = {}
        for file in self._run.streams():
            try:
                size = file.path.stat().st_size
            except FileNotFoundError:
                continue
            if size != self.sizes.get(file.name, 0):
                grown[file.name] = self.sizes[file.name] = size
                if file.rank is not None:
                    self.last_sign[file.rank] = time.monotonic()
        if grown:
            self._date({"time": round(now, 2), "sizes": grown})
        for rank in self._run.ranks():
            self._read_starts(rank)
        for process in self.ranks.values():
            if process.ended is None and process.pidfd is None and not process.process.is_alive():
                _end(process)

    def _date(self, tick: dict[str, Any]) -> None:
        try:
            append_json_lines(self._timeline, [tick])
        except OSError as error:  # a full disk costs the lines their dates, and not the run
            if not self._told:
                say(f"cannot write the timeline: {error.strerror}")
            self._told = True

    def _read_starts(self, rank: int) -> None:
        position = self._events_read.get(rank, 0)
        path = self._run.rank(rank).events
        try:
            if path.stat().st_size == position:
                return  # with hundreds of ranks, opening each file at each look would cost a core
            with path.open("rb") as file:
                file.seek(position)
                text = file.read()
        except FileNotFoundError:
            return
        self._events_read[rank] = position + text.rfind(b"\n") + 1
        self.last_sign[rank] = time.monotonic()
        if b'"start"' in text:  # parsing every metric of every rank would cost a core
            for event in parse_events(text):
                if event.kind == "start":
                    self._add(rank, event.data)

    def _add(self, rank: int, data: Mapping[str, Any]) -> None:
        attempt = int(data["attempt"])
        rank_process = RankProcess(
            rank=rank,
            attempt=attempt,
            process=ProcessId(pid=int(data["pid"]), start_time=int(data["start_time"])),
            stacks_signal=data.get("signals", {}).get("stacks"),
        )
        rank_process.pidfd = rank_process.process.open()
        if rank_process.pidfd is not None:
            self._on_pidfd(rank_process.pidfd)
        elif not rank_process.process.is_alive():
            _end(rank_process)
        self.ranks[rank, attempt] = rank_process
        if rank_process.process.pid in self._reaped:  # gone before its first event was read
            self.reaped(rank_process.process.pid, self._reaped[rank_process.process.pid])

    def ended(self, pidfd: int) -> None:
        """Note that the process behind this pidfd has just ended; the pidfd is closed."""
        for process in self.ranks.values():
            if process.pidfd == pidfd:
                _end(process)
                process.pidfd = None
        os.close(pidfd)

    def reaped(self, pid: int, exitcode: int) -> None:
        """Note the exit code of a child of the supervisor, which may be a rank itself."""
        self._reaped[pid] = exitcode
        for process in self.ranks.values():
            if process.process.pid == pid and process.exitcode is None:
                process.exitcode = exitcode
                _end(process)

    def alive(self) -> list[RankProcess]:
        """Return the ranks that run now."""
        return [p for p in self.ranks.values() if p.ended is None]

    def with_error(self) -> list[RankProcess]:
        """Return the ranks whose newest attempt has recorded an error, or has left with one."""
        newest = {rank: process for (rank, _), process in sorted(self.ranks.items())}
        return [
            process
            for rank, process in newest.items()
            if process.exitcode or self._run.rank(rank).error(process.attempt).exists()
        ]

    def exits(self) -> list[Exit]:
        """Return how the last attempt of each rank ended, with what the launching agent knows."""
        last: dict[int, Exit] = {}
        for (rank, attempt), process in sorted(self.ranks.items()):
            last[rank] = Exit(
                rank=rank, attempt=attempt, exitcode=process.exitcode, time=process.ended
            )
        agent = read_json(self._run.agent)
        if agent is None:
            return list(last.values())
        told = {int(rank): int(code) for rank, code in agent["exitcodes"].items()}
        for rank in set(last) | set(told):
            exit_ = last.get(rank, Exit(rank=rank))
            if exit_.exitcode is None:
                # The agent lists only those that failed.
                exit_ = replace(exit_, exitcode=told.get(rank, 0))
            last[rank] = exit_
        return [last[rank] for rank in sorted(last)]


def _end(process: RankProcess) -> None:
    if process.ended is None:
        process.ended, process.ended_at = time.time(), time.monotonic()
