"""Keep up with a run from its folder, and say in words how it ended. Only reads."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field

from ddpnb.failures import read_exits
from ddpnb.json_files import read_json
from ddpnb.monitor import RunView, fold, fold_end
from ddpnb.records import Event, JobState, LogLine, RunResult
from ddpnb.rundir import RunDir
from ddpnb.tail import Tail

__all__ = ["Follower", "exit_code", "outcome"]

_STEP_BYTES = 1 << 20
"""Of one stream, at one poll."""
TIMED_OUT = 124  # as timeout(1) has it


@dataclass
class Follower:
    """What is known of a run, kept up to date from its folder."""

    run: RunDir
    max_bytes: int | None = None
    """Most bytes of one stream that become lines at one poll; None: all."""
    unfinished: dict[int, str] = field(default_factory=dict)
    """Lines that have no end yet, by rank."""

    def __post_init__(self) -> None:
        step = _STEP_BYTES if self.max_bytes is None else None  # all of it, but not all at once
        self._tail = Tail(self.run, max_bytes=self.max_bytes, step=step)
        world_size = self.run.read_spec().world_size
        self.view = RunView(run_id=self.run.run_id, world_size=world_size)
        self._began: float | None = None

    @property
    def seconds(self) -> float:
        """How long the run has been on its way, by the clock of its supervisor."""
        if self._began is None:
            self._began = (read_json(self.run.processes) or {}).get("started")
        return 0.0 if self._began is None else max(0.0, time.time() - self._began)

    @property
    def behind(self) -> bool:
        """Whether the last poll left something that was there already."""
        return self._tail.behind

    def poll(self) -> list[LogLine | Event]:
        """Take in what is new, and return it."""
        state, reason = self.run.state()  # before the files: when it is done, they are whole
        records = self._tail.poll()
        if state.done and not self.behind:
            records += self._tail.unfinished()
        self.view = fold(self.view, records, state, reason)
        self.unfinished = {}
        if state.done:
            self.view = fold_end(self.view, read_exits(self.run))
        else:
            lines = self._tail.unfinished()
            self.unfinished = {line.rank: line.text for line in lines if line.rank is not None}
        return records


def outcome(result: RunResult) -> str:
    """Return how a run ended, e.g. `failed (time limit of 60 s passed) after 61.0 s`."""
    why = f" ({result.reason})" if result.reason not in (None, result.state.value) else ""
    after = "" if result.seconds is None else f" after {result.seconds:.1f} s"
    return f"{result.state.value}{why}{after}"


def exit_code(result: RunResult, signum: int | None = None) -> int:
    """Return the exit code for a run that has ended.

    Args:
        signum: the signal by which this command was asked to stop the run.
    """
    if result.state is JobState.SUCCEEDED:
        return 0
    if result.state is JobState.STOPPED:
        return 128 + (signum or signal.SIGTERM)
    if (result.reason or "").startswith("time limit"):
        return TIMED_OUT
    code = next((failure.exitcode for failure in result.failures), None)
    if code is None or code == 0:
        return 1
    return 128 - code if code < 0 else code & 0xFF or 1
