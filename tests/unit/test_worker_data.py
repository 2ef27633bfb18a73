"""The numbers and samples of one rank, where no other rank is needed to tell."""

import itertools
import math

import pytest
import torch

from ddpnb.records import Worker
from ddpnb.worker.collectives import mean
from ddpnb.worker.data import digits, exact_shard


def test_mean_is_the_value_itself_in_a_world_of_one():
    assert mean(2.5) == 2.5
    assert mean(torch.tensor(2.5, requires_grad=True), 7) == 2.5


def test_mean_of_nothing_is_nan():
    assert math.isnan(mean(2.5, 0))


@pytest.mark.parametrize("count", [-1, math.nan, math.inf])
def test_mean_refuses_a_count_that_counts_nothing(count: float):
    with pytest.raises(ValueError, match="count"):
        mean(1.0, count)


def test_mean_refuses_a_rank_without_its_group(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "2")

    with pytest.raises(RuntimeError, match="one of 2 ranks"):
        mean(1.0)


def test_digits_are_real_images_and_always_the_same_split():
    train, test = digits()
    images, labels = train.tensors

    assert (tuple(images.shape), tuple(labels.shape)) == ((1500, 1, 8, 8), (1500,))
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert len(test) == 297
    assert (float(images.min()), float(images.max())) == (0.0, 1.0)
    # Written down once: every machine and every later version must train on the same images.
    assert labels[:8].tolist() == [2, 8, 2, 6, 6, 7, 1, 9]
    assert torch.equal(images, digits()[0].tensors[0])


def test_digits_can_be_enlarged_but_not_shrunk():
    train, _ = digits(size=16)

    assert tuple(train.tensors[0].shape) == (1500, 1, 16, 16)
    with pytest.raises(ValueError, match="size=4"):
        digits(size=4)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_exact_shard_counts_each_sample_once(world_size: int):
    samples = list(range(1797))

    shards = [
        list(exact_shard(samples, Worker(rank=rank, world_size=world_size)))
        for rank in range(world_size)
    ]

    assert sorted(itertools.chain(*shards)) == samples
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_exact_shard_refuses_a_stream_of_samples():
    with pytest.raises(TypeError, match="generator"):
        exact_shard((sample for sample in range(3)), Worker())
