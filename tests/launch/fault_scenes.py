"""A run on its way, for faults to strike; its ranks count what they write outside of their logs."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import psutil
import pytest
from jupyter_client.manager import KernelManager

import ddpnb
from ddpnb.json_files import read_json
from ddpnb.launchers.base import Launcher
from ddpnb.process import ProcessId, descendants
from ddpnb.warm.state import every_state
from tests.conftest import wait_until

__all__ = ["DEADLINE", "Scene", "environment", "notebook_folder", "scene_of", "small_disk"]

DEADLINE = 240.0

SCRIPT = """
import os, pathlib, signal, struct, subprocess, sys, time

def main():
    rank = os.environ.get("RANK", "0")
    place = pathlib.Path(os.environ["FAULTS"])
    counter = os.open(place / f"count.{rank}", os.O_RDWR | os.O_CREAT)
    dist = None
    if (place / "collective").exists() and "RANK" in os.environ:
        global torch
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
    if (place / "stubborn").exists():
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, lambda *_: None)
    if (place / "helper").exists():
        code = "import time; time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    last = rank == ("1" if os.environ.get("WORLD_SIZE") == "2" else "0")
    try:
        write(place, counter, dist, last)
    except KeyboardInterrupt:
        if not (place / "polite").exists():
            raise

def write(place, counter, dist, last):
    order = place / "order"
    for i in range(10**9):
        print("line", i)
        os.pwrite(counter, struct.pack("q", i + 1), 0)
        if dist is not None:
            dist.all_reduce(torch.ones(1))
        if i % 20 == 0:
            if order.exists():
                told = order.read_text()
                if told == "end":
                    return
                if last:
                    obey(told)
            time.sleep(0.01)

def obey(told):
    if told == "raise":
        raise ValueError("on purpose")
    if told == "exit":
        os._exit(0)
    if told == "segv":
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
    before: set[int]
    """The processes that were there before it."""
    kernel: KernelManager | None = None
    client: Any = None
    logs: list[BinaryIO] = field(default_factory=list)
    """Each rank's output, held open: it can be read when its folder has been deleted."""

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
        """Have the last rank do something to itself, or all ranks "end"."""
        (self.place / "order.new").write_text(text)
        (self.place / "order.new").rename(self.place / "order")

    def processes(self) -> set[ProcessId]:
        """Return keeper and supervisor and all below them, in whatever session it hides."""
        ours = [self.process("keeper"), self.process("supervisor")]
        return {*ours, *(below for one in ours for below in descendants(one.pid))}

    def strangers(self) -> set[ProcessId]:
        """Return the living processes that have the run in their environment, whoever they are."""
        found = set()
        states = every_state(self.place / "ddpnb") if self.kernel is not None else []
        waiting = {state.process.pid for state in states if state.owner.is_alive()}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                forked = self._is_from_our_warm_process(process.cmdline())
                new = process.pid not in {*self.before, *waiting}
                in_the_run = process.environ().get("DDPNB_RUN") == str(self.job.folder)
                if in_the_run or (forked and new):
                    found.add(ProcessId.of(process.pid))
        return {process for process in found if process is not None and process.is_alive()}

    def _is_from_our_warm_process(self, words: list[str]) -> bool:
        """Whether a process has the words, which it keeps, of the warm process of this scene.

        Other tests, which run at the same time, have their own.
        """
        if "ddpnb.warm.process" not in words:
            return False
        folder, owner = words[-2:]
        if self.kernel is not None:
            return Path(folder) == self.place / "ddpnb"
        return int(json.loads(owner)["pid"]) == os.getpid()

    def run_cell(self, code: str) -> None:
        """Have the kernel run a cell that waits; return when it does."""
        asked = self.client.execute(code)
        while True:
            message = self.client.get_iopub_msg(timeout=DEADLINE)
            ours = message["parent_header"].get("msg_id") == asked
            if ours and message["msg_type"] == "execute_input":
                break
        counted = self.counted(0)
        wait_until(lambda: self.counted(0) > counted + 100, DEADLINE, "the cell waits by now")

    def hold_logs(self) -> None:
        """Keep each rank's output readable, whatever becomes of its folder."""
        ranks = map(self.job.run.rank, range(self.nproc))
        self.logs = [rank.stdout.open("rb") for rank in ranks]

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
            there = set(self._written(rank).split(b"\n"))
            lost += sum(b"line %d" % i not in there for i in range(count))
        return lost

    def _written(self, rank: int) -> bytes:
        path = self.job.run.rank(rank).stdout
        if path.exists() or not self.logs:
            return path.read_bytes()
        self.logs[rank].seek(0)
        return self.logs[rank].read()

    def close(self) -> None:
        """End what is left of the run."""
        for log in self.logs:
            log.close()
        if self.job.folder.exists():
            self.job.kill()


def notebook_folder(place: Path) -> Path:
    """Return the folder that has script and runs; what the ranks count lies outside of it."""
    return place / "notebook"


@contextlib.contextmanager
def scene_of(
    launcher: Launcher, place: Path, *, cell: str | None = None, detach: bool = False
) -> Iterator[Scene]:
    """Launch in an empty folder; end what is left of it on leaving.

    Args:
        cell: what a cell of a notebook does while the ranks run ("" for nothing), where the run
            belongs to a notebook's kernel; None: it belongs to this process.
    """
    folder = notebook_folder(place)
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(SCRIPT)
    nproc = 1 if launcher.name == "python" else 2
    before = set(psutil.pids())
    if cell is None:
        job = ddpnb.launch(
            folder / "train.py",
            nproc_per_node=nproc,
            launcher=launcher,
            detach=detach,
            grace=1.0,
            env={"FAULTS": str(place)},
            cwd=folder,
        )
        with contextlib.closing(Scene(place=place, nproc=nproc, job=job, before=before)) as scene:
            yield scene
        return
    kernel = KernelManager(kernel_name="python3")
    # A warm process of its own: it would else share that of this process, from which it descends.
    kernel.start_kernel(cwd=str(folder), env=dict(os.environ) | {"XDG_RUNTIME_DIR": str(place)})
    client = kernel.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=DEADLINE)
        code = KERNEL.format(nproc=nproc, launcher=launcher, detach=detach)
        code = code.replace("launcher=", "launcher=ddpnb.")
        client.execute(code, reply=True, timeout=DEADLINE)
        (job,) = ddpnb.runs()
        scene = Scene(
            place=place, nproc=nproc, job=job, before=before, kernel=kernel, client=client
        )
        with contextlib.closing(scene):
            if cell:
                scene.run_cell(cell)
            yield scene
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
        kernel.cleanup_resources()


@contextlib.contextmanager
def environment(place: Path) -> Iterator[None]:
    """Have runs go to `place`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDPNB_RUNS", str(notebook_folder(place) / "runs"))
        patch.setenv("FAULTS", str(place))
        yield


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Put a disk of 8 MiB in place of a folder; yield whether this user may."""
    folder.mkdir(parents=True)
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
