"""Python: one plain process, for DataParallel scripts and scripts that start their own ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddpnb.errors import SpecError
from ddpnb.launchers.base import Command, plain_line, python, rank_environment
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec

__all__ = ["Python"]


@dataclass(frozen=True, kw_only=True)
class Python:
    """Run the script once, as `python script.py` does, with none of torchrun's variables."""

    @property
    def name(self) -> str:
        """The word for it on a command line."""
        return "python"

    def check(self, spec: LaunchSpec, text: bytes | None) -> None:
        """Raise SpecError when more than one process is asked for."""
        if spec.nproc_per_node != 1:
            raise SpecError(
                f"nproc_per_node is {spec.nproc_per_node}, but the launcher python starts one"
                " process, which may start its own ranks;"
                " leave nproc_per_node out, or use the launcher torchrun"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the name; there are no options."""
        return {"name": self.name}

    def command(
        self, spec: LaunchSpec, run: RunDir, environ: Mapping[str, str], text: bytes | None
    ) -> Command:
        """Return the command of the one process."""
        argv = ["python", *(["-m", spec.module] if spec.module else [str(spec.script)]), *spec.args]
        return Command(
            argvs=(python("ddpnb.worker.bootstrap"),),
            env=rank_environment(spec, run, environ),
            cwd=spec.cwd,
            interrupt="ranks",
            plain=plain_line(argv, spec),
        )
