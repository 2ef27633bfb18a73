"""doctor(): what this machine can do, one line a check, with the fix.

Called by `ddpnb doctor` and from notebooks. The kernel imports no torch for it and touches no GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from ddpnb.diagnose import gpus, machine, packages
from ddpnb.diagnose.report import Check, Report
from ddpnb.errors import DeviceError
from ddpnb.launchers.devices import visible_gpus

__all__ = ["doctor"]

_T = TypeVar("_T")

_LAUNCH_SECONDS = 180.0

_SCRIPT = """
import os, torch, torch.distributed as dist

backend, rank = os.environ["DOCTOR_BACKEND"], int(os.environ["LOCAL_RANK"])
device = torch.device("cpu")
if backend == "nccl":
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
dist.init_process_group(backend)
total = torch.ones(1, device=device)
dist.all_reduce(total)
assert total.item() == dist.get_world_size(), total
dist.destroy_process_group()
"""


def doctor(*, quick: bool = False) -> Report:
    """Look at this machine and return a line for each thing that a run needs.

    Args:
        quick: leave out what takes seconds: importing torch, and a real all-reduce.
    """
    return Report(_checks(quick=quick))


def _checks(*, quick: bool) -> Iterator[Check]:
    yield _sure("machine", machine.place)
    yield _sure("Python", machine.python)
    told = "left out" if quick else gpus.ask_torch()
    if not quick:
        yield _sure("torch", lambda: gpus.torch(told))
    yield _sure("bytecode", packages.bytecode)
    yield _sure("GPUs", gpus.gpus)
    users = _sure("GPU users", gpus.gpu_users)
    if users is not None:
        yield users
    if isinstance(told, dict):
        yield from _collectives()
    for name, check in (
        ("processes", machine.processes),
        ("threads", machine.threads),
        ("memory", machine.memory),
        ("/dev/shm", machine.shared_memory),
        ("open files", machine.open_files),
        ("ports", machine.ports),
        ("disk", machine.disk),
        ("kernel", packages.kernel),
        ("server", packages.server),
        ("Slurm", machine.slurm),
    ):
        yield _sure(name, check)


def _sure(name: str, check: Callable[[], _T]) -> _T | Check:
    """Make a check; one that breaks says so, and the others are made all the same."""
    try:
        return check()
    except Exception as error:
        broken = f"this could not be looked at: {type(error).__name__}: {error}"
        return Check(name=name, status="warn", found=broken)


def _collectives() -> Iterator[Check]:
    """Have real ranks add up a number: by gloo, and by NCCL where there are GPUs."""
    yield _all_reduce("gloo", nproc=2)
    try:
        there = len(visible_gpus())
    except DeviceError:
        return  # told already
    if there:
        yield _all_reduce("nccl", nproc=min(2, there))


def _all_reduce(backend: str, *, nproc: int) -> Check:
    ranks = f"{nproc} rank{'s' if nproc > 1 else ''}"
    with tempfile.TemporaryDirectory(prefix="ddpnb-doctor-") as folder:
        script = Path(folder) / "all_reduce.py"
        script.write_text(_SCRIPT)
        argv = [sys.executable, "-P", "-m", "ddpnb", "run", "--nproc-per-node", str(nproc)]
        argv += [
            "--timeout",
            str(_LAUNCH_SECONDS),
            "--device",
            "cpu" if backend == "gloo" else "cuda",
        ]
        argv += ["--cwd", folder, "--env", f"DOCTOR_BACKEND={backend}", str(script)]
        begun = time.monotonic()
        done = subprocess.run(
            argv,
            env=os.environ | {"DDPNB_RUNS": f"{folder}/runs"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LAUNCH_SECONDS + 60,
            check=False,
        )
        seconds = time.monotonic() - begun
    if done.returncode == 0:
        found = f"an all-reduce of {ranks} through torchrun, {seconds:.1f} s with all imports"
        return Check(name=backend, status="ok", found=found)
    said = [line for line in done.stderr.splitlines() if line.strip()]
    cause = next((line for line in reversed(said) if line.startswith("First to fail")), "")
    return Check(
        name=backend,
        status="fail",
        found=f"the all-reduce of {ranks} failed: {cause or (said or ['it said nothing'])[-1]}",
        fix=_advice(backend),
    )


def _advice(backend: str) -> str:
    if backend == "gloo":
        return "a firewall must let connections over the loopback interface pass"
    return "NCCL_DEBUG=INFO says more; NCCL_P2P_DISABLE=1 shows whether peer access is to blame"
