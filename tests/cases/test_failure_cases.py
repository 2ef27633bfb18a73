"""Problems that people reported of finding out why a run failed, and what is said here instead.

Each test names the public reports it is about.
"""

from pathlib import Path

import pytest

import ddpnb
from tests.conftest import wait_until
from tests.launch.scripts import script

DEADLINE = 240


def failed(code, **options):
    job = ddpnb.launch(script(code), **({"nproc_per_node": 2} | options))
    with pytest.raises(ddpnb.WorkerFailedError) as caught:
        job.wait(DEADLINE)
    return job, str(caught.value), caught.value.result


# 10: one rank leaves with exit code 0, and the report blames the others
# ai2cm/ace#1068, pytorch/pytorch#138322, pytorch/pytorch#41067

LEAVES_EARLY = """import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    if rank == 1 and step == 1:
        print("rank 1: nothing left to do")
        sys.exit(0)
    t = torch.ones(1)
    dist.all_reduce(t)
    print("step", step)
"""


@pytest.mark.parametrize("launcher", [ddpnb.Torchrun(), ddpnb.Spawn()], ids=lambda one: one.name)
def test_the_rank_that_left_with_exit_code_0_is_named(launcher):
    code = LEAVES_EARLY
    if launcher.name == "spawn":
        body = "".join(f"    {line}\n" for line in code.splitlines())
        code = f"def main():\n{body}"

    _, text, result = failed(code, launcher=launcher)

    first, other = result.failures
    assert (first.rank, first.consequence_of) == (1, None)
    assert (other.rank, other.consequence_of) == (0, 1)
    # On a busy machine its process is ended on its way out: by torchrun, or by torch's own threads.
    assert first.exitcode in (0, -6, -15)
    assert " while rank 0 was still in all_reduce" in first.message
    assert "dist.all_reduce(t)" in first.message
    if first.exitcode != -6:  # whose stacks are its last lines
        assert "  rank 1: nothing left to do" in text
    assert "Ended as a consequence: rank 0, which lost its connection" in text


# 11: the out-of-memory killer ends a rank, and all that is shown is exit code -9
# meta-llama/llama#856, hpcaitech/ColossalAI#3514, xxayt/MGSV#2, pytorch/pytorch#54823

KILLED = """
import os, signal, time
if os.environ["RANK"] == "1":
    print("rank 1: loading the whole data set")
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


def test_a_rank_that_was_killed_is_told_with_what_usually_kills():
    _, text, result = failed(KILLED)

    first, other = result.failures
    assert (first.rank, first.exitcode, first.signal) == (1, -9, "SIGKILL")
    assert (other.rank, other.consequence_of) == (0, 1)
    assert "First to fail: rank 1, killed by SIGKILL (exit code -9)" in text
    assert "probably the out-of-memory killer" in text
    assert "  rank 1: loading the whole data set" in text
    assert "rank 0, ended by the launcher (SIGTERM)" in text


# 13: one rank has the real exception, and the other's lost connection hides it
# pytorch/pytorch#66182, pytorch/pytorch#65041, pytorch/pytorch#60910

KEY_ERROR = """import torch, torch.distributed as dist
dist.init_process_group("gloo")
def load_batch(step):
    data = {"image": step}
    if dist.get_rank() == 1:
        return data["label"]
for step in range(3):
    load_batch(step)
    t = torch.ones(1)
    dist.all_reduce(t)
"""


def test_the_real_error_is_named_every_time():
    for _ in range(10):
        _, text, result = failed(KEY_ERROR)

        first, other = result.failures
        assert (first.rank, first.type, first.message) == (1, "KeyError", "'label'")
        assert "line 8, in <module>\n    load_batch(step)" in first.traceback
        assert 'line 6, in load_batch\n    return data["label"]' in first.traceback
        assert (other.rank, other.consequence_of) == (0, 1)
        assert text.splitlines()[-1] == "First to fail: rank 1, KeyError: 'label'"


# 15: helpers that ranks have started live on after a failure
# pytorch/pytorch#113231, pytorch/pytorch#1085

HELPERS = """
import os, subprocess, sys, time
from pathlib import Path
rank = os.environ["RANK"]
helper = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
)
Path(f"helper.{rank}.new").write_text(str(helper.pid))
Path(f"helper.{rank}.new").rename(f"helper.{rank}.pid")
while not Path(f"helper.{1 - int(rank)}.pid").exists():
    time.sleep(0.05)
if rank == "1":
    raise RuntimeError("boom")
