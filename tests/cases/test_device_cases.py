"""Problems that people reported of choosing GPUs.

53: CUDA_VISIBLE_DEVICES=2,3 and one process too many, or physical numbers used as an index
Lightning-AI/pytorch-lightning#3791, Lightning-AI/pytorch-lightning#2407, pytorch/torchtitan#423
"""

import os

import pytest

import ddpnb
from ddpnb.errors import DeviceError
from tests.conftest import ROOT
from tests.launch.scripts import script

DEADLINE = 240
SHOW = """
import os
mine = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[int(os.environ["LOCAL_RANK"])]
print(f"cuda:{os.environ['LOCAL_RANK']} is {mine}")
"""


@pytest.fixture(autouse=True)
def two_of_four_gpus(monkeypatch):
    monkeypatch.setenv("PATH", f"{ROOT / 'tests/fakes'}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")


def test_each_rank_has_its_own_gpu_and_the_person_sees_which():
    job = ddpnb.launch(script(SHOW), nproc_per_node=2)
    job.wait(DEADLINE)

    assert [str(line) for line in job.logs(0)] == ["cuda:0 is 2"]
    assert [str(line) for line in job.logs(1)] == ["cuda:1 is 3"]
    assert [gpu["index"] for gpu in job.run.read_run()["gpus"]] == [2, 3]


def test_a_chosen_gpu_is_meant_by_its_physical_number():
    job = ddpnb.launch(script(SHOW), gpus=[3])
    job.wait(DEADLINE)

    assert [str(line) for line in job.logs(0)] == ["cuda:0 is 3"]


def test_a_gpu_outside_the_mask_is_never_taken_silently():
    with pytest.raises(DeviceError, match=r"gpus has 1.*visible: 2,3"):
        ddpnb.launch(script(SHOW), gpus=[1])


def test_one_process_too_many_is_refused_and_allowed_on_the_cpu():
    with pytest.raises(DeviceError, match=r"3 processes.*2 visible GPUs \(2,3\)"):
        ddpnb.launch(script(SHOW), nproc_per_node=3)

    job = ddpnb.launch(script("print('on the cpu')"), nproc_per_node=3, device="cpu")
    job.wait(DEADLINE)

    assert len(job.logs()) == 3


@pytest.mark.parametrize("mask", ["", "-1"])
def test_a_mask_that_hides_everything_means_the_cpu(monkeypatch, mask):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)

    assert ddpnb.dryrun(script(SHOW), nproc_per_node=4).env["CUDA_VISIBLE_DEVICES"] == ""


def test_uuids_and_mig_slices_are_understood(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aaaa0000-0000,MIG-ffff5555-0000")

    env = ddpnb.dryrun(script(SHOW), nproc_per_node=2).env

    assert env["CUDA_VISIBLE_DEVICES"] == "0,MIG-ffff5555-0000"
