"""Cold: each rank is a new interpreter, and a child of the supervisor: no agent between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddpnb.launchers.base import Command, python, rank_environment
from ddpnb.launchers.torchrun import check_port, plain_torchrun
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec

__all__ = ["Cold"]


@dataclass(frozen=True, kw_only=True)
class Cold:
    """Start each rank as a new Python process that has torchrun's variables, without torchrun.

    The script cannot tell the difference, and torch is imported once less: by the ranks only.
    """

    master_port: int | None = None
    """The ranks' MASTER_PORT; None: a free one."""

    def __post_init__(self) -> None:
        check_port(self.master_port)

    @property
    def name(self) -> str:
        """The word for it on a command line."""
        return "cold"

    def check(self, spec: LaunchSpec, text: bytes | None) -> None:
        """Accept every spec: scripts and modules run as under torchrun."""

    def to_json(self) -> dict[str, Any]:
        """Return the name and the options."""
        return {"name": self.name, "master_port": self.master_port}

    def command(
        self, spec: LaunchSpec, run: RunDir, environ: Mapping[str, str], text: bytes | None
    ) -> Command:
        """Return the command line of each rank; it begins in `worker.bootstrap`."""
        return Command(
            argvs=(python("ddpnb.worker.bootstrap"),),
            env=rank_environment(spec, run, environ),
            cwd=spec.cwd,
            interrupt="ranks",
            per_rank=True,
            port=self.master_port or "free",
            plain=plain_torchrun(spec, master_port=self.master_port),
        )
