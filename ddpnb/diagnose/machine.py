"""What this machine gives to a run: processes, memory, disk, ports, threads."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psutil

from ddpnb.diagnose.report import Check
from ddpnb.launchers.log_cap import punch
from ddpnb.launchers.ports import is_taken
from ddpnb.process import boot_id
from ddpnb.rundir import runs_folder
from ddpnb.words import size

__all__ = [
    "disk",
    "memory",
    "open_files",
    "place",
    "ports",
    "processes",
    "python",
    "shared_memory",
    "slurm",
    "threads",
]

_GIB = 1 << 30
_DEFAULT_PORT = 29500  # torch's, for whoever chooses none


def place(environ: Mapping[str, str] = os.environ) -> Check:
    """Tell what kind of place this is."""
    hints = {
        "KAGGLE_KERNEL_RUN_TYPE": "a Kaggle notebook",
        "COLAB_RELEASE_TAG": "a Colab notebook",
        "SLURM_JOB_ID": "inside a Slurm allocation",
        "JUPYTERHUB_USER": "a JupyterHub, shared with others",
    }
    found = [words for name, words in hints.items() if environ.get(name)]
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        found.append("a container")
    what = f"{platform.system()} {platform.release()} on {platform.machine()}"
    return Check(name="machine", status="ok", found=", ".join([*found, what]))


def python() -> Check:
    """Tell which Python runs the ranks."""
    found = f"{platform.python_version()}, {sys.executable}"
    return Check(name="Python", status="ok", found=found)


def processes() -> Check:
    """Tell whether the kernel lets a run be owned without gaps."""
    lacks = []
    if sys.platform != "linux":
        lacks.append("subreapers and parent-death signals (Linux has them)")
    if not hasattr(os, "pidfd_open") or not _has_pidfds():
        lacks.append("pidfds (Linux 5.3)")
    if not boot_id():
        lacks.append("a boot id")
    if lacks:
        return Check(
            name="processes",
            status="warn",
            found=f"this system lacks {', '.join(lacks)}",
            fix="runs work; after a kill -9 of the supervisor, look for what is left",
        )
    return Check(name="processes", status="ok", found="pidfds, subreapers, parent-death signals")


def _has_pidfds() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def shared_memory(path: Path = Path("/dev/shm")) -> Check:
    """Tell how much room DataLoader workers have to hand over their batches."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return Check(
            name="/dev/shm",
            status="warn",
            found=f"there is no {path}",
            fix="use DataLoader(num_workers=0), or set the file_system sharing strategy of torch",
        )
    found = f"{size(usage.free)} of {size(usage.total)} free"
    if usage.free < _GIB // 2:
        return Check(
            name="/dev/shm",
            status="warn",
            found=f"{found}: DataLoader workers die of SIGBUS when it is full",
            fix="start the container with --shm-size=8g, or use fewer workers",
        )
    return Check(name="/dev/shm", status="ok", found=found)


def memory(root: Path = Path("/sys/fs/cgroup")) -> Check:
    """Tell how much memory all ranks have together."""
    machine = psutil.virtual_memory()
    limits = [_number(root / name) for name in ("memory.max", "memory/memory.limit_in_bytes")]
    known = [limit for limit in limits if limit is not None and limit < machine.total]
    found = f"{size(machine.available)} of {size(machine.total)} available"
    if known:
        found += f"; this container may have {size(min(known))}"
    if min([machine.available, *known]) < 2 * _GIB:
        return Check(
            name="memory",
            status="warn",
            found=found,
            fix="each rank needs about 0.5 GiB for torch alone; run few of them",
        )
    return Check(name="memory", status="ok", found=found)


