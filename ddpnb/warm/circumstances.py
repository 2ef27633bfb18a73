"""What a child inherits from its parent, handed to a process that has another parent."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["circumstances", "take_over"]

_LIMITS = sorted(
    {getattr(resource, n): n for n in dir(resource) if n.startswith("RLIMIT_")}.items()
)


def circumstances(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return, as plain JSON values, what a child of this process would inherit.

    Args:
        environ: the variables that it would have.
    """
    return {
        "environ": dict(environ),
        "umask": _umask(),
        "limits": {name: resource.getrlimit(number) for number, name in _LIMITS},
        "cores": sorted(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }


def take_over(given: Mapping[str, Any]) -> None:
    """Give this process what `circumstances` has listed.

    Raises:
        OSError, ValueError: it may not, e.g. raise a limit that was lowered for it.
    """
    os.environ.clear()
    os.environ.update(given["environ"])
    os.umask(given["umask"])
    for number, name in _LIMITS:
        if name in given["limits"] and list(resource.getrlimit(number)) != given["limits"][name]:
            resource.setrlimit(number, tuple(given["limits"][name]))
    if sorted(os.sched_getaffinity(0)) != given["cores"]:
        os.sched_setaffinity(0, given["cores"])
    if os.getpriority(os.PRIO_PROCESS, 0) != given["nice"]:
        os.setpriority(os.PRIO_PROCESS, 0, given["nice"])


def _umask() -> int:
    """Return the umask: os.umask could only tell it by changing it, for all threads."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    raise OSError("/proc/self/status has no Umask")
