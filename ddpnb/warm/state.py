"""What is known of the warm processes of this user: one json file and one socket for each.

They lie in a folder that only this user can enter; whoever can connect may have code run as the
user, as may whoever can send the user's processes a signal.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ddpnb.errors import RunDirError
from ddpnb.json_files import read_json, write_json
from ddpnb.process import ProcessId

__all__ = ["WarmFiles", "WarmState", "every_state", "tidy", "warm_folder"]


@dataclass(frozen=True, kw_only=True)
class WarmState:
    """One warm process, as it describes itself."""

    process: ProcessId
    owner: ProcessId
    """The process, mostly a notebook's kernel, with which it ends."""
    stage: Literal["warming", "ready", "failed"]
    why: str = ""
    """Why it failed."""
    since: float
    """When it began, Unix time in seconds."""
    python: str
    """Its interpreter."""
    packages: str
    """A fingerprint of what is installed, taken before the imports."""
    read: tuple[str, ...] = ()
    """The variables that were read by what it has imported."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The variables among those, or read by libraries as they load, that it has."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        given = asdict(self)
        return given | {"process": self.process.to_json(), "owner": self.owner.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WarmState:
        """Build from what `to_json` gives."""
        given = {one.name: data[one.name] for one in fields(cls) if one.name in data}
        given["process"] = ProcessId.from_json(given["process"])
        given["owner"] = ProcessId.from_json(given["owner"])
        return cls(**given | {"read": tuple(given.get("read", ()))})


class WarmFiles:
    """The files of the warm process of one owner."""

    def __init__(self, folder: Path, owner: ProcessId) -> None:
        self.folder = folder
        stem = f"{owner.pid}-{owner.start_time}"
        self.state = folder / f"{stem}.json"
        self.log = folder / f"{stem}.log"
        self.socket = folder / f"{stem}.sock"

    def read(self) -> WarmState | None:
        """Return what the process has written of itself; None: there is none."""
        data = read_json(self.state)
        return None if data is None else WarmState.from_json(data)

    def write(self, state: WarmState) -> None:
        """Replace what is written."""
        write_json(self.state, state.to_json())

    def remove(self) -> None:
        """Remove all of them, and the folder with the last."""
        for path in (self.socket, self.state, self.log):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others are there
            self.folder.rmdir()

    def listen(self) -> socket.socket:
        """Return a socket that listens for those who want a run started."""
        listener = socket.socket(socket.AF_UNIX)
        self.socket.unlink(missing_ok=True)
        with self._address() as address:
            listener.bind(address)
        listener.listen(64)
        return listener

    def connect(self, timeout: float) -> socket.socket:
        """Return a connection to the process; raises OSError where nobody listens."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout)
        try:
            with self._address() as address:
                connection.connect(address)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _address(self) -> Iterator[str]:
        """Yield a name of the socket that is short: at most 107 bytes are allowed."""
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{folder}/{self.socket.name}"
        finally:
            os.close(folder)


def warm_folder() -> Path:
    """Return the folder of this user's warm processes, made where it is missing.

    Raises:
        RunDirError: it is not this user's alone.
    """
    runtime, user = os.environ.get("XDG_RUNTIME_DIR"), os.getuid()
    if runtime and Path(runtime).is_dir():
        folder = Path(runtime) / "ddpnb"
    else:
        folder = Path(tempfile.gettempdir()) / f"ddpnb-{user}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
        raise RunDirError(f"{folder} must be a folder that only you can enter; remove it")
    return folder


def tidy(folder: Path) -> None:
    """Remove the files of those whose owner is gone."""
    for path in folder.glob("*.json"):
        data = read_json(path)
        if data is not None:
            state = WarmState.from_json(data)
            if not (state.owner.is_alive() or state.process.is_alive()):
                WarmFiles(folder, state.owner).remove()


def every_state(folder: Path) -> list[WarmState]:
    """Return the living warm processes of this user, oldest first."""
    states = []
    for path in folder.glob("*.json"):
        data = read_json(path)
        if data is not None:
            states.append(WarmState.from_json(data))
    return sorted((s for s in states if s.process.is_alive()), key=lambda state: state.since)
