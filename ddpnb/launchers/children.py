"""The processes of a run's command: children of the supervisor, one, or one for each rank."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ddpnb.contract import rank_variables
from ddpnb.launchers.ports import hold_port
from ddpnb.launchers.tree import die_with_parent
from ddpnb.rundir import RunDir

__all__ = ["Children", "Fork"]

Fork = Callable[[Mapping[str, str]], int]
"""Forks a process that becomes a rank with these variables; returns its pid, in the parent only."""


@dataclass(kw_only=True)
class Children:
    """Starts the processes of a run, and knows how each of them ended.

    Args:
        run: the run whose command they run.
        command: what command.json says.
        fork: how a rank comes to be without a new interpreter; None: by a new one.
    """

    run: RunDir
    command: Mapping[str, Any]
    nproc: int
    fork: Fork | None = None
    exitcodes: dict[int, int | None] = field(default_factory=dict)
    """Of each process, by pid, in the order of their start; None: it runs."""
    _port: socket.socket | None = None

    def start(self) -> None:
        """Start them; raises OSError, and what has been started by then runs."""
        os.chdir(self.command["cwd"])
        for env in self._environments():
            pid = self._execute(env) if self.fork is None else self.fork(env)
            self.exitcodes[pid] = None

    def _environments(self) -> Iterator[dict[str, str]]:
        env = dict(os.environ) | self.command["env"]
        port = self.command["port"]
        if port is not None:
            # Torchrun's agent chooses a MASTER_PORT itself: this one reaches the rank by its side.
            env["DDPNB_MASTER_PORT"] = str(self._hold_port() if port == "free" else port)
        if not self.command["per_rank"]:
            yield env
            return
        for rank in range(self.nproc):
            variables = rank_variables(rank, self.nproc, self.run.run_id, env)
            error_file = str(self.run.rank(rank).elastic_error)
            yield env | variables | {"TORCHELASTIC_ERROR_FILE": error_file}

    def _hold_port(self) -> int:
        self._port = hold_port()
        return int(self._port.getsockname()[1])

    def _execute(self, env: Mapping[str, str]) -> int:
        me = os.getpid()
        child = subprocess.Popen(
            self.command["argvs"][0],
            env=env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(me),  # safe: this process has one thread
        )
        child.returncode = 0  # ours to reap, by pid, with whatever else becomes our child
        return child.pid

    def forget(self) -> None:
        """Let go of what only the parent holds, in a child that has been forked."""
        if self._port is not None:
            self._port.close()

    def note(self, pid: int, exitcode: int) -> None:
        """Note the end of a process, if it is one of these."""
        if pid in self.exitcodes:
            self.exitcodes[pid] = exitcode

    def signal(self, signum: int) -> None:
        """Send a signal to those that run: our own children, not reaped yet."""
        for pid, exitcode in self.exitcodes.items():
            if exitcode is None:
                os.kill(pid, signum)

    @property
    def have_ended(self) -> bool:
        """Whether there were some, and all are gone."""
        return bool(self.exitcodes) and None not in self.exitcodes.values()

    @property
    def one_has_failed(self) -> bool:
        """Whether one has ended with an error while others run."""
        return any(self.exitcodes.values()) and None in self.exitcodes.values()

    @property
    def returncode(self) -> int | None:
        """What the command as a whole has returned; of several ranks 1 for any error, as torchrun.

        None while one of them runs.
        """
        codes = list(self.exitcodes.values())
        if not self.have_ended or len(codes) == 1:
            return codes[0] if codes else None
        return int(any(codes))

    @property
    def launcher(self) -> int | None:
        """The pid of the one process that starts the ranks; None where the ranks are these."""
        return None if self.command["per_rank"] else next(iter(self.exitcodes), None)
