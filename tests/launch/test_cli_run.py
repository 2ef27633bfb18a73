"""`ddpnb run` and `ddpnb lab` as processes: output, exit codes, Ctrl-C, closed pipes, kill -9.

Scripts do without torch, and where the launcher does not matter they run as one plain process.
"""

import contextlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ddpnb import attach
from ddpnb.records import JobState
from tests.conftest import wait_until
from tests.launch.scripts import SLEEP, STUBBORN, script

DEADLINE = 300.0
DDPNB = (sys.executable, "-m", "ddpnb")
ONE = ("run", "--launcher", "python", "--device", "cpu")
TWO = ("run", "-n", "2", "--device", "cpu")

LINES = """
import os, sys
rank = os.environ["RANK"]
for i in range(2000):
    print(f"line {i} of {rank}")
print("an error of", rank, file=sys.stderr)
sys.stdout.write("no newline")
"""


def ddpnb(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DDPNB, *words],
        env=os.environ | variables,
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE,
    )


@contextlib.contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Start ddpnb in a process group of its own, with its output in the file `out`."""
    with Path("out").open("wb") as out:
        process = subprocess.Popen(
            [*DDPNB, *words], stdout=out, stderr=out, process_group=0, encoding="utf-8"
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(DEADLINE)


def said() -> str:
    return Path("out").read_text(encoding="utf-8")


def test_all_lines_of_all_ranks_are_there_in_each_ranks_order():
    found = ddpnb(*TWO, script(LINES))

    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    for rank in (0, 1):
        mine = [line for line in lines if line.startswith(f"[rank {rank}] ")]
        expected = [f"[rank {rank}] line {i} of {rank}" for i in range(2000)]
        assert mine == [*expected, f"[rank {rank}] no newline"]
        assert f"[rank {rank}] an error of {rank}" in found.stderr.splitlines()
    assert lines[-1].startswith("[ddpnb] succeeded after ")
    assert lines[-1].endswith(f"run folder {attach().folder}")


def test_a_line_is_there_while_the_run_goes_on():
    name = script("import os, time\nprint('up')\nwhile not os.path.exists('go'): time.sleep(0.01)")

    with started(*ONE, name) as process:
        wait_until(lambda: "[rank 0] up\n" in said())
        goes_on = process.poll() is None
        Path("go").touch()
        assert process.wait(DEADLINE) == 0

    assert goes_on


def test_numbers_that_rank_0_logs_are_lines():
    found = ddpnb(*ONE, script("from ddpnb.worker.events import log\nlog(3, loss=0.5)"))

    assert "[rank 0] step 3  loss 0.5" in found.stdout.splitlines()


def test_what_ranks_write_does_nothing_to_a_terminal():
    text = r"\x1b]0;title\x07\x1b[2J\x1bc\x1b[31mred\x1b[0m [bold]x[/bold] \x9b2J"
    name = script(f'import sys\nprint("{text}")\nraise ValueError("{text}")')

    found = ddpnb(*ONE, name)

    assert "[bold]x[/bold]" in found.stdout
    assert not {"\x1b", "\x07", "\x9b"} & set(found.stdout + found.stderr)


def test_a_locale_without_the_letters_does_not_end_the_watching():
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}

    found = ddpnb(*ONE, script("print('Größe ✓')"), **plain)

    assert found.returncode == 0
    assert r"[rank 0] Gr\xf6\xdfe" in found.stdout


def test_the_exit_code_is_that_of_the_rank_that_failed_first():
    failing = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(600)"

    found = ddpnb(*TWO, script(failing))

    assert found.returncode == 7
    assert "First to fail: rank 1" in found.stderr.splitlines()[-1]


def test_the_report_ends_with_the_error():
    found = ddpnb(*ONE, script("raise ValueError('the batch is empty')"))

    assert found.returncode == 1
    assert "First to fail: rank 0, ValueError: the batch is empty" in found.stderr.splitlines()[-1]
    assert found.stdout.splitlines()[-1].startswith("[ddpnb] failed after ")


def test_a_signal_is_told_as_shells_do():
    found = ddpnb(*ONE, script("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"))

    assert found.returncode == 128 + signal.SIGKILL


def test_the_time_limit_has_an_exit_code_of_its_own():
    found = ddpnb(*ONE, "--timeout", "1", script(SLEEP))

    assert found.returncode == 124
    assert "time limit of 1 s" in found.stdout.splitlines()[-1]


def test_ctrl_c_stops_the_ranks():
    with started(*TWO, script(SLEEP)) as process:
        wait_until(lambda: said().count("] up\n") == 2)
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(DEADLINE)

    assert code == 130
    assert "[ddpnb] stopping: the ranks may take 5 s" in said()
    assert attach().state is JobState.STOPPED


def test_a_second_ctrl_c_kills_them():
    with started(*ONE, "--grace", "600", script(STUBBORN)) as process:
        wait_until(lambda: "[rank 0] up\n" in said())
        os.killpg(process.pid, signal.SIGINT)
        wait_until(lambda: "[rank 0] no\n" in said())
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(DEADLINE)

    assert code == 130
    assert attach().state is JobState.STOPPED


def test_sigterm_stops_the_ranks():
    with started(*ONE, script(SLEEP)) as process:
        wait_until(lambda: "[rank 0] up\n" in said())
        process.terminate()
        code = process.wait(DEADLINE)

    assert code == 143
    assert attach().state is JobState.STOPPED


def test_no_rank_survives_when_the_command_is_killed():
    with started(*TWO, script(SLEEP)) as process:
        wait_until(lambda: said().count("] up\n") == 2)
        process.kill()
        process.wait(DEADLINE)
    wait_until(lambda: attach().done)

    assert attach().reason == "owner died"


def test_a_closed_pipe_does_not_end_the_run():
    name = script("import os, time\nprint('up')\nwhile not os.path.exists('go'): time.sleep(0.01)")
    name = script(Path(name).read_text() + "\nfor i in range(10000): print(i)")

    process = subprocess.Popen(
        [*DDPNB, *ONE, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    with process:
        first = process.stdout.readline()
        process.stdout.close()
        Path("go").touch()
        errors = process.stderr.read()
        code = process.wait(DEADLINE)

    assert first.startswith("[ddpnb] 1 rank of train.py on cpu")
    assert (code, errors) == (0, "")
    assert attach().state is JobState.SUCCEEDED
    assert len(attach().logs(0)) == 10001


def test_ctrl_c_is_heard_while_nobody_reads_the_output():
    """As with a pager that waits for a key: the pipe is full, and our write blocks."""
    name = script("import time\nfor i in range(100_000): print('x' * 100)\ntime.sleep(600)")

    process = subprocess.Popen([*DDPNB, *ONE, name], stdout=subprocess.PIPE, process_group=0)
    with process:
        process.stdout.readline()
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        wait_until(lambda: attach().done)
        process.stdout.close()

        assert process.wait(DEADLINE) == 130


def test_detach_returns_at_once_and_the_run_goes_on():
    found = ddpnb(*ONE, "--detach", script(SLEEP))
    job = attach()

    assert found.returncode == 0
    assert str(job.folder) in found.stdout
    wait_until(lambda: [line.text for line in job.logs(0)] == ["up"])
    assert job.stop() is JobState.STOPPED


class Terminal:
    """A pseudo-terminal with ddpnb in it."""

    def __init__(self, *words: str, columns: int = 100) -> None:
        self.fd, theirs = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            [*DDPNB, *words],
            env={key: value for key, value in os.environ.items() if key != "JPY_PARENT_PID"}
            | {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "30"},
            preexec_fn=lambda: os.login_tty(theirs),
            close_fds=False,
        )
        os.close(theirs)
        os.set_blocking(self.fd, False)

    def read(self) -> str:
        """Return all that was written to the terminal so far."""
        with contextlib.suppress(BlockingIOError, OSError):  # EIO: they have left
            while data := os.read(self.fd, 65536):
                self.shown += data.decode("utf-8", "replace")
        return self.shown

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(DEADLINE)
        os.close(self.fd)

    def wait(self) -> int:
        """Return the exit code; meanwhile read, or they would wait for us."""
        wait_until(lambda: (self.read(), self.process.poll() is not None)[1], DEADLINE)
        self.read()
        return self.process.returncode


def test_a_terminal_gets_a_panel_with_each_rank():
    text = r"\x1b]0;title\x07\x1bc[bold]x[/bold] \x1b[32mgreen\x1b[0m"
    log = "from ddpnb.worker.events import log\nlog(3, loss=0.5)\n"

    with Terminal(*TWO, script(f'{log}print("{text}")')) as terminal:
        code = terminal.wait()

    assert code == 0
    for part in ("[bold]x[/bold]", "loss 0.5", "\x1b[32mgreen", "last line", "succeeded"):
        assert part in terminal.shown
    assert "\x1b]0;" not in terminal.shown
    assert "\x1bc" not in terminal.shown
    assert str(attach().folder) in terminal.shown


def test_ctrl_c_in_a_terminal_stops_the_run():
    with Terminal(*ONE, script(SLEEP)) as terminal:
        wait_until(lambda: "[rank 0]" in terminal.read())
        os.write(terminal.fd, b"\x03")
        code = terminal.wait()

    assert code == 130
    assert "stopped after" in terminal.shown


def test_the_report_of_a_failure_is_below_the_panel():
    with Terminal(*ONE, script("raise ValueError('the batch is empty')"), columns=60) as terminal:
        code = terminal.wait()

    assert code == 1
    assert "First to fail: rank 0" in terminal.shown.splitlines()[-1]


def test_lab_copies_the_lessons_and_becomes_jupyterlab(tmp_path: Path):
    found = ddpnb("lab", "my lessons", "--", "--version")

    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[0] == f"The lessons are in {tmp_path / 'my lessons'}"
    assert found.stdout.splitlines()[-1][0].isdigit()
    assert (tmp_path / "my lessons" / "00_launch_first_job.ipynb").exists()


def test_lab_refuses_a_folder_that_it_cannot_make():
    Path("file").touch()

    found = ddpnb("lab", "file/lessons", "--", "--version")

    assert found.returncode == 2
    assert found.stderr.startswith("ddpnb: cannot write the lessons to ")


def test_python_dash_m_is_the_same_command():
    found = ddpnb("--version")

    assert found.stdout.startswith("ddpnb, version ")
