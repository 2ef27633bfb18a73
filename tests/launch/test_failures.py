"""A failing rank's error names the rank, the error and the line, without our own frames."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ddpnb
from tests.conftest import require, wait_until
from tests.launch.scripts import script

DEADLINE = 180


def failed(code, *args, **options):
    options = {"launcher": ddpnb.Python()} | options
    job = ddpnb.launch(script(code), *args, **options)
    with pytest.raises(ddpnb.WorkerFailedError) as caught:
        job.wait(DEADLINE)
    return job, str(caught.value), caught.value.result


def test_the_report_ends_with_the_cause_and_has_only_the_scripts_frames():
    code = "def go(data):\n    return data['label']\n\ngo({})\n"

    job, text, result = failed(code)

    assert text.splitlines()[-1] == "First to fail: rank 0, KeyError: 'label'"
    assert 'train.py", line 4, in <module>\n    go({})' in text
    assert 'train.py", line 2, in go' in text
    assert "bootstrap" not in text
    assert "bootstrap" not in "".join(str(line) for line in job.logs(0))
    assert result.failures[0].type == "KeyError"
    assert result.exits[0].exitcode == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(:\n", r"SyntaxError: invalid syntax"),
        ("import not_there_at_all\n", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("raise SystemExit('bad data')\n", "SystemExit: bad data"),
        ("import os\nos._exit(7)\n", "exit code 7"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "killed by SIGKILL"),
        ("import ctypes\nctypes.string_at(0)\n", "killed by SIGSEGV"),
        (
            "class Odd(Exception):\n    def __str__(self): return 'two\\nlines'\nraise Odd\n",
            r"__main__.Odd: two",
        ),
    ],
)
def test_every_way_to_fail_is_named(code, expected):
    _, text, _ = failed(code)

    assert re.search(f"First to fail: rank 0, {expected}", text)


def test_a_chained_exception_is_kept():
    code = (
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n"
        "    raise ValueError('outer') from error\n"
    )

    _, text, _ = failed(code)

    assert "ZeroDivisionError: division by zero" in text
    assert "The above exception was the direct cause" in text
    assert text.splitlines()[-1].endswith("ValueError: outer")


def test_a_replaced_excepthook_is_called_and_the_error_is_known_all_the_same():
    code = (
        "import sys\nsys.excepthook = lambda *error: print('hook got', error[0].__name__)\n"
        "raise ValueError('x')\n"
    )

    job, _, result = failed(code)

    assert [str(line) for line in job.logs(0)] == ["hook got ValueError"]
    assert result.failures[0].message == "x"


def test_a_process_that_the_script_forks_fails_for_itself():
    code = (
        "import os\nif os.fork() == 0:\n    raise ValueError('in the child')\n"
        "os.wait()\nprint('parent goes on')\n"
    )

    job = ddpnb.launch(script(code), launcher=ddpnb.Python())
    result = job.wait(DEADLINE)

    assert result.state is ddpnb.JobState.SUCCEEDED
    assert "ValueError: in the child" in [str(line) for line in job.logs(0)]


def test_students_files_named_like_modules_of_python_break_nothing_of_ours():
    for name in ("types.py", "random.py", "json.py", "signal.py", "logging.py", "select.py"):
        script("# mine\n", name)

    job = ddpnb.launch(script("print('fine')"), launcher=ddpnb.Torchrun())
    job.wait(DEADLINE)

    assert [str(line) for line in job.logs(0)] == ["fine"]


def test_a_file_that_shadows_pythons_module_is_named_when_it_hurts(tmp_path):
    script("# mine\n", "colorsys.py")

    _, text, _ = failed("import colorsys\ncolorsys.rgb_to_hsv(1, 2, 3)\n")

    assert f"{tmp_path}/colorsys.py has the name of Python's own module 'colorsys'" in text
    assert text.splitlines()[-1].endswith("rename it")


def test_the_first_rank_to_fail_is_the_cause_and_the_others_are_consequences():
    code = (
        "import os, time\nif os.environ['RANK'] == '1': raise KeyError('label')\ntime.sleep(600)\n"
    )

    _, text, result = failed(code, launcher=ddpnb.Torchrun(), nproc_per_node=2)

    assert text.splitlines()[-1] == "First to fail: rank 1, KeyError: 'label'"
    assert [(f.rank, f.consequence_of) for f in result.failures] == [(1, None), (0, 1)]
    assert "Ended as a consequence: rank 0, ended by the launcher (SIGTERM)" in text


def test_one_error_on_all_ranks_is_told_once():
    # Without SIGTERM, with which torchrun would end the slower rank before it fails too; and
    # nobody fails before all are past the line that sees to that.
    code = (
        "import os, pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path('up.' + os.environ['RANK']).touch()\n"
        "while not all(pathlib.Path(f'up.{rank}').exists() for rank in (0, 1)):\n"
        "    time.sleep(0.01)\n"
        "raise ValueError('all of us')\n"
    )

    _, text, result = failed(code, launcher=ddpnb.Torchrun(), nproc_per_node=2)

    assert [(f.type, f.consequence_of) for f in result.failures] == [("ValueError", None)] * 2
    assert "The same error on all 2 ranks." in text
    assert text.count("raise ValueError") == 1


def test_a_rank_says_where_it_hangs_when_it_is_asked():
    job = ddpnb.launch(
        script("import time\ndef hang():\n    print('up')\n    time.sleep(600)\nhang()\n"),
        launcher=ddpnb.Python(),
    )
    from tests.conftest import wait_until

    wait_until(lambda: job.logs(0))
    start = job.run.rank(0).starts()[0].data
    os.kill(start["pid"], start["signals"]["stacks"])
    wait_until(lambda: "in hang" in job.run.rank(0).stacks.read_text())

    assert start["signals"]["stacks"] == signal.SIGRTMIN + 5
    job.kill()


def test_being_asked_for_stacks_while_it_leaves_does_not_kill_a_rank():
    # What Python does at its end: faulthandler puts the old handler back.
    code = (
        "import faulthandler, os, signal\n"
        "faulthandler.unregister(signal.SIGRTMIN + 5)\n"
        "os.kill(os.getpid(), signal.SIGRTMIN + 5)\n"
    )

    job = ddpnb.launch(script(code), launcher=ddpnb.Python())

    assert job.wait(DEADLINE).state is ddpnb.JobState.SUCCEEDED


def test_characters_that_utf8_lacks_lose_neither_the_rank_nor_its_error():
    code = (
        "import os\nprint(os.fsdecode(b'caf\\xe9.txt'))\n"
        "raise ValueError('bad \\udcff \\x1b]0;title\\x07 \\x9b2J')\n"
    )

    job, text, result = failed(code)

    assert job.run.rank(0).stdout.read_bytes() == b"caf\xe9.txt\n"
    assert result.failures[0].type == "ValueError"
    assert "\x1b" not in text
    assert "\x9b" not in text


def test_an_error_that_cannot_be_printed_is_known_all_the_same():
    code = "class Odd(Exception):\n    def __str__(self): raise RuntimeError('no')\nraise Odd\n"

    _, _, result = failed(code)

    assert result.failures[0].type == "__main__.Odd"
    assert result.failures[0].message == "<no message: str() raised RuntimeError>"


def test_a_traceback_shows_the_lines_as_python_counts_them():
    code = "x = 1\n\x0c\ndef f():\n    y = 'a\u2028b\x85c'\n    raise ValueError(y)\n\nf()\n"

    _, text, _ = failed(code)

    assert "line 7, in <module>\n    f()" in text
    assert "line 5, in f\n    raise ValueError(y)" in text


def test_a_crash_shows_the_stack_that_faulthandler_left():
    _, text, _ = failed("import ctypes\n\ndef go():\n    ctypes.string_at(0)\n\ngo()\n")

    assert "Fatal Python error: Segmentation fault" in text
    assert 'train.py", line 4 in go' in text


def test_an_odd_module_does_not_hide_the_error():
    code = "import sys\nclass M: __file__ = 3\nsys.modules['cgi'] = M()\nraise ValueError('q')\n"

    _, _, result = failed(code)

    assert result.failures[0].message == "q"


WAITING_FOR_EACH_OTHER = """
import os, signal, torch, torch.distributed as dist
from ddpnb.worker import ddp

