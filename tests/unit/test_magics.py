"""The magics in a shell of their own, without a notebook's front end."""

import sys
from pathlib import Path

import numpy
import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from ddpnb import load_ipython_extension
from ddpnb.errors import DdpnbError, SpecError
from ddpnb.notebook.magics import expand
from ddpnb.options import OPTIONS
from tests.conftest import wait_until


@pytest.fixture
def shell(monkeypatch):
    """A shell with the magics, which is gone again after the test."""
    monkeypatch.setattr("ddpnb.api._listeners", [])
    main = sys.modules["__main__"]
    config = Config({"HistoryManager": {"enabled": False}})
    shell = InteractiveShell.instance(config=config)
    load_ipython_extension(shell)
    yield shell
    if "job" in shell.user_ns:
        shell.user_ns["job"].kill()
    shell.restore_sys_module_state()
    sys.modules["__main__"] = main
    InteractiveShell.clear_instance()


def run(shell, cell):
    """Run a cell as the notebook does; return its error, or None."""
    return shell.run_cell(cell, store_history=True).error_in_exec


NAMES = {"lr": 0.1, "n": 2, "out": Path("my results"), "text": "a b", "np": numpy.float32(0.5)}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("{lr}", "0.1"),
        ("{n}", "2"),
        ("{out}", "my results"),
        ("--text={text}", "--text=a b"),
        ("{np}", "0.5"),
        ("{n}x{n}", "2x2"),
        ("{{lr}}", "{{lr}}"),
        ("$lr", "$lr"),
        ("${HOME}x", None),
        ("{lr.real}", "{lr.real}"),
        ("{lr:.2f}", "{lr:.2f}"),
        ("{}", "{}"),
        ("{0}", "{0}"),
        ('{"json": 1}', '{"json": 1}'),
        ("{ lr }", "{ lr }"),
    ],
)
def test_only_plain_names_in_braces_are_replaced(word, expected):
    if expected is None:
        with pytest.raises(SpecError, match="HOME"):
            expand([word], NAMES)
    else:
        assert expand([word], NAMES) == [expected]


def test_value_is_not_expanded_again():
    assert expand(["{a}"], {"a": "{b}", "b": "no"}) == ["{b}"]


@pytest.mark.parametrize("value", [[1], None, True, {"a": 1}, object()])
def test_value_that_is_no_word_is_refused_with_its_name(value):
    with pytest.raises(SpecError, match=f"{{thing}} is a {type(value).__name__}"):
        expand(["{thing}"], {"thing": value})


def test_ddp_writes_the_cell_runs_it_and_binds_the_job(shell, tmp_path, capfd):
    cell = "%%ddp --launcher python hello.py --x '{where}'\nimport sys\nprint(sys.argv[1:])\n"

    assert run(shell, "where = 'a b'") is None
    assert run(shell, cell) is None

    job = shell.user_ns["job"]
    job.wait(120)
    assert [str(line) for line in job.logs(0)] == ["['--x', 'a b']"]
    assert (tmp_path / "hello.py").read_text().split("\n")[1:] == cell.split("\n")[1:]
    assert "job.wait() waits for it" in capfd.readouterr().out


def test_as_names_the_job(shell, tmp_path):
    (tmp_path / "hello.py").write_text("print(1)\n")

    assert run(shell, "%ddp --launcher python --as other hello.py") is None

    shell.user_ns["other"].wait(120)
    assert "job" not in shell.user_ns


def test_traceback_of_a_rank_has_the_cells_line_when_blank_lines_precede_it(shell, tmp_path):
    cell = "\n\n%%ddp --launcher python late.py\n1 / 0\n"

    assert run(shell, cell) is None
    error = run(shell, "job.wait(120)")

    assert f'"{tmp_path / "late.py"}", line 4' in str(error)


