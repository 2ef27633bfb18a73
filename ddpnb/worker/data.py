"""Real images that need no download, and a share of them for each rank.

    python -m ddpnb.worker.data                                     # "1500 to train, 297 to test"
    torchrun --standalone --nproc-per-node 2 -m ddpnb.worker.data   # "1500 to train, 149 to test"

Called by training scripts.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import TypeVar

import torch
from torch.nn.functional import interpolate
from torch.utils.data import Dataset, Subset, TensorDataset

from ddpnb.records import Worker

__all__ = ["digits", "exact_shard"]

T_co = TypeVar("T_co", covariant=True)

TRAIN_IMAGES = 1500  # divides by 1, 2 and 4 ranks, so that comparing them compares equal work


def digits(*, size: int = 8) -> tuple[TensorDataset, TensorDataset]:
    """Return scikit-learn's 1,797 handwritten digits, 1,500 to train on and 297 to test on.

    Images are float32 (N, 1, size, size) from 0 to 1, labels int64 (N,). Every rank and every run
    gets the same split. The images are 8 x 8; a larger `size` is interpolated, which adds work and
    no information.
    """
    if size < 8:
        raise ValueError(f"digits() got size={size}; the images are 8 x 8, so ask for 8 or more")
    # Here, not at the top: the import takes longer than everything else in this module.
    import numpy as np
    from sklearn.datasets import load_digits

    data = load_digits()
    # RandomState's streams are frozen for good (NEP 19): the same split under every numpy.
    order = np.random.RandomState(0).permutation(len(data.target))
    images = torch.from_numpy(data.images[order]).float().unsqueeze(1)  # (1797, 1, 8, 8)
    images = images / 16  # ink is counted from 0 to 16
    labels = torch.from_numpy(data.target[order]).long()  # (1797,)
    if size != 8:
        images = interpolate(images, size=(size, size), mode="bilinear", align_corners=False)
    return (
        TensorDataset(images[:TRAIN_IMAGES], labels[:TRAIN_IMAGES]),
        TensorDataset(images[TRAIN_IMAGES:], labels[TRAIN_IMAGES:]),
    )


def exact_shard(dataset: Dataset[T_co], worker: Worker) -> Subset[T_co]:
    """Return this rank's samples for *evaluation*: over all ranks each sample exactly once.

    DistributedSampler is for training. It repeats samples until every rank has equally many: 1,797
    images over 2 ranks become 899 + 899, one image counts twice, and the accuracy depends on the
    number of ranks (pytorch/pytorch#25162). Here the ranks hold 899 and 898. They may thus run
    unequal numbers of batches, so evaluate the unwrapped `model.module`: the forward of DDP
    broadcasts buffers and would wait for a batch that another rank does not have. Join the ranks'
    numbers by `mean(value, count)`.
    """
    if not isinstance(dataset, Sized):
        raise TypeError(
            f"exact_shard() got a {type(dataset).__name__} without a length; it deals out indices,"
            " so it needs a dataset that has them"
        )
    return Subset(dataset, range(worker.rank, len(dataset), worker.world_size))


if __name__ == "__main__":
    from ddpnb.worker.context import ddp, print0

    with ddp() as example_worker:
        train, test = digits()
        mine = len(exact_shard(test, example_worker))
        print0(f"{len(train)} to train, {mine} to test")
