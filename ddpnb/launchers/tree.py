"""Own a process tree: adopt orphans, die with a parent, reap, sweep."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from ddpnb.process import descendants

__all__ = [
    "TERM_SECONDS",
    "become_subreaper",
    "die_with_parent",
    "ignore_terminal",
    "reap",
    "say",
    "sweep",
]

TERM_SECONDS = 2.0
"""Seconds between SIGTERM and SIGKILL at the end of a stop."""

GIVE_UP_SECONDS = 10.0
"""What outlives SIGKILL that long is stuck in the kernel; waiting on would hide the result."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Become the parent of every orphan below this process, in whatever session it hides."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends. Only from a single-threaded parent.

    The signal is tied to the thread that forked, so it would fire early for a child of a passing
    thread.
    """
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def ignore_terminal() -> None:
    """Survive Ctrl-C and a closed terminal.

    By handlers that do nothing: SIG_IGN would be inherited by the ranks, and no SIGINT could stop
    them.
    """
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, lambda *_: None)


def reap(note: Callable[[int, int], Any]) -> None:
    """Take the exit status of every child that has ended; `note` gets pid and exit code of each."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        note(pid, os.waitstatus_to_exitcode(status))


def say(text: str) -> None:
    """Write a line to launcher.log, which our stderr is."""
    with contextlib.suppress(OSError):  # a full disk must not end who ends the ranks
        print(f"ddpnb: {text}", file=sys.stderr, flush=True)


def sweep() -> list[int]:
    """Kill everything below this process; return the pids that even SIGKILL could not end."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while left := descendants(os.getpid()):
        for process in left:
            process.send(signal.SIGKILL)
        if time.monotonic() > deadline:
            return [process.pid for process in left]
        reap(lambda *_: None)
        time.sleep(0.01)  # the kernel takes its time to turn a kill into a death
    return []
