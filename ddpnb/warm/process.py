"""`python -P -m ddpnb.warm.process FOLDER OWNER`: has torch imported, and forks on request.

    kernel ── (starter: leaves at once)
                 └── warm process ── one thread, no CUDA, no OpenMP region
                       └── keeper ── supervisor ── ranks: as in launchers.supervise, but forked

It reads nothing from those who connect: it forks at once, and the child does. So no caller, slow or
hostile, can hold it up. It ends with its owner; the runs that it has forked have owners of their
own.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ddpnb.launchers.supervise import keep
from ddpnb.launchers.supervisor import Born
from ddpnb.launchers.tree import ignore_terminal
from ddpnb.process import ProcessId
from ddpnb.rundir import RunDir
from ddpnb.warm.circumstances import take_over
from ddpnb.warm.match import fingerprint, is_read_at_load, recorded
from ddpnb.warm.state import WarmFiles, WarmState

__all__ = ["main"]

# torch._dynamo: DDP's constructor imports it, 807 modules; torch.profiler: the first backward does.
_PRELOADED = (
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch.utils.data.distributed",
    "torch.distributed.elastic.multiprocessing.errors",
    "torch._dynamo",
    "torch.profiler",
    "torch.profiler._cupti_monitor",
    "multiprocessing.popen_fork",
    "multiprocessing.queues",
    "multiprocessing.synchronize",
    "ddpnb.warm.rank",
)
_CALLER_SECONDS = 30.0
"""How long a caller may take to say what it wants; it has connected only to say it."""


def main() -> None:
    """Fork the warm process, and leave as soon as it has written down who it is."""
    owner = ProcessId.from_json(json.loads(sys.argv[2]))
    ready, tell = os.pipe()
    if os.fork() > 0:
        os.close(tell)
        sys.exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    os.setsid()
    process = WarmProcess(WarmFiles(Path(sys.argv[1]), owner), owner)
    os.write(tell, b"1")
    os.close(tell)
    try:
        process.warm_up()
        process.serve()
    except Born as born:
        environ = born.environ
    from ddpnb.warm.rank import be_rank  # imported by now, in the parent

    process.forget()
    be_rank(environ, process.said)


class WarmProcess:
    """One loop over the listening socket, the owner's pidfd and those of the keepers it forked."""

    def __init__(self, files: WarmFiles, owner: ProcessId) -> None:
        me = ProcessId.of(os.getpid())
        assert me is not None  # we run
        self._files = files
        self._owner = owner
        self._state = WarmState(
            process=me,
            owner=owner,
            stage="warming",
            since=time.time(),
            python=sys.executable,
            packages=fingerprint(),
            environ={k: v for k, v in os.environ.items() if is_read_at_load(k)},
        )
        self._listener: socket.socket | None = None
        self._keepers: dict[int, int] = {}
        """Pid by pidfd."""
        self._usual_fds: set[int] = set()
        self.said = b""
        """What the imports have printed."""
        files.write(self._state)
        signal.signal(signal.SIGTERM, lambda *_: self._leave())
        ignore_terminal()

    def warm_up(self) -> None:
        """Import everything, and see that a fork is safe."""
        # Until the loop watches it by its pidfd.
        signal.signal(signal.SIGALRM, lambda *_: self._owner.is_alive() or self._leave())
        signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
        had = dict(os.environ)
        with recorded() as read:
            try:
                for name in _PRELOADED:
                    importlib.import_module(name)
            except Exception:
                traceback.print_exc()
                self._fail(f"{name} cannot be imported")
        sys.stdout.flush()
        sys.stderr.flush()
        self.said = self._files.log.read_bytes()
        signal.setitimer(signal.ITIMER_REAL, 0)
        seen = {name: had[name] for name in had if name in read or is_read_at_load(name)}
        self._state = replace(self._state, read=tuple(sorted(read)), environ=seen)
        self._check_that_a_fork_is_safe()
        gc.collect()
        gc.freeze()  # no collection in a rank then touches, and so copies, what all share
        self._usual_fds = _open_fds()

    def _check_that_a_fork_is_safe(self) -> None:
        """Leave if it is not: an OpenMP pool made before it hangs ranks for ever.

        Other threads are not in the child, and whatever lock they held stays locked there.
        """
        threads = len([*Path("/proc/self/task").iterdir()])
        if threads != 1:
            self._fail(f"it has {threads} threads, and a process with threads cannot be forked")
        if sys.modules["torch"].cuda.is_initialized():
            self._fail("it has touched CUDA, which does not work in a forked process then")

    def serve(self) -> NoReturn:
        """Fork a keeper for each who connects, until the owner is gone; raises Born in a rank."""
        self._listener = self._files.listen()
        owner = self._owner.open()
        if owner is None:
            self._leave()
        self._usual_fds |= {self._listener.fileno(), owner}
        self._state = replace(self._state, stage="ready")
        self._files.write(self._state)
        poll = select.poll()
        poll.register(owner, select.POLLIN)
        poll.register(self._listener, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == owner:
                    self._leave()
                elif fd in self._keepers:
                    poll.unregister(fd)
                    os.close(fd)
                    os.waitpid(self._keepers.pop(fd), 0)
                else:
                    caller, _ = self._listener.accept()
                    with caller:
                        keeper = self._fork(caller)
                    if keeper is not None:
                        poll.register(keeper, select.POLLIN)

    def _fork(self, caller: socket.socket) -> int | None:
        """Fork a keeper; return its pidfd, in the parent only."""
        self._check_that_a_fork_is_safe()
        try:
            pid = os.fork()
        except OSError as error:  # the caller sees its connection end, and starts cold
            print(f"ddpnb: cannot fork: {error.strerror}", file=sys.stderr, flush=True)
            return None
        if pid == 0:
            self._be_keeper(caller)
        pidfd = os.pidfd_open(pid)
        self._keepers[pidfd] = pid
        return pidfd

    def _be_keeper(self, caller: socket.socket) -> NoReturn:
        try:
            os.setsid()
            for signum in (signal.SIGTERM, signal.SIGALRM):
                signal.signal(signum, signal.SIG_DFL)
            run = _asked_for(caller)
            caller.settimeout(None)
            keep(run, caller.detach(), forks=True)
        except Born:
            raise
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def forget(self) -> None:
        """Close what only the parent uses, in a rank: nothing of it may be seen there."""
        assert self._listener is not None
        shared = {0, 1, 2} | self._usual_fds
        self._listener.close()
        for fd in _open_fds() - shared | self._keepers.keys():
            with suppress(OSError):
                os.close(fd)

    def _fail(self, why: str) -> NoReturn:
        """End, and say why: whoever wants to launch then starts cold."""
        print(f"ddpnb: {why}", file=sys.stderr, flush=True)
        self._files.write(replace(self._state, stage="failed", why=why))
        self._files.socket.unlink(missing_ok=True)
        os._exit(1)

    def _leave(self) -> NoReturn:
        self._files.remove()
        os._exit(0)


def _asked_for(caller: socket.socket) -> RunDir:
    """Take the caller's circumstances over, and return the run that it wants started.

    The caller has to confirm: one that has given up meanwhile starts the run in another way.
    """
    user = struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    if user != os.getuid():
        raise PermissionError(f"a process of user {user} has connected")
    caller.settimeout(_CALLER_SECONDS)
    _, fds, _, _ = socket.recv_fds(caller, 1, 2)
    if len(fds) != 2:
        os._exit(0)  # the caller is gone
    log, request = fds
    for fd in (1, 2):
        os.dup2(log, fd)
    os.close(log)
    with os.fdopen(request, "rb") as file:
        asked = json.load(file)
    take_over(asked)
    caller.sendall(b"F")
    if caller.recv(1) != b"G":
        os._exit(0)
    return RunDir(Path(asked["run"]))


def _open_fds() -> set[int]:
    """Return the descriptors of this process, and one that is closed: it has listed them."""
    return {int(path.name) for path in Path("/proc/self/fd").iterdir()}


if __name__ == "__main__":
    main()
