"""Every fault, struck once: nothing is left, nothing is lost, and the run tells the truth of it.

`benchmarks/faults.py` strikes the same ones many times over, and takes the times.
"""

import threading

import psutil
import pytest

import ddpnb
from tests.conftest import require, wait_until
from tests.launch.fault_scenes import DEADLINE, environment, scene_of
from tests.launch.faults import FAULTS, strike
from tests.launch.scripts import SAY_RANK, script

STRUCK = [(fault, launcher) for fault in FAULTS for launcher in fault.launchers]
COLD = [(fault, launcher) for fault, launcher in STRUCK if launcher != "warm"]
FORKED = [fault for fault, launcher in STRUCK if launcher == "warm"]


@pytest.mark.parametrize(
    ("fault", "launcher"), COLD, ids=[f"{one.name}-{launcher}" for one, launcher in COLD]
)
def test_a_fault_leaves_nothing_and_is_told_as_it_was(tmp_path, fault, launcher):
    check(fault, launcher, tmp_path)


@pytest.mark.parametrize("fault", FORKED, ids=lambda fault: fault.name)
def test_a_fault_of_forked_ranks_leaves_nothing_either(warm, tmp_path, fault):
    check(fault, "warm", tmp_path)


def check(fault, launcher, place):
    outcome = strike(fault, launcher, place)

    require("mount", outcome is not None, "this user may not mount a small disk")
    assert outcome is not None
    assert (outcome.left, outcome.lost) == (0, 0), outcome
    assert outcome.right, outcome


def test_a_detached_job_outlives_its_kernel_and_loses_nothing(tmp_path):
    with environment(tmp_path), scene_of(ddpnb.Python(), tmp_path, cell="", detach=True) as scene:
        wait_until(scene.writes, DEADLINE)
        before = scene.counted(0)
        scene.kernel.shutdown_kernel(now=True)
        wait_until(lambda: scene.counted(0) > before + 100, DEADLINE, "it goes on")

        job = ddpnb.attach(scene.job.run_id)

        assert job.state is ddpnb.JobState.RUNNING
        assert job.stop() is ddpnb.JobState.STOPPED
        assert scene.lost() == 0
        assert str(job.logs(0)[0]) == "line 0"


def held():
    """Return what a process may leak: descriptors, threads, ports."""
    me = psutil.Process()
    return me.num_fds(), threading.active_count(), len(me.net_connections())


def test_many_jobs_one_after_another_and_at_once_leak_nothing(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    script(SAY_RANK)
    ddpnb.launch("train.py", launcher=ddpnb.Python()).wait(DEADLINE)  # what is loaded only once
    before = held()

    for _ in range(10):
        ddpnb.launch("train.py", launcher=ddpnb.Python()).wait(DEADLINE)
    jobs = [ddpnb.launch("train.py", launcher=ddpnb.Python()) for _ in range(4)]
    for job in jobs:
        job.wait(DEADLINE)

    assert held() == before
    assert list((tmp_path / "tmp").iterdir()) == []
    assert len(ddpnb.runs()) == 15
