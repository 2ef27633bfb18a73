"""Numbers that describe all ranks together.

    torchrun --standalone --nproc-per-node 2 -m ddpnb.worker.collectives

prints "weighted 2.0, mean of means 2.5".

Called by training scripts. Every function here is a collective: all ranks call it, in the same
order, or those that do wait for those that do not.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist

from ddpnb.records import Worker

__all__ = ["mean"]


def mean(value: Any, count: float = 1) -> float:
    """Return the mean of `value` over all ranks, each weighted by the `count` of its samples.

    Why the count: rank 0 saw 2 samples with mean loss 1.0, rank 1 saw 1 sample with loss 4.0. The
    mean of the three losses is (1 + 1 + 4) / 3 = 2.0; the mean of the two means is (1 + 4) / 2 =
    2.5. They agree only when every rank holds equally many samples, which the last batch of an
    epoch often breaks. With the default count of 1 the result is that plain mean of the ranks'
    values.

    Args:
        value: this rank's mean, a number or a tensor of one element.
        count: how many samples it is the mean of. 0 says that this rank has nothing to add,
            whatever `value` is; when no rank has, the result is NaN, as torch's own mean of
            nothing.
    """
    value, count = _number(value), _number(count)
    if not (count >= 0 and math.isfinite(count)):  # the first half is also false for NaN
        raise ValueError(f"mean() got count={count!r}; it is a number of samples, from 0 upwards")
    total = value * count if count else 0.0  # not NaN * 0, which is NaN
    if not dist.is_initialized():
        _refuse_without_group()
    elif dist.get_world_size() > 1:
        # (2,): the sum of values and of counts in one message, so that they belong to the same
        # moment. float64, because float32 loses whole samples beyond 2**24 of them.
        sums = torch.tensor([total, count], dtype=torch.float64, device=_device())
        dist.all_reduce(sums)  # SUM; a rank that skips this line leaves the others waiting
        total, count = sums.tolist()
    return total / count if count else math.nan


def _number(value: Any) -> float:
    # A loss still carries its graph; float() of it warns (torch 2.13).
    return float(value.detach() if isinstance(value, torch.Tensor) else value)


def _refuse_without_group() -> None:
    # A rank's own number in place of the mean would be wrong without a sign of it.
    world_size = Worker.from_env().world_size
    if world_size > 1:
        raise RuntimeError(
            f"mean() was called outside of a process group, but this is one of {world_size} ranks;"
            " call it inside `with ddp()`"
        )


def _device() -> torch.device:
    """Return a device that the group's backend can reduce on: nccl takes CUDA tensors only."""
    if "cpu:" in str(dist.get_backend_config()):  # for example "cpu:gloo,cuda:nccl"
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


if __name__ == "__main__":
    from ddpnb.worker.context import ddp, print0

    with ddp() as example_worker:
        example = (1.0, 2) if example_worker.is_main else (4.0, 1)
        weighted, plain = mean(*example), mean(example[0])  # on every rank, not under `is_main`
        print0(f"weighted {weighted}, mean of means {plain}")
