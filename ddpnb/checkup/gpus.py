"""The GPUs, who uses them, which of them may be used, and whether torch can use them."""

from __future__ import annotations

import pwd
from collections.abc import Sequence
from typing import Any

from ddpnb.checkup.check import Check
from ddpnb.checkup.here import SMI_SECONDS, GpuState, Here, ask
from ddpnb.words import size

__all__ = ["gpu_users", "gpus", "judge_torch", "torch", "visible_devices"]

_LEAST_TORCH = (2, 6)
_GET_TORCH = "PyTorch's own pages show the command for your driver"
_SHOWN = 8


def torch(here: Here) -> Check:
    """Check that torch can be imported, can run ranks, and can use the GPUs that are here."""
    return judge_torch(here.torch, len(here.visible))


def judge_torch(facts: dict[str, Any] | str, gpus: int) -> Check:
    """Return whether this torch serves.

    Args:
        facts: what `torch_facts` printed, or why it did not.
        gpus: how many nvidia-smi shows, of those that may be used.
    """
    if isinstance(facts, str):
        if "No module named 'torch'" in facts:
            fix = f"pip install torch, in this Python's environment; {_GET_TORCH}"
            return Check("torch", "fail", "not installed for this Python", fix)
        fix = 'this shows all of it: python -P -c "import torch.distributed"; then install it anew'
        return Check("torch", "fail", f"cannot be imported: {facts}", fix)
    found = f"{facts['version']}, {_build(facts)}"
    if not facts["distributed"]:
        fix = "install a build from PyTorch's own pages"
        return Check("torch", "fail", f"{found}, built without torch.distributed", fix)
    if _release(facts["version"]) < _LEAST_TORCH:
        least = ".".join(map(str, _LEAST_TORCH))
        return Check("torch", "warn", found, f"ddpnb needs torch {least}: pip install -U torch")
    if gpus and not facts["cuda"] and not facts["hip"]:
        return Check(
            "torch",
            "warn",
            f"{found}, though nvidia-smi shows {gpus} GPU(s): every rank computes on the CPU",
            f"install a CUDA build of torch; {_GET_TORCH}",
        )
    if gpus and not facts["cuda_available"]:
        words = " ".join(facts["cuda_words"]) or "torch does not say why"
        return Check("torch", "warn", f"{found}, but cannot use the GPU(s): {words}", _why(words))
    unserved = [gpu for gpu in facts["gpus"] if not _serves(facts["archs"], gpu["capability"])]
    if unserved and facts["cuda"]:
        gpu = unserved[0]
        major, minor = gpu["capability"]
        return Check(
            "torch",
            "warn",
            f"{found}, with code for {', '.join(facts['archs'])}, but {gpu['name']} is"
            f" sm_{major}{minor}: 'no kernel image is available' awaits",
            f"install a torch that has sm_{major}{minor}; {_GET_TORCH}",
        )
    return Check("torch", "ok", found)


def gpus(here: Here) -> Check:
    """List the GPUs with what is free on each."""
    states = here.gpu_states
    if isinstance(states, str):
        fix = (
            "the driver does not answer: start a container with --gpus all; else `dmesg` says more;"
            " meanwhile use --device cpu"
        )
        return Check("GPUs", "warn", f"nvidia-smi: {states}", fix)
    if not states:
        if any(here.root.glob("dev/nvidia[0-9]*")):
            found = "there is /dev/nvidia*, but no nvidia-smi on PATH, by which ddpnb finds GPUs"
            return Check("GPUs", "warn", found, "put the folder of nvidia-smi on PATH")
        found = "none (no nvidia-smi): ranks compute on the CPU and talk through gloo"
        return Check("GPUs", "note", found)
    told = [_state(state) for state in states[:_SHOWN]]
    if len(states) > _SHOWN:
        told.append(f"and {len(states) - _SHOWN} more")
    found = f"driver {states[0].driver}; {'; '.join(told)}"
    if barred := [state.index for state in states if state.compute_mode == "Prohibited"]:
        fix = f"an administrator allows it: nvidia-smi -i {','.join(barred)} -c DEFAULT"
        return Check("GPUs", "warn", f"{found}; no process may compute on {', '.join(barred)}", fix)
    if full := [state.index for state in states if _is_full(state)]:
        fix = f"launch on others, gpus=[...], or wait: GPU {', '.join(full)} is nearly full"
        return Check("GPUs", "warn", found, fix)
    return Check("GPUs", "ok", found)


def gpu_users(here: Here) -> Check:
    """Tell which processes hold memory of the GPUs."""
    program, states = here.which("nvidia-smi"), here.gpu_states
    if program is None or isinstance(states, str) or not states:
        return Check("GPU users", "skip", "no GPU to look at")
    fields = "gpu_uuid,pid,used_gpu_memory,process_name"
    argv = [program, f"--query-compute-apps={fields}", "--format=csv,noheader,nounits"]
    answer = ask(argv, SMI_SECONDS, here.environ)
    if answer.code != 0:
        return Check("GPU users", "warn", f"nvidia-smi does not tell: {answer.words}")
    numbers = {state.uuid: f"GPU {state.index}" for state in states}
    users = [line.split(",", 3) for line in answer.out.splitlines() if line.count(",") >= 3]
    words = [[word.strip() for word in user] for user in users]
    told = [_user(here, numbers.get(uuid, uuid), *more) for uuid, *more in words]
    if not told:
        return Check("GPU users", "ok", "nobody that can be seen from here")
    more = f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    found = "; ".join(told[:_SHOWN]) + more
    if str(here.pid) in [pid for _, pid, *_ in words]:
        fix = "restart the kernel, and leave CUDA to the ranks: no .cuda() in a cell of its own"
        return Check("GPU users", "warn", f"{found}; one of them is this very process", fix)
    fix = "gpus=[...] or --gpus picks others; ddpnb waits only for runs of its own"
    return Check("GPU users", "note", found, fix)


