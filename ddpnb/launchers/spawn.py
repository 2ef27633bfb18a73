"""Spawn: the ranks are started by torch.multiprocessing.spawn, in a host process of their own."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddpnb.call import Parameters, arguments
from ddpnb.errors import SpecError
from ddpnb.launchers.base import Command, plain_line, python, rank_environment
from ddpnb.launchers.torchrun import check_port
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec

__all__ = ["Spawn"]


@dataclass(frozen=True, kw_only=True)
class Spawn:
    """Call one function of the script in every rank, as `mp.spawn(function, ...)` does.

    Parameters named rank, local_rank and world_size are filled by name; the others need defaults,
    or take the script's arguments in order.
    """

    function: str = "main"
    """The function to call, defined at the top level of the script."""
    master_port: int | None = None
    """The ranks' MASTER_PORT; None: a free one."""

    def __post_init__(self) -> None:
        if not self.function.isidentifier():
            raise SpecError(f"function is {self.function!r}, which is no name of a function")
        check_port(self.master_port)

    @property
    def name(self) -> str:
        """The word for it on a command line."""
        return "spawn"

    def to_json(self) -> dict[str, Any]:
        """Return the name and the options."""
        return {"name": self.name, "function": self.function, "master_port": self.master_port}

    def check(self, spec: LaunchSpec, text: bytes | None) -> None:
        """Raise SpecError when the script has no such function, or nobody fills its parameters."""
        if spec.script is None or text is None:
            raise SpecError(
                "the launcher spawn calls a function of a script; give a script, not a module"
            )
        try:
            function = self._find(spec, text)
        except SyntaxError:
            return  # the ranks will say it better, with the line
        arguments(Parameters.of(function), spec.args, _filled(spec))

    def _find(self, spec: LaunchSpec, text: bytes) -> ast.FunctionDef:
        assert spec.script is not None
        tree = ast.parse(text, filename=str(spec.script))
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        if self.function not in functions:
            there = ", ".join(functions) or "none"
            raise SpecError(
                f"{spec.script.name} has no function {self.function!r} at its top level"
                f" (it has: {there}); name one with Spawn(function=...)"
            )
        return functions[self.function]

    def command(
        self, spec: LaunchSpec, run: RunDir, environ: Mapping[str, str], text: bytes | None
    ) -> Command:
        """Return the command of the host process."""
        return Command(
            argvs=(python("ddpnb.worker.spawn_host"),),
            env=rank_environment(spec, run, environ),
            cwd=spec.cwd,
            interrupt="ranks",
            port=self.master_port or "free",
            plain=self._plain(spec, text or b""),
        )

    def _plain(self, spec: LaunchSpec, text: bytes) -> str:
        """Return the line with mp.spawn itself, which passes the rank first."""
        assert spec.script is not None
        try:
            parameters = Parameters.of(self._find(spec, text))
        except SyntaxError as error:
            return f"# {spec.script.name} has a syntax error in line {error.lineno}"
        args, keywords = arguments(parameters, spec.args, _filled(spec))
        importable = spec.script.stem.isidentifier()
        if parameters.positional[:1] != ("rank",) or keywords or not importable:
            return f"# mp.spawn calls {self.function}(rank, *args) of an importable file, not this"
        call = (
            f"import torch.multiprocessing as mp, {spec.script.stem} as script; "
            f"mp.spawn(script.{self.function}, args={tuple(args[1:])!r},"
            f" nprocs={spec.nproc_per_node})"
        )
        port = self.master_port or 29500
        return f"MASTER_ADDR=127.0.0.1 MASTER_PORT={port} " + plain_line(
            ["python", "-c", call], spec
        )


def _filled(spec: LaunchSpec) -> dict[str, int]:
    return {"rank": 0, "local_rank": 0, "world_size": spec.world_size}
