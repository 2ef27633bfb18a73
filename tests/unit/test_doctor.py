"""What the doctor makes of machines that pretend: other GPUs, limits, other people's words."""

import json
import os
import socket
import threading
from pathlib import Path

import pytest

import ddpnb
from ddpnb.checkup import (
    CHECKS,
    Check,
    Report,
    disk,
    examine,
    gpus,
    jupyter,
    limits,
    network,
    ranks,
    site,
)
from ddpnb.checkup import python as pythons
from ddpnb.checkup.here import Here, ask
from tests.conftest import ROOT

GIB = 1 << 30
HOSTILE = "\x1b]0;title\x07\x1b[2J<script>alert(1)</script>\n\u202efail"
TORCH = {
    "version": "2.13.0+cu130",
    "cuda": "13.0",
    "hip": None,
    "cudnn": 91300,
    "distributed": True,
    "gloo": True,
    "nccl": "2.29.1",
    "cuda_available": True,
    "cuda_words": [],
    "archs": ["sm_80", "sm_90", "compute_90"],
    "gpus": [{"name": "NVIDIA Test 80GB", "capability": [9, 0]}],
}
TORCH_ON_CPU = TORCH | {"version": "2.13.0+cpu", "cuda": None, "nccl": None, "gpus": []}


def program(folder: Path, name: str, text: str) -> Path:
    """Write an executable into a folder, and return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return folder


def here_with(tmp_path: Path, **files: str) -> Here:
    """Return a machine whose files are these; `__` in a name stands for a slash."""
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Here({"PATH": os.environ["PATH"]}, tmp_path)


@pytest.fixture
def four_gpus(monkeypatch, tmp_path) -> Here:
    monkeypatch.setenv("PATH", f"{ROOT / 'tests/fakes'}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Here(root=tmp_path)


def masked(here: Here, mask: str) -> Check:
    return gpus.visible_devices(Here(here.environ | {"CUDA_VISIBLE_DEVICES": mask}, here.root))


# The report


def test_a_check_keeps_one_plain_line_of_what_it_is_given():
    check = Check("GPUs", "ok", HOSTILE, HOSTILE)

    assert check.found == check.fix == "<script>alert(1)</script> \ufffdfail"


def test_a_check_keeps_not_too_much():
    assert len(Check("x", "ok", "a" * 10_000).found) == 600


def test_html_is_escaped_and_has_every_check():
    html = Report((Check("a", "fail", HOSTILE, "<i>"), Check("b", "ok", "fine")))._repr_html_()

    assert "<script" not in html and "<i>" not in html and "\x1b" not in html
    assert "&lt;script&gt;" in html and "fine" in html and "Mend first: a" in html


def test_the_text_has_a_line_a_check_and_one_for_a_fix():
    text = repr(Report((Check("a", "ok", "fine"), Check("name", "warn", "slow", "do this"))))

    assert text.splitlines() == [
        "ok    a     fine",
        "warn  name  slow",
        "            fix: do this",
        "",
        "Runs will work here; worth mending: name",
    ]


def test_a_report_is_ok_unless_a_check_failed_and_is_read_by_name():
    report = Report((Check("a", "warn", "x"), Check("b", "skip", "y")))

    assert report.ok and report["b"].found == "y"
    assert not Report((Check("a", "fail", "x"),)).ok
    with pytest.raises(KeyError):
        report["c"]


def test_every_check_is_done_in_order_and_named_before(tmp_path, monkeypatch):
    here, named = Here(), []
    here.torch = TORCH_ON_CPU

    found = [check.name for check in examine(quick=True, here=here, about_to=named.append)]

    assert found == list(CHECKS)
    assert named == [name for name in CHECKS if name not in ("gloo", "nccl")]


def test_a_check_that_breaks_is_told_and_hides_no_other():
    def broken(here: Here) -> Check:
        raise ZeroDivisionError("of [bold]")

    checks = {"a": broken, "b": lambda here: Check("b", "ok", "fine")}
    first, second = examine(here=Here({}), checks=checks)

    assert (first.name, first.status) == ("a", "warn")
    assert first.found == "this check broke: ZeroDivisionError: of [bold]"
    assert second.found == "fine"


def test_a_check_that_hangs_is_left_alone():
    free = threading.Event()

    def hanging(here: Here) -> Check:
        free.wait()
        return Check("a", "ok", "at last")

    (check,) = examine(here=Here({}), checks={"a": hanging}, seconds=0.05)
    free.set()

    assert (check.status, check.found) == ("warn", "no answer within 0.05 s")


# Other programs


def test_a_program_that_does_not_answer_is_ended_with_its_children():
    answer = ask(["sh", "-c", "sleep 600 & wait"], 0.2)

    assert (answer.code, answer.words) == (None, "no answer within 0.2 s")
    # The fixture looks for what is left.


def test_a_program_that_is_not_there_is_no_exception():
    assert "cannot be started" in ask(["no-such-program"], 5).words


# torch and GPUs


@pytest.mark.parametrize(
    ("facts", "count", "status", "words"),
    [
        (TORCH, 1, "ok", "CUDA 13.0 build, cuDNN 91300, nccl 2.29.1"),
        (TORCH_ON_CPU, 0, "ok", "CPU build"),
        (TORCH_ON_CPU, 4, "warn", "CPU build, though nvidia-smi shows 4 GPU(s)"),
        (TORCH | {"cuda_available": False}, 0, "ok", "CUDA 13.0 build"),
        (TORCH | {"cuda_available": False, "gpus": []}, 1, "warn", "torch does not say why"),
        (TORCH | {"archs": ["sm_80"]}, 1, "warn", "is sm_90: 'no kernel image"),
        (TORCH | {"archs": ["sm_80", "compute_80"]}, 1, "ok", "CUDA"),
        (TORCH | {"archs": ["sm_90a"]}, 1, "ok", "CUDA"),
        (TORCH | {"version": "2.4.1"}, 1, "warn", "2.4.1"),
        (TORCH | {"distributed": False}, 1, "fail", "without torch.distributed"),
        ("ModuleNotFoundError: No module named 'torch'", 1, "fail", "not installed"),
        ("OSError: libcudart.so.13: cannot open", 1, "fail", "libcudart.so.13"),
    ],
)
def test_torch(facts, count, status, words):
    check = gpus.judge_torch(facts, count)

    assert check.status == status
    assert words in check.found
    assert bool(check.fix) == (status != "ok")


def test_a_driver_that_is_too_old_is_told_in_torchs_words():
    words = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)"
    check = gpus.judge_torch(TORCH | {"cuda_available": False, "cuda_words": [words]}, 2)

    assert words in check.found
    assert check.fix.startswith("update the driver")


def test_gpus_are_listed_with_what_is_free(four_gpus):
    check = gpus.gpus(four_gpus)

    assert check.status == "ok"
    assert "driver 550.54.15" in check.found
    assert "1: NVIDIA Test 80GB, 40 GiB of 80 GiB free" in check.found
    assert check.found.endswith("3: NVIDIA Test 80GB")


def test_users_of_gpus_are_named(four_gpus):
    (four_gpus.root / "proc/4242").mkdir(parents=True)

    check = gpus.gpu_users(four_gpus)

    assert check.status == "note"
    assert check.found.startswith("GPU 1: pid 4242 (")
    assert check.found.endswith(") python, 40 GiB")


def test_a_user_of_gpus_in_another_container_is_said_to_be_out_of_sight(four_gpus):
    assert "not seen from here" in gpus.gpu_users(four_gpus).found


def test_a_kernel_that_holds_gpu_memory_itself_is_warned(four_gpus):
    check = gpus.gpu_users(Here(four_gpus.environ, four_gpus.root, pid=4242))

    assert check.status == "warn"
    assert "restart the kernel" in check.fix


@pytest.mark.parametrize(
    ("mask", "status", "words"),
    [
        ("2,3", "ok", "2 of 4 GPU(s)"),
        ("", "note", "hides all 4"),
        ("-1", "note", "hides all 4"),
        ("0,9,1", "warn", "'9' is not here, so CUDA passes over it and all behind it; visible: 0"),
        ("1,1", "warn", "'1' is twice in it"),
        ("MIG-ffff5555-0000", "note", "MIG slices"),
    ],
)
def test_the_mask_of_visible_devices(four_gpus, mask, status, words):
    check = masked(four_gpus, mask)

    assert (check.status, words in check.found) == (status, True), check


def test_without_a_mask_all_gpus_are_visible(four_gpus):
    assert gpus.visible_devices(four_gpus).found.startswith("all ")


def test_without_nvidia_smi_there_is_nothing_to_look_at(tmp_path):
    here = Here({"PATH": str(tmp_path)}, tmp_path)

    assert gpus.gpus(here).status == "note"
    assert gpus.gpu_users(here).status == gpus.visible_devices(here).status == "skip"


def test_a_gpu_without_nvidia_smi_is_told(tmp_path):
    here = here_with(tmp_path, dev__nvidia0="")
    here.environ["PATH"] = str(tmp_path)

    assert gpus.gpus(here).status == "warn"


def test_a_driver_that_does_not_answer_is_told_in_its_own_words(tmp_path):
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    path = program(tmp_path / "bin", "nvidia-smi", f'echo "{words}"; exit 9')

    check = gpus.gpus(Here({"PATH": f"{path}:/usr/bin:/bin"}, tmp_path))

    assert (check.status, check.found) == ("warn", f"nvidia-smi: {words}")


def test_hostile_names_of_gpus_and_processes_do_nothing(tmp_path, monkeypatch):
    (tmp_path / "row").write_text(f"0, GPU-1, 1, 10, 0, Default, {HOSTILE}")
    (tmp_path / "app").write_text(f"GPU-1, 7, 1, {HOSTILE.splitlines()[0]}")
    path = program(
        tmp_path / "bin",
        "nvidia-smi",
        f"case $1 in --query-gpu*) cat '{tmp_path}/row';; --query-c*) cat '{tmp_path}/app';; esac",
    )
    here = Here({"PATH": f"{path}:/usr/bin:/bin"}, tmp_path)

    report = Report((gpus.gpus(here), gpus.gpu_users(here)))

    assert "<script>alert(1)" in repr(report)
    assert "\x1b" not in repr(report) and "\u202e" not in repr(report)
    assert "<script" not in report._repr_html_()


# Ranks


def test_a_launch_that_went_well():
    told = {"seconds": 5.25, "reduce_seconds": 0.0021, "backend": "gloo", "device": "cpu"}

    check = ranks.judge_trial("gloo", 2, told)

    assert check.status == "ok"
    assert "2 ranks on cpu added 4 MiB in 2.1 ms; the whole launch took 5.2 s" in check.found


def test_one_gpu_shows_nothing_of_the_way_between_gpus():
    told = {"seconds": 5.0, "reduce_seconds": 0.001, "backend": "nccl", "device": "cuda:0"}

    assert "one GPU" in ranks.judge_trial("nccl", 1, told).found


def test_a_launch_that_failed_names_the_error_and_the_command_that_shows_more():
    check = ranks.judge_trial("nccl", 2, {"error": "rank 1: x", "hint": "try y"})

    assert (check.status, check.found) == ("fail", "all_reduce on 2 ranks failed: rank 1: x")
    assert check.fix.startswith("try y; ")
    assert "NCCL_DEBUG=INFO torchrun --standalone --nproc-per-node 2" in check.fix


def test_ranks_are_not_launched_without_torch_or_without_gpus():
    here = Here({"PATH": ""})
    here.torch = "ModuleNotFoundError"
    on_cpu = Here({"PATH": ""})
    on_cpu.torch = TORCH_ON_CPU

    assert ranks.gloo(here).status == ranks.nccl(here).status == "skip"
    assert ranks.nccl(on_cpu).status == "skip"


# Limits


@pytest.mark.parametrize(
    ("room", "status"),
    [
        (None, "warn"),
        ((64 << 20, 64 << 20), "warn"),
        ((8 * GIB, 8 * GIB), "ok"),
        ((8 * GIB, 1 << 20), "warn"),
    ],
)
def test_shared_memory(room, status):
    check = limits.judge_shared_memory(room, "No such file or directory")

    assert check.status == status
    assert bool(check.fix) == (status == "warn")


@pytest.mark.parametrize(
    ("soft", "hard", "status", "fix"),
    [
        (1024, 1 << 20, "warn", "ulimit -n 65536"),
        (1024, 5000, "warn", "ulimit -n 5000"),
        (1024, 1024, "warn", "an administrator"),
        (4096, 4096, "ok", ""),
        (-1, -1, "ok", ""),
    ],
)
def test_open_files(soft, hard, status, fix):
    check = limits.judge_open_files(soft, hard)

    assert check.status == status
    assert check.fix.startswith(fix)


@pytest.mark.parametrize(
    ("cores", "total", "quota", "omp", "status", "words"),
    [
        (8, 8, None, None, "ok", "8 cores; each rank takes 1 thread (OMP_NUM_THREADS is not set)"),
        (8, 8, None, "2", "ok", "each rank takes 2 threads"),
        (8, 8, None, "8", "warn", "OMP_NUM_THREADS=8"),
        (8, 8, None, "many", "warn", "counts as 1"),
        (2, 64, None, None, "note", "2 cores of 64"),
        (64, 64, 1.5, None, "note", "gets the time of 1.5"),
        (1, 1, None, None, "note", "1 core;"),
    ],
)
def test_threads(cores, total, quota, omp, status, words):
    check = limits.judge_threads(cores, total, quota, omp)

    assert (check.status, words in check.found) == (status, True), check


def test_the_quota_of_a_cgroup_is_that_of_the_narrowest_above_it(tmp_path):
    here = here_with(
        tmp_path,
        proc__self__cgroup="0::/user/job\n",
        sys__fs__cgroup__user__job__cpu="",
        **{"sys__fs__cgroup__user__cpu.max": "150000 100000\n"},
        **{"sys__fs__cgroup__cpu.max": "max 100000\n"},
    )

    assert "gets the time of 1.5" in limits.threads(here).found


def test_the_quota_of_an_older_cgroup(tmp_path):
    here = here_with(
        tmp_path,
        proc__self__cgroup="4:cpu,cpuacct:/docker/abc\n0::/\n",
        **{"sys__fs__cgroup__cpu__cpu.cfs_quota_us": "50000\n"},
        **{"sys__fs__cgroup__cpu__cpu.cfs_period_us": "100000\n"},
    )

    assert "gets the time of 0.5" in limits.threads(here).found


def test_memory_is_what_the_container_may_still_take(tmp_path):
    here = here_with(
        tmp_path,
        proc__meminfo=f"MemTotal: {64 << 20} kB\nMemAvailable: {60 << 20} kB\n",
        proc__self__cgroup="0::/\n",
        **{"sys__fs__cgroup__memory.max": f"{2 * GIB}\n"},
        **{"sys__fs__cgroup__memory.current": f"{2 * GIB - (100 << 20)}\n"},
    )

    check = limits.memory(here)

    assert check.status == "warn"
    assert check.found == "100 MiB free of the 2.0 GiB that this container or job may take"


def test_the_out_of_memory_killer_is_told():
    check = limits.judge_memory(64 * GIB, 60 * GIB, None, 3)

    assert (check.status, "was here 3 time(s)" in check.found) == ("note", True)


# Ports, interfaces, disk


def test_a_taken_port_is_told_with_its_holder(tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]

        check = network.ports(Here({}, tmp_path), port)

    assert check.status == "note"
    assert f"the usual port {port} is taken by pid {os.getpid()} (" in check.found


def test_a_narrow_range_of_ports_is_a_warning(tmp_path):
    here = here_with(tmp_path, proc__sys__net__ipv4__ip_local_port_range="40000\t40099\n")

    assert "only 100 free ports" in network.ports(here).found


@pytest.mark.parametrize(
    ("gloo", "nccl", "status"),
    [
        (None, None, "ok"),
        ("lo", None, "ok"),
        ("lo,eth9", None, "warn"),
        (None, "eth", "ok"),
        (None, "=eth", "warn"),
        (None, "^docker", "ok"),
        (None, "ib", "warn"),
    ],
)
def test_interfaces_that_the_user_names_must_be_here(gloo, nccl, status):
    assert network.judge_interfaces({"lo", "eth0"}, gloo, nccl).status == status


MOUNTS = """\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 0:5 / /home rw shared:2 - nfs4 server:/home rw
3 2 0:6 / /home/my\\040data rw - lustre x rw
4 1 0:7 / /tmp rw - tmpfs a rw
5 4 0:8 / /tmp rw - xfs b rw
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/srv", "ext4"),
        ("/home/anna", "nfs4"),
        ("/home/my data/x", "lustre"),
        ("/homeless", "ext4"),
        ("/tmp/x", "xfs"),
    ],
)
def test_the_file_system_is_that_of_the_deepest_and_latest_mount(place, kind):
    assert disk.file_system(MOUNTS, Path(place)) == kind


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({}, "ok"),
        ({"free": 1 << 20}, "fail"),
        ({"free": GIB}, "warn"),
        ({"files": 0}, "fail"),
        ({"files": None}, "ok"),
        ({"kind": "nfs4"}, "note"),
        ({"kind": "fuse.sshfs"}, "note"),
        ({"holes": False}, "note"),
    ],
)
def test_disk(more, status):
    usual = {"kind": "ext4", "free": 100 * GIB, "files": 9, "holes": True}

    assert disk.judge_disk("/runs", **usual | more).status == status


