"""Name a process so that no other can be mistaken for it, and reach it only under that name.

A pid alone is reused; a pid with its start time and the boot it belongs to is not. Linux's /proc is
read directly, because the supervisor must start fast and import nothing beyond the standard
library.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "ProcessId",
    "ancestors",
    "boot_id",
    "children_table",
    "command_line",
    "descendants",
]

_STATE, _PPID, _START_TIME = 0, 1, 19  # fields of /proc/PID/stat, counted behind the command name


@dataclass(frozen=True, kw_only=True)
class ProcessId:
    """One process of one boot of one machine."""

    pid: int
    start_time: int
    """Clock ticks since boot (field 22 of /proc/PID/stat)."""
    boot_id: str = ""
    host: str = ""
    pid_namespace: int = 0
    """Pids of two containers on one machine are not the same processes; 0: nobody says."""

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Return the name of the process that has this pid now, or None when there is none."""
        fields = _stat(pid)
        if fields is None:
            return None
        return cls(
            pid=pid,
            start_time=int(fields[_START_TIME]),
            boot_id=boot_id(),
            host=socket.gethostname(),
            pid_namespace=_pid_namespace(),
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProcessId:
        """Build from the mapping that `vars()` of a ProcessId gives."""
        return cls(
            pid=int(data["pid"]),
            start_time=int(data["start_time"]),
            boot_id=str(data.get("boot_id", "")),
            host=str(data.get("host", "")),
            pid_namespace=int(data.get("pid_namespace", 0)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "pid": self.pid,
            "start_time": self.start_time,
            "boot_id": self.boot_id,
            "host": self.host,
            "pid_namespace": self.pid_namespace,
        }

    def is_alive(self) -> bool:
        """Return whether this very process still runs; a zombie does not."""
        if (self.boot_id and self.boot_id != boot_id()) or self._is_in_another_namespace():
            return False
        fields = _stat(self.pid)
        return (
            fields is not None
            and int(fields[_START_TIME]) == self.start_time
            and fields[_STATE] not in "ZX"
        )

    def is_elsewhere(self) -> bool:
        """Return whether only another machine, or another container, can tell if it lives."""
        apart = bool(self.host) and self.host != socket.gethostname()
        return (apart or self._is_in_another_namespace()) and not self.is_alive()

    def _is_in_another_namespace(self) -> bool:
        return bool(self.pid_namespace) and self.pid_namespace != _pid_namespace()

    def open(self) -> int | None:
        """Return a pidfd of this process, or None when it is gone or the kernel has no pidfds.

        The start time is read again after the pidfd is open: the pid cannot be reused behind it.
        """
        if not hasattr(os, "pidfd_open"):
            return None
        try:
            pidfd = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self.is_alive():
            return pidfd
        os.close(pidfd)
        return None

    def send(self, signum: int) -> bool:
        """Send a signal to this very process; return False when it is gone."""
        pidfd = self.open()
        if pidfd is None:
            # No pidfds here (before Linux 5.3, macOS): the check and the kill leave a gap of
            # microseconds.
            if hasattr(os, "pidfd_open") or not self.is_alive():
                return False
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)
                return True
            return False
        try:
            signal.pidfd_send_signal(pidfd, signum)
        except ProcessLookupError:
            return False
        finally:
            os.close(pidfd)
        return True


@functools.cache
def boot_id() -> str:
    """Return what tells this boot of this machine from every other; "" where nobody says."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@functools.cache
def _pid_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def command_line(pid: int) -> list[str] | None:
    """Return the words of a process's command; None where nobody says."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return os.fsdecode(data).split("\0")[:-1]


def children_table() -> dict[int, list[int]]:
    """Return the children of every process by parent pid, as /proc shows them; no zombies."""
    table: dict[int, list[int]] = {}
    proc = Path("/proc")
    for entry in (path.name for path in proc.iterdir()) if proc.is_dir() else ():
        if entry.isdigit():
            fields = _stat(int(entry))
            if fields is not None and fields[_STATE] not in "ZX":
                table.setdefault(int(fields[_PPID]), []).append(int(entry))
    return table


def descendants(pid: int) -> list[ProcessId]:
    """Return all living processes below `pid`, whatever their session; parents before children."""
    table = children_table()
    found: list[ProcessId] = []
    queue = list(table.get(pid, ()))
    while queue:
        child = queue.pop(0)
        queue.extend(table.get(child, ()))
        name = ProcessId.of(child)
        if name is not None:
            found.append(name)
    return found


def ancestors(pid: int) -> list[ProcessId]:
    """Return a process and all that it descends from, the nearest first."""
    found: list[ProcessId] = []
    while (fields := _stat(pid)) is not None:
        name = ProcessId.of(pid)
        if name is not None:
            found.append(name)
        pid = int(fields[_PPID])
    return found


def _stat(pid: int) -> list[str] | None:
    try:
        with Path(f"/proc/{pid}/stat").open(encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    # The command name is in parentheses and may hold spaces and parentheses itself.
    return text[text.rindex(")") + 2 :].split()
