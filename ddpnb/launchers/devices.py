"""The GPUs of this machine, asked of nvidia-smi: the kernel never touches CUDA.

One meaning of the numbers everywhere: a GPU's number is nvidia-smi's. `gpus=[2, 3]` means those
two, also when CUDA_VISIBLE_DEVICES is set, which only says which of them may be chosen. In the
ranks they are cuda:0 and cuda:1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ddpnb.errors import DeviceError
from ddpnb.spec import Device

__all__ = ["Devices", "Gpu", "resolve", "visible_gpus"]

_GPU_LINE = re.compile(r"^GPU (\d+): (.*?) \(UUID: (\S+?)\)")
_MIG_LINE = re.compile(r"^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (\S+?)\)")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU, or one MIG slice of a GPU."""

    index: int
    """nvidia-smi's number; of a slice, its GPU's."""
    name: str
    uuid: str
    mig: bool = False

    @property
    def key(self) -> str:
        """What CUDA_VISIBLE_DEVICES calls it."""
        return self.uuid if self.mig else str(self.index)


@dataclass(frozen=True, kw_only=True)
class Devices:
    """How wide the run is and what it computes on."""

    nproc_per_node: int
    device: Device
    gpus: tuple[Gpu, ...] = ()


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """Return the GPUs that CUDA would see in this environment, in CUDA's order.

    Of CUDA_VISIBLE_DEVICES, numbers, UUIDs (or their beginning) and MIG names are understood; ""
    hides all, and an entry that is not there hides itself and all behind it, as CUDA does it.
    """
    there = _list_gpus()
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [gpu for gpu in there if not gpu.mig]
    visible: list[Gpu] = []
    for entry in (part.strip() for part in chosen.split(",")):
        gpu = _find(there, entry)
        if gpu is None or gpu in visible:
            break
        visible.append(gpu)
    return visible


def resolve(
    nproc_per_node: int | str,
    device: Literal["auto", "cpu", "cuda"] | str,
    gpus: Sequence[int | str] | None,
    environ: Mapping[str, str] = os.environ,
    *,
    ranks_own_gpus: bool = True,
) -> Devices:
    """Return the number of ranks and their devices; raise DeviceError for what is not there.

    Args:
        nproc_per_node: a number, or torchrun's words "gpu" (one rank a GPU), "cpu" (one a core),
            "auto".
        device: "auto" takes CUDA when there is a GPU.
        gpus: nvidia-smi's numbers or UUIDs of the GPUs to use; None: all visible ones.
        ranks_own_gpus: False for one process that uses all its GPUs itself.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise DeviceError(f"device is {device!r}; it must be auto, cpu or cuda")
    if isinstance(gpus, (str, int)):
        raise DeviceError(f"gpus is {gpus!r}; give a list of numbers, e.g. [2, 3]")
    if device == "cpu":
        if gpus:
            raise DeviceError(f"gpus is {list(gpus)}, but device is cpu; leave one of them out")
        return Devices(nproc_per_node=_count(nproc_per_node, 0), device="cpu")
    visible = visible_gpus(environ)
    chosen = visible if gpus is None else [_choose(entry, visible, environ) for entry in gpus]
    if gpus is not None and len(set(chosen)) < len(chosen):
        raise DeviceError(f"gpus is {list(gpus)}, which names a GPU twice")
    if gpus is not None and not chosen:
        raise DeviceError("gpus is empty; name at least one GPU, or use device cpu")
    if not chosen:
        if device == "cuda" or nproc_per_node == "gpu":
            raise DeviceError(f"there is no GPU here ({_seen(visible, environ)}); use --device cpu")
        return Devices(nproc_per_node=_count(nproc_per_node, 0), device="cpu")
    nproc = _count(nproc_per_node, len(chosen))
    if ranks_own_gpus and nproc > len(chosen):
        what = f"{len(chosen)} chosen" if gpus is not None else f"{len(chosen)} visible"
        raise DeviceError(
            f"nproc_per_node is {nproc}: {nproc} processes need {nproc} GPUs, but there are"
            f" {what} GPUs ({','.join(gpu.key for gpu in chosen)}); ask for at most {len(chosen)},"
            " or use --device cpu (gloo)"
        )
    return Devices(nproc_per_node=nproc, device="cuda", gpus=tuple(chosen))


def _count(nproc_per_node: int | str, gpus: int) -> int:
    """Return the number of ranks; torchrun's words are "auto", "gpu" and "cpu"."""
    if isinstance(nproc_per_node, bool):
        raise DeviceError(f"nproc_per_node is {nproc_per_node!r}; it must be a whole number from 1")
    if isinstance(nproc_per_node, int):
        return nproc_per_node
    word = str(nproc_per_node).strip()
    if word == "gpu" or (word == "auto" and gpus):
        if not gpus:
            raise DeviceError("nproc_per_node is 'gpu', but no GPU is used here; give a number")
        return gpus
    if word in ("cpu", "auto"):
        return os.cpu_count() or 1
    try:
        return int(word)
    except ValueError:
        raise DeviceError(
            f"nproc_per_node is {word!r}; it must be a whole number from 1, or gpu, cpu or auto"
        ) from None


def _choose(entry: int | str, visible: list[Gpu], environ: Mapping[str, str]) -> Gpu:
    gpu = _find(visible, str(entry))
    if gpu is None:
        raise DeviceError(
            f"gpus has {entry!r}, which is not here or not visible ({_seen(visible, environ)});"
            " the numbers are those of nvidia-smi"
        )
    return gpu


def _find(gpus: Sequence[Gpu], entry: str) -> Gpu | None:
    if entry.isdecimal():
        return next((gpu for gpu in gpus if gpu.index == int(entry) and not gpu.mig), None)
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    found = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


def _seen(visible: Sequence[Gpu], environ: Mapping[str, str]) -> str:
    mask = environ.get("CUDA_VISIBLE_DEVICES")
    text = f"visible: {','.join(gpu.key for gpu in visible) or 'none'}"
    return text if mask is None else f"{text}; CUDA_VISIBLE_DEVICES={mask!r}"


_SMI_SECONDS = 30.0


def _list_gpus() -> list[Gpu]:
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    try:
        done = subprocess.run(
            [command, "-L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SMI_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"nvidia-smi does not answer ({error}); use --device cpu") from error
    gpus: list[Gpu] = []
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        if match := _GPU_LINE.match(line):
            gpus.append(Gpu(index=int(match[1]), name=match[2], uuid=match[3]))
        elif (match := _MIG_LINE.match(line)) and gpus:
            gpus.append(Gpu(index=gpus[-1].index, name=f"MIG {match[1]}", uuid=match[2], mig=True))
    return gpus
