"""What happened: the values that are read from a run folder and shown to people.

`Worker.from_env` is the only place that reads RANK and its siblings.
"""

from __future__ import annotations

import contextlib
import enum
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = [
    "Event",
    "Exit",
    "JobState",
    "LogLine",
    "RankFailure",
    "RunResult",
    "Stream",
    "Worker",
    "parse_events",
    "parse_json",
    "parse_json_lines",
]

Stream = Literal["stdout", "stderr", "launcher"]


class JobState(enum.Enum):
    """Where a run stands: derived from its folder on every read, stored nowhere."""

    PENDING = "pending"
    """Accepted; no process of the run has been started yet."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    """Every rank left with exit code 0."""
    FAILED = "failed"
    """A rank raised or died, the time limit passed, or the supervisor was killed."""
    STOPPED = "stopped"
    """Somebody wanted it to end: Stop, the interrupt button, or its owner went away."""
    LOST = "lost"
    """The supervisor is gone and left no word: both of its processes killed, or a reboot."""

    @property
    def done(self) -> bool:
        """True when nothing more will happen."""
        return self not in (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One process among `world_size`, by torchrun's words."""

    rank: int = 0
    """Number among all processes, 0 to world_size - 1."""
    local_rank: int = 0
    """Number among the processes of this machine; the index of this rank's GPU."""
    node_rank: int = 0
    """Number of this machine (torchrun exports it as GROUP_RANK)."""
    world_size: int = 1
    """Processes in all."""
    local_world_size: int = 1
    """Processes on this machine."""
    device: str = "cpu"
    """"cpu" or "cuda:<local_rank>"."""

    @property
    def is_main(self) -> bool:
        """True on the one rank that prints, saves and downloads."""
        return self.rank == 0

    @classmethod
    def from_env(cls, *, device: str = "cpu", environ: Mapping[str, str] = os.environ) -> Worker:
        """Read torchrun's variables; without them this is the only process of its world."""
        return cls(
            rank=int(environ.get("RANK", 0)),
            local_rank=int(environ.get("LOCAL_RANK", 0)),
            node_rank=int(environ.get("GROUP_RANK", 0)),
            world_size=int(environ.get("WORLD_SIZE", 1)),
            local_world_size=int(environ.get("LOCAL_WORLD_SIZE", 1)),
            device=device,
        )


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line of one stream as a terminal would show it; `str(line)` is its text."""

    rank: int | None
    """None: the launcher's own output."""
    stream: Stream
    text: str
    """Without its newline; what a carriage return overwrote is gone, colours are kept."""
    offset: int
    """Where the line begins in the stream's file, in bytes."""
    time: float | None = None
    """Unix time in seconds at which the line was in the file, to 0.1 s; None: not known yet."""
    stands_for: int = 1
    """Lines of the file that this one stands for: a remark of ours that some were passed over."""

    def __str__(self) -> str:
        return self.text


