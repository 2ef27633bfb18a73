"""The run folder, and the state that it tells."""

import json
import os
import stat
import time

import pytest

from ddpnb.errors import RunDirError
from ddpnb.job import Job
from ddpnb.json_files import read_json, write_json
from ddpnb.process import ProcessId
from ddpnb.records import JobState
from ddpnb.rundir import RunDir, runs_folder
from ddpnb.spec import LaunchSpec

ME = ProcessId.of(os.getpid())
GONE = ProcessId(pid=ME.pid, start_time=0, boot_id=ME.boot_id)


@pytest.fixture
def run(tmp_path):
    run = RunDir.propose(tmp_path / ".ddpnb" / "runs", "train me/../x")
    spec = LaunchSpec(name="train", script=tmp_path / "train.py")
    run.create(spec, launcher={}, command={}, script=b"print()", owner=ME)
    return run


def processes(keeper, supervisor, started=1.0):
    return {
        "keeper": keeper.to_json(),
        "supervisor": supervisor.to_json(),
        "started": started,
    }


def test_create_makes_a_private_folder_that_git_ignores(run, tmp_path):
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in (run.run, run.script, run.command)} == {0o600}
    assert (tmp_path / ".ddpnb" / ".gitignore").read_text() == "*\n"
    assert run.path.parent == tmp_path / ".ddpnb" / "runs"  # a hostile name stays inside


def test_open_gives_back_the_spec(run):
    assert RunDir.open(run.path).read_spec().name == "train"


def test_open_refuses_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(RunDirError, match="no run folder"):
        RunDir.open(tmp_path)


def test_open_refuses_a_newer_schema(run):
    write_json(run.run, read_json(run.run) | {"schema": 99})

    with pytest.raises(RunDirError, match="newer ddpnb"):
        RunDir.open(run.path)


def test_create_says_what_to_do_when_the_folder_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    run = RunDir.propose(tmp_path / "file" / "runs", "train")

    with pytest.raises(RunDirError, match=r"cannot write the run folder .*DDPNB_RUNS"):
        run.create(
            LaunchSpec(name="a", script=tmp_path), launcher={}, command={}, script=None, owner=ME
        )


@pytest.mark.parametrize(
    ("keeper", "supervisor", "started", "expected"),
    [
        (ME, ME, None, JobState.PENDING),
        (ME, GONE, 1.0, JobState.RUNNING),
        (GONE, ME, 1.0, JobState.RUNNING),
        (GONE, GONE, 1.0, JobState.LOST),
    ],
)
def test_state_follows_the_two_supervising_processes(run, keeper, supervisor, started, expected):
    write_json(run.processes, processes(keeper, supervisor, started))

    assert run.state()[0] is expected


ELSEWHERE = ProcessId(pid=1, start_time=1, boot_id="another", host="another-machine")


@pytest.mark.parametrize(
    ("seconds_ago", "expected"), [(0, JobState.RUNNING), (1000, JobState.LOST)]
)
def test_a_run_on_another_machine_lives_as_long_as_it_shows_so(run, seconds_ago, expected):
    write_json(run.processes, processes(ELSEWHERE, ELSEWHERE))
    then = time.time() - seconds_ago
    os.utime(run.processes, (then, then))

    assert run.state()[0] is expected


def test_a_run_on_another_machine_cannot_be_stopped_from_here(run):
    write_json(run.processes, processes(ELSEWHERE, ELSEWHERE))

    with pytest.raises(RunDirError, match="runs on another-machine"):
        Job(run).stop()


def test_a_sign_of_life_makes_processes_json_new(run):
    write_json(run.processes, processes(ME, ME))
    os.utime(run.processes, (0, 0))

    run.show_life()

    assert run.processes.stat().st_mtime > 0


@pytest.mark.parametrize(
    ("returncode", "reason", "expected"),
    [
        (0, None, JobState.SUCCEEDED),
        (1, None, JobState.FAILED),
        (None, None, JobState.FAILED),
        (0, "stopped", JobState.STOPPED),
        (1, "owner died", JobState.STOPPED),
        (0, "time limit of 3 s passed", JobState.FAILED),
        (None, "supervisor died", JobState.FAILED),
    ],
)
def test_state_follows_exit_json(run, returncode, reason, expected):
    write_json(run.exit, {"returncode": returncode, "reason": reason})

    assert run.state() == (expected, reason)


def test_state_is_pending_before_the_supervisor_has_said_who_it_is(run):
    assert run.state()[0] is JobState.PENDING


def test_state_is_lost_when_the_launching_process_died_before_the_supervisor_began(run):
    write_json(run.run, read_json(run.run) | {"launched_by": GONE.to_json()})

    assert run.state() == (JobState.LOST, "the launch was broken off")


def test_write_json_leaves_no_temporary_file_and_keeps_odd_text(tmp_path):
    write_json(tmp_path / "a.json", {"text": "\udcff перплексия"})

    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert "перплексия" in json.loads((tmp_path / "a.json").read_bytes())["text"]


def test_runs_folder_can_be_moved(tmp_path, monkeypatch):
    assert runs_folder({}) == tmp_path / ".ddpnb" / "runs"
    assert runs_folder({"DDPNB_RUNS": "elsewhere"}) == tmp_path / "elsewhere"


def test_an_id_that_is_taken_is_drawn_again_and_nobody_elses_run_is_touched(tmp_path, monkeypatch):
    drawn = iter(["aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr("ddpnb.rundir.secrets.token_hex", lambda _: next(drawn))
    monkeypatch.setattr("ddpnb.rundir.time.strftime", lambda _: "20260101-000000")
    spec = LaunchSpec(name="t", script=tmp_path / "t.py")
    first = RunDir.propose(tmp_path, "t")
    first.create(spec, launcher={}, command={}, script=None, owner=None)

    assert RunDir.propose(tmp_path, "t").run_id.endswith("bbbb")
    with pytest.raises(RunDirError, match="File exists"):
        RunDir(first.path).create(spec, launcher={}, command={}, script=None, owner=None)
    assert first.run.exists()