def visible_devices(here: Here) -> Check:
    """Check that CUDA_VISIBLE_DEVICES names what is here."""
    name, states = "visible devices", here.gpu_states
    mask = here.environ.get("CUDA_VISIBLE_DEVICES")
    if mask is None:
        return _order(here)
    told = f"CUDA_VISIBLE_DEVICES={mask!r}"
    if not states or isinstance(states, str):
        return Check(name, "note", f"{told}, and there is no GPU to see")
    entries = [entry.strip() for entry in mask.split(",")]
    if entries in ([""], ["-1"]):
        fix = "unset CUDA_VISIBLE_DEVICES, and restart the kernel, to use the GPUs"
        return Check(name, "note", f"{told} hides all {len(states)} GPU(s)", fix)
    seen = [gpu.key for gpu in here.visible]
    if len(seen) < len(entries):
        wrong = entries[len(seen)]
        why = "twice in it" if wrong in entries[: len(seen)] else "not here"
        found = (
            f"{told}: {wrong!r} is {why}, so CUDA passes over it and all behind it; visible:"
            f" {', '.join(seen) or 'none'}"
        )
        return Check(name, "warn", found, "use the numbers or UUIDs that `nvidia-smi -L` shows")
    if any(gpu.mig for gpu in here.visible):
        found = f"{told}: MIG slices; one process uses one slice, and nccl does not join slices"
        return Check(name, "note", found, "one rank a launch on slices: gpus=['MIG-...']")
    return Check(name, "ok", f"{told}: {len(seen)} of {len(states)} GPU(s)")


def _order(here: Here) -> Check:
    states = here.gpu_states
    if not states or isinstance(states, str):
        return Check("visible devices", "skip", "no GPU to look at")
    kinds = {state.name for state in states}
    if len(kinds) > 1 and here.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        found = f"all; {len(kinds)} kinds of GPU, which CUDA numbers otherwise than nvidia-smi"
        fix = "export CUDA_DEVICE_ORDER=PCI_BUS_ID (ddpnb sets it for the ranks of its runs)"
        return Check("visible devices", "note", found, fix)
    return Check("visible devices", "ok", "all (CUDA_VISIBLE_DEVICES is not set)")


def _build(facts: dict[str, Any]) -> str:
    if facts["hip"]:
        return f"ROCm {facts['hip']} build (ddpnb finds NVIDIA's GPUs only)"
    if not facts["cuda"]:
        return "CPU build"
    parts = [f"CUDA {facts['cuda']} build"]
    parts += [f"cuDNN {facts['cudnn']}"] if facts["cudnn"] else []
    parts += [f"nccl {facts['nccl']}"] if facts["nccl"] else []
    return ", ".join(parts)


def _release(version: str) -> tuple[int, ...]:
    numbers = version.partition("+")[0].split(".")[:2]
    return tuple(int(number) if number.isdecimal() else 0 for number in numbers)


def _why(words: str) -> str:
    if "too old" in words:
        return f"update the driver, or install a torch for an older CUDA; {_GET_TORCH}"
    if "forward compatibility" in words or "version mismatch" in words:
        return "driver and its libraries differ, as after an update: reboot, or restart containers"
    return f"`nvidia-smi` and `dmesg` say how the driver is; {_GET_TORCH}"


def _serves(archs: Sequence[str], capability: Sequence[int]) -> bool:
    """Tell whether this code runs: machine code within a major version, PTX on all later ones."""
    major, minor = capability
    for arch in archs:
        kind, _, digits = arch.rstrip("af").partition("_")
        if not digits.isdecimal():
            return True  # a spelling that we do not know: say nothing about it
        its_major, its_minor = int(digits[:-1]), int(digits[-1])
        if kind == "sm" and its_major == major and its_minor <= minor:
            return True
        if kind == "compute" and (its_major, its_minor) <= (major, minor):
            return True
    return not archs


def _state(state: GpuState) -> str:
    if state.total_bytes is None or state.used_bytes is None:
        return f"{state.index}: {state.name}"
    free = size(state.total_bytes - state.used_bytes)
    return f"{state.index}: {state.name}, {free} of {size(state.total_bytes)} free"


def _is_full(state: GpuState) -> bool:
    total, used = state.total_bytes, state.used_bytes
    return total is not None and used is not None and total - used < total // 10


def _user(here: Here, gpu: str, pid: str, mebibytes: str, program: str) -> str:
    memory = size(int(mebibytes) << 20) if mebibytes.isdecimal() else "memory not told"
    return f"{gpu}: pid {pid} ({_owner(here, pid)}) {program.rpartition('/')[2]}, {memory}"


def _owner(here: Here, pid: str) -> str:
    try:
        uid = (here.root / "proc" / pid).stat().st_uid
    except OSError:
        return "not seen from here: another container's, or it has just ended"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
