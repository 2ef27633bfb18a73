"""What needs a real GPU: NCCL in a world of one rank, and who may see the GPU."""

import pytest

import ddpnb
from ddpnb.launchers.devices import visible_gpus
from tests.conftest import require
from tests.launch.scripts import script

pytestmark = pytest.mark.gpu
DEADLINE = 300

TRAIN = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from ddpnb.worker import ddp, mean, report

with ddp() as worker:
    model = DistributedDataParallel(torch.nn.Linear(4, 2).to(worker.device))
    loss = model(torch.ones(3, 4, device=worker.device)).square().mean()
    loss.backward()
    report(device=worker.device, backend=dist.get_backend(), mean=mean(loss.detach(), 3),
           loss=loss, gradient=str(model.module.weight.grad.device))
"""
LOOK = """
import torch
from ddpnb.worker import report
report(available=torch.cuda.is_available(), count=torch.cuda.device_count())
"""


@pytest.fixture(autouse=True)
def a_gpu():
    require("gpu", visible_gpus(), "nvidia-smi shows no GPU")


def test_ddp_runs_on_nccl_and_the_gpu_of_its_local_rank():
    job = ddpnb.launch(script(TRAIN), gpus=[visible_gpus()[0].index])
    result = job.wait(DEADLINE)

    (seen,) = result.results.values()
    assert (seen["device"], seen["backend"], seen["gradient"]) == ("cuda:0", "nccl", "cuda:0")
    assert seen["mean"] == pytest.approx(seen["loss"])


def test_device_cpu_hides_the_gpu_from_the_ranks():
    job = ddpnb.launch(script(LOOK), nproc_per_node=2, device="cpu")
    result = job.wait(DEADLINE)

    assert result.results == {rank: {"available": False, "count": 0} for rank in (0, 1)}


def test_the_kernel_does_not_touch_cuda_when_it_launches():
    torch = pytest.importorskip("torch")

    ddpnb.launch(script(LOOK)).wait(DEADLINE)

    assert not torch.cuda.is_initialized()


def test_the_doctor_sees_the_gpu_and_adds_through_nccl():
    report = ddpnb.doctor()

    assert report["torch"].status == report["nccl"].status == "ok", report
    assert report["GPUs"].status in ("ok", "warn")  # others may have filled it
