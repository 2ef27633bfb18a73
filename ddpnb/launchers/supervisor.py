"""Supervisor: starts the command of a run, watches owner and ranks, and stops them in stages.

Runs in a process of its own, forked by the keeper (see supervise.py), which has one thread.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ddpnb.json_files import read_json, write_json
from ddpnb.launchers.log_cap import LogCap
from ddpnb.launchers.memory import oom_kills
from ddpnb.launchers.ports import reserve_port
from ddpnb.launchers.tree import (
    TERM_SECONDS,
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

__all__ = ["ORDERS", "Supervisor"]

ORDERS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Stop (twice: the same, for two may ask while the ranks save), detach, kill now."""

TICK = 0.1
LIFE_SECONDS = 10.0
"""How often readers on other machines are shown that this run is alive."""
LINGER_SECONDS = 1.0
"""Seconds for helpers of ended ranks to leave by themselves, as Python's resource tracker does."""


class Supervisor:
    """The keeper's child: one loop over pidfds, signals and a tick. Owns the launched command."""

    def __init__(self, run: RunDir, keeper: ProcessId | None) -> None:
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
        self.launcher: subprocess.Popen[bytes] | None = None
        self.returncode: int | None = None
        self.started: float | None = None
        self.started_monotonic = 0.0
        self.shown_life_at = 0.0
        self.reason: str | None = None
        self.failed_before = False
        """Whether a rank had failed when the stop came: then that is how the run ended."""
        self.stage: str | None = None
        self.next_stage_at = 0.0
        self.orders: list[int] = []

    def main(self, tell: int) -> dict[str, Any]:
        """Run the command to its end and return what exit.json shall say."""
        become_subreaper()
        self._listen()
        self._write_processes()
        os.write(tell, b"1")
        os.close(tell)
        while not self._is_over():
            self._tick()
            self._obey()
            self._check_others()
            if self.launcher is None and self.reason is None and self._may_start():
                self._start()
            self._stop_further()
            if self.reason is None:
                self.trouble.look(time.monotonic())
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
        for key, _ in self.selector.select(TICK):
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
        if self.launcher is not None and pid == self.launcher.pid:
            self.launcher.returncode = self.returncode = exitcode
        self.watch.reaped(pid, exitcode)

    def _has_ended(self) -> bool:
        return self.launcher is not None and self.launcher.returncode is not None

    def _is_over(self) -> bool:
        return self._has_ended() or (self.launcher is None and self.reason is not None)

    def _obey(self) -> None:
        while self.orders:
            order = self.orders.pop(0)
            if order == signal.SIGUSR1:
                self.owner = None
                self._write_processes()
                continue
            if self.reason is None and not self._has_ended():
                self._stop("stopped")
            if order == signal.SIGUSR2 or self._has_ended():
                self._kill()  # also what lingers after the end, which keeps its own outcome

    def _check_keeper(self) -> None:
        if self.keeper is not None and not self.keeper.is_alive():
            self._take_over()

    def _check_others(self) -> None:
        self._check_keeper()
        if self.reason is not None or self._has_ended():
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
            "returncode": self.returncode,
            "reason": reason,
            "started": self.started,
            "ended": time.time(),
            "oom_kills": (now or 0) - (self.oom_kills_before or 0) if known else None,
            "exits": [asdict(exit_) for exit_ in self.watch.exits()],
        }

    def _may_start(self) -> bool:
        return all(run.is_over() for run in self.after)

    def _start(self) -> None:
        env = dict(os.environ) | self.command["env"]
        port = self.command["port"]
        argv = self.command["argvs"][0]
        me = os.getpid()
        try:
            if port is not None:
                env["DDPNB_MASTER_PORT"] = str(reserve_port() if port == "free" else port)
            self.launcher = subprocess.Popen(
                argv,
                env=env,
                cwd=self.command["cwd"],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(me),  # safe: this process has one thread
            )
        except OSError as error:
            self.reason = f"could not start {argv[0]} in {self.command['cwd']}: {error.strerror}"
            say(self.reason)
            return
        self.started, self.started_monotonic = time.time(), time.monotonic()
        self._write_processes()

    def _stop(self, reason: str) -> None:
        """Begin the polite stop: SIGINT to the ranks, through the agent where there is one."""
        self.reason = reason
        if self.launcher is None:
            return
        self.failed_before = bool(self.watch.with_error())
        grace = float(self.spec["grace"])
        say(f"{reason}: SIGINT now, SIGTERM after {grace:g} s, then SIGKILL")
        self.stage, self.next_stage_at = "interrupt", time.monotonic() + grace
        if self.command["interrupt"] == "launcher" or not self.watch.alive():
            self._signal_launcher(signal.SIGINT)
        else:
            self._interrupt_ranks()

    def _interrupt_ranks(self) -> None:
        """Send SIGINT once to each rank, also to one that begins after the order to stop."""
        for rank in self.watch.alive():
            if not rank.interrupted:
                rank.interrupted = True
                rank.process.send(signal.SIGINT)

    def _stop_further(self) -> None:
        if self.stage == "interrupt" and self.command["interrupt"] == "ranks":
            self._interrupt_ranks()
        if self.stage is None or time.monotonic() < self.next_stage_at:
            return
        if self.stage == "interrupt":
            say("SIGTERM to the ranks that are left")
            self.stage, self.next_stage_at = "terminate", time.monotonic() + TERM_SECONDS
            alive = self.watch.alive()
            for rank in alive:
                rank.process.send(signal.SIGTERM)
            if not alive:
                self._signal_launcher(signal.SIGTERM)
        else:
            self._kill()

    def _kill(self) -> None:
        if self.stage != "kill":
            say("SIGKILL to everything that is left")
        self.stage = "kill"
        for process in descendants(os.getpid()):
            process.send(signal.SIGKILL)

    def _signal_launcher(self, signum: int) -> None:
        if self.launcher is not None and self.launcher.returncode is None:
            os.kill(self.launcher.pid, signum)  # our own child, not reaped yet

    def _end_leftovers(self) -> None:
        """Let the helpers of ended ranks leave by themselves, then make them."""
        begun = time.monotonic()
        told = False
        while left := descendants(os.getpid()):
            waited = time.monotonic() - begun
            if self.stage == "kill" or waited > 2 * LINGER_SECONDS:
                return  # the keeper sweeps
            if waited > LINGER_SECONDS and not told:
                told = True
                for process in left:
                    process.send(signal.SIGTERM)
            self._tick()
            self._obey()
            self._check_keeper()

    def _write_processes(self) -> None:
        launcher = None if self.launcher is None else ProcessId.of(self.launcher.pid)
        supervisor = ProcessId.of(os.getpid())
        assert self.keeper is not None and supervisor is not None
        write_json(
            self.run.processes,
            {
                "keeper": self.keeper.to_json(),
                "supervisor": supervisor.to_json(),
                "launcher": None if launcher is None else launcher.to_json(),
                "started": self.started,
                "detached": self.owner is None,
            },
        )
