"""Keep the logs of a run within `max_log_bytes`: the middle of the long ones goes back to the disk.

The file keeps its size, so that every offset stays true; its middle reads as zeros, and holes.json
says where. Readers look there after each read, so a hole is recorded before it is made.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from ddpnb.json_files import write_json
from ddpnb.rundir import RunDir

__all__ = ["KEPT_BYTES", "LogCap", "punch"]

KEPT_BYTES = 64 << 20
"""Of each stream this much is kept at its beginning and at its end, where the cap allows it."""

_BLOCK_BYTES = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h


class LogCap:
    """Watches the sizes of a run's streams; owns holes.json.

    Args:
        max_bytes: what all streams together may take on the disk; None: no limit.
    """

    def __init__(self, run: RunDir, max_bytes: int | None) -> None:
        self._run = run
        self._max_bytes = max_bytes
        self._holes: dict[str, tuple[int, int]] = {}

    def keep(self, sizes: Mapping[str, int]) -> str | None:
        """Make holes where the streams have grown too long; return what is to be said of it.

        Args:
            sizes: of each stream, in bytes.
        """
        if self._max_bytes is None:
            return None
        gone = sum(end - begin for begin, end in self._holes.values())
        if sum(sizes.values()) - gone <= self._max_bytes:
            return None
        holes = self._wider(sizes, self._max_bytes)
        if holes == self._holes:
            return None
        first = not self._holes
        before, self._holes = self._holes, holes
        try:
            write_json(self._run.hole_file, holes)
            for file in self._run.streams():
                if file.name in holes:
                    begin, end = holes[file.name]
                    done = before.get(file.name, (begin, begin))[1]
                    punch(file.path, done, end - done)
        except OSError as error:
            self._max_bytes = None
            return (
                f"the logs are larger than max_log_bytes, and the middle of them cannot be given"
                f" back to the disk ({error.strerror}): they go on growing"
            )
        if not first:
            return None
        return (
            f"the logs are larger than max_log_bytes ({self._max_bytes:,}): from here on the middle"
            " of the long ones is given back to the disk; first and last lines are kept"
        )

    def _wider(self, sizes: Mapping[str, int], max_bytes: int) -> dict[str, tuple[int, int]]:
        kept = min(KEPT_BYTES, max_bytes // (4 * len(sizes)))
        kept = max(kept - kept % _BLOCK_BYTES, _BLOCK_BYTES)
        holes = dict(self._holes)
        for name, size in sizes.items():
            begin, done = holes.get(name, (kept, kept))
            end = (size - kept) // _BLOCK_BYTES * _BLOCK_BYTES
            if end > done:
                holes[name] = (begin, end)
        return holes


def punch(path: Path, begin: int, length: int) -> None:
    """Give a part of a file back to the disk; raise OSError where the file system cannot."""
    if length <= 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        mode = _KEEP_SIZE | _PUNCH_HOLE
        if libc.fallocate(fd, mode, ctypes.c_longlong(begin), ctypes.c_longlong(length)) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(fd)
