"""One script with everything of ddpnb.worker, under plain python and under plain torchrun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpnb.rundir import RunDir
from tests.conftest import ROOT

DEADLINE = 300.0  # a loaded machine takes 20 s to import torch, and every rank does

SCRIPT = """\
import random

import numpy as np
import torch

from ddpnb.worker import ddp, digits, log, mean, print0, progress, report
from ddpnb.worker.data import exact_shard

with ddp(timeout=120) as worker:
    train, test = digits()
    mine = exact_shard(test, worker)
    for step in progress(range(3), name="steps"):
        log(step, weighted=mean(1.0 + 3 * worker.rank, 2 - worker.rank))
    report(
        rank=worker.rank,
        world_size=worker.world_size,
        device=worker.device,
        seeds=[torch.initial_seed(), random.random(), np.random.rand()],
        tested=len(mine),
        images=mean(len(mine)) * worker.world_size,
        all_but_rank_0=mean(5.0 if worker.rank else float("nan"), worker.rank),
    )
    print0("hello from", worker.rank)
assert not torch.distributed.is_initialized()
"""

FAILING = """\
import torch.distributed as dist
from ddpnb.worker import ddp

try:
    with ddp(timeout=120) as worker:
        if worker.rank == worker.world_size - 1:
            raise KeyError("the body")
        dist.barrier()
finally:
    print("group is gone:", not dist.is_initialized(), flush=True)
"""

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run python with these words, end it after the deadline, and return its output."""
    # Plain torchrun listens to SIGTERM and ends its ranks; SIGKILL would leave them behind.
    with subprocess.Popen(
        [sys.executable, *words],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, err = process.communicate(timeout=60)
            pytest.fail(f"no end after {DEADLINE:g} s\n{out}\n{err}")
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train it.py"
    path.write_text(SCRIPT)
    return str(path)


def test_script_runs_under_plain_python_as_a_world_of_one(script: str):
    done = run(script)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [f"step {step}  weighted 1" for step in range(3)]
    assert (
        "world_size 1" in lines[3] and "images 297" in lines[3] and "all_but_rank_0 nan" in lines[3]
    )
    assert lines[4] == "hello from 0"


def test_script_runs_under_plain_torchrun_and_rank_0_prints_for_all(script: str):
    done = run(*TORCHRUN, script)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [f"step {step}  weighted 2" for step in range(3)]
    assert "world_size 2" in lines[3] and "images 297" in lines[3]
    assert lines[4:] == ["hello from 0"]


def test_ranks_write_into_the_run_folder_and_print_no_metrics(script: str, tmp_path: Path):
    done = run(*TORCHRUN, script, DDPNB_RUN=str(tmp_path / "run"))

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["hello from 0"]
    results = [RunDir(tmp_path / "run").rank(rank).last("result") for rank in (0, 1)]
    assert [result["rank"] for result in results] == [0, 1]
    assert [result["tested"] for result in results] == [149, 148]
    assert [result["all_but_rank_0"] for result in results] == [5.0, 5.0]
    for ours, others in zip(results[0]["seeds"], results[1]["seeds"], strict=True):
        assert ours != others  # seed + rank: no two ranks draw the same dropout mask
    kinds = [event.kind for event in RunDir(tmp_path / "run").rank(1).read_events()]
    assert kinds.count("metric") == 3
    assert kinds.count("progress") >= 2


def test_group_is_torn_down_when_the_body_raises(tmp_path: Path):
    path = tmp_path / "failing.py"
    path.write_text(FAILING)

    alone, together = run(str(path)), run(*TORCHRUN, str(path))

    assert alone.returncode == 1
    assert "group is gone: True" in alone.stdout
    assert "KeyError: 'the body'" in alone.stderr
    assert together.returncode == 1
    # Rank 1 at least: torchrun may end rank 0 before it prints.
    assert "group is gone: True" in together.stdout
    assert "KeyError: 'the body'" in together.stderr


def test_two_ranks_need_the_address_that_torchrun_gives(script: str):
    done = run(script, RANK="0", WORLD_SIZE="2")

    assert done.returncode == 1
    assert "MASTER_ADDR" in done.stderr


def test_ddp_refuses_a_second_process_group(tmp_path: Path):
    path = tmp_path / "twice.py"
    path.write_text("from ddpnb.worker import ddp\nwith ddp():\n    with ddp():\n        pass\n")

    done = run(str(path))

    assert done.returncode == 1
    assert "RuntimeError: ddp() found a process group that is already there" in done.stderr


@pytest.mark.parametrize("module", ["events", "context", "collectives", "data"])
def test_the_command_at_the_head_of_a_module_runs(module: str):
    done = run("-m", f"ddpnb.worker.{module}")

    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_events_load_neither_torch_nor_numpy():
    code = "import sys, ddpnb.worker.events; print('torch' in sys.modules, 'numpy' in sys.modules)"

    assert run("-c", code).stdout == "False False\n"
