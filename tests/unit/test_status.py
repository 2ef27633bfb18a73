"""What the live view is told of ranks, run and failure."""

import json
import os
from pathlib import Path

from ddpnb.monitor import RunView, fold, fold_end
from ddpnb.notebook import status
from ddpnb.notebook.watch import Snapshot
from ddpnb.records import Event, Exit, JobState, LogLine, RankFailure
from ddpnb.spec import LaunchSpec
from ddpnb.usage import GpuUse, ProcessUse, Usage

SPEC = LaunchSpec(name="t", script=Path("/home/ada/<b>.py"), nproc_per_node=2)


def snapshot(*records, state=JobState.RUNNING, now=100.0, **more):
    view = fold(RunView(run_id="r", world_size=2), records, state, None, now)
    values = {
        "spec": SPEC,
        "view": view,
        "folder": "/home/ada/runs/r",
        "plain": "torchrun x",
    } | more
    return Snapshot(**values)


def metric(rank, step, time):
    return Event(rank=rank, time=time, kind="metric", step=step, data={"loss": 0.5})


def progress(rank, n, time):
    data = {"n": n, "total": 10, "name": "epochs"}
    return Event(rank=rank, time=time, kind="progress", data=data)


def test_a_rank_is_told_with_step_rate_and_how_long_it_has_been_quiet():
    records = [Event(rank=0, time=0.0, kind="start", data={"pid": 7})]
    records += [metric(0, step, 98 + step / 4) for step in range(9)]

    told = status.ranks(snapshot(*records), {}, now=103.0)

    assert told[0] == {
        "rank": 0,
        "state": "running",
        "step": 8,
        "rate": "4",
        "quiet": "3 s",
    }
    assert "rate" not in status.ranks(snapshot(*records), {}, now=130.0)[0]  # it has come to a halt
    assert told[1] == {"rank": 1, "state": "starting"}


def test_what_a_rank_reported_is_told():
    told = status.ranks(snapshot(results={1: {"<b>": 0.98765}}), {}, now=100.0)

    assert [one.get("reported") for one in told] == [None, "<b> 0.9877"]


def test_a_rank_that_falls_behind_is_marked():
    told = status.ranks(snapshot(metric(0, 100, 1.0), metric(1, 90, 1.0)), {}, now=100.0)

    assert [one.get("behind", False) for one in told] == [False, True]


def test_what_a_rank_uses_is_told_while_it_runs():
    used = {0: ProcessUse(cpu_percent=99.6, rss_bytes=300 << 20)}

    (first, _) = status.ranks(snapshot(metric(0, 1, 1.0)), used, now=100.0)

    assert (first["cpu"], first["rss"]) == ("100 %", "300 MiB")


def test_the_run_is_told_with_what_is_left_of_its_slowest_progress():
    shot = snapshot(
        progress(0, 0, 0.0), progress(0, 5, 10.0), progress(1, 0, 0.0), progress(1, 2, 10.0)
    )

    told = status.run(shot, "r", detached=False)

    assert (told["state"], told["eta"], told["done"]) == ("running", "40 s", False)
    assert told["target"] == "<b>.py"  # the page writes it as text
    json.dumps(told, allow_nan=False)


def test_a_failure_is_told_with_the_line_of_the_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("".join(f"line {i}\n" for i in range(1, 20)))
    traceback = (
        'Traceback (most recent call last):\n  File "/home/ada/<b>.py", line 9, in <module>\n'
    )
    first = RankFailure(
        rank=1, type="KeyError", message="'x'", traceback=traceback, hint="look \x1b]0;t\x07here"
    )
    other = RankFailure(rank=0, signal="SIGTERM", exitcode=-15, consequence_of=1)
    shot = snapshot(state=JobState.FAILED, failures=(first, other), cause="report\nof it")

    told = status.failure(shot, script)

    assert told["title"] == "First to fail: rank 1, KeyError: 'x'"
    assert told["hint"] == "look here"
    assert told["place"]["lines"][told["place"]["line"] - told["place"]["first"]] == "line 9"
    assert told["others"] == ["rank 0: killed by SIGTERM (exit code -15)"]
    assert told["report"] == "report\nof it"


def test_a_run_that_did_not_fail_has_no_failure(tmp_path):
    assert status.failure(snapshot(), tmp_path) is None


def test_an_ended_rank_is_told_with_how_it_ended():
    view = fold_end(snapshot(LogLine(rank=0, stream="stdout", text="x", offset=0)).view, [
        Exit(rank=0, exitcode=0), Exit(rank=1, exitcode=-9),
    ])  # fmt: skip
    view = fold(view, [], JobState.FAILED, None)

    told = status.ranks(snapshot(view=view), {}, now=500.0)

    assert [one["exit"] for one in told] == ["exit code 0", "killed by SIGKILL"]
    assert "quiet" not in told[0]


def test_a_gpu_is_told_with_the_ranks_that_hold_it():
    use = GpuUse(
        index=2, name="H200", percent=97.0, used_bytes=3 << 30, total_bytes=139 << 30, watts=650.4,
        pids=(41, 42),
    )  # fmt: skip

    told = status.gpu(use, {42: 0})

    assert told["memory"] == "3.0 GiB of 139 GiB"
    assert (told["power"], told["temperature"]) == ("650 W", "")
    assert told["holders"] == "pid 41, rank 0"


def test_the_use_of_a_process_is_read_and_a_gone_one_has_none():
    used = Usage().of([os.getpid(), 2**22 + 1, -5])

    assert list(used) == [os.getpid()]
    assert used[os.getpid()].rss_bytes > 1 << 20
    assert used[os.getpid()].cpu_percent >= 0
