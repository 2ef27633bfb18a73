"""Add one tensor over all ranks, check the sum, and say how long it took.

    torchrun --standalone --nproc-per-node 2 -m ddpnb.checkup.reduce

What `ddpnb doctor` launches, and what a person can run to see everything that torch says.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from ddpnb.worker import Worker, ddp, print0, report

__all__ = ["reduce"]

_ELEMENTS = 1 << 20
_TIMEOUT = 60.0
"""A collective that has not come through by then never will; torch's own limit is 30 minutes."""


def reduce(worker: Worker) -> float:
    """Return the seconds that the second of two all-reduces of 4 MiB took on this rank."""
    expected = worker.world_size * (worker.world_size + 1) / 2
    seconds = 0.0
    for _ in range(2):  # the first one also opens the connections
        values = torch.full((_ELEMENTS,), worker.rank + 1.0, device=worker.device)
        begin = time.perf_counter()
        dist.all_reduce(values)  # every rank gives rank + 1, and has the sum of all afterwards
        low, high = values.min().item(), values.max().item()  # waits for the GPU
        seconds = time.perf_counter() - begin
        if (low, high) != (expected, expected):
            raise RuntimeError(
                f"rank {worker.rank} has {low} to {high} after all_reduce, not {expected}"
            )
    return seconds


if __name__ == "__main__":
    with ddp(timeout=_TIMEOUT) as this:
        took = reduce(this)
        print0(f"{this.world_size} rank(s), {dist.get_backend()}: 4 MiB in {took * 1000:.1f} ms")
        report(reduce_seconds=took, backend=dist.get_backend(), device=this.device)
