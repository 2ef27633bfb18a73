"""What is advised after a failure."""

from pathlib import Path

import pytest

from ddpnb.hints import hint
from ddpnb.launchers.memory import oom_kills
from ddpnb.records import RankFailure
from ddpnb.spec import LaunchSpec
from ddpnb.tracebacks import operation, place_in_stacks, place_in_traceback

SPEC = LaunchSpec(name="train", script=Path("/home/ada/train.py"))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("SIGKILL", {"oom_kills": 2}, "out-of-memory killer was at work while this run went on (2"),
        ("SIGKILL", {"oom_kills": 0}, "probably the out-of-memory killer, though its counter"),
        ("SIGKILL", {"oom_kills": None}, "probably the out-of-memory killer, or a limit"),
        ("SIGBUS", {}, "/dev/shm is full"),
        ("SIGSEGV", {}, "native code crashed"),
        ("SIGABRT", {}, "native code gave up"),
        ("SIGTERM", {}, "somebody outside this run sent the signal"),
    ],
)
def test_a_signal_comes_with_what_usually_sends_it(name, options, words):
    assert words in hint(RankFailure(rank=0, signal=name), SPEC, **options)


def test_a_signal_is_no_riddle_in_a_run_that_somebody_ended():
    assert hint(RankFailure(rank=0, signal="SIGKILL"), SPEC, stopped=True) == ""


def test_a_crash_under_detail_names_the_setting():
    spec = LaunchSpec(name="t", script=Path("/t.py"), env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})

    assert "TORCH_DISTRIBUTED_DEBUG=DETAIL" in hint(RankFailure(rank=0, signal="SIGSEGV"), spec)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("[Errno 28] No space left on device", "a disk is full"),
        ("[Errno 98] Address already in use", "another process has the port"),
        ("the loss is nan", ""),
    ],
)
def test_an_error_that_everybody_meets_once_comes_with_advice(message, words):
    said = hint(RankFailure(rank=0, type="OSError", message=message), SPEC)

    assert words in said
    assert bool(said) == bool(words)


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/user.slice/job", "sys/fs/cgroup/user.slice/job/memory.events"),
        ("0::/", "sys/fs/cgroup/memory.events"),
        ("4:memory:/docker/abc", "sys/fs/cgroup/memory/docker/abc/memory.oom_control"),
        ("4:cpu,memory:/docker/abc", "sys/fs/cgroup/memory/memory.oom_control"),
    ],
)
def test_the_counter_of_the_out_of_memory_killer_is_found(tmp_path, line, file):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"1:name=systemd:/\n{line}\n")
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("oom_kill_disable 0\noom 5\noom_kill 3\n")

    assert oom_kills(tmp_path) == 3


def test_nobody_counts_where_there_is_no_cgroup(tmp_path):
    assert oom_kills(tmp_path) is None


TRACEBACK = """Traceback (most recent call last):
  File "/home/ada/train.py", line 2, in <module>
    step()
  File "/home/ada/train.py", line 1, in step
    loss.backward()
  File "/venv/lib/python3.11/site-packages/torch/_tensor.py", line 630, in backward
    torch.autograd.backward(
  File "/venv/lib/python3.11/site-packages/torch/autograd/__init__.py", line 364, in backward
    _engine_run_backward(
RuntimeError: Connection closed by peer
"""
STACKS = """Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/home/ada/other.py", line 9 in work

Current thread 0x00007f2 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/nn/module.py", line 5 in forward
  File "/home/ada/train.py", line 1 in step
  File "/home/ada/train.py", line 2 in <module>
"""


def test_the_line_of_the_script_is_found_in_a_traceback_and_in_stacks(tmp_path):
    snapshot = tmp_path / "script.py"
    snapshot.write_text("def step(): loss.backward()\nstep()\n")
    script = Path("/home/ada/train.py")

    place = place_in_traceback(TRACEBACK, script, snapshot)

    assert str(place) == "train.py, line 1: def step(): loss.backward()"
    assert operation(TRACEBACK) == "backward"
    assert place_in_stacks(STACKS, script, snapshot) == place
    assert place_in_traceback("no traceback", script, snapshot) is None
    assert place_in_stacks("", script, snapshot) is None
    assert operation("") == ""
