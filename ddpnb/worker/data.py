"""Real images that need no download, and a share of them for each rank.

    python -m ddpnb.worker.data                                     # "1500 to train, 297 to test"
    torchrun --standalone --nproc-per-node 2 -m ddpnb.worker.data   # "1500 to train, 149 to test"

Called by training scripts.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sized
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
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
    pixels, targets = _read_digits()
    # RandomState's streams are frozen for good (NEP 19): the same split under every numpy.
    order = np.random.RandomState(0).permutation(len(targets))
    images = torch.from_numpy(pixels[order]).float().reshape(-1, 1, 8, 8) / 16  # ink is 0 to 16
    labels = torch.from_numpy(targets[order]).long()  # (1797,)
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


def _read_digits() -> tuple[Any, Any]:
    """Return pixels (1797, 64) and labels (1797,) as arrays of numpy."""
    # The file, not load_digits(): importing scikit-learn 1.9 costs each rank 2 CPU-seconds, most
    # of them for scipy: about as much as torch itself.
    found = importlib.util.find_spec("sklearn")
    for folder in (found and found.submodule_search_locations) or ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            table = np.loadtxt(file, delimiter=",")  # (1797, 65): 64 pixels and the label
            return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)  # type: ignore[no-any-return]


if __name__ == "__main__":
    from ddpnb.worker.context import ddp, print0

    with ddp() as example_worker:
        train, test = digits()
        mine = len(exact_shard(test, example_worker))
        print0(f"{len(train)} to train, {mine} to test")
