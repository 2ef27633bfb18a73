"""What cannot work is refused in one short error, and nothing is left of the attempt."""

import os
import socket

import pytest

import ddpnb
from ddpnb.errors import LaunchError, RunDirError, SpecError
from tests.conftest import require
from tests.launch.fault_scenes import small_disk
from tests.launch.scripts import SAY_RANK, script

DEADLINE = 180


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("gone.py", {}, r"there is no script .*gone\.py"),
        ("trian.py", {}, r"did you mean train\.py\?"),
        (".", {}, "is a folder"),
        ("book.ipynb", {}, "is a notebook"),
        (None, {}, "nothing to launch"),
        ("train.py", {"nproc_per_node": 0}, "nproc_per_node is 0"),
        ("train.py", {"nproc_per_node": "x"}, "nproc_per_node is 'x'"),
        ("train.py", {"nproc_per_node": 100_000}, "nproc_per_node is 100000"),
        ("train.py", {"nproc": 2}, "no option 'nproc'; did you mean nproc_per_node"),
        ("train.py", {"device": "tpu"}, "device is 'tpu'"),
        ("train.py", {"cwd": "nowhere"}, "which is no folder"),
        ("train.py", {"cwd": 5}, "cwd is 5, which names no folder"),
        ("train.py", {"env": ["A=1"]}, r"env is \['A=1'\]; give a dict"),
        ("train.py", {"args": ["--lr"]}, "no option 'args'"),
        ("train.py", {"text": b""}, "no option 'text'"),
        ("train.py", {"launcher": "torchrun"}, "launcher is 'torchrun'"),
        ("train.py", {"launcher": ddpnb.Torchrun}, r"Torchrun'>; give \"auto\", or Warm\(\)"),
        ("train.py", {"env": {"A": 1}}, "must be strings"),
        ("train.py", {"timeout": -1}, "timeout is -1"),
    ],
)
def test_launch_refuses_and_leaves_nothing(tmp_path, target, options, message):
    script(SAY_RANK)
    script("{}", "book.ipynb")

    with pytest.raises(SpecError, match=message):
        ddpnb.launch(target, **options)

    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("word", [None, True, ["a"]])
def test_launch_refuses_what_is_no_word_of_a_command_line(word):
    with pytest.raises(SpecError, match="no word of a command line"):
        ddpnb.launch(script(SAY_RANK), word)


def test_an_unreadable_script_is_named(tmp_path):
    (tmp_path / "train.py").symlink_to("train.py")  # a loop: unreadable for root too

    with pytest.raises(SpecError, match=r"train\.py cannot be read: .*symbolic links"):
        ddpnb.launch("train.py")


def test_a_runs_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DDPNB_RUNS", str(tmp_path / "file" / "runs"))

    with pytest.raises(RunDirError, match="set DDPNB_RUNS"):
        ddpnb.launch(script(SAY_RANK))


def test_a_port_that_is_taken_is_refused_at_once(tmp_path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]

        with pytest.raises(LaunchError, match=f"port {port} is already in use.*leave the port out"):
            ddpnb.launch(script(SAY_RANK), launcher=ddpnb.Torchrun(master_port=port))

    assert not (tmp_path / "runs").exists()


def test_a_notebook_folder_may_have_any_name(tmp_path, monkeypatch):
    folder = "a b/it's; echo x; '/données ✅/$HOME `id` $$/%s {x}\n"
    (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / folder)
    monkeypatch.delenv("DDPNB_RUNS")

    job = ddpnb.launch(script(SAY_RANK), nproc_per_node=2)
    job.wait(DEADLINE)

    assert job.folder.is_relative_to(tmp_path / folder / ".ddpnb" / "runs")
    assert sorted(str(line) for line in job.logs()) == ["rank 0 of 2", "rank 1 of 2"]


def test_a_script_that_prints_nothing_succeeds_with_empty_logs():
    job = ddpnb.launch(script("\n"), launcher=ddpnb.Python())

    assert job.wait(DEADLINE).state is ddpnb.JobState.SUCCEEDED
    assert job.logs() == []


def test_logs_of_a_rank_that_is_not_there_are_refused():
    job = ddpnb.launch(script("\n"), launcher=ddpnb.Python())
    job.wait(DEADLINE)

    with pytest.raises(IndexError, match=r"rank is 2, but .* has ranks 0 to 0"):
        job.logs(2)


def test_a_generated_script_does_not_take_the_place_of_the_users_file(tmp_path):
    from tests.launch import cell_functions

    script("mine", "hello_ddp.py")

    with pytest.raises(SpecError, match="is in the way"):
        ddpnb.launch(cell_functions.hello, "you")

    assert (tmp_path / "hello_ddp.py").read_text() == "mine"


def test_a_supervisor_that_cannot_start_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    # A folder in place of ddpnb is what a broken installation looks like to the new process.
    (tmp_path / "broken" / "ddpnb").mkdir(parents=True)
    (tmp_path / "broken" / "ddpnb" / "__init__.py").write_text("raise ImportError('half there')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))

    with pytest.raises(LaunchError, match=r"supervisor could not start[\s\S]*half there"):
        ddpnb.launch(script(SAY_RANK))

    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("value", [float("inf"), object(), {1: float("nan")}])
def test_a_value_that_a_spawned_rank_would_read_differently_is_refused(value):
    from tests.launch import cell_functions

    with pytest.raises(SpecError, match=r"greet|word"):
        ddpnb.launch(cell_functions.greet, word=value, launcher=ddpnb.Spawn())


@pytest.mark.parametrize("name", ["RANK", "MASTER_PORT", "DDPNB_RUN"])
def test_a_variable_that_the_launcher_sets_cannot_be_given(name):
    with pytest.raises(SpecError, match=f"env sets {name}"):
        ddpnb.launch(script(SAY_RANK), env={name: "1"})


@pytest.mark.parametrize("gpus", ["23", 2])
def test_gpus_must_be_a_list(gpus):
    with pytest.raises(SpecError, match="give a list of numbers"):
        ddpnb.launch(script(SAY_RANK), gpus=gpus)


def test_runs_passes_over_a_folder_that_it_cannot_read(tmp_path):
    job = ddpnb.launch(script("\n"), launcher=ddpnb.Python())
    job.wait(DEADLINE)
    for name, text in (("broken", "{"), ("newer", '{"schema": 99}'), ("odd", "{}")):
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / "run.json").write_text(text)

    assert [one.run_id for one in ddpnb.runs()] == [job.run_id] == [ddpnb.attach().run_id]


def test_a_launch_onto_a_full_disk_is_refused_and_leaves_nothing(tmp_path):
    with small_disk(tmp_path / "runs") as mounted:
        require("mount", mounted, "this user may not mount a small disk")
        filler = tmp_path / "runs" / "filler"
        with filler.open("wb") as file:
            file.truncate(0)
            os.posix_fallocate(file.fileno(), 0, (8 << 20) - (48 << 10))

        with pytest.raises(ddpnb.DdpnbError, match=r"disk|No space left"):
            ddpnb.launch(script(SAY_RANK), launcher=ddpnb.Python())

        assert [path.name for path in (tmp_path / "runs").iterdir()] == ["filler"]
