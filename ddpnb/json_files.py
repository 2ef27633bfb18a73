"""Json files that a reader never sees in part, and json lines that are appended whole.

Used by keeper, supervisor and ranks, so it is stdlib only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ddpnb.errors import RunDirError

__all__ = ["append_json_lines", "read_json", "write_json", "write_private"]


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a json file, or None when the file is not there (yet)."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunDirError(f"{path} is no json: {error}") from error
    if not isinstance(data, dict):
        raise RunDirError(f"{path} holds no json object")
    return data


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a json file so that a reader sees the old one or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(data, ensure_ascii=False, indent=1)
    try:
        write_private(temporary, text.encode("utf-8", "backslashreplace"))
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


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
