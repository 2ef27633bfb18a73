"""What the doctor says of a machine; nothing is launched here."""

import json
import os

import pytest

from ddpnb.diagnose import gpus, machine, packages
from ddpnb.diagnose.doctor import doctor
from ddpnb.diagnose.report import Check, Report
from tests.conftest import ROOT

TORCH = {
    "version": "2.13.0",
    "cuda": "13.0",
    "hip": None,
    "available": True,
    "backends": ["gloo", "nccl"],
    "built_for": ["sm_80", "sm_90", "compute_90"],
    "capabilities": ["sm_90"],
}


@pytest.fixture
def four_gpus(monkeypatch):
    monkeypatch.setenv("PATH", f"{ROOT / 'tests/fakes'}:{os.environ['PATH']}")


def test_a_report_is_a_line_a_check_with_the_fix_below():
    report = Report(
        [
            Check(name="disk", status="ok", found="9 GiB free"),
            Check(name="torch", status="fail", found="missing", fix="install it"),
        ]
    )

    assert repr(report).splitlines() == [
        "✔ disk   9 GiB free",
        "✖ torch  missing",
        "         → install it",
    ]
    assert report.failed
    assert [one["name"] for one in json.loads(report.to_json())] == ["disk", "torch"]


def test_a_hostile_name_does_nothing_in_the_report():
    report = Report([Check(name="GPUs", status="ok", found="<script>\x1b]0;title\x07\nsecond")])

    assert "<script>" not in report._repr_html_()
    assert "\x1b" not in repr(report) + report._repr_html_()
    assert len(repr(report).splitlines()) == 1


def test_every_check_of_the_quick_doctor_has_an_answer(monkeypatch):
    monkeypatch.setattr(machine, "disk", lambda: 1 / 0)

    report = doctor(quick=True)

    found = {check.name: check for check in report}
    assert set(found) >= {"Python", "GPUs", "threads", "memory", "ports", "kernel", "Slurm"}
    assert found["disk"].status == "warn"
    assert "ZeroDivisionError" in found["disk"].found
    assert all(check.fix for check in report if check.status == "fail")


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({}, "ok", "2.13.0 (CUDA 13.0), gloo and nccl"),
        ({"cuda": None, "available": False}, "fail", "but this machine has GPUs"),
        ({"available": False, "capabilities": []}, "fail", "finds no usable GPU"),
        ({"capabilities": ["sm_70"]}, "fail", "not built for sm_70"),
        ({"capabilities": ["sm_120"]}, "ok", "CUDA 13.0"),
        ({"capabilities": ["sm_89"]}, "ok", "CUDA 13.0"),
    ],
)
def test_torch_is_compared_with_the_gpus(four_gpus, changes, status, words):
    check = gpus.torch(TORCH | changes, environ={})

    assert (check.status, words in check.found) == (status, True)


def test_a_torch_that_cannot_be_imported_is_told():
    check = gpus.torch("ModuleNotFoundError: No module named 'torch'")

    assert (check.status, check.fix) == ("fail", "install torch in this environment")


@pytest.mark.parametrize(
    ("mask", "status", "words"),
    [
        (None, "ok", "0 NVIDIA Test 80GB, 1 NVIDIA Test 80GB"),
        ("2", "ok", "2 NVIDIA Test 80GB; CUDA_VISIBLE_DEVICES='2' chooses them"),
        ("", "warn", "4 here, but CUDA_VISIBLE_DEVICES='' hides all of them"),
    ],
)
def test_the_gpus_are_named_as_nvidia_smi_does(four_gpus, mask, status, words):
    check = gpus.gpus({} if mask is None else {"CUDA_VISIBLE_DEVICES": mask})

    assert (check.status, words in check.found) == (status, True)


def test_who_holds_a_gpu_is_told(tmp_path, monkeypatch):
    fake = tmp_path / "nvidia-smi"
    fake.write_text(
        "#!/bin/sh\n"
        "test \"$1\" = -L && echo 'GPU 3: H200 (UUID: GPU-aa)' && exit\n"
        f"echo 'GPU-aa, {os.getpid()}, 2048'\n"
        "echo 'GPU-bb, 999999999, [N/A]'\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    check = gpus.gpu_users()

    first, second = check.found.split("; ")
    assert first.startswith(f"GPU 3: pid {os.getpid()} (py")
    assert first.endswith("2.0 GiB")
    assert second == "GPU ?: pid 999999999 (of another container or user)"


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, "a Kaggle notebook"),
        ({"JUPYTERHUB_USER": "ada"}, "a JupyterHub"),
        ({"SLURM_JOB_ID": "7"}, "inside a Slurm allocation"),
    ],
)
def test_the_place_is_recognised(environ, words):
    assert words in machine.place(environ).found


@pytest.mark.parametrize(
    ("chosen", "status"), [(None, "ok"), ("4", "note"), ("4,2", "note"), ("many", "warn")]
)
def test_threads_are_told(chosen, status):
    assert machine.threads({} if chosen is None else {"OMP_NUM_THREADS": chosen}).status == status


def test_a_missing_shared_memory_is_a_warning(tmp_path):
    assert machine.shared_memory(tmp_path / "nothing").status == "warn"


def test_a_runs_folder_that_cannot_be_written_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.tempfile, "NamedTemporaryFile", _refuse)

    check = machine.disk()

    assert check.status == "fail"
    assert "Read-only file system" in check.found
    assert "DDPNB_RUNS" in check.fix


def _refuse(**_):
    raise OSError(30, "Read-only file system")


def test_slurm_is_found_on_the_path(tmp_path, monkeypatch):
    for name in ("sbatch", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert machine.slurm({}).found == "sbatch, srun on PATH"


def test_missing_packages_of_the_view_are_told(monkeypatch):
    monkeypatch.setattr(packages, "_version", lambda name: None if name == "anywidget" else "8.1.0")

    check = packages.kernel()

    assert check.status == "warn"
    assert check.fix == "install anywidget in this environment"


def test_a_server_without_the_widgets_is_told_with_the_command(monkeypatch):
    monkeypatch.setattr(packages, "_servers", lambda: ["/srv/bin/python"])
    monkeypatch.setattr(packages, "_ask", lambda _: {"jupyterlab": "4.6.6", "anywidget": None})

    check = packages.server()

    assert check.status == "warn"
    assert "/srv/bin/python -m pip install jupyterlab_widgets anywidget" in check.fix
