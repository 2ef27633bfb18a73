"""Which GPUs a launch may use, on a machine that pretends to have four."""

import os

import pytest

from ddpnb.errors import DeviceError
from ddpnb.launchers.devices import resolve, visible_gpus
from tests.conftest import ROOT


@pytest.fixture
def four_gpus(monkeypatch):
    monkeypatch.setenv("PATH", f"{ROOT / 'tests/fakes'}:{os.environ['PATH']}")


def keys(gpus):
    return [gpu.key for gpu in gpus]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, ["0", "1", "2", "3"]),
        ("2,3", ["2", "3"]),
        ("3, 1", ["3", "1"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["0"]),
        ("0,9,1", ["0"]),
        ("GPU-cccc", ["2"]),
        ("GPU-cccc2222-0000,GPU-aaaa", ["2", "0"]),
        ("MIG-ffff5555-0000", ["MIG-ffff5555-0000"]),
        ("1,1", ["1"]),
        ("NoDevFiles", []),
    ],
)
def test_visible_gpus_reads_the_mask_as_cuda_does(four_gpus, mask, expected):
    environ = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}

    assert keys(visible_gpus(environ)) == expected


def test_visible_gpus_is_empty_when_there_is_no_nvidia_smi(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert visible_gpus({}) == []


def test_resolve_keeps_the_numbers_of_nvidia_smi_inside_a_mask(four_gpus):
    devices = resolve(1, "auto", [3], {"CUDA_VISIBLE_DEVICES": "2,3"})

    assert (devices.device, keys(devices.gpus)) == ("cuda", ["3"])


def test_resolve_refuses_a_gpu_outside_the_mask_and_shows_the_mask(four_gpus):
    with pytest.raises(DeviceError, match=r"gpus has 0.*visible: 2,3.*'2,3'"):
        resolve(1, "auto", [0], {"CUDA_VISIBLE_DEVICES": "2,3"})


def test_resolve_refuses_more_ranks_than_gpus_and_names_the_way_out(four_gpus):
    with pytest.raises(DeviceError, match=r"3 processes .* 2 visible GPUs \(2,3\).*--device cpu"):
        resolve(3, "auto", None, {"CUDA_VISIBLE_DEVICES": "2,3"})


def test_resolve_allows_any_number_of_ranks_on_the_cpu(four_gpus):
    assert resolve(8, "cpu", None, {}).device == "cpu"


def test_resolve_lets_one_process_have_all_gpus(four_gpus):
    devices = resolve(1, "auto", None, {}, ranks_own_gpus=False)

    assert len(devices.gpus) == 4


@pytest.mark.parametrize(
    ("word", "mask", "expected"), [("gpu", "0,1", 2), ("auto", "0,1", 2), ("3", None, 3)]
)
def test_resolve_understands_the_words_of_torchrun(four_gpus, word, mask, expected):
    environ = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}

    assert resolve(word, "auto", None, environ).nproc_per_node == expected


def test_resolve_counts_cores_when_there_is_no_gpu():
    environ = {"CUDA_VISIBLE_DEVICES": ""}

    assert resolve("cpu", "auto", None, environ).nproc_per_node == os.cpu_count()
    assert resolve("auto", "auto", None, environ).nproc_per_node == os.cpu_count()


@pytest.mark.parametrize(
    ("nproc", "device", "gpus", "message"),
    [
        ("x", "auto", None, "nproc_per_node is 'x'"),
        (1, "tpu", None, "device is 'tpu'"),
        (1, "cpu", [0], "device is cpu"),
        (1, "cuda", [0, 0], "twice"),
        (1, "cuda", [], "empty"),
        (1, "cuda", ["two"], "gpus has 'two'"),
    ],
)
def test_resolve_refuses_what_makes_no_sense(four_gpus, nproc, device, gpus, message):
    with pytest.raises(DeviceError, match=message):
        resolve(nproc, device, gpus, {})


def test_resolve_says_so_when_cuda_is_asked_for_and_there_is_none():
    with pytest.raises(DeviceError, match=r"no GPU here.*--device cpu"):
        resolve(1, "cuda", None, {"CUDA_VISIBLE_DEVICES": ""})
