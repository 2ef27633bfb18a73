"""Command-line words as a function's arguments."""

import ast

import pytest

from ddpnb.call import Parameters, arguments
from ddpnb.errors import SpecError

FILLED = {"rank": 1, "local_rank": 1, "world_size": 2}


def call(signature, *words):
    (node,) = ast.parse(f"def train({signature}): pass").body
    return arguments(Parameters.of(node), words, FILLED)


@pytest.mark.parametrize(
    ("signature", "words", "expected"),
    [
        ("rank, world_size", [], ([1, 2], {})),
        ("world_size, rank", [], ([2, 1], {})),
        ("rank, lr=0.1", ["0.5"], ([1, 0.5], {})),
        ("lr, rank", ["adam"], (["adam", 1], {})),
        ("rank, a=1, b=2", ["b=3"], ([1], {"b": 3})),
        ("rank, *, lr=1, world_size", ["lr=[1, 2]"], ([1], {"world_size": 2, "lr": [1, 2]})),
        ("rank, *names", ["x", "y"], ([1, "x", "y"], {})),
        ("", [], ([], {})),
        ("path='.'", ["a=b"], (["a=b"], {})),
    ],
)
def test_arguments_fill_the_parameters(signature, words, expected):
    assert call(signature, *words) == expected


@pytest.mark.parametrize(
    ("signature", "words", "message"),
    [
        ("rank, lr", [], "needs lr, which nobody fills"),
        ("rank, *, lr", [], "needs lr"),
        ("rank", ["0.1"], "no parameter for 0.1"),
    ],
)
def test_arguments_refuse_what_does_not_fit(signature, words, message):
    with pytest.raises(SpecError, match=message):
        call(signature, *words)
