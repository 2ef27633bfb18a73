"""What this process and its ranks may take: cores, memory, shared memory, open files, processes."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ddpnb.checkup.check import Check
from ddpnb.checkup.here import Here
from ddpnb.launchers.memory import oom_kills
from ddpnb.words import size

__all__ = [
    "judge_memory",
    "judge_open_files",
    "judge_shared_memory",
    "judge_threads",
    "memory",
    "open_files",
    "processes",
    "shared_memory",
    "threads",
]

_MIB, _GIB = 1 << 20, 1 << 30
_FEW_FILES = 4096
_RANK_BYTES = 512 * _MIB  # measured: about 220 MiB of its own for one that has imported torch
_GET_SUBREAPER, _GET_PDEATHSIG = 37, 2  # linux/prctl.h


def threads(here: Here) -> Check:
    """Check the cores that ranks may use, and the threads that each will take."""
    total = os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    return judge_threads(cores, total, _cpu_quota(here), here.environ.get("OMP_NUM_THREADS"))


def judge_threads(cores: int, total: int, quota: float | None, omp: str | None) -> Check:
    """Return what a launch finds of cores.

    Args:
        cores: that this process may run on.
        total: that the machine has.
        quota: cores' worth of time that the cgroup gets; None: no limit.
        omp: OMP_NUM_THREADS.
    """
    usable = cores if quota is None else min(float(cores), quota)
    found = f"{cores} core{'' if cores == 1 else 's'}" + (f" of {total}" if cores < total else "")
    if quota is not None and quota < cores:
        found += f", of which the container gets the time of {quota:g}"
    first = (omp or "1").partition(",")[0].strip()
    if not first.isdecimal() or int(first) < 1:
        fix = "unset OMP_NUM_THREADS, or set it to a whole number"
        found = f"{found}; OMP_NUM_THREADS={omp!r} is no number, and counts as 1"
        return Check("threads", "warn", found, fix)
    each = int(first)
    why = "OMP_NUM_THREADS is not set" if omp is None else f"OMP_NUM_THREADS={omp}"
    found += f"; each rank takes {each} thread{'' if each == 1 else 's'} ({why})"
    if each > 1 and 2 * each > usable:
        fix = "launch with threads=1, or unset OMP_NUM_THREADS: two ranks would fight for the cores"
        return Check("threads", "warn", found, fix)
    if usable < 2:
        fix = "two ranks work here, in turns; do not measure speed"
        return Check("threads", "note", found, fix)
    if usable < total:
        fix = f"ask for ranks by number: `-n cpu` counts {total} cores"
        return Check("threads", "note", found, fix)
    return Check("threads", "ok", found)


def memory(here: Here) -> Check:
    """Check the memory that is free for ranks."""
    told = dict(line.split(":", 1) for line in (here.read("proc/meminfo") or "").splitlines())
    total, free = (_kibibytes(told.get(name)) for name in ("MemTotal", "MemAvailable"))
    if total is None or free is None:
        return Check("memory", "skip", "/proc/meminfo does not tell")
    return judge_memory(total, free, _memory_limit(here), oom_kills(here.root) or 0)


def judge_memory(total: int, free: int, limit: tuple[int, int] | None, kills: int) -> Check:
    """Return how many ranks there is memory for.

    Args:
        limit: what the cgroup may take, and what it takes now; None: no limit below the machine's.
        kills: processes that the out-of-memory killer has ended in this cgroup.
    """
    found = f"{size(free)} of {size(total)} free"
    if limit is not None and limit[0] < total:
        free = min(free, max(0, limit[0] - limit[1]))
        found = f"{size(free)} free of the {size(limit[0])} that this container or job may take"
    if kills:
        found += f"; the out-of-memory killer was here {kills} time(s)"
    ranks = free // _RANK_BYTES
    if ranks < 2:
        fix = "end other kernels: two ranks with torch take about 1 GiB, before any data"
        return Check("memory", "warn", found, fix)
    if kills:
        fix = "smaller batches, fewer DataLoader workers or less data in each rank need less"
        return Check("memory", "note", found, fix)
    return Check("memory", "ok", found)


def shared_memory(here: Here) -> Check:
    """Check /dev/shm, through which DataLoader workers hand over their batches."""
    place = here.root / "dev/shm"
    try:
        usage = shutil.disk_usage(place)
    except OSError as error:
        return judge_shared_memory(None, error.strerror or str(error))
    return judge_shared_memory((usage.total, usage.free), "", writable=os.access(place, os.W_OK))


def judge_shared_memory(
    room: tuple[int, int] | None, trouble: str = "", *, writable: bool = True
) -> Check:
    """Return whether /dev/shm serves.

    Args:
        room: bytes in all, and free; None: there is none, for the reason in `trouble`.
    """
    fix = (
        "start the container with --shm-size=8g or --ipc=host (Kubernetes: an emptyDir with medium"
        " Memory at /dev/shm); else DataLoader(num_workers=0)"
    )
    if room is None:
        return Check("/dev/shm", "warn", f"cannot be used: {trouble}", fix)
    total, free = room
    found = f"{size(free)} of {size(total)} free"
    if not writable:
        return Check("/dev/shm", "warn", f"{found}, but it cannot be written", fix)
    if total < _GIB:
        small = " (a container's default)" if total == 64 * _MIB else ""
        found = f"{found}{small}: DataLoader workers die of SIGBUS when it is full"
        return Check("/dev/shm", "warn", found, fix)
    if free < total // 20 or free < 256 * _MIB:
        fix = "`ls -l /dev/shm` shows what is in it; what dead processes left there may be removed"
        return Check("/dev/shm", "warn", f"{found}: nearly full", fix)
    return Check("/dev/shm", "ok", found)


def open_files(here: Here) -> Check:
    """Check how many files a process may have open."""
    return judge_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))


def judge_open_files(soft: int, hard: int) -> Check:
    """Return whether the limit serves: DataLoader workers pass tensors as open files."""
    infinite = resource.RLIM_INFINITY
    told = ["no limit" if number == infinite else str(number) for number in (soft, hard)]
    found = f"{told[0]} a process (ulimit -n); may be raised to {told[1]}"
    if soft == infinite or soft >= _FEW_FILES:
        return Check("open files", "ok", found)
    found = f"{found}: 'Too many open files' awaits many ranks with DataLoader workers"
    if hard == infinite or hard >= _FEW_FILES:
        most = 65_536 if hard == infinite else min(hard, 65_536)
        return Check("open files", "warn", found, f"ulimit -n {most}, before you start Jupyter")
    fix = "an administrator raises it (limits.conf, or the container's --ulimit nofile=65536)"
    return Check("open files", "warn", found, fix)


def processes(here: Here) -> Check:
    """Check what keeps ranks from being left behind: pidfds, prctl, /proc."""
    if sys.platform != "linux":
        found = "not Linux: no pidfds, no prctl; the supervisor asks again and again instead"
        return Check("processes", "note", found)
    missing = []
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        missing.append(f"no pidfds ({error}; Linux 5.3 has them, some sandboxes do not)")
    value = ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    for option, word in ((_GET_SUBREAPER, "subreapers"), (_GET_PDEATHSIG, "PDEATHSIG")):
        if libc.prctl(option, ctypes.byref(value), 0, 0, 0) != 0:
            missing.append(f"no {word} (prctl: {errno.errorcode.get(ctypes.get_errno(), '?')})")
    if not (here.root / f"proc/{os.getpid()}/stat").exists():
        missing.append("no /proc")
    if missing:
        fix = "look for what is left after a kill -9, with `ps`; Stop and a kernel's end still work"
        return Check("processes", "warn", "; ".join(missing), fix)
    found = "pidfds, prctl and /proc are here, by which ranks end with their launch"
    return Check("processes", "ok", found)


def _cpu_quota(here: Here) -> float | None:
    """Return the cores' worth of time that this cgroup or one above it gets, the least of them."""
    quotas = [
        int(quota) / int(period)
        for text in _cgroup_files(here, "", "cpu.max")
        for quota, period in [text.split()[:2]]
        if quota.isdecimal()
    ]
    pairs = zip(
        _cgroup_files(here, "cpu", "cpu.cfs_quota_us"),
        _cgroup_files(here, "cpu", "cpu.cfs_period_us"),
        strict=False,
    )
    quotas += [int(quota) / int(period) for quota, period in pairs if int(quota) > 0]
    return min(quotas, default=None)


def _memory_limit(here: Here) -> tuple[int, int] | None:
    """Return the least memory limit of this cgroup or those above it, and what is used of it."""
    found = []
    for controller, limit, used in (
        ("", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        pairs = zip(
            _cgroup_files(here, controller, limit),
            _cgroup_files(here, controller, used),
            strict=False,
        )
        found += [(int(most), int(now)) for most, now in pairs if most.strip().isdecimal()]
    return min(found, default=None)


def _cgroup_files(here: Here, controller: str, name: str) -> Iterator[str]:
    """Yield a file of this process's cgroup, and of each above it, where it is there.

    Args:
        controller: of cgroup v1; "" for v2.
    """
    for line in (here.read("proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        base = Path("sys/fs/cgroup") / controller
        # In a container the path is the host's, and its own group is mounted as the root: what does
        # not exist on the way up is passed over.
        group = PurePosixPath(path)
        for folder in (group, *group.parents):
            text = here.read(f"{base}{folder}/{name}")
            if text is not None and text.strip():
                yield text


def _kibibytes(text: str | None) -> int | None:
    number = (text or "").split()[:1]
    return int(number[0]) << 10 if number and number[0].isdecimal() else None