def test_a_file_in_the_place_of_the_runs_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("")

    for runs in ("file", "file/runs"):
        check = disk.disk(Here({"DDPNB_RUNS": str(tmp_path / runs)}))
        assert (check.status, check.found) == ("fail", f"{tmp_path / 'file'} is no folder")


def test_looking_at_the_disk_leaves_nothing_there(tmp_path):
    check = disk.disk(Here({"DDPNB_RUNS": str(tmp_path / "a b" / "runs")}))

    assert str(tmp_path / "a b" / "runs") in check.found
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_fails():
    check = disk.disk(Here({"DDPNB_RUNS": "/proc/runs"}))

    assert (check.status, check.found.partition(":")[0]) == ("fail", "/proc cannot be written")


# Python and Jupyter


@pytest.mark.parametrize(
    ("compiled", "writes", "writable", "status", "fix"),
    [
        (True, False, False, "ok", ""),
        (False, True, True, "ok", ""),
        (False, False, True, "warn", "once: python -m compileall -q /site/torch"),
        (False, True, False, "warn", "export PYTHONPYCACHEPREFIX="),
    ],
)
def test_bytecode(compiled, writes, writable, status, fix):
    check = pythons.judge_bytecode(
        Path("/site/torch"), Path("/site"), compiled=compiled, writes=writes, writable=writable
    )

    assert check.status == status
    assert check.fix.startswith(fix)