def threads(environ: Mapping[str, str] = os.environ) -> Check:
    """Tell how many cores there are for how many threads."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _cpu_quota()
    found = f"{cores} cores for this process"
    if quota is not None:
        found += f", of which a quota leaves {quota:g}"
    chosen = environ.get("OMP_NUM_THREADS")
    if chosen is None:
        return Check(name="threads", status="ok", found=f"{found}; 1 thread a rank by default")
    if not chosen.partition(",")[0].isdecimal():
        return Check(
            name="threads",
            status="warn",
            found=f"{found}; OMP_NUM_THREADS={chosen} is no number",
            fix="set it to a number, or unset it",
        )
    return Check(
        name="threads",
        status="note",
        found=f"{found}; OMP_NUM_THREADS={chosen} gives every rank so many threads",
        fix="ranks times threads should not exceed the cores: threads= of a launch says otherwise",
    )


def _cpu_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        quota = str(_number(root / "cpu/cpu.cfs_quota_us") or "max")
        period = str(_number(root / "cpu/cpu.cfs_period_us") or 100_000)
    return None if quota in ("max", "-1") else int(quota) / int(period)


def open_files() -> Check:
    """Tell how many files and sockets a rank may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{soft} open files a process (limit {'none' if hard < 0 else hard})"
    if 0 <= soft < 4096:
        return Check(
            name="open files",
            status="warn",
            found=f"{found}: many DataLoader workers need more",
            fix=f"ulimit -n {65_536 if hard < 0 else min(hard, 65_536)} before Jupyter starts",
        )
    return Check(name="open files", status="ok", found=found)


def ports() -> Check:
    """Tell whether ranks can meet on this machine."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        return Check(
            name="ports",
            status="fail",
            found=f"no connection over loopback: {error}",
            fix="allow connections to 127.0.0.1, also in a sandbox or firewall",
        )
    found = "loopback works; torch's own stores listen on all interfaces"
    if is_taken(_DEFAULT_PORT):
        return Check(
            name="ports",
            status="note",
            found=f"{found}; port {_DEFAULT_PORT}, the usual default, is taken",
            fix="runs take a free port; a script that sets its own needs another one",
        )
    return Check(name="ports", status="ok", found=found)


def disk() -> Check:
    """Tell whether run folders can be written, and how much they may hold."""
    folder = runs_folder()
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    usage = shutil.disk_usage(there)
    kind = _file_system(there)
    found = f"{size(usage.free)} free for runs in {folder} ({kind})"
    try:
        with tempfile.NamedTemporaryFile(dir=there) as file:
            file.write(bytes(1 << 16))
            file.flush()
            gives_back = _gives_back(Path(file.name))
    except OSError as error:
        return Check(
            name="disk",
            status="fail",
            found=f"cannot write in {there}: {error.strerror}",
            fix="set DDPNB_RUNS to a folder that you can write",
        )
    if usage.free < 2 * _GIB:
        return Check(
            name="disk",
            status="warn",
            found=found,
            fix="ddpnb clean --keep 10 removes old runs; DDPNB_RUNS moves the folder",
        )
    if not gives_back:
        return Check(
            name="disk",
            status="note",
            found=f"{found}; it cannot take back parts of a file",
            fix="logs grow beyond max_log_bytes here; a local disk in DDPNB_RUNS can do better",
        )
    return Check(name="disk", status="ok", found=found)


def _gives_back(file: Path) -> bool:
    try:
        punch(file, 0, 4096)
    except OSError:
        return False
    return True


def _file_system(folder: Path) -> str:
    mounts = psutil.disk_partitions(all=True)
    above = [m for m in mounts if folder.resolve().is_relative_to(m.mountpoint)]
    return max(above, key=lambda m: len(m.mountpoint)).fstype if above else "unknown"


def slurm(environ: Mapping[str, str] = os.environ) -> Check:
    """Tell whether there is a Slurm cluster to send runs to."""
    found = [name for name in ("sbatch", "srun", "squeue") if shutil.which(name)]
    inside = environ.get("SLURM_JOB_ID")
    if inside:
        return Check(
            name="Slurm",
            status="note",
            found=f"inside job {inside}; a local launch does not look at its SLURM_* variables",
        )
    if not found:
        return Check(name="Slurm", status="note", found="not here (no sbatch on PATH)")
    return Check(name="Slurm", status="ok", found=f"{', '.join(found)} on PATH")


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # "max": no limit
        return None
