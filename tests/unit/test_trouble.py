"""What the supervisor says and does about ranks in trouble."""

import signal
from dataclasses import dataclass, field

import pytest

from ddpnb.launchers.trouble import ALONE_SECONDS, QUIET_SECONDS, RAISED_SECONDS, Trouble
from ddpnb.launchers.watch import RankProcess
from ddpnb.rundir import RunDir

STACKS = 39

STOP = "; a stop shows where in the script each rank is"


class Process:
    """Takes the place of a ProcessId; remembers the signals."""

    def __init__(self):
        self.sent = []

    def send(self, signum):
        self.sent.append(signum)


@dataclass
class Seen:
    """Takes the place of a Watch."""

    ranks: dict = field(default_factory=dict)
    last_sign: dict = field(default_factory=dict)
    failed: list = field(default_factory=list)

    def alive(self):
        return [rank for rank in self.ranks.values() if rank.ended_at is None]

    def with_error(self):
        return self.failed


@pytest.fixture
def seen():
    ranks = {
        (rank, 0): RankProcess(rank=rank, attempt=0, process=Process(), stacks_signal=STACKS)
        for rank in range(3)
    }
    return Seen(ranks=ranks, last_sign=dict.fromkeys(range(3), 0.0))


@pytest.fixture
def said():
    return []


@pytest.fixture
def trouble(tmp_path, seen, said):
    return Trouble(RunDir(tmp_path), seen, said.append)


def sent(seen):
    return [rank.process.sent for rank in seen.ranks.values()]


def test_the_first_error_has_the_others_say_where_they_are(trouble, seen):
    trouble.look(1.0)
    seen.failed = [seen.ranks[1, 0]]
    trouble.look(2.0)
    seen.failed = [seen.ranks[1, 0], seen.ranks[0, 0]]
    trouble.look(3.0)

    assert sent(seen) == [[STACKS], [], [STACKS]]


def test_a_rank_that_is_not_armed_is_not_asked(trouble, seen):
    seen.ranks[2, 0].stacks_signal = None
    seen.failed = [seen.ranks[1, 0]]

    trouble.look(1.0)

    assert sent(seen) == [[STACKS], [], []]


def test_a_rank_that_has_failed_and_stays_is_ended_in_two_steps(trouble, seen, said):
    seen.failed = [seen.ranks[1, 0]]
    rank = seen.ranks[1, 0].process

    for now in (0.0, RAISED_SECONDS - 0.1):
        trouble.look(now)
    assert rank.sent == []
    for now in (RAISED_SECONDS, RAISED_SECONDS + 1):
        trouble.look(now)
    assert rank.sent == [signal.SIGTERM]
    for now in (RAISED_SECONDS + 3, RAISED_SECONDS + 4):
        trouble.look(now)
    assert rank.sent == [signal.SIGTERM, signal.SIGKILL]
    assert said == ["rank 1 has failed, but has not left 15 s later: it is ended"]


def test_a_rank_that_left_long_before_the_others_is_told_once(trouble, seen, said):
    seen.ranks[1, 0].ended_at = 5.0

    for now in (6.0, 5.1 + ALONE_SECONDS, 20.0):
        trouble.look(now)

    assert said == ["rank 1 left 10 s ago, while ranks 0, 2 still run"]


def test_silence_is_told_with_the_last_lines_and_less_and_less_often(tmp_path, trouble, seen, said):
    for rank in range(3):
        (tmp_path / "ranks" / str(rank)).mkdir(parents=True)
    (tmp_path / "ranks" / "0" / "stdout.log").write_text("one\nepoch 3\n")
    seen.last_sign[2] = 100.0

    for now in (QUIET_SECONDS - 1, QUIET_SECONDS, QUIET_SECONDS + 1, 2 * QUIET_SECONDS + 1):
        trouble.look(now)

    assert said == [
        "no output from ranks 0, 1 for 120 s" + STOP,
        "  the last line of rank 0: epoch 3",
        "no output from ranks 0, 1, 2 for 241 s" + STOP,
        "  the last line of rank 0: epoch 3",
    ]


def test_after_new_output_silence_is_told_again(trouble, seen, said):
    trouble.look(QUIET_SECONDS)
    seen.last_sign = dict.fromkeys(range(3), QUIET_SECONDS + 1)
    trouble.look(QUIET_SECONDS + 2)
    trouble.look(2 * QUIET_SECONDS + 1)

    told = "no output from ranks 0, 1, 2 for 120 s" + STOP
    assert said == [told, "there is new output", told]
