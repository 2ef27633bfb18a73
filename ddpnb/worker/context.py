"""ddp(): the process group up, the device bound, the generators seeded, and all of it down again.

    torchrun --standalone --nproc-per-node 2 -m ddpnb.worker.context    # "rank 0 of 2 on cpu"
    python -m ddpnb.worker.context                                      # "rank 0 of 1 on cpu"

A script reads:

    with ddp() as worker:
        model = DistributedDataParallel(Net().to(worker.device))

and runs unchanged under ddpnb, under plain torchrun, and under plain python as a world of one.
Called by training scripts; knows nothing of notebooks.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ddpnb.errors import DeviceError
from ddpnb.records import Worker

__all__ = ["ddp", "print0"]


@contextlib.contextmanager
def ddp(
    *, backend: str | None = None, seed: int | None = 0, timeout: float | None = None
) -> Iterator[Worker]:
    """Give this rank a process group, a device and seeds; take the group down at the end.

    The end comes also when the body raises, on this rank alone.

    Args:
        backend: "nccl" on GPUs and "gloo" elsewhere, unless given.
        seed: this rank's generators start from `seed + rank`; None leaves them alone.
        timeout: seconds a collective may wait for the other ranks; None keeps torch's own limit.
    """
    if dist.is_initialized():
        raise RuntimeError(
            "ddp() found a process group that is already there; use one `with ddp()` a script,"
            " around everything, and no init_process_group beside it"
        )
    worker = Worker.from_env()
    worker = replace(worker, device=_device(worker))
    if worker.device != "cpu":
        # Before the first CUDA call: without it every rank puts its context, and nccl its barrier,
        # on GPU 0.
        torch.cuda.set_device(torch.device(worker.device))
    try:
        _init_process_group(worker, backend, timeout)
        if seed is not None:
            _seed_everything(seed + worker.rank)
        yield worker
    except BaseException as error:
        # Before the group goes down, of which the other ranks fail: this was the first.
        with contextlib.suppress(AttributeError):  # an exception class with __slots__
            error._ddpnb_time = time.time()  # type: ignore[attr-defined]
        raise
    finally:
        # On one rank alone when its body raised: destroying is no collective, and it closes the
        # connections, so that the other ranks fail at once instead of waiting for the timeout.
        if dist.is_initialized():
            dist.destroy_process_group()


def print0(*args: Any, **kwargs: Any) -> None:
    """Print on rank 0 only, and at once."""
    if Worker.from_env().is_main:
        print(*args, **({"flush": True} | kwargs))


def _device(worker: Worker) -> str:
    """Return "cuda:<local_rank>", or "cpu" where no GPU is visible."""
    if not torch.cuda.is_available():
        return "cpu"
    # local_rank, not rank: on the second machine rank 8 owns GPU 0. Every rank looks at the whole
    # machine, so that all of them refuse, not only those without a GPU.
    needed, there = max(worker.local_rank + 1, worker.local_world_size), torch.cuda.device_count()
    if needed > there:
        raise DeviceError(
            f"rank {worker.rank} is one of {needed} ranks on this machine, but they see"
            f" {there} GPU(s); start at most {there} ranks here, or set CUDA_VISIBLE_DEVICES='' to"
            " run all of them on CPU"
        )
    return f"cuda:{worker.local_rank}"


def _init_process_group(worker: Worker, backend: str | None, timeout: float | None) -> None:
    on_gpu = worker.device != "cpu"
    options: dict[str, Any] = {"backend": backend or ("nccl" if on_gpu else "gloo")}
    if timeout is not None:
        options["timeout"] = timedelta(seconds=timeout)
    if options["backend"] == "nccl":
        if not on_gpu:
            raise DeviceError(
                "backend is 'nccl', which needs GPUs, and none is visible; leave it out"
            )
        # Else nccl guesses each rank's GPU from its global rank (pytorch/pytorch#124714, #134617).
        options["device_id"] = torch.device(worker.device)
    if worker.world_size == 1:
        # Nobody to meet: a store inside this process needs no variables and no port to meet at.
        store = dist.HashStore()  # type: ignore[attr-defined]  # in the docs, not in the stubs
        options |= {"store": store, "rank": 0, "world_size": 1}
    # Otherwise env://, that is torchrun's MASTER_ADDR and MASTER_PORT, or those that the script
    # set.
    dist.init_process_group(**options)


def _seed_everything(seed: int) -> None:
    """Seed python, numpy and torch (CPU and GPU).

    The seed differs on each rank, because one seed gives one stream: with it every rank would drop
    the same units and augment alike. What must agree needs no common seed here: DDP broadcasts rank
    0's weights, and DistributedSampler shuffles by a seed of its own, equal on all ranks.
    """
    random.seed(seed)
    torch.manual_seed(seed)
    with contextlib.suppress(ImportError):  # torch runs without numpy
        import numpy as np

        np.random.seed(seed % 2**32)  # numpy takes 32 bits


if __name__ == "__main__":
    with ddp() as example_worker:
        print0(f"rank 0 of {example_worker.world_size} on {example_worker.device}")