@pytest.mark.parametrize(
    ("version", "status"),
    [
        (None, "warn"),
        ("6.29.5", "warn"),
        ("6.31.0", "note"),
        ("7.0.1", "note"),
        ("7.2.0", "ok"),
        ("7.4.0", "ok"),
        ("8.0.0a1", "ok"),
    ],
)
def test_ipykernel(version, status):
    assert pythons.judge_ipykernel(version).status == status


@pytest.mark.parametrize(
    ("ipywidgets", "anywidget", "status"),
    [
        ("8.1.9", "0.11.0", "ok"),
        ("7.8.5", "0.9", "warn"),
        (None, None, "warn"),
        ("8.1", None, "note"),
    ],
)
def test_widgets(ipywidgets, anywidget, status):
    assert jupyter.judge_widgets(ipywidgets, anywidget).status == status


@pytest.fixture
def running_server(tmp_path):
    """Return a machine with a server in an environment of its own, and a way to look at it."""
    runtime, prefix = tmp_path / "runtime", tmp_path / "hub"
    runtime.mkdir()
    told = {"pid": 77, "port": 8888, "token": "secret", "url": "http://x"}
    (runtime / "jpserver-77.json").write_text(json.dumps(told))
    (runtime / "jpserver-78.json").write_text(json.dumps(told | {"pid": 78}))  # long dead
    (runtime / "jpserver-79.json").write_text("{")
    here = here_with(tmp_path, proc__77__cmdline=f"{prefix}/bin/python3.12\0{prefix}/bin/jupyter\0")

    def look() -> Check:
        return jupyter.server(here, runtime, tmp_path / "user")

    def install(extension: str, version: str) -> None:
        folder = prefix / "share/jupyter/labextensions" / extension
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps({"version": version}))

    return look, install, prefix


