"""`python -P -m ddpnb.launchers.supervise RUN_DIR`: owns one run's process tree to exit.json.

    kernel ── (starter: leaves at once)
                 └── keeper ─────────── writes exit.json
                       └── supervisor ─ starts the command, watches owner and ranks, stops them
                             └── torchrun's agent, spawn's host, or the rank itself
                                   └── ranks ── their helpers

Keeper and supervisor are both single-threaded, in a session of their own, and subreapers: whatever
a rank leaves behind becomes their child, in whatever session it hides. Each notices the other's
death and sweeps. Orders go to the keeper: SIGTERM stop, SIGUSR2 kill now, SIGUSR1 detach from the
owner. Imports only the standard library and what is as light as that.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from ddpnb.json_files import free_reserves, reserve, write_json
from ddpnb.launchers.supervisor import ORDERS, Supervisor
from ddpnb.launchers.tree import become_subreaper, ignore_terminal, say, sweep
from ddpnb.process import ProcessId
from ddpnb.rundir import RunDir

__all__ = ["keep", "main"]

WAITED_FOR = (*ORDERS, signal.SIGCHLD)


def main() -> None:
    """Fork the keeper and leave as soon as it has written down who it is."""
    # What the launching process ignores or blocks is inherited, and would reach the ranks.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    run = RunDir(Path(sys.argv[1]))
    ready, tell = os.pipe()
    if os.fork() > 0:
        os.close(tell)
        sys.exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    os.setsid()
    keep(run, tell, why=" ".join(sys.argv[2:]))


def keep(run: RunDir, tell: int, *, forks: bool = False, why: str = "") -> NoReturn:
    """Be the keeper: outlive the supervisor, sweep what is left, write exit.json.

    Args:
        tell: gets a byte when the supervisor has written down who it is.
        forks: whether the ranks are forked from here, with all that is imported; the rank leaves
            by the exception Born.
        why: why they are not, for people.
    """
    become_subreaper()
    try:
        reserve(run.exit)  # how it ended must be said also when the run has filled the disk
    except OSError as error:
        say(f"cannot hold space for {run.exit}: {error.strerror}")
        os._exit(1)
    report, reporting = os.pipe()
    # An order may come as soon as the supervisor has told who we are; it waits until we do. No
    # handlers: one that comes between Python's last look and a blocking waitpid would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)
    pid = os.fork()
    if pid == 0:
        os.close(report)
        with os.fdopen(reporting, "w") as pipe:
            keeper = ProcessId.of(os.getppid())
            supervisor = Supervisor(run, keeper, forks=forks)
            if why:
                say(f"new interpreters: {why}")
            json.dump(supervisor.main(tell), pipe)
        os._exit(0)
    os.close(reporting)
    os.close(tell)
    child = ProcessId.of(pid)
    assert child is not None  # not reaped before we do it
    ignore_terminal()
    status = _wait_for(child)
    with os.fdopen(report) as pipe:
        text = pipe.read()
    left = sweep()
    try:
        ended: dict[str, Any] = json.loads(text)
    except ValueError:  # it was killed before, or while, it could say how the run had ended
        ended = {"returncode": None, "reason": "supervisor died", "exits": []}
    ended["left"] = left
    ended.setdefault("ended", time.time())
    write_json(run.exit, ended)
    for folder in (run.path, *(run.rank(rank).path for rank in run.ranks())):
        free_reserves(folder)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _wait_for(supervisor: ProcessId) -> int:
    """Pass orders on, and reap every orphan, until the supervisor has ended; return its status."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)  # 0: nobody has ended
        if pid == supervisor.pid:
            return status
        if pid == 0:
            received = signal.sigwait(WAITED_FOR)
            if received in ORDERS:
                supervisor.send(received)


if __name__ == "__main__":
    main()
