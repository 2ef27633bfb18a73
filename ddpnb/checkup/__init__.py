"""`ddpnb doctor`: what this machine can do, a line a check, with the fix.

Called by the command line and from notebooks. The package has another name than its function,
because `ddpnb.doctor` can be only one of the two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

from ddpnb.checkup import disk, gpus, jupyter, limits, network, python, ranks, site
from ddpnb.checkup.check import Check, Report
from ddpnb.checkup.here import Here

__all__ = ["CHECKS", "Check", "Report", "doctor", "examine"]

_SECONDS = 30.0
"""What a check may take that only reads files: one on a dead network drive never ends."""

CHECKS: dict[str, Callable[[Here], Check]] = {
    "profile": site.profile,
    "Python": python.python,
    "kernel": python.kernel,
    "torch": gpus.torch,
    "bytecode": python.bytecode,
    "GPUs": gpus.gpus,
    "GPU users": gpus.gpu_users,
    "visible devices": gpus.visible_devices,
    "gloo": ranks.gloo,
    "nccl": ranks.nccl,
    "ports": network.ports,
    "interfaces": network.interfaces,
    "/dev/shm": limits.shared_memory,
    "threads": limits.threads,
    "memory": limits.memory,
    "open files": limits.open_files,
    "processes": limits.processes,
    "disk": disk.disk,
    "ipykernel": python.ipykernel,
    "widgets": jupyter.widgets,
    "Jupyter server": jupyter.server,
    "Slurm": site.slurm,
}
LAUNCHING = frozenset({"gloo", "nccl"})
_WITH_DEADLINES = LAUNCHING | {"torch", "GPUs", "GPU users", "visible devices", "Slurm"}
"""They ask other programs, each with a deadline of its own, and end them when interrupted."""


def doctor(*, quick: bool = False) -> Report:
    """Return what this machine can do; in a notebook it shows itself as a table.

    Args:
        quick: True leaves out the launch of two real ranks.
    """
    return Report(tuple(examine(quick=quick)))


def examine(
    *,
    quick: bool = False,
    here: Here | None = None,
    about_to: Callable[[str], object] = lambda name: None,
    checks: Mapping[str, Callable[[Here], Check]] = CHECKS,
    seconds: float = _SECONDS,
) -> Iterator[Check]:
    """Yield each check as it is done.

    Args:
        quick: True leaves out those that launch ranks.
        here: the machine.
        about_to: called with the name of each check before it begins.
        checks: what to look at.
        seconds: what a check may take that has no deadline of its own.
    """
    here = here or Here()
    for name, check in checks.items():
        if quick and name in LAUNCHING:
            yield Check(name, "skip", "left out; without quick (--quick) real ranks are launched")
            continue
        about_to(name)
        yield _guarded(name, check, here, seconds)


def _guarded(name: str, check: Callable[[Here], Check], here: Here, seconds: float) -> Check:
    """Do one check; one that breaks is told, and hides no other."""
    if name in _WITH_DEADLINES:
        return _attempt(name, check, here)
    done: list[Check] = []
    thread = threading.Thread(target=lambda: done.append(_attempt(name, check, here)), daemon=True)
    thread.start()
    thread.join(seconds)
    if not done:
        fix = "is a network drive dead? `df` would hang in the same way"
        return Check(name, "warn", f"no answer within {seconds:g} s", fix)
    return done[0]


def _attempt(name: str, check: Callable[[Here], Check], here: Here) -> Check:
    try:
        return check(here)
    except Exception as error:  # whatever it met, the other checks go on
        found = f"this check broke: {type(error).__name__}: {error}"
        return Check(name, "warn", found, "the machine may be fine; please report it")
