"""Supervisor: starts the command of a run, watches owner and ranks, and stops them in stages.

Runs in a process of its own, forked by the keeper (see supervise.py), which has one thread.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ddpnb.json_files import read_json, write_json
from ddpnb.launchers.children import Children
from ddpnb.launchers.log_cap import LogCap
from ddpnb.launchers.memory import oom_kills
from ddpnb.launchers.stopping import Stopping
from ddpnb.launchers.tree import (
    become_subreaper,
    die_with_parent,
    ignore_terminal,
    reap,
    say,
    sweep,
)
from ddpnb.launchers.trouble import Trouble
from ddpnb.launchers.watch import Watch
from ddpnb.process import ProcessId, descendants
from ddpnb.rundir import RunDir

__all__ = ["ORDERS", "Born", "Supervisor"]

ORDERS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Stop (twice: the same, for two may ask while the ranks save), detach, kill now."""

TICK = 0.1
LIFE_SECONDS = 10.0
"""How often readers on other machines are shown that this run is alive."""
STACKS_TICK = 0.005
"""The same while ranks write down where they are: they end as soon as they have."""
LINGER_SECONDS = 1.0
"""Seconds for helpers of ended ranks to leave by themselves, as Python's resource tracker does."""


class Born(BaseException):
    """Raised in a process that was forked to be a rank: it leaves the supervisor's frames by it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ


class Supervisor:
    """The keeper's child: one loop over pidfds, signals and a tick. Owns the launched command.

    Args:
        forks: whether ranks are forked from this process, which has torch imported; `main` then
            raises Born in each of them.
    """

    def __init__(self, run: RunDir, keeper: ProcessId | None, *, forks: bool = False) -> None:
        self.run = run
        self.keeper = keeper
        self.command: dict[str, Any] = read_json(run.command) or {}
        described = run.read_run()
        self.spec = described["spec"]
        self.after = [RunDir(run.path.parent / name) for name in described["after"]]
        self.owner = ProcessId.from_json(described["owner"]) if described["owner"] else None
        self.selector = selectors.DefaultSelector()
        self.watch = Watch(run, lambda fd: self._register(fd, self.watch.ended))
        self.trouble = Trouble(run, self.watch, say)
        self.log_cap = LogCap(run, self.spec.get("max_log_bytes"))
        self.oom_kills_before = oom_kills()
        self.children = Children(
            run=run,
            command=self.command,
            nproc=self.spec["nproc_per_node"],
            fork=self._fork if forks else None,
        )
        self.started: float | None = None
        self.started_monotonic = 0.0
        self.shown_life_at = 0.0
        self.reason: str | None = None
        self.failed_before = False
        """Whether a rank had failed when the stop came: then that is how the run ended."""
        self.stopping = Stopping(
            self.watch,
            self.children,
            self.trouble,
            interrupt=self.command["interrupt"],
            grace=float(self.spec["grace"]),
        )
        self.orders: list[int] = []

    def main(self, tell: int) -> dict[str, Any]:
        """Run the command to its end and return what exit.json shall say."""
        become_subreaper()
        self._listen()
        self._write_processes()
        os.write(tell, b"1")
        os.close(tell)
        while not self._is_over():
            if self.started is None and self._may_start():
                self._start()
            self._tick()
            self._obey()
            self._check_others()
            self.stopping.go_on()
            if self.reason is None:
                self.trouble.look(time.monotonic())
                self.stopping.end_the_others()
        self._end_leftovers()
        self._look()
        return self._ending(None if self.failed_before else self.reason)

    def _listen(self) -> None:
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._register(read, lambda fd: os.read(fd, 4096))
        for order in ORDERS:
            signal.signal(order, lambda received, _: self.orders.append(received))
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake the loop
        ignore_terminal()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the keeper had blocked what it waits for
        for process in (self.owner, self.keeper):
            pidfd = process.open() if process else None
            if pidfd is not None:
                self._register(pidfd, self._forget)  # its end wakes the loop, which then looks

    def _register(self, fd: int, action: Callable[[int], Any]) -> None:
        self.selector.register(fd, selectors.EVENT_READ, action)

    def _forget(self, fd: int) -> None:
        self.selector.unregister(fd)
        os.close(fd)

    def _tick(self) -> None:
        tick = STACKS_TICK if self.stopping.waits_for_stacks else TICK
        for key, _ in self.selector.select(tick):
            if key.data == self.watch.ended:
                self.selector.unregister(key.fd)
            key.data(key.fd)
        reap(self._note_exit)
        self._look()

    def _look(self) -> None:
        self.watch.look()
        if time.monotonic() > self.shown_life_at + LIFE_SECONDS:
            self.shown_life_at = time.monotonic()
            self.run.show_life()
        if said := self.log_cap.keep(self.watch.sizes):
            say(said)

    def _note_exit(self, pid: int, exitcode: int) -> None:
        self.children.note(pid, exitcode)
        self.watch.reaped(pid, exitcode)

    def _is_over(self) -> bool:
        nothing_began = not self.children.exitcodes and self.reason is not None
        return self.children.have_ended or nothing_began

    def _obey(self) -> None:
        while self.orders:
            order = self.orders.pop(0)
            if order == signal.SIGUSR1:
                self.owner = None
                self._write_processes()
                continue
            if self.reason is None and not self.children.have_ended:
                self._stop("stopped")
            if order == signal.SIGUSR2 or self.children.have_ended:
                self.stopping.kill()  # also what lingers after the end, which keeps its own outcome

    def _check_keeper(self) -> None:
        if self.keeper is not None and not self.keeper.is_alive():
            self._take_over()

    def _check_others(self) -> None:
        self._check_keeper()
        if self.reason is not None or self.children.have_ended:
            return
        if self.owner is not None and not self.owner.is_alive():
            self._stop("owner died")
        elif not self.run.run.exists():
            self._stop("run folder deleted")
        timeout = self.spec["timeout"]
        if self.started is None or timeout is None:
            return
        if time.monotonic() > self.started_monotonic + timeout:
            self._stop(f"time limit of {timeout:g} s passed")

    def _take_over(self) -> None:
        """The keeper is dead: end everything here and write exit.json in its place."""
        left = sweep()
        self.watch.look()
        write_json(self.run.exit, self._ending("supervisor died") | {"left": left})
        os._exit(1)

    def _ending(self, reason: str | None) -> dict[str, Any]:
        """Return what exit.json shall say of the run as it has ended now."""
        now = oom_kills()
        known = now is not None and self.oom_kills_before is not None
        return {
            "returncode": self.children.returncode,
            "reason": reason,
            "started": self.started,
            "ended": time.time(),
            "oom_kills": (now or 0) - (self.oom_kills_before or 0) if known else None,
            "exits": [asdict(exit_) for exit_ in self.watch.exits()],
        }

    def _may_start(self) -> bool:
        return all(run.is_over() for run in self.after)

    def _start(self) -> None:
        argv, cwd = self.command["argvs"][0], self.command["cwd"]
        self.started, self.started_monotonic = time.time(), time.monotonic()
        try:
            self.children.start()
        except OSError as error:
            self.started = None
            self.reason = f"could not start {argv[0]} in {cwd}: {error.strerror}"
            say(self.reason)
            self.children.signal(signal.SIGKILL)  # those that had been started
            return
        self._write_processes()

    def _fork(self, environ: Mapping[str, str]) -> int:
        me = os.getpid()
        pid = os.fork()
        if pid != 0:
            return pid
        die_with_parent(me)
        os.setsid()
        signal.set_wakeup_fd(-1)
        self.selector.close()
        self.children.forget()
        raise Born(environ)

    def _stop(self, reason: str) -> None:
        self.reason = reason
        if self.children.exitcodes:
            self.failed_before = bool(self.watch.with_error())
            self.stopping.begin(reason)

    def _end_leftovers(self) -> None:
        """Let the helpers of ended ranks leave by themselves, then make them."""
        begun = time.monotonic()
        told = False
        while left := descendants(os.getpid()):
            waited = time.monotonic() - begun
            if self.stopping.stage == "kill" or waited > 2 * LINGER_SECONDS:
                return  # the keeper sweeps
            if waited > LINGER_SECONDS and not told:
                told = True
                for process in left:
                    process.send(signal.SIGTERM)
            self._tick()
            self._obey()
            self._check_keeper()

    def _write_processes(self) -> None:
        pid = self.children.launcher
        launcher = None if pid is None else ProcessId.of(pid)
        supervisor = ProcessId.of(os.getpid())
        assert self.keeper is not None and supervisor is not None
        write_json(
            self.run.processes,
            {
                "keeper": self.keeper.to_json(),
                "supervisor": supervisor.to_json(),
                "launcher": None if launcher is None else launcher.to_json(),
                "started": self.started,
                "forked": self.children.fork is not None,
                "detached": self.owner is None,
            },
        )
