"""The disk that run folders go to: room, rights, kind of file system, and holes."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from ddpnb.checkup.check import Check
from ddpnb.checkup.here import Here
from ddpnb.launchers.log_cap import punch
from ddpnb.rundir import runs_folder
from ddpnb.words import size

__all__ = ["disk", "file_system", "judge_disk"]

_LITTLE, _TOO_LITTLE = 2 << 30, 100 << 20
_BLOCK_BYTES = 4096
_SHARED = frozenset(
    "9p afs beegfs ceph cifs glusterfs gpfs lustre nfs nfs4 orangefs panfs pvfs2 smb3"
    " wekafs".split()
)
_ELSEWHERE = "set DDPNB_RUNS to a folder on another disk"


def disk(here: Here) -> Check:
    """Check the disk under the runs folder, which need not be there yet."""
    runs = runs_folder(here.environ)
    place = next(path for path in (runs, *runs.parents) if os.path.lexists(path))
    if not place.is_dir():
        return Check("disk", "fail", f"{place} is no folder", _ELSEWHERE)
    kind = file_system(here.read("proc/self/mountinfo") or "", place)
    try:
        holes = _can_make_holes(place)
    except OSError as error:
        found = f"{place} cannot be written: {error.strerror}"
        return Check("disk", "fail", found, "set DDPNB_RUNS to a folder that you can write")
    room = os.statvfs(place)
    return judge_disk(
        str(runs),
        kind=kind,
        free=shutil.disk_usage(place).free,
        files=room.f_favail if room.f_files else None,  # btrfs and others count none
        holes=holes,
    )


def judge_disk(runs: str, *, kind: str, free: int, files: int | None, holes: bool) -> Check:
    """Return whether runs can be kept there.

    Args:
        kind: of file system.
        free: bytes.
        files: how many more there may be; None: nobody counts.
        holes: whether the middle of a long log can be given back.
    """
    found = f"{size(free)} free for {runs} ({kind or 'unknown file system'})"
    if free < _TOO_LITTLE or files == 0:
        what = "no more files can be made" if files == 0 else "nearly full"
        fix = f"`ddpnb clean --keep 10` removes old runs; or {_ELSEWHERE}"
        return Check("disk", "fail", f"{found}: {what}", fix)
    if free < _LITTLE:
        fix = f"`ddpnb clean --keep 10` removes old runs; or {_ELSEWHERE}"
        return Check("disk", "warn", f"{found}: the logs of one run may take as much", fix)
    if not holes:
        found = f"{found}, which cannot give back the middle of a file: max_log_bytes has no effect"
        return Check("disk", "note", found, f"where a run prints gigabytes, {_ELSEWHERE}")
    if kind in _SHARED or kind.startswith("fuse"):
        fix = f"where a view lags or imports are slow, {_ELSEWHERE}, a local one"
        return Check("disk", "note", f"{found}, shared by network", fix)
    return Check("disk", "ok", found)


def file_system(mounts: str, place: Path) -> str:
    """Return the kind of the file system that holds a folder; "" when it is not listed.

    Args:
        mounts: the text of /proc/self/mountinfo.
    """
    best, kind = -1, ""
    real = place.resolve()
    for line in mounts.splitlines():
        left, dash, right = line.partition(" - ")
        words = left.split()
        if not dash or len(words) < 5:
            continue
        # Blanks and their kin are written in octal.
        mount = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), words[4])
        if real.is_relative_to(mount) and len(mount) >= best:  # the later one lies on top
            best, kind = len(mount), right.split()[0]
    return kind


def _can_make_holes(place: Path) -> bool:
    """Write a file, make a hole in it and take it away; raise OSError where none can be written."""
    fd, name = tempfile.mkstemp(prefix=".ddpnb-doctor-", dir=place)
    file = Path(name)
    try:
        with os.fdopen(fd, "wb") as out:
            out.write(bytes(2 * _BLOCK_BYTES))
        try:
            punch(file, 0, _BLOCK_BYTES)
        except (OSError, AttributeError):  # the second: a C library without fallocate
            return False
        return True
    finally:
        file.unlink()
