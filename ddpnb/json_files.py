"""Json files that a reader never sees in part, and json lines that are appended whole.

What must be said even on a full disk is written into blocks that were reserved for it. Used by
keeper, supervisor and ranks, so it is stdlib only.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ddpnb.errors import RunDirError
from ddpnb.records import parse_json

__all__ = [
    "append_json_lines",
    "free_reserves",
    "read_json",
    "reserve",
    "write_json",
    "write_private",
]

_RESERVED_BYTES = 32 << 10


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a json file, or None when the file is not there (yet)."""
    try:
        # Without waiting for a writer, where somebody has put a pipe in its place.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = parse_json(file.read() or b"")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunDirError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RunDirError(f"{path} is no json: {error}") from error
    if not isinstance(data, dict):
        raise RunDirError(f"{path} holds no json object")
    return data


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a json file so that a reader sees the old one or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(data, ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace")
    try:
        write_private(temporary, text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        if len(text) > _RESERVED_BYTES or not _reserved(path).exists():
            raise
        _write_into_reserved(path, text)


def reserve(path: Path) -> None:
    """Hold disk space for a json file that must be writable when the disk is full.

    The space is given back by `free_reserves`. Raises OSError when the disk is full already.
    """
    fd = os.open(_reserved(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _RESERVED_BYTES)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _reserved(path).unlink(missing_ok=True)
            raise
        # A file system that cannot promise space: the file will be written as any other.
    finally:
        os.close(fd)


def free_reserves(folder: Path) -> None:
    """Give back what is still reserved in a folder."""
    for path in folder.glob(_reserved(folder / "*.json").name):
        path.unlink(missing_ok=True)


def append_json_lines(fd: int, lines: Iterable[Mapping[str, Any]]) -> None:
    """Append objects to an O_APPEND file descriptor, one a line, in one write."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    if text:
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        while data:
            data = data[os.write(fd, data) :]


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)


def _reserved(path: Path) -> Path:
    return path.with_name(f".{path.name}.reserved")


def _write_into_reserved(path: Path, text: bytes) -> None:
    """Write over the blocks that are held already, and give the file its name."""
    reserved = _reserved(path)
    with reserved.open("r+b") as file:
        file.write(text)
        file.truncate()
    reserved.replace(path)