def test_a_changed_cell_may_be_launched_while_the_old_one_still_runs(shell, tmp_path):
    cell = "%%ddp --launcher python --as {} long.py\nimport time\nprint({!r})\ntime.sleep({})\n"

    assert run(shell, cell.format("old", "old", 600)) is None
    assert run(shell, cell.format("new", "new", 0)) is None

    shell.user_ns["new"].wait(120)
    wait_until(lambda: shell.user_ns["old"].logs())
    shell.user_ns["old"].kill()
    assert str(shell.user_ns["old"].logs()[0]) == "old"
    assert str(shell.user_ns["new"].logs()[0]) == "new"


def test_ddp_script_only_writes(shell, tmp_path, capfd):
    assert run(shell, "%%ddp_script hello.py\nprint(1)\n") is None

    assert (tmp_path / "hello.py").read_text().endswith("print(1)\n")
    assert "job" not in shell.user_ns
    assert "Wrote hello.py" in capfd.readouterr().out


def test_ddp_says_where_it_kept_a_file_of_the_user(shell, tmp_path, capfd):
    (tmp_path / "hello.py").write_text("mine = 1\n")

    assert run(shell, "%%ddp_script hello.py\nprint(1)\n") is None

    assert (tmp_path / "hello.py.bak").read_text() == "mine = 1\n"
    assert "hello.py.bak" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%ddp -n 2 t.py\n \n", "no script below the magic's line"),
        ("%%ddp -n 2 t.py\n!ls\n", "line 2 of the cell is a shell command"),
        ("%%ddp -n 2\nx = 1\n", "needs a script"),
        ("%%ddp -n 2 -m pkg.train\nx = 1\n", "%ddp -m pkg.train"),
        ("%%ddp -n 2 t.ipynb\nx = 1\n", "is a notebook"),
        ("%%ddp -n {width} t.py\nx = 1\n", "variable width"),
        ("%%ddp --as not-a-name t.py\nx = 1\n", "no name of a variable"),
        ("%%ddp --as class t.py\nx = 1\n", "no name of a variable"),
        ("%%ddp --nprocs 2 t.py\nx = 1\n", "--nprocs"),
        ("%%ddp --cwd nowhere t.py\nx = 1\n", "which is no folder"),
        ("%%ddp -n 2 \\\nx = 1\n", "one line"),
        ("%%ddp_script\nx = 1\n", "one word"),
        ("%%ddp_script a.py b.py\nx = 1\n", "one word"),
        ("%ddp missing.py", "there is no script"),
    ],
)
def test_refusal_writes_and_starts_nothing(cell, message, shell, tmp_path):
    error = run(shell, cell)

    assert isinstance(error, DdpnbError)
    assert message in str(error)
    assert list(tmp_path.iterdir()) == []


def test_refusal_is_shown_as_a_message_without_frames(shell, capfd):
    run(shell, "%%ddp t.py\nx = = 1\n")

    shown = capfd.readouterr().out
    assert "CellError" in shown
    assert "line 2 of the cell" in shown
    assert "Traceback" not in shown and "magics.py" not in shown


def test_refusal_from_a_function_of_the_notebook_says_where(shell, capfd):
    cell = "import ddpnb\ndef go():\n    ddpnb.launch('missing.py')\ngo()\n"

    run(shell, cell)

    shown = capfd.readouterr().out
    assert "line 3, in go" in shown
    assert "api.py" not in shown


@pytest.mark.parametrize("cell", ["%ddp", "%ddp --help", "%ddp?", "%%ddp?"])
def test_help_shows_every_option(cell, shell, capfd):
    assert run(shell, cell) is None

    shown = capfd.readouterr().out
    missing = [o.opts[-1] for o in OPTIONS if o.opts[-1] not in shown]
    assert missing == []


@pytest.mark.parametrize("line", ["-n 0 mine.py", "--gpus 7 mine.py", "-n 0 sub/new.py"])
def test_a_refused_launch_leaves_the_file_alone(shell, tmp_path, line):
    (tmp_path / "mine.py").write_text("mine = 1\n")

    error = run(shell, f"%%ddp {line}\nprint(1)\n")

    assert isinstance(error, DdpnbError)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
    assert (tmp_path / "mine.py").read_text() == "mine = 1\n"
