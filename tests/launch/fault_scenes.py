"""A run on its way, for faults to strike; its ranks count what they write outside of their logs."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.manager import KernelManager

import ddpnb
from ddpnb.json_files import read_json
from ddpnb.launchers.base import Launcher
from ddpnb.process import ProcessId
from tests.conftest import ROOT, wait_until

__all__ = ["DEADLINE", "Scene", "environment", "processes_of", "scene_of", "small_disk"]

DEADLINE = 240.0

SCRIPT = """
import os, pathlib, signal, struct, subprocess, sys, time

def main():
    rank = os.environ.get("RANK", "0")
    place = pathlib.Path(os.environ["FAULTS"])
    counter = os.open(place / f"count.{rank}", os.O_RDWR | os.O_CREAT)
    dist = None
    if (place / "collective").exists():
        import torch, torch.distributed as dist
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
        else:
            dist = None
    if (place / "stubborn").exists():
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, lambda *_: None)
        code = "import time; time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    last = rank == ("1" if os.environ.get("WORLD_SIZE") == "2" else "0")
    for i in range(10**9):
        print("line", i)
        os.pwrite(counter, struct.pack("q", i + 1), 0)
        if dist is not None:
            dist.all_reduce(torch.ones(1))
        order = place / "order"
        if i % 20 == 0:
            if last and order.exists():
                obey(order.read_text())
            time.sleep(0.01)

def obey(order):
    if order == "raise":
        raise ValueError("on purpose")
    if order == "exit":
        os._exit(0)
    if order == "segv":
        import ctypes
        ctypes.string_at(0)

if __name__ == "__main__":
    main()
"""

KERNEL = """
import ddpnb, os
job = ddpnb.launch("train.py", nproc_per_node={nproc}, launcher={launcher!r}, detach={detach},
                   grace=1.0, env={{"FAULTS": os.environ["FAULTS"]}})
"""


@dataclass(kw_only=True)
class Scene:
    """A run on its way, and all that a fault may strike."""

    place: Path
    nproc: int
    job: ddpnb.Job
    kernel: KernelManager | None = None
    client: Any = None

    def process(self, name: str) -> ProcessId:
        """Return the keeper, the supervisor or the launcher."""
        told = read_json(self.job.run.processes)
        assert told is not None
        return ProcessId.from_json(told[name])

    def rank(self) -> ProcessId:
        """Return the last rank."""
        start = self.job.run.rank(self.nproc - 1).starts()[-1].data
        return ProcessId(pid=start["pid"], start_time=start["start_time"])

    def order(self, text: str) -> None:
        """Have the last rank do something to itself."""
        (self.place / "order.new").write_text(text)
        (self.place / "order.new").rename(self.place / "order")

    def writes(self) -> bool:
        """Return whether every rank has written some lines."""
        return all(self.counted(rank) > 20 for rank in range(self.nproc))

    def counted(self, rank: int) -> int:
        """Return how many lines a rank says that it has written."""
        try:
            data = (self.place / f"count.{rank}").read_bytes()
        except FileNotFoundError:
            return 0
        return int(struct.unpack("q", data)[0]) if len(data) == 8 else 0

    def lost(self, counted: list[int] | None = None) -> int:
        """Return how many lines that were written are not in the logs.

        Args:
            counted: how many each rank had written by the time that matters; None: by now.
        """
        lost = 0
        for rank in range(self.nproc):
            count = self.counted(rank) if counted is None else counted[rank]
            lines = self.job.run.rank(rank).stdout.read_bytes().split(b"\n")
            there = {line for line in lines if line.startswith(b"line ")}
            lost += sum(b"line %d" % i not in there for i in range(count))
        return lost


@contextlib.contextmanager
def scene_of(
    launcher: Launcher, place: Path, *, cell: str | None = None, detach: bool = False
) -> Iterator[Scene]:
    """Launch in an empty folder; end what is left of it on leaving.

    Args:
        cell: what a cell of a notebook does while the ranks run ("" for nothing), where the run
            belongs to a notebook's kernel; None: it belongs to this process.
    """
    (place / "train.py").write_text(SCRIPT)
    nproc = 1 if launcher.name == "python" else 2
    if cell is None:
        job = ddpnb.launch(
            place / "train.py",
            nproc_per_node=nproc,
            launcher=launcher,
            detach=detach,
            grace=1.0,
            env={"FAULTS": str(place)},
            cwd=place,
        )
        try:
            yield Scene(place=place, nproc=nproc, job=job)
        finally:
            if job.folder.exists():
                job.kill()
        return
    kernel = KernelManager(kernel_name="python3")
    kernel.start_kernel(cwd=str(place))
    client = kernel.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=DEADLINE)
        code = KERNEL.format(nproc=nproc, launcher=launcher, detach=detach)
        code = code.replace("launcher=", "launcher=ddpnb.")
        client.execute(code + cell)
        wait_until(lambda: ddpnb.runs(), DEADLINE, "the run is there")
        yield Scene(place=place, nproc=nproc, job=ddpnb.runs()[0], kernel=kernel, client=client)
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
        kernel.cleanup_resources()


def processes_of(folder: Path) -> list[ProcessId]:
    """Return every process that has the run in its environment, and what they have started."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("DDPNB_RUN") == str(folder):
                found.append(ProcessId.of(process.pid))
    return [process for process in found if process is not None]


@contextlib.contextmanager
def environment(place: Path) -> Iterator[None]:
    """Have runs go to `place`, and kernels find this checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDPNB_RUNS", str(place / "runs"))
        patch.setenv("FAULTS", str(place))
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Put a disk of 8 MiB in place of a folder; yield whether this user may."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
