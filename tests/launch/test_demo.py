"""`ddpnb demo` with small notebooks: what it prints and leaves; it leaves no process."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.conftest import wait_until

DEADLINE = 300.0
DDPNB = (sys.executable, "-m", "ddpnb")

LAUNCH = """\
from pathlib import Path
from ddpnb import Python, launch
Path("s.py").write_text('''
from ddpnb.worker.events import log, report
log(1, loss=0.5)
report(accuracy=0.75)
''')
await launch("s.py", launcher=Python(), name="small")
"""

LAUNCH_FOR_EVER = """\
from pathlib import Path
from ddpnb import Python, launch
Path("s.py").write_text("import time; print('up'); time.sleep(600)")
job = launch("s.py", launcher=Python())
await job
"""


def notebook(*cells: str, name: str = "small.ipynb") -> str:
    """Write a notebook whose cells are code, or headings where they begin with #, a space."""
    made = [
        new_markdown_cell(cell) if cell.startswith("# ") else new_code_cell(cell) for cell in cells
    ]
    nbformat.write(new_notebook(cells=made), name)
    return name


def demo(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DDPNB, "demo", *words],
        env=os.environ | variables,
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE,
    )


def work_folder(parent: str = "ddpnb-demo") -> Path:
    """Return the one folder in which the demonstration worked."""
    (found,) = Path(parent).iterdir()
    return found


def test_a_notebook_is_run_and_shown():
    found = demo("--notebook", notebook("# Start", "1 + 1", "# Train", LAUNCH))
    work = work_folder()

    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert "cell 1 of 2: Start: 1 + 1" in lines
    assert "cell 2 of 2: Train: from pathlib import Path" in lines
    assert any(line.startswith("  run small: 1 rank succeeded after") for line in lines)
    row = next(line.split() for line in lines if line.startswith("small "))
    assert row[1:3] == ["1", "succeeded"]
    assert row[-2:] == ["accuracy", "0.75"]
    executed = nbformat.read(work / "small.ipynb", as_version=4)
    assert executed.cells[1].outputs[0].data["text/plain"] == "2"
    assert "widgets" not in executed.metadata
    for name in ("small.ipynb", "small.html", ".ddpnb/runs"):
        assert str(Path("ddpnb-demo", work.name, name)) in found.stdout


def test_the_page_needs_no_network():
    demo("--notebook", notebook("# Start", "1 + 1"))

    page = (work_folder() / "small.html").read_text()

    assert "<h1" in page
    assert 'src="http' not in page


def test_a_failing_cell_is_named_and_the_exit_code_is_not_0():
    found = demo("--notebook", notebook("# Good", "1 + 1", "# Bad", "x = '[bold]'\n1 / 0"))

    assert found.returncode == 1
    assert "Cell 2 of 2 failed (Bad):\n    x = '[bold]'\n    1 / 0\n" in found.stderr
    assert found.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert (work_folder() / "small.html").exists()


def test_a_dead_kernel_is_told():
    found = demo("--notebook", notebook("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"))

    assert found.returncode == 1
    assert "Cell 1 of 1 failed" in found.stderr
    assert found.stderr.splitlines()[-1] == "DeadKernelError: Kernel died"


def test_the_kernel_is_this_interpreter_without_the_users_startup_files(tmp_path: Path):
    home = tmp_path / "home"
    startup = home / ".ipython/profile_default/startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("raise SystemExit('a startup file')")
    (tmp_path / "start.py").write_text("from_startup = 1")
    kernel = home / ".local/share/jupyter/kernels/python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text('{"argv": ["false"], "display_name": "x", "language": "x"}')
    cell = f"""import sys
assert sys.executable == {sys.executable!r}
assert "from_startup" not in vars()"""

    found = demo(
        "--notebook", notebook(cell), HOME=str(home), PYTHONSTARTUP=str(tmp_path / "start.py")
    )

    assert found.returncode == 0, found.stderr


def test_a_second_demonstration_leaves_the_first_alone():
    Path("ddpnb-demo").mkdir()
    Path("ddpnb-demo/mine").write_text("mine")

    for _ in range(2):
        assert demo("--notebook", notebook("1")).returncode == 0

    assert Path("ddpnb-demo/mine").read_text() == "mine"
    assert len(list(Path("ddpnb-demo").glob("*/small.ipynb"))) == 2


def test_a_folder_that_cannot_be_written_is_refused():
    Path("file").touch()

    found = demo("file/demo", "--notebook", notebook("1"))

    assert found.returncode == 2
    assert found.stderr.startswith("ddpnb: cannot write in ")


def test_what_is_no_notebook_is_refused():
    Path("small.ipynb").write_text("{")

    found = demo("--notebook", "small.ipynb")

    assert found.returncode == 2
    assert "is no notebook that can be read" in found.stderr
    assert not Path("ddpnb-demo").exists()


def test_ctrl_c_stops_the_kernel_and_its_runs():
    name = notebook("# Run", LAUNCH_FOR_EVER)

    with started("demo", "--notebook", name) as process:
        wait_until(lambda: list(Path("ddpnb-demo").glob("*/.ddpnb/runs/*/ranks/0/stdout.log")))
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(DEADLINE)

    assert code == 130
    assert "interrupted: the kernel and its runs were stopped" in Path("out").read_text()


def test_nothing_is_left_when_the_command_is_killed():
    name = notebook("# Run", LAUNCH_FOR_EVER)

    with started("demo", "--notebook", name) as process:
        wait_until(lambda: list(Path("ddpnb-demo").glob("*/.ddpnb/runs/*/ranks/0/stdout.log")))
        process.kill()
        process.wait(DEADLINE)
    # The fixture looks for what is left.


@contextlib.contextmanager
def started(*words: str):
    """Start ddpnb in a process group of its own, with its output in the file `out`."""
    with Path("out").open("wb") as out:
        process = subprocess.Popen([*DDPNB, *words], stdout=out, stderr=out, process_group=0)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(DEADLINE)
