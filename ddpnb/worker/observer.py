"""Note what a training script does, in every process of it, so that a check can tell afterwards.

    import ddpnb.worker.observer; import torch    # what the check of an exercise puts in a script

Imported above everything else, it wraps a few calls of torch. What they do stays the same; each
leaves a line in a file of its process in the run folder. Outside of a run it does nothing. What is
noted: `load` (parent), `init` (rank, world_size, backend), `destroy`, `set_device` (device), `wrap`
(device, device_ids), `item` (index) and `save` (path).
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from ddpnb.json_files import append_json_lines
from ddpnb.rundir import RunDir

__all__ = ["observe"]

# Descriptors of the files, by process: a forked DataLoader worker opens its own.
_descriptors: dict[int, int] = {}


def observe(run: RunDir) -> None:
    """Wrap the calls that checks ask about; each leaves a line in the run folder."""

    def note(call: str, **facts: Any) -> None:
        pid = os.getpid()
        if pid not in _descriptors:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            _descriptors[pid] = os.open(run.calls(pid), flags, 0o600)
        append_json_lines(_descriptors[pid], [{"call": call, "pid": pid, **facts}])

    def joined(*_: Any, **__: Any) -> None:
        note(
            "init",
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
            backend=dist.get_backend(),
        )

    def wrapped(model: Any, *_: Any, **__: Any) -> None:
        ids = None if model.device_ids is None else [str(gpu) for gpu in model.device_ids]
        note("wrap", device=str(next(model.parameters()).device), device_ids=ids)

    def fetched(_: Any, index: Any) -> None:
        with contextlib.suppress(TypeError, ValueError):  # a slice is no single sample
            note("item", index=int(index))

    def saved(_: Any, file: Any = None, *__: Any, **___: Any) -> None:
        note("save", path=os.fspath(file) if isinstance(file, (str, os.PathLike)) else "")

    note("load", parent=os.getppid())
    _after(dist, "init_process_group", joined)
    _after(dist, "destroy_process_group", lambda *_, **__: note("destroy"))
    _after(torch.cuda, "set_device", lambda device: note("set_device", device=str(device)))
    _after(DistributedDataParallel, "__init__", wrapped)
    _after(TensorDataset, "__getitem__", fetched)
    _after(torch, "save", saved)


def _after(owner: Any, name: str, tell: Callable[..., None]) -> None:
    """Have `tell` called with the arguments of each call that came to a good end."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        returned = original(*args, **kwargs)
        tell(*args, **kwargs)
        return returned

    setattr(owner, name, observed)


if "DDPNB_RUN" in os.environ:
    observe(RunDir(Path(os.environ["DDPNB_RUN"])))
