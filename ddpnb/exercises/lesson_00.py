"""Checks of lesson 00: the environment of each rank, a port of one's own, a clean stop, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpnb.exercises.checks import Verdict, exercise
from ddpnb.job import Job
from ddpnb.process import ProcessId
from ddpnb.records import JobState

__all__: list[str] = []

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT")


@exercise("00-env")
def check_env(job: Any) -> Verdict:
    """Each rank reports what torchrun told it."""
    if unready := _unready(job):
        return unready
    for rank in range(job.spec.world_size):
        said = job.results.get(rank, {})
        missing = [name for name in VARIABLES if name not in said]
        if missing:
            hint = f"Report {', '.join(missing)} too: `os.environ` holds them under these names."
            return _not_yet(hint, f"rank {rank} reported {sorted(said)}")
        expected = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job.spec.world_size}
        for name, value in expected.items():
            if _whole(said[name]) != value:
                hint = f"Read {name} from `os.environ` in the rank, rather than typing a number."
                return _not_yet(hint, f"rank {rank} reported {name}={said[name]!r}")
    return _one_port(job) or Verdict(
        passed=True,
        detail="RANK tells the ranks apart; WORLD_SIZE and MASTER_PORT are the same for all.",
    )


@exercise("00-port")
def check_port(ports: Any, *, jobs: Sequence[Any]) -> Verdict:
    """Each run has a port of its own."""
    for job in jobs:
        if unready := _unready(job) or _one_port(job):
            return unready
    actual = [_whole(job.results[0]["MASTER_PORT"]) for job in jobs]
    if not isinstance(ports, (list, tuple)) or len(ports) != len(actual):
        return _not_yet(f"Give a list of {len(actual)} numbers: the port of each run, in order.")
    if [_whole(port) for port in ports] != actual:
        hint = "Look at `results[0]` of each job, in the order of the jobs."
        return _not_yet(hint, f"you gave {list(ports)}")
    if len(set(actual)) < len(actual):
        return _not_yet("Launch both runs again.", f"the runs share {actual}")
    return Verdict(
        passed=True,
        detail=f"{actual}: a free port was chosen for each run, so that two runs, or two people on"
        " one server, do not collide.",
    )


@exercise("00-stop")
def check_stop(job: Any) -> Verdict:
    """A job ends at a word, with its ranks' work saved and no process left."""
    if not isinstance(job, Job):
        return _not_yet("Give the job itself, the variable that `--as` named.")
    if not job.done:
        hint = "Which method of the job ends it? Type the job's name and a dot, then press Tab."
        return _not_yet(hint, f"the job is {job.state.value}")
    if job.state is not JobState.STOPPED:
        hint = "It ended by itself. Launch it again and stop it while it counts."
        return _not_yet(hint, f"the job has {job.state.value}")
    ranks = range(job.spec.world_size)
    unsaved = [rank for rank in ranks if "stopped_at" not in job.results.get(rank, {})]
    if unsaved:
        hint = "It ended before it could save. Launch it again, wait for a step, then `stop()` it."
        return _not_yet(hint, f"ranks {unsaved} reported no `stopped_at`")
    alive = [process.pid for process in _processes(job) if process.is_alive()]
    if alive:
        return _not_yet("They are about to end; run this cell again.", f"still running: {alive}")
    counts = [job.results[rank]["stopped_at"] for rank in ranks]
    return Verdict(
        passed=True,
        detail=f"Each rank was told, saved its count ({counts}) and left; no process remains.",
    )


@exercise("00-padding")
def check_padding(answer: Any) -> Verdict:
    """DistributedSampler repeats samples until every rank has equally many."""
    if _whole(answer) == 3:
        detail = "4 x 450 = 1,800 = 1,797 + 3. `exact_shard` deals out each image once instead."
        return Verdict(passed=True, detail=detail)
    hints = {
        0: "1,797 / 4 is no whole number, yet every rank gets equally many.",
        1: "That is the number for 2 ranks: 2 x 899 = 1,798.",
        450: "So many does each rank get. How many is that in all, and how many images are there?",
    }
    hint = hints.get(_whole(answer) or 0, "Round 1,797 / 4 up: so many does each rank get.")
    return _not_yet(hint, f"you said {answer}")


def _not_yet(hint: str, detail: str = "") -> Verdict:
    return Verdict(passed=False, hint=hint, detail=detail)


def _unready(job: Any) -> Verdict | None:
    """Return what keeps a job from being looked at, or None."""
    if not isinstance(job, Job):
        return _not_yet("Give the job itself, the variable that `--as` named.")
    if job.state is not JobState.SUCCEEDED:
        hint = "Let it end well first: `await` it, and read what it says when it fails."
        return _not_yet(hint, f"{job.run_id} is {job.state.value}")
    return None


def _one_port(job: Job) -> Verdict | None:
    """Return what is wrong with the port that the ranks reported, or None."""
    ports = {_whole(result.get("MASTER_PORT")) for result in job.results.values()}
    if len(ports) == 1 and None not in ports:
        return None
    hint = "Report MASTER_PORT from `os.environ` on every rank: it is where all of them meet."
    return _not_yet(hint, f"{job.run_id} reported {sorted(map(str, ports))}")


def _processes(job: Job) -> list[ProcessId]:
    starts = [start for rank in job.run.ranks() for start in job.run.rank(rank).starts()]
    return [ProcessId.from_json(start.data) for start in starts]


def _whole(value: Any) -> int | None:
    """Return the whole number that a value is or spells, or None."""
    text = str(value).strip()
    return int(text) if text.isdecimal() else None