with ddp() as worker:
    dist.barrier()
    if worker.rank == 1:
        {end}
    dist.all_reduce(torch.ones(1))
"""


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("raise ValueError('the cause')", "ValueError: the cause"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
    ],
)
def test_the_cause_is_named_when_the_other_rank_waits_in_a_collective(end, cause):
    code = WAITING_FOR_EACH_OTHER.format(end=end)

    for _ in range(2):
        job, text, _ = failed(code, launcher=ddpnb.Torchrun(), nproc_per_node=2)

        assert f"First to fail: rank 1, {cause}" in text
        assert job.run.agent.exists()


FILLS_MEMORY = """
held = []
print("filling", flush=True)
while True:
    held.append(b"x" * (1 << 20))
"""
IN_A_SMALL_CGROUP = """
import os, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
import ddpnb
try:
    ddpnb.launch("train.py", launcher=ddpnb.Python()).wait(120)
except ddpnb.WorkerFailedError as error:
    print(error)
"""


@pytest.fixture
def small_memory():
    """A group of processes that have 200 MiB together; None where this user may make none."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    paths = {controllers: path for _, controllers, path in lines}
    if "memory" in paths:  # version 1
        folder, limit = f"/sys/fs/cgroup/memory{paths['memory']}", "memory.limit_in_bytes"
    else:
        folder, limit = f"/sys/fs/cgroup{paths.get('', '')}", "memory.max"
    group = Path(folder) / f"ddpnb-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(200 << 20))
    except OSError:
        if group.is_dir():
            group.rmdir()
        yield None
        return
    yield group
    wait_until(lambda: is_removed(group), what="the group is empty")


def is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:  # a process is just leaving it
        return False
    return True


def test_the_out_of_memory_killer_is_named_by_its_own_counter(small_memory):
    require("cgroup", small_memory, "this user may not make a memory cgroup")
    script(FILLS_MEMORY)

    done = subprocess.run(
        [sys.executable, "-c", IN_A_SMALL_CGROUP, str(small_memory)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )

    assert "First to fail: rank 0, killed by SIGKILL" in done.stdout, done
    assert "out-of-memory killer was at work while this run went on (1 killed)" in done.stdout
