"""Functions as a notebook would define them, for the tests that launch a function."""

import os

GREETING = "hello"


def line(name: str) -> str:
    return f"rank {os.environ['RANK']} {GREETING} {name}"


def hello(name, times=1):
    for _ in range(times):
        print(line(name))


def greet(rank, world_size, word="hello"):
    print(f"{word} from {rank} of {world_size}")
