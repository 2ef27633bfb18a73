"""Torchrun: the ranks are started by torch's own elastic agent, the default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddpnb.errors import SpecError
from ddpnb.launchers.base import Command, plain_line, python, rank_environment
from ddpnb.launchers.tree import TERM_SECONDS
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec

__all__ = ["Torchrun", "check_port", "plain_torchrun"]


@dataclass(frozen=True, kw_only=True)
class Torchrun:
    """Start the ranks with `torchrun`, which can also restart them."""

    max_restarts: int = 0
    """How often torchrun starts all ranks again after one of them failed."""
    master_port: int | None = None
    """The ranks' MASTER_PORT; None: a free one."""

    def __post_init__(self) -> None:
        if not isinstance(self.max_restarts, int) or self.max_restarts < 0:
            raise SpecError(
                f"max_restarts is {self.max_restarts!r}; it must be a whole number from 0"
            )
        check_port(self.master_port)

    @property
    def name(self) -> str:
        """The word for it on a command line."""
        return "torchrun"

    def check(self, spec: LaunchSpec, text: bytes | None) -> None:
        """Accept every spec: torchrun runs scripts and modules."""

    def to_json(self) -> dict[str, Any]:
        """Return the name and the options."""
        return {
            "name": self.name,
            "max_restarts": self.max_restarts,
            "master_port": self.master_port,
        }

    def command(
        self, spec: LaunchSpec, run: RunDir, environ: Mapping[str, str], text: bytes | None
    ) -> Command:
        """Return torchrun's command line; each rank begins in `worker.bootstrap`.

        The script's arguments are not on it, the bootstrap reads them from run.json: torchrun
        replaces `$local_rank` and `$$` in what it passes on.
        """
        # The agent kills what has not left by then; before that the supervisor has sent its own
        # SIGTERM.
        shutdown_timeout = math.ceil(spec.grace + TERM_SECONDS)
        argv = (
            *python("ddpnb.worker.agent"),
            "--standalone",
            "--nnodes=1",
            f"--nproc-per-node={spec.nproc_per_node}",
            f"--max-restarts={self.max_restarts}",
            "--local-addr=127.0.0.1",
            f"--log-dir={run.elastic}",
            "--no-python",
            *python("ddpnb.worker.bootstrap"),
        )
        return Command(
            argvs=(argv,),
            env={
                # The ranks' store is opened by rank 0, as scripts written for mp.spawn expect, not
                # by the agent.
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
                # The variable, not the flag: older releases know neither, and refuse an unknown
                # flag.
                "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(shutdown_timeout),
                **rank_environment(spec, run, environ),
            },
            cwd=spec.cwd,
            interrupt="launcher",
            port=self.master_port or "free",
            plain=plain_torchrun(
                spec, master_port=self.master_port, max_restarts=self.max_restarts
            ),
        )


def plain_torchrun(
    spec: LaunchSpec, *, master_port: int | None = None, max_restarts: int = 0
) -> str:
    """Return the shell line that starts the same ranks with torchrun alone."""
    argv = ["torchrun"]
    argv += ["--standalone"] if master_port is None else ["--master-port", str(master_port)]
    argv += ["--nproc-per-node", str(spec.nproc_per_node)]
    if max_restarts:
        argv += ["--max-restarts", str(max_restarts)]
    argv += ["-m", spec.module] if spec.module else [str(spec.script)]
    return plain_line([*argv, *spec.args], spec)


def check_port(port: int | None) -> None:
    """Raise SpecError when this is no port that a user may choose."""
    if port is not None and not (isinstance(port, int) and 1 <= port <= 65535):
        raise SpecError(
            f"master_port is {port!r}; it must be a number from 1 to 65535, or left out"
        )
