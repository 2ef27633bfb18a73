"""The grammar of `ddpnb`, its exit codes, and how lessons are copied. Nothing is launched."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddpnb import __version__
from ddpnb.cli import main
from ddpnb.errors import DdpnbError
from ddpnb.lab import copy_lessons, lessons_folder
from ddpnb.records import JobState, RankFailure, RunResult
from ddpnb.terminal.follower import exit_code
from tests.conftest import ROOT


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_version_is_the_packages():
    assert run("--version").output == f"ddpnb, version {__version__}\n"


def test_help_lists_the_commands():
    found = run("--help").output

    assert all(
        f"\n  {name} " in found for name in "run ps logs attach stop clean lab demo doctor".split()
    )


def test_run_help_has_torchruns_options_and_the_exit_codes():
    found = run("run", "--help").output

    for text in ("--nproc-per-node", "--max-restarts", "--dryrun", "-m, --module", "Exit code:"):
        assert text in found


def test_run_needs_a_target():
    found = run("run", "-n", "2")

    assert found.exit_code == 2
    assert "Missing argument 'TARGET'" in found.stderr


def test_run_names_the_nearest_option():
    found = run("run", "--nproc", "2", "train.py")

    assert found.exit_code == 2
    assert "--nproc-per-node" in found.stderr


def test_dryrun_prints_the_command_and_writes_nothing(tmp_path: Path):
    Path("train.py").write_text("")

    found = run("run", "--dryrun", "-n", "2", "--device", "cpu", "train.py", "--lr", "0.1")

    assert found.exit_code == 0
    assert "torchrun --standalone --nproc-per-node 2" in found.output
    assert "train.py --lr 0.1" in found.output
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_options_may_have_torchruns_underscores_and_end_at_the_script():
    Path("train.py").write_text("")

    found = run("run", "--dryrun", "--nproc_per_node=2", "--device=cpu", "train.py", "--n_p", "-n")

    assert "--nproc-per-node 2" in found.output
    assert "train.py --n_p -n" in found.output


def test_dryrun_of_a_module():
    found = run("run", "--dryrun", "--device", "cpu", "-m", "package.train", "--x", "1")

    assert "-m package.train --x 1" in found.output


def test_a_missing_script_is_refused_without_a_traceback():
    Path("train.py").write_text("")

    found = run("run", "trian.py")

    assert found.exit_code == 2
    assert found.stderr.startswith("ddpnb: there is no script")
    assert "did you mean train.py?" in found.stderr
    assert "Traceback" not in found.output


def test_a_refusal_does_not_pass_on_control_sequences():
    found = run("run", "\x1b]0;title\x07\x1bc.py")

    assert found.exit_code == 2
    assert "\x1b" not in found.stderr


def failed(exitcode: int | None, reason: str | None = None) -> RunResult:
    first = RankFailure(rank=1, exitcode=exitcode)
    return RunResult(run_id="x", state=JobState.FAILED, reason=reason, failures=(first,))


@pytest.mark.parametrize(
    ("result", "signum", "code"),
    [
        (RunResult(run_id="x", state=JobState.SUCCEEDED), None, 0),
        (RunResult(run_id="x", state=JobState.SUCCEEDED), 2, 0),  # Ctrl-C came too late
        (RunResult(run_id="x", state=JobState.STOPPED), 2, 130),
        (RunResult(run_id="x", state=JobState.STOPPED), 15, 143),
        (RunResult(run_id="x", state=JobState.STOPPED), None, 143),
        (RunResult(run_id="x", state=JobState.LOST), None, 1),
        (failed(7), None, 7),
        (failed(-9), None, 137),
        (failed(None), None, 1),
        (failed(-15, "time limit of 3 s passed"), None, 124),
    ],
)
def test_exit_code(result: RunResult, signum: int | None, code: int):
    assert exit_code(result, signum) == code


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("00_a.ipynb", "01_b.ipynb"):
        (folder / name).write_text(f"first {name}")
    return folder


def lessons_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*.ipynb"))}


def test_lessons_are_copied_into_a_new_folder(tmp_path: Path, source: Path):
    said = copy_lessons(tmp_path / "a b" / "my lessons", source)

    assert lessons_in(tmp_path / "a b" / "my lessons") == lessons_in(source)
    assert str(tmp_path / "a b" / "my lessons") in said
    assert "Kept" not in said


def test_a_lesson_that_the_learner_changed_is_kept(tmp_path: Path, source: Path):
    mine = tmp_path / "mine"
    copy_lessons(mine, source)
    (mine / "00_a.ipynb").write_text("my answers")
    (source / "00_a.ipynb").write_text("second")
    (source / "01_b.ipynb").write_text("second")

    said = copy_lessons(mine, source)

    assert lessons_in(mine) == {"00_a.ipynb": "my answers", "01_b.ipynb": "second"}
    assert "00_a.ipynb" in said
    assert "01_b.ipynb" not in said


def test_a_file_of_the_learner_with_a_lessons_name_is_kept(tmp_path: Path, source: Path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "00_a.ipynb").write_text("mine from elsewhere")

    copy_lessons(mine, source)
    said = copy_lessons(mine, source)

    assert (mine / "00_a.ipynb").read_text() == "mine from elsewhere"
    assert "00_a.ipynb" in said


def test_a_lesson_that_was_taken_away_comes_back(tmp_path: Path, source: Path):
    mine = tmp_path / "mine"
    copy_lessons(mine, source)
    (mine / "00_a.ipynb").unlink()

    copy_lessons(mine, source)

    assert lessons_in(mine) == lessons_in(source)


def test_every_difference_counts_as_a_change_when_the_note_is_broken(tmp_path: Path, source: Path):
    mine = tmp_path / "mine"
    copy_lessons(mine, source)
    (mine / ".lessons.json").write_text("{")
    (source / "00_a.ipynb").write_text("second")

    copy_lessons(mine, source)

    assert (mine / "00_a.ipynb").read_text() == "first 00_a.ipynb"


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path, source: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(DdpnbError, match=r"cannot write the lessons to .*file.*ddpnb lab DIR"):
        copy_lessons(tmp_path / "file" / "lessons", source)


def test_lessons_of_an_installed_package_go_before_those_of_a_checkout(tmp_path: Path):
    for folder in (tmp_path / "ddpnb/lessons", tmp_path / "notebooks"):
        folder.mkdir(parents=True)
        (folder / "00_a.ipynb").write_text("")

    assert lessons_folder(tmp_path / "ddpnb") == tmp_path / "ddpnb/lessons"


def test_lessons_of_this_checkout_are_found():
    assert lessons_folder(ROOT / "ddpnb") == ROOT / "notebooks"


def test_an_installation_without_lessons_says_so(tmp_path: Path):
    with pytest.raises(DdpnbError, match="there are no lessons in"):
        lessons_folder(tmp_path / "ddpnb")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("logs",), "there are no runs in"),
        (("logs", "abc"), "there is no run 'abc'"),
        (("stop",), "Missing argument 'RUN...'"),
        (("clean",), "say what may go"),
        (("clean", "--older-than", "soon"), "'soon' is no age"),
        (("clean", "--keep", "-1"), "-1"),
    ],
)
def test_the_commands_for_runs_say_what_is_missing(words, message):
    found = run(*words)

    assert found.exit_code == 2
    assert message in found.stderr


def test_ps_and_clean_are_content_without_runs():
    assert run("ps").output == "no runs\n"
    assert run("clean", "--keep", "0").output == "removed 0 of 0 runs, 0 B\n"


@pytest.mark.parametrize(
    ("words", "folder", "passed_on"),
    [
        (["--allow-root"], "ddpnb-lessons", ["--allow-root"]),
        (["mine", "--port=9999", "--", "x.ipynb"], "mine", ["--port=9999", "x.ipynb"]),
    ],
)
def test_lab_leaves_what_is_not_its_own_to_jupyterlab(words, folder, passed_on, monkeypatch):
    seen = []
    monkeypatch.setattr("ddpnb.lab.copy_lessons", lambda folder: f"copied to {folder}")
    monkeypatch.setattr("ddpnb.lab.open_lab", lambda *args: seen.append(args))

    done = CliRunner().invoke(main, ["lab", *words])

    assert done.exit_code == 0, done.output
    assert seen == [(Path(folder), passed_on)]


def test_what_several_machines_need_is_refused_by_its_name():
    done = CliRunner().invoke(main, ["run", "--rdzv-backend", "c10d", "train.py"])

    assert done.exit_code == 2
    assert "--rdzv-backend is for several machines" in done.output
