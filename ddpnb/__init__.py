"""ddpnb: teach and drive multi-GPU PyTorch training from Jupyter notebooks.

    %load_ext ddpnb                       the magics %%ddp, %ddp and %%ddp_script
    ddpnb.launch("train.py", nproc_per_node=2)

Nothing heavy is imported here: neither torch nor IPython, so that `import ddpnb` costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpnb.api import attach, dryrun, launch, runs
    from ddpnb.checkup import doctor
    from ddpnb.errors import DdpnbError, WorkerFailedError
    from ddpnb.job import Job
    from ddpnb.launchers.cold import Cold
    from ddpnb.launchers.python import Python
    from ddpnb.launchers.spawn import Spawn
    from ddpnb.launchers.torchrun import Torchrun
    from ddpnb.launchers.warm import Warm
    from ddpnb.records import JobState, RunResult
    from ddpnb.spec import LaunchSpec

__version__ = "0.1.0"

__all__ = [
    "Cold",
    "DdpnbError",
    "Job",
    "JobState",
    "LaunchSpec",
    "Python",
    "RunResult",
    "Spawn",
    "Torchrun",
    "Warm",
    "WorkerFailedError",
    "attach",
    "doctor",
    "dryrun",
    "launch",
    "load_ipython_extension",
    "runs",
]

_HOMES = {
    "Cold": "ddpnb.launchers.cold",
    "DdpnbError": "ddpnb.errors",
    "Job": "ddpnb.job",
    "JobState": "ddpnb.records",
    "LaunchSpec": "ddpnb.spec",
    "Python": "ddpnb.launchers.python",
    "RunResult": "ddpnb.records",
    "Spawn": "ddpnb.launchers.spawn",
    "Torchrun": "ddpnb.launchers.torchrun",
    "Warm": "ddpnb.launchers.warm",
    "WorkerFailedError": "ddpnb.errors",
    "attach": "ddpnb.api",
    "doctor": "ddpnb.checkup",
    "dryrun": "ddpnb.api",
    "launch": "ddpnb.api",
    "runs": "ddpnb.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ddpnb' has no attribute {name!r}")
    if name in ("attach", "launch") and "ipykernel" in sys.modules:
        # In a notebook each launch shows a live view, with or without the magics.
        importlib.import_module("ddpnb.notebook").show_launches()
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: Any) -> None:
    """Add the magics to a notebook: what `%load_ext ddpnb` calls."""
    importlib.import_module("ddpnb.notebook").load(shell)
