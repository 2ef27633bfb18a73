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

import psutil

import ddpnb
from ddpnb.launchers.base import Launcher
from ddpnb.process import ProcessId
from ddpnb.records import JobState, RunResult
from tests.conftest import wait_until
from tests.launch.fault_scenes import (
    DEADLINE,
    Scene,
    environment,
    notebook_folder,
    scene_of,
    small_disk,
)

__all__ = ["FAULTS", "LAUNCHERS", "LEFT_SECONDS", "Fault", "Outcome", "strike"]

LAUNCHERS: dict[str, Launcher] = {
    "cold": ddpnb.Cold(),
    "warm": ddpnb.Warm(),
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
    state_right: bool
    """Whether the state is what the fault must lead to."""
    cause_right: bool
    """Whether the cause is."""
    left: int
    """Processes of the run that lived on for 10 s, keeper and supervisor included."""
    lost: int
    """Lines that a rank had written and that its log does not have."""
    seconds: float | None
    """From the fault to exit.json, where there is one."""

    @property
    def right(self) -> bool:
        """Whether the run tells the fault as it was."""
        return self.state_right and self.cause_right


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
    launchers: tuple[str, ...] = tuple(LAUNCHERS)
    """Those that have what is struck."""
    rounds: int = 5
    cell: str | None = None
    """What a notebook's cell does meanwhile; None: the run belongs to no notebook."""
    marks: tuple[str, ...] = ()
    """What the script is told, which then waits for the other rank ("collective"), refuses SIGINT
    and SIGTERM ("stubborn"), leaves with 0 on SIGINT ("polite"), has a child in a session of its
    own ("helper")."""
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


def _kill_both(scene: Scene) -> None:
    victims = [scene.process("keeper"), scene.process("supervisor")]
    for signum in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: neither sees the other die
        for victim in victims:
            victim.send(signum)


def _kill_warm_process(scene: Scene) -> None:
    """Kill the one that the notebook's ranks were forked from; they go on, and come to their end.

    The test's own process has another one, which has nothing to do with them.
    """
    (parent,) = psutil.Process(scene.process("keeper").pid).parents()[:1]
    assert "ddpnb.warm.process" in parent.cmdline()
    parent.kill()
    counted = scene.counted(0)
    wait_until(lambda: scene.counted(0) > counted + 100, DEADLINE, "it goes on")
    scene.order("end")


STOPPED, OWNER, DIED = "stopped", "stopped (owner died)", "failed (supervisor died)"
LOST = "lost (supervisor gone without a word)"
HELPER, POLITE = ("helper",), ("polite",)
FAULTS = [
    Fault(name="kernel SIGKILL", act=_kill_kernel, state=OWNER, cell="", rounds=20),
    Fault(name="kernel restart", act=_restart, state=OWNER, cell="", marks=POLITE),
    Fault(name="interrupt of await job", act=_interrupt, state=STOPPED, cell="await job"),
    Fault(
        name="interrupt of job.wait()",
        act=_interrupt,
        state=STOPPED,
        cell="job.wait()",
        marks=POLITE,
    ),
    Fault(name="stop", act=lambda scene: scene.job.stop(wait=False), state=STOPPED, marks=POLITE),
    Fault(name="keeper SIGKILL", act=_kill("keeper"), state=DIED, marks=HELPER, rounds=20),
    Fault(name="supervisor SIGKILL", act=_kill("supervisor"), state=DIED, marks=HELPER, rounds=20),
    Fault(name="keeper and supervisor SIGKILL", act=_kill_both, state=LOST),
    Fault(
        name="launcher SIGKILL",
        launchers=("torchrun", "spawn", "python"),
        act=_kill("launcher"),
        state="failed",
        cause="launcher: killed by SIGKILL",
        python=("failed", "rank 0: killed by SIGKILL"),
        rounds=20,
    ),
    Fault(
        name="warm process SIGKILL",
        act=_kill_warm_process,
        launchers=("warm",),
        state="succeeded",
        cell="",
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
        marks=("stubborn", "helper"),
    ),
    Fault(
        name="disk full",
        act=lambda scene: _fill(scene.job.folder),
        state="failed",
        cause="rank",
        small_disk=True,
    ),
    Fault(
        name="notebook folder deleted",
        act=lambda scene: shutil.rmtree(notebook_folder(scene.place), ignore_errors=True),
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
        place: an empty folder; the notebook's folder, and what the ranks count, are put there.
    """
    for name in fault.marks:
        (place / name).touch()
    with contextlib.ExitStack() as stack:
        stack.enter_context(environment(place))
        runs = notebook_folder(place) / "runs"
        if fault.small_disk and not stack.enter_context(small_disk(runs)):
            return None
        scene = stack.enter_context(scene_of(LAUNCHERS[launcher], place, cell=fault.cell))
        wait_until(scene.writes, DEADLINE, "every rank writes")
        processes = scene.processes()
        each = 2 if "helper" in fault.marks else 1
        assert len(processes) >= 2 + each * scene.nproc, processes  # or nothing would be proved
        scene.hold_logs()
        counted = [scene.counted(rank) for rank in range(scene.nproc)]
        struck = time.time()
        fault.act(scene)
        gone, exit_ = fault.state == "gone", scene.job.run.exit
        # Without exit.json, `done` says that nobody is left who could write it.
        wait_until(lambda: gone or scene.job.done, DEADLINE, "the run is over")
        seconds = exit_.stat().st_mtime - struck if exit_.exists() else None
        left = _left(scene, processes)
        # What is written while the disk fills, or into deleted files, may be cut; what stood there
        # before may not.
        lost = scene.lost(counted if fault.small_disk or gone else None)
        return _outcome(fault, launcher, scene, seconds=seconds, left=left, lost=lost)


def _left(scene: Scene, processes: set[ProcessId]) -> int:
    """Return how many live on, after up to 10 s."""
    until = time.monotonic() + LEFT_SECONDS
    while True:
        left = {process for process in processes if process.is_alive()} | scene.strangers()
        if not left or time.monotonic() > until:
            return len(left)
        time.sleep(0.05)


def _outcome(fault: Fault, launcher: str, scene: Scene, **counts: Any) -> Outcome:
    expected, named = fault.state, fault.cause
    if launcher == "python" and fault.python is not None:
        expected, named = fault.python
    named = named.format(last=scene.nproc - 1)
    state, cause = ("gone", "") if expected == "gone" else _told(scene.job.peek())
    return Outcome(
        state=state,
        cause=cause,
        state_right=state == expected,
        cause_right=cause.startswith(named) if named else not cause,
        **counts,
    )


def _told(result: RunResult) -> tuple[str, str]:
    """Return state and cause as a person is told them."""
    state = result.state.value
    if result.reason not in (None, state):
        state += f" ({result.reason})"
    if result.state is not JobState.FAILED or not result.failures:
        return state, ""
    first = result.failures[0]
    who = "launcher" if first.rank is None else f"rank {first.rank}"
    return state, f"{who}: {first.summary}"
