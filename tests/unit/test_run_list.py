"""The list of runs: shown as a table, searched, cleaned."""

import json
import os
import shutil

import pytest

from ddpnb.errors import RunDirError
from ddpnb.job import Job
from ddpnb.json_files import read_json, write_json
from ddpnb.process import ProcessId
from ddpnb.run_list import RunList, find, old_runs, readable_runs, remove
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec

ME = ProcessId.of(os.getpid())


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "runs"


def made(folder, name, *, ended=True, created=0.0, script="train.py"):
    """Return a run that was launched `created` seconds after 1970."""
    run = RunDir(folder / name)
    spec = LaunchSpec(name="train", script=folder.parent / script, nproc_per_node=2)
    run.create(spec, launcher={}, command={}, script=b"print()", owner=ME)
    write_json(run.run, read_json(run.run) | {"created": created})
    me = ME.to_json()
    write_json(run.processes, {"keeper": me, "supervisor": me, "started": 1.0})
    if ended:
        write_json(run.exit, {"returncode": 0, "reason": None})
    return run


def names(runs):
    return [run.run_id for run in runs]


def test_the_table_has_a_row_for_each_run(folder):
    made(folder, "one")
    made(folder, "two", ended=False, created=1.0)

    table = repr(RunList(Job(run) for run in readable_runs(folder)))

    head, first, second = table.splitlines()
    assert head.split() == ["run", "state", "script", "ranks", "age", "size"]
    assert first.split()[:4] == ["one", "succeeded", "train.py", "2"]
    assert second.split()[:2] == ["two", "running"]
    assert second.endswith("KiB")


def test_no_runs_are_told_in_words():
    assert repr(RunList()) == RunList()._repr_html_() == "no runs"


def test_a_hostile_name_does_nothing_in_the_table(folder):
    made(folder, "one", script="<script>alert(1)</script>\x1b]0;title\x07.py")

    jobs = RunList(Job(run) for run in readable_runs(folder))

    assert "<script>" not in jobs._repr_html_()
    assert "\x1b" not in jobs._repr_html_() + repr(jobs)


def test_find_takes_an_id_a_part_of_it_or_a_folder(folder, tmp_path):
    made(folder, "20261201-train-ab12", created=1.0)
    newest = made(folder, "20261202-train-cd34", created=2.0)

    assert find("20261202-train-cd34", folder).path == newest.path
    assert find("cd34", folder).path == newest.path
    assert find(newest.path, folder).path == newest.path
    assert find(None, folder).path == newest.path
    with pytest.raises(RunDirError, match="2 runs have 'train' in their id"):
        find("train", folder)
    with pytest.raises(RunDirError, match="there is no run 'nothing'"):
        find("nothing", folder)
    with pytest.raises(RunDirError, match="there are no runs"):
        find(None, tmp_path / "empty")


def test_old_runs_are_never_those_that_live(folder):
    made(folder, "live", ended=False, created=0.0)
    made(folder, "old", created=1.0)
    made(folder, "new", created=4e9)
    runs = readable_runs(folder)

    assert names(old_runs(runs, keep=0)) == ["old", "new"]
    assert names(old_runs(runs, keep=1)) == ["old"]
    assert names(old_runs(runs, keep=5)) == []
    assert names(old_runs(runs, older_than=60)) == ["old"]
    assert names(old_runs(runs, keep=0, older_than=60)) == ["old"]


def test_remove_follows_no_link(folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    run = made(folder, "one")
    (run.artifacts / "link").symlink_to(tmp_path / "mine")

    count, freed = remove([run])

    assert count == 1 and freed > 0
    assert not run.path.exists()
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"


def test_a_run_json_that_is_no_run_is_passed_over(folder, caplog):
    made(folder, "good")
    for name, text in (("odd", "{}"), ("spec", json.dumps({"schema": 1, "spec": 3, "created": 0}))):
        (folder / name).mkdir()
        (folder / name / "run.json").write_text(text)

    assert names(readable_runs(folder)) == ["good"]
    assert "passing over odd" in caplog.text


def test_what_cannot_be_removed_is_told_and_the_rest_goes(folder, tmp_path, caplog):
    made(tmp_path / "elsewhere", "real")
    link = folder / "link"
    folder.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere" / "real")
    run = made(folder, "one")

    count, _ = remove([RunDir(link), run])

    assert count == 1 and not run.path.exists()
    assert "cannot remove link" in caplog.text
    assert (tmp_path / "elsewhere" / "real").is_dir()


@pytest.mark.parametrize("spoil", [
    lambda run: run.exit.write_text(""),
    lambda run: (run.exit.unlink(), run.exit.mkdir()),
    lambda run: (run.exit.unlink(), os.mkfifo(run.exit)),
    lambda run: (run.exit.unlink(), run.exit.symlink_to(run.exit)),
    lambda run: run.exit.write_text("[" * 100_000),
    lambda run: (run.exit.unlink(), run.processes.write_text("{}")),
    lambda run: shutil.rmtree(run.path),
])  # fmt: skip
def test_one_spoilt_run_does_not_hide_the_others(folder, spoil):
    jobs = RunList(Job(made(folder, name)) for name in ("bad", "good"))

    spoil(jobs[0].run)

    told = repr(jobs)
    assert "good" in told and "bad" in told and "? (" in told
    assert "bad" in repr(jobs[0])


@pytest.mark.parametrize("text", [
    '{"schema": "1", "created": 0, "spec": {}}',
    '{"schema": 1, "created": "now", "spec": {}}',
    "[" * 100_000,
])  # fmt: skip
def test_a_spoilt_run_json_is_passed_over(folder, text, caplog):
    made(folder, "good")
    made(folder, "bad").run.write_text(text)

    assert names(readable_runs(folder)) == ["good"]
    assert "passing over bad" in caplog.text


def test_a_part_of_an_id_means_the_one_run_that_is_not_over(folder):
    made(folder, "slow-1")
    made(folder, "slow-2", ended=False)

    assert find("slow", folder).run_id == "slow-2"
    made(folder, "slow-3", ended=False)
    with pytest.raises(RunDirError, match="3 runs have 'slow' in their id"):
        find("slow", folder)