EventKind = Literal["start", "metric", "progress", "checkpoint", "note", "end"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something a rank said on purpose, a line of its events.jsonl."""

    rank: int
    time: float
    """Unix time in seconds, by the rank's own clock."""
    kind: EventKind
    step: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    """metric: name to number; progress: n, total, name; start: pid, attempt, offsets, ..."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Event:
        """Build an event from a line of events.jsonl; ValueError or TypeError if it is none."""
        step = data.get("step")
        return cls(
            rank=int(data["rank"]),
            time=float(data["time"]),
            kind=data["kind"],
            step=None if step is None else _whole(step),
            data=_checked(data["kind"], dict(data.get("data") or {})),
        )


def _checked(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return an event's data, or raise where it is not what readers rely on."""
    if kind == "metric":
        return {str(name): _number(value) for name, value in data.items()}
    whole = {"progress": ("n", "total"), "start": ("pid", "attempt", "local_rank")}.get(kind, ())
    for name in whole:
        if data.get(name) is not None:
            data[name] = _whole(data[name])
    return data


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    try:
        float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or abs(value) >= 1 << 63:
        raise ValueError(f"{value!r} is no whole number of 64 bits")
    return value


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text; ValueError also where it is nested too deeply.

    Halves of surrogate pairs, which Python reads and nobody can write or send, are replaced.
    """
    try:
        if b"\\ud" in data or b"\\uD" in data:
            return _sendable(json.loads(data))
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_sendable(key): _sendable(one) for key, one in value.items()}
    return [_sendable(one) for one in value] if isinstance(value, list) else value


def parse_json_lines(data: bytes) -> list[Any]:
    """Return the values in the finished lines of a file of JSON lines; odd lines are passed over.

    A full disk or a kill can leave half a line, on which the next writer's first line follows: the
    half is passed over, the object behind it is not.
    """
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    try:  # all at once: five times faster than line by line
        return list(parse_json(b"[%s]" % b",".join(lines)))
    except ValueError:
        return [value for line in lines for value in _last_object(line)]


def _last_object(line: bytes) -> list[Any]:
    begin = -1
    while True:
        try:
            return [parse_json(line[max(0, begin) :])]
        except ValueError:
            begin = line.find(b'{"', begin + 1 if begin >= 0 else 1)
            if begin < 0:
                return []


def parse_events(data: bytes) -> list[Event]:
    """Return the events in the finished lines of an events file."""
    events = []
    for line in parse_json_lines(data):
        with contextlib.suppress(KeyError, TypeError, ValueError):
            events.append(Event.from_json(line))
    return events


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How one rank's process ended."""

    rank: int
    attempt: int = 0
    """0 for the first start, counting up with torchrun's restarts."""
    exitcode: int | None = None
    """As in subprocess: negative for a signal; None when nobody could tell."""
    time: float | None = None
    """Unix time in seconds at which the supervisor saw the process end."""


@dataclass(frozen=True, kw_only=True)
class RankFailure:
    """Why one rank failed."""

    rank: int | None
    """None: the launcher failed before, or beside, any rank."""
    time: float | None = None
    type: str = ""
    """Exception type, e.g. "RuntimeError"; "" when the process left no exception."""
    message: str = ""
    traceback: str = ""
    """As Python prints it, without the frames of ddpnb."""
    exitcode: int | None = None
    signal: str | None = None
    """Name of the signal that ended the process, e.g. "SIGKILL"."""
    consequence_of: int | None = None
    """The rank whose failure, being earlier, explains this one."""
    hint: str = ""
    """What usually helps, where the failure is a known one."""

    @property
    def summary(self) -> str:
        """One line: what this rank died of."""
        if self.type:
            return f"{self.type}: {self.message}" if self.message else self.type
        if self.signal:
            return f"killed by {self.signal} (exit code {self.exitcode})"
        if self.message:
            return self.message
        return f"exit code {self.exitcode}" if self.exitcode is not None else "ended without a word"


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult:
    """What a finished run came to."""

    run_id: str
    state: JobState
    reason: str | None = None
    """Why it was ended from outside, e.g. "stopped", "owner died"; None: it ended by itself."""
    returncode: int | None = None
    """Exit code of the launched command."""
    seconds: float | None = None
    """From the start of the launched command to its end."""
    exits: tuple[Exit, ...] = ()
    """The last exit of each rank, by rank."""
    failures: tuple[RankFailure, ...] = ()
    """The first to fail first; the others are consequences where they say so."""
    results: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What each rank reported with `report(...)`."""
    metrics: Mapping[str, list[Any]] = field(default_factory=dict)
    """Columns of all that was logged with `log(...)`: rank, step, time and one a metric."""

    def __repr__(self) -> str:
        """Return a line, for `await job` at the end of a cell; the fields hold the rest."""
        why = f" ({self.reason})" if self.reason and self.reason != self.state.value else ""
        after = "" if self.seconds is None else f" after {self.seconds:.1f} s"
        logged = len(self.metrics.get("step", ()))
        more = f", {logged} rows of metrics" if logged else ""
        return (
            f"<RunResult {self.run_id}: {self.state.value}{why}{after},"
            f" {len(self.exits)} ranks ended, {len(self.results)} reported{more}>"
        )
