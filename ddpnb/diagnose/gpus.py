"""Which GPUs there are, who uses them, and whether the installed torch can."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import psutil

from ddpnb.diagnose.report import Check
from ddpnb.errors import DeviceError
from ddpnb.launchers.devices import visible_gpus
from ddpnb.words import size

__all__ = ["ask_torch", "gpu_users", "gpus", "torch"]

_SECONDS = 120.0
_MIB = 1 << 20

# Asked in a process of its own: importing torch here would slow the kernel, and asking it for
# devices would touch CUDA.
_ASK = """
import json, torch, torch.distributed as dist
told = {
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "hip": torch.version.hip,
    "available": torch.cuda.is_available(),
    "backends": [b for b in ("gloo", "nccl") if getattr(dist, f"is_{b}_available")()],
    "built_for": torch.cuda.get_arch_list(),
    "capabilities": [],
}
if told["available"]:
    told["nccl"] = list(torch.cuda.nccl.version())
    told["capabilities"] = [
        "sm_%d%d" % torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())
    ]
print(json.dumps(told))
"""


def ask_torch() -> dict[str, Any] | str:
    """Return what torch says of itself, or why it says nothing."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"importing it takes more than {_SECONDS:g} s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def torch(told: dict[str, Any] | str, environ: Mapping[str, str] = os.environ) -> Check:
    """Tell whether torch is there, and whether it can use the GPUs that there are.

    Args:
        told: what `ask_torch` has returned.
    """
    if isinstance(told, str):
        return Check(
            name="torch", status="fail", found=told, fix="install torch in this environment"
        )
    build = f"CUDA {told['cuda']}" if told["cuda"] else "ROCm" if told["hip"] else "CPU build"
    found = f"{told['version']} ({build}), {' and '.join(told['backends'])}"
    try:
        there = len(visible_gpus(environ))
    except DeviceError:
        there = 0  # `gpus` tells it
    if there and build == "CPU build":
        return Check(
            name="torch",
            status="fail",
            found=f"{found}, but this machine has GPUs",
            fix="install a CUDA build of torch, as PyTorch's own pages show",
        )
    if there and not told["available"]:
        return Check(
            name="torch",
            status="fail",
            found=f"{found}, but it finds no usable GPU",
            fix="update the driver: nvidia-smi names the newest CUDA that it can run",
        )
    lacking = sorted({c for c in told["capabilities"] if not _runs_on(c, told["built_for"])})
    if lacking:
        return Check(
            name="torch",
            status="fail",
            found=f"{found}; it was not built for {', '.join(lacking)}",
            fix="install a build of torch for this GPU's generation",
        )
    return Check(name="torch", status="ok", found=found)


def _runs_on(capability: str, built_for: list[str]) -> bool:
    """Return whether a build runs: binaries serve their own major version, PTX all newer ones."""
    number = int(capability.removeprefix("sm_"))
    for arch in built_for:
        kind, _, built = arch.partition("_")
        digits = int("".join(char for char in built if char.isdigit()) or 0)
        if digits <= number and (kind == "compute" or digits // 10 == number // 10):
            return True
    return False


def gpus(environ: Mapping[str, str] = os.environ) -> Check:
    """Tell which GPUs may be used."""
    try:
        everything = visible_gpus({})
        visible = visible_gpus(environ)
    except DeviceError as error:
        return Check(
            name="GPUs",
            status="fail",
            found=str(error),
            fix="see what nvidia-smi says; a reboot cures a driver that was updated under it",
        )
    mask = environ.get("CUDA_VISIBLE_DEVICES")
    if not everything:
        return Check(name="GPUs", status="note", found="none: ranks compute on the CPU (gloo)")
    named = ", ".join(f"{gpu.index} {gpu.name}" + (" (MIG)" if gpu.mig else "") for gpu in visible)
    if mask is not None and not visible:
        return Check(
            name="GPUs",
            status="warn",
            found=f"{len(everything)} here, but CUDA_VISIBLE_DEVICES={mask!r} hides all of them",
            fix="unset it, or name GPUs by nvidia-smi's numbers",
        )
    hidden = "" if mask is None else f"; CUDA_VISIBLE_DEVICES={mask!r} chooses them"
    return Check(name="GPUs", status="ok", found=f"{named}{hidden}")


def gpu_users() -> Check | None:
    """Tell which processes hold memory of the GPUs; None where there are no GPUs."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    query = ["--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            [command, *query],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        numbers = {gpu.uuid: gpu.index for gpu in visible_gpus({})}
    except (OSError, subprocess.TimeoutExpired, DeviceError) as error:
        return Check(name="GPU users", status="warn", found=f"nvidia-smi does not answer: {error}")
    if done.returncode != 0:
        return Check(name="GPU users", status="note", found="nvidia-smi does not tell")
    users = []
    for line in done.stdout.splitlines():
        uuid, pid, used = (part.strip() for part in line.split(","))
        held = f" {size(int(used) * _MIB)}" if used.isdecimal() else ""
        users.append(f"GPU {numbers.get(uuid, '?')}: pid {pid} ({_owner(pid)}){held}")
    if not users:
        return Check(name="GPU users", status="ok", found="nobody holds memory of a GPU")
    return Check(
        name="GPU users",
        status="note",
        found="; ".join(users),
        fix="gpus=[...] of a launch takes others; a kernel holds its memory until it is restarted",
    )


def _owner(pid: str) -> str:
    try:
        process = psutil.Process(int(pid))
        return f"{process.name()} of {process.username()}"
    except (psutil.Error, ValueError, KeyError):
        return "of another container or user"