time.sleep(600)
"""


def test_no_helper_of_a_failed_run_lives_on(tmp_path):
    _, _, result = failed(HELPERS)

    pids = [int((tmp_path / f"helper.{rank}.pid").read_text()) for rank in (0, 1)]
    assert (result.failures[0].rank, result.failures[0].message) == (1, "boom")
    wait_until(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()])


# 19: "error_file: <N/A>" and a link where the traceback should be
# pytorch/pytorch#66182, pytorch/pytorch#63174

WRONG_SHAPE = """import os, time, torch
rank = int(os.environ["RANK"])
def main():
    x = torch.ones(2, 4 + rank)
    w = torch.ones(3 + 1 - rank, 4)
    if rank == 1:
        x @ w
    time.sleep(600)
main()
"""


def test_the_traceback_is_there_without_a_decorator():
    _, _, result = failed(WRONG_SHAPE)

    first, other = result.failures
    assert (first.rank, first.type, first.exitcode) == (1, "RuntimeError", 1)
    assert first.message == "mat1 and mat2 shapes cannot be multiplied (2x5 and 3x4)"
    assert "line 7, in main\n    x @ w" in first.traceback
    assert "site-packages" not in first.traceback
    assert "ddpnb" not in first.traceback
    assert (other.rank, other.type, other.traceback) == (0, "", "")


# 20: progress bars of two ranks overwrite each other
# ipython/ipyparallel#591, tqdm/tqdm#1294, jupyterlab/jupyterlab#1104, huggingface/datasets#3177

BARS = r"""
import os, sys
rank = os.environ["RANK"]
for i in range(1, 21):
    bar = "#" * i + " " * (20 - i)
    sys.stderr.write(f"\rrank {rank} {5 * i:3}%|{bar}| {i}/20")
    sys.stderr.flush()
sys.stderr.write("\n")
print(f"rank {rank} finished", file=sys.stderr)
"""


def test_each_rank_has_its_own_bar_and_only_its_last_state_is_shown():
    job = ddpnb.launch(script(BARS), nproc_per_node=2)
    job.wait(DEADLINE)

    for rank in (0, 1):
        shown = [str(line) for line in job.logs(rank)]
        assert shown == [f"rank {rank} 100%|{'#' * 20}| 20/20", f"rank {rank} finished"]
        raw = job.run.rank(rank).stderr.read_bytes()
        assert raw.count(b"\r") == 20
        assert f"rank {1 - rank}".encode() not in raw


# 43: each rank decides about early stopping by its own loss
# Lightning-AI/pytorch-lightning#379, ACEsuit/mace#1216, IBM/ado#41

EARLY_STOP = """import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(nn.Linear(2, 1))
losses = [[0.9, 0.8, 0.85, 0.9], [0.9, 0.8, 0.7, 0.6]][rank]
best = 9.9
for loss in losses:
    model(torch.ones(1, 2)).sum().backward()
    if loss > best:
        break
    best = loss
print("out of the loop")
"""


def test_the_rank_that_stopped_early_is_named():
    _, text, result = failed(EARLY_STOP)

    first, other = result.failures
    assert (first.rank, first.exitcode) == (0, 0)
    assert "while rank 1 was still in backward (train.py, line 9" in first.message
    assert "  out of the loop" in text
    assert "let the ranks agree first" in first.hint
    assert (other.rank, other.consequence_of) == (1, 0)


# 50: one rank is slow, the others run into the collective's timeout
# Metta-AI/metta#2043, pytorch/pytorch#15638, dylanyunlon/Neuron_SP#73

SLOW_RANK = """import datetime, time, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=3))
if dist.get_rank() == 1:
    time.sleep(600)
dist.all_reduce(torch.ones(1))
"""


def test_a_timeout_tells_who_waited_and_where_the_other_was():
    _, text, result = failed(SLOW_RANK)

    first, other = result.failures
    assert first.rank == 0
    assert "rank 0 waited in all_reduce (train.py, line 5: dist.all_reduce" in first.hint
    assert "rank 1 had not come so far, it was at train.py, line 4: time.sleep(600)" in first.hint
    assert "longer timeout=" in first.hint
    assert (other.rank, other.consequence_of, other.type) == (1, 0, "")
    assert "rank 1, ended by the launcher (SIGTERM)" in text


# A rank that has raised, but is kept from leaving

KEPT = """
import os, threading, time
if os.environ["RANK"] == "1":
    threading.Thread(target=time.sleep, args=(600,)).start()
    raise ValueError("the cause")
time.sleep(600)
"""


def test_a_rank_that_raised_and_does_not_leave_is_ended():
    job, text, result = failed(KEPT)

    assert (result.failures[0].rank, result.failures[0].type) == (1, "ValueError")
    assert text.splitlines()[-1] == "First to fail: rank 1, ValueError: the cause"
    assert "rank 1 has failed, but has not left" in "".join(map(str, job.logs("launcher")))