def test_a_server_without_widgets_is_told_what_to_install_where(running_server):
    look, _, prefix = running_server

    check = look()

    assert check.status == "warn"
    assert f"pid 77 on port 8888 in {prefix}, not the kernel's environment" in check.found
    assert check.fix.startswith(f"{prefix}/bin/python -m pip install jupyterlab_widgets")
    assert "secret" not in check.found + check.fix


def test_a_server_with_widgets_is_fine(running_server):
    look, install, _ = running_server
    install("@jupyter-widgets/jupyterlab-manager", "5.0.15")
    install("anywidget", "0.11.0")

    assert look().status == "ok"


def test_a_server_with_widgets_of_another_age_is_told(running_server):
    look, install, _ = running_server
    install("@jupyter-widgets/jupyterlab-manager", "3.1.0")

    assert (look().status, "of ipywidgets 7" in look().found) == ("warn", True)


def test_without_a_server_there_is_nothing_to_look_at(tmp_path):
    assert jupyter.server(Here({}), tmp_path, tmp_path).status == "skip"


# The place


@pytest.mark.parametrize(
    ("environ", "slurm", "words"),
    [
        ({}, False, "laptop or workstation"),
        ({"JUPYTERHUB_USER": "anna"}, False, "class server (JupyterHub)"),
        ({"JUPYTERHUB_USER": "anna"}, True, "cluster: Slurm is here, through JupyterHub"),
        ({"SLURM_JOB_ID": "1"}, False, "cluster"),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, False, "Kaggle"),
        ({"COLAB_RELEASE_TAG": "x"}, False, "Colab"),
    ],
)
def test_profile(environ, slurm, words):
    assert words in site.judge_profile(environ, slurm=slurm, container=False).found


def test_slurm_says_its_version_and_our_job(tmp_path):
    path = program(tmp_path / "bin", "sbatch", "echo slurm 24.05.3")
    outside = {"PATH": f"{path}:/usr/bin:/bin"}
    inside = outside | {"SLURM_JOB_ID": "12", "SLURM_JOB_NUM_NODES": "2"}

    assert site.slurm(Here({"PATH": ""})).status == "skip"
    assert "slurm 24.05.3; outside of any job" in site.slurm(Here(outside)).found
    assert "inside job 12 on 2 node(s)" in site.slurm(Here(inside)).found


def test_slurm_that_does_not_answer_is_a_warning(tmp_path):
    path = program(tmp_path / "bin", "sbatch", "echo 'fatal: no slurm.conf' >&2; exit 1")

    check = site.slurm(Here({"PATH": f"{path}:/usr/bin:/bin"}))

    assert (check.status, "fatal: no slurm.conf" in check.found) == ("warn", True)


def test_the_public_function_is_not_hidden_by_the_package():
    assert ddpnb.doctor.__module__ == "ddpnb.checkup"
