"""What a view knows of a run, read from folders that no launch has made."""

import os

import pytest

from ddpnb.job import Job
from ddpnb.json_files import write_json
from ddpnb.notebook.watch import Watch
from ddpnb.process import ProcessId
from ddpnb.records import JobState
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec


@pytest.fixture
def make(tmp_path):
    def make(name, *, after=(), gpus=("0", "1")):
        run = RunDir.propose(tmp_path / "runs", name)
        spec = LaunchSpec(
            name=name,
            script=tmp_path / "t.py",
            nproc_per_node=2,
            device="cuda",
            gpus=gpus,
        )
        run.create(
            spec,
            launcher={"name": "torchrun"},
            command={"plain": "torchrun t.py"},
            script=b"",
            owner=None,
            after=after,
            gpus=[{"index": int(key), "name": "H", "uuid": "U"} for key in gpus],
        )
        for rank in (0, 1):
            run.rank(rank).path.mkdir()
        return run

    return make


def start(run):
    me = ProcessId.of(os.getpid()).to_json()
    write_json(run.processes, {"keeper": me, "supervisor": me, "started": 1000.0})


def end(run, returncode=0, **more):
    exits = [{"rank": rank, "exitcode": returncode} for rank in (0, 1)]
    times = {"started": 1000.0, "ended": 1012.5}
    write_json(run.exit, {"returncode": returncode, "exits": exits, **times, **more})


def test_waiting_run_names_the_gpus_and_who_holds_them(make):
    holder = make("first", gpus=("1", "2"))
    start(holder)
    run = make("second", after=[holder.run_id], gpus=("0", "1"))

    waits_for = Watch(Job(run)).look().waits_for

    assert f"waiting for GPU 1 held by run {holder.run_id}" in waits_for
    assert "gpus=[...] chooses others" in waits_for


def test_nothing_is_waited_for_when_the_holder_has_ended(make):
    holder = make("first")
    end(holder)

    assert Watch(Job(make("second", after=[holder.run_id]))).look().waits_for == "starting…"


def test_running_run_shows_lines_and_the_bar_on_its_way(make):
    run = make("t")
    start(run)
    run.rank(0).stdout.write_text("one\ntwo\n")
    run.rank(1).stderr.write_text("\r 1%\r 2%")

    seen = Watch(Job(run)).look()

    assert seen.view.state is JobState.RUNNING
    assert [str(line) for line in seen.recent] == ["one", "two"]
    assert [str(line) for line in seen.unfinished] == [" 2%"]
    assert seen.gpus == ("GPU 0 H", "GPU 1 H")


def test_last_look_holds_everything_and_how_each_rank_ended(make):
    run = make("t")
    run.rank(1).stdout.write_text("the last words")
    end(run, returncode=3)

    seen = Watch(Job(run)).look()

    assert seen.done
    assert [str(line) for line in seen.view.ranks[1].lines] == ["the last words"]
    assert [seen.view.ranks[rank].exit.exitcode for rank in (0, 1)] == [3, 3]
    assert seen.seconds == 12.5
    assert "First to fail: rank 0" in seen.cause


def test_flood_is_cut_to_its_end(make):
    run = make("t")
    run.rank(0).stdout.write_text("line\n" * 100_000)

    seen = Watch(Job(run)).look()

    assert len(seen.recent) == 200
    assert len(seen.view.ranks[0].lines) == 200
