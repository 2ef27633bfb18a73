"""Faults that a run must bear, and what is true of it afterwards.

One table for the tests, which strike once, and for `benchmarks/faults.py`, which strikes often and
takes the times.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ddpnb
from ddpnb.launchers.base import Launcher
from ddpnb.process import ProcessId
from ddpnb.records import JobState, RunResult
from tests.conftest import wait_until
from tests.launch.fault_scenes import (
    DEADLINE,
    Scene,
    environment,
    processes_of,
    scene_of,
    small_disk,
)

__all__ = ["FAULTS", "LAUNCHERS", "Fault", "Outcome", "strike"]

LAUNCHERS: dict[str, Launcher] = {
    "torchrun": ddpnb.Torchrun(),
    "spawn": ddpnb.Spawn(),
    "python": ddpnb.Python(),
}
LEFT_SECONDS = 10.0
"""After so long nothing may be left."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was true after a fault."""

    state: str
    """State and reason, e.g. "stopped (owner died)"."""
    cause: str
    """Who failed first, and of what; "" if nobody did."""
    right: bool
    """Whether both are what the fault must lead to."""
    left: int
    """Processes of the run that lived on for 10 s."""
    lost: int
    """Lines that a rank had written and that its log does not have."""
    seconds: float | None
    """From the fault to exit.json."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that happens to a run."""

    name: str
    act: Callable[[Scene], Any]
    state: str
    """What `Outcome.state` must be."""
    cause: str = ""
    """What `Outcome.cause` must begin with; {last} stands for the last rank."""
    python: tuple[str, str] | None = None
    """State and cause under Python(), where they differ."""
    rounds: int = 5
    cell: str | None = None
    """What a notebook's cell does meanwhile; None: the run belongs to no notebook."""
    marks: tuple[str, ...] = ()
    """What the script is told: "collective", "stubborn"."""
    small_disk: bool = False


def _kill(name: str) -> Callable[[Scene], Any]:
    return lambda scene: scene.process(name).send(signal.SIGKILL)


def _kill_kernel(scene: Scene) -> None:
    assert scene.kernel is not None
    pid = scene.kernel.provisioner.pid  # type: ignore[union-attr]
    os.kill(pid, signal.SIGKILL)  # our own child, not reaped yet


def _interrupt(scene: Scene) -> None:
    assert scene.kernel is not None
    scene.kernel.interrupt_kernel()


def _restart(scene: Scene) -> None:
    assert scene.kernel is not None
    scene.kernel.restart_kernel(now=False)


STOPPED, OWNER, DIED = "stopped", "stopped (owner died)", "failed (supervisor died)"
FAULTS = [
    Fault(name="kernel SIGKILL", act=_kill_kernel, state=OWNER, cell="", rounds=20),
    Fault(name="kernel restart", act=_restart, state=OWNER, cell=""),
    Fault(name="interrupt of await job", act=_interrupt, state=STOPPED, cell="await job"),
    Fault(name="interrupt of job.wait()", act=_interrupt, state=STOPPED, cell="job.wait()"),
    Fault(name="stop", act=lambda scene: scene.job.stop(wait=False), state=STOPPED),
    Fault(name="keeper SIGKILL", act=_kill("keeper"), state=DIED, rounds=20),
    Fault(name="supervisor SIGKILL", act=_kill("supervisor"), state=DIED, rounds=20),
    Fault(
        name="launcher SIGKILL",
        act=_kill("launcher"),
        state="failed",
        cause="launcher: killed by SIGKILL",
        python=("failed", "rank 0: killed by SIGKILL"),
        rounds=20,
    ),
    Fault(
        name="rank SIGKILL",
        act=lambda scene: scene.rank().send(signal.SIGKILL),
        state="failed",
        cause="rank {last}: killed by SIGKILL",
        rounds=20,
    ),
    Fault(
        name="rank SIGSEGV",
        act=lambda scene: scene.order("segv"),
        state="failed",
        cause="rank {last}: killed by SIGSEGV",
    ),
    Fault(
        name="rank raises",
        act=lambda scene: scene.order("raise"),
        state="failed",
        cause="rank {last}: ValueError: on purpose",
        marks=("collective",),
    ),
    Fault(
        name="rank os._exit(0)",
        act=lambda scene: scene.order("exit"),
        state="failed",
        cause="rank {last}: left with exit code 0",
        python=("succeeded", ""),
        marks=("collective",),
    ),
    Fault(
        name="stop of ranks that refuse",
        act=lambda scene: scene.job.stop(wait=False),
        state=STOPPED,
        marks=("stubborn",),
    ),
    Fault(
        name="disk full",
        act=lambda scene: _fill(scene.job.folder),
        state="failed",
        cause="rank",
        small_disk=True,
    ),
    Fault(
        name="folder deleted",
        act=lambda scene: shutil.rmtree(scene.place / "runs", ignore_errors=True),
        state="gone",
    ),
]


def _fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder.parent / "filler").open("wb") as file:
        while True:
            file.write(bytes(1 << 16))
            file.flush()


def strike(fault: Fault, launcher: str, place: Path) -> Outcome | None:
    """Launch, let the ranks write, strike, and look at what is left; None: not possible here.

    Args:
        place: an empty folder; the run and its counters are put there.
    """
    for name in fault.marks:
        (place / name).touch()
    with contextlib.ExitStack() as stack:
        stack.enter_context(environment(place))
        if fault.small_disk and not stack.enter_context(small_disk(place / "runs")):
            return None
        scene = stack.enter_context(scene_of(LAUNCHERS[launcher], place, cell=fault.cell))
        wait_until(scene.writes, DEADLINE, "every rank writes")
        processes = processes_of(scene.job.folder)
        counted = [scene.counted(rank) for rank in range(scene.nproc)]
        struck = time.time()
        fault.act(scene)
        if fault.state == "gone":
            left = _left(processes)
            return Outcome(state="gone", cause="", right=not left, left=left, lost=0, seconds=None)
        wait_until(scene.job.run.exit.exists, DEADLINE, "exit.json is there")
        seconds = scene.job.run.exit.stat().st_mtime - struck
        left = _left(processes)
        # What is written while the disk fills may be cut; what stood there before may not.
        lost = scene.lost(counted if fault.small_disk else None)
        return _outcome(fault, launcher, scene, seconds, left, lost)


def _left(processes: list[ProcessId]) -> int:
    """Return how many live on, after up to 10 s."""
    until = time.monotonic() + LEFT_SECONDS
    while (left := sum(p.is_alive() for p in processes)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _outcome(
    fault: Fault, launcher: str, scene: Scene, seconds: float, left: int, lost: int
) -> Outcome:
    result = scene.job.peek()
    state = result.state.value
    if result.reason not in (None, state):
        state += f" ({result.reason})"
    cause = _cause(result)
    expected, named = fault.state, fault.cause
    if launcher == "python" and fault.python is not None:
        expected, named = fault.python
    named = named.format(last=scene.nproc - 1)
    return Outcome(
        state=state,
        cause=cause,
        right=state == expected and cause.startswith(named),
        left=left,
        lost=lost,
        seconds=seconds,
    )


def _cause(result: RunResult) -> str:
    if result.state is not JobState.FAILED or not result.failures:
        return ""
    first = result.failures[0]
    who = "launcher" if first.rank is None else f"rank {first.rank}"
    return f"{who}: {first.summary}"
