"""GPUs in a launch, on a machine that pretends to have four of them."""

import os
import threading

import pytest

import ddpnb
from ddpnb.errors import DeviceError
from tests.conftest import ROOT, wait_until
from tests.launch.scripts import script

DEADLINE = 180
SHOW = """
import os
print(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))
"""
WAIT_FOR_A_FILE = """
import pathlib, time
print("up")
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""


@pytest.fixture
def four_gpus(monkeypatch):
    monkeypatch.setenv("PATH", f"{ROOT / 'tests/fakes'}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def seen_by_the_rank(**options):
    job = ddpnb.launch(script(SHOW), launcher=ddpnb.Torchrun(), **options)
    job.wait(DEADLINE)
    return str(job.logs(0)[0])


def test_ranks_see_the_chosen_gpus_and_the_run_says_which_they_are(four_gpus):
    job = ddpnb.launch(script(SHOW), gpus=[2, 3], nproc_per_node=2)
    job.wait(DEADLINE)

    assert {str(line) for line in job.logs()} == {"2,3 PCI_BUS_ID"}
    described = job.run.read_run()["gpus"]
    assert [(gpu["index"], gpu["name"]) for gpu in described] == [
        (2, "NVIDIA Test 80GB"),
        (3, "NVIDIA Test 80GB"),
    ]


def test_the_cpu_hides_every_gpu(four_gpus):
    assert seen_by_the_rank(device="cpu") == " None"


def test_more_ranks_than_gpus_are_refused_before_anything_starts(four_gpus, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")

    with pytest.raises(DeviceError, match=r"3 processes .* 2 visible GPUs \(2,3\).*--device cpu"):
        ddpnb.launch(script(SHOW), nproc_per_node=3)

    assert not (tmp_path / "runs").exists()


def test_a_launch_on_gpus_that_are_held_waits_for_them(four_gpus, tmp_path):
    first = ddpnb.launch(script(WAIT_FOR_A_FILE), gpus=[0, 1], launcher=ddpnb.Python())
    wait_until(lambda: first.logs(0))
    beside = ddpnb.launch(script(SHOW, "b.py"), gpus=[2], launcher=ddpnb.Python())
    second = ddpnb.launch(script(SHOW, "c.py"), gpus=[1], launcher=ddpnb.Python())

    beside.wait(DEADLINE)
    assert second.state is ddpnb.JobState.PENDING
    assert second.run.read_run()["after"] == [first.run_id]

    (tmp_path / "go").touch()
    assert second.wait(DEADLINE).state is ddpnb.JobState.SUCCEEDED
    assert first.state is ddpnb.JobState.SUCCEEDED


def test_a_job_that_waits_for_gpus_can_be_stopped(four_gpus):
    first = ddpnb.launch(script(WAIT_FOR_A_FILE), gpus=[0], launcher=ddpnb.Python())
    second = ddpnb.launch("train.py", gpus=[0], launcher=ddpnb.Python())

    assert second.stop() is ddpnb.JobState.STOPPED

    assert second.logs() == []
    first.kill()


def test_of_two_launches_at_one_moment_only_one_gets_the_gpu(four_gpus, tmp_path):
    script(WAIT_FOR_A_FILE)
    jobs = []
    threads = [
        threading.Thread(
            target=lambda: jobs.append(
                ddpnb.launch("train.py", gpus=[0], launcher=ddpnb.Python(), cwd=tmp_path)
            )
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)

    assert sorted(len(job.run.read_run()["after"]) for job in jobs) == [0, 1, 2, 3]

    (tmp_path / "go").touch()
    for job in jobs:
        assert job.wait(DEADLINE).state is ddpnb.JobState.SUCCEEDED
