"""What every launcher gives: the exact command that starts a run's processes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec

__all__ = [
    "Command",
    "Launcher",
    "clean_environment",
    "plain_line",
    "python",
    "rank_environment",
    "utf8",
]

# Variables that describe somebody else's ranks, or the kernel itself. A rank that inherited them
# would believe it is rank 3 of a Slurm step, or would draw into a notebook that is not there.
_LEFT_OVER = frozenset(
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE GROUP_NAME"
    " NODE_RANK ROLE_RANK ROLE_NAME ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT"
    " DDPNB_RUN DDPNB_MASTER_PORT".split()
)
# PET_*: what torchrun takes its own options from, as Kubeflow's pods have them.
_LEFT_OVER_PREFIXES = tuple("TORCHELASTIC_ PET_ SLURM_ PMI_ PMIX_ OMPI_COMM_WORLD_ JPY_".split())


@dataclass(frozen=True, kw_only=True)
class Command:
    """The exact command that would run; its repr is for people."""

    argvs: tuple[tuple[str, ...], ...]
    """One command line for each machine."""
    env: Mapping[str, str]
    """Variables that ddpnb and the user set, over those of the kernel."""
    cwd: Path
    interrupt: Literal["launcher", "ranks"]
    """Who gets the SIGINT of a stop: the launched process, which passes it on, or each rank."""
    per_rank: bool = False
    """Whether the command line runs once for each rank, with torchrun's variables; else once."""
    port: int | Literal["free"] | None = None
    """The ranks' MASTER_PORT: chosen by the user, reserved at the start ("free"), or not needed."""
    plain: str
    """The same launch without ddpnb, to paste in a shell."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the launch writes besides the run folder: path to text."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, as command.json holds them."""
        return {
            "argvs": [list(argv) for argv in self.argvs],
            "env": dict(self.env),
            "cwd": str(self.cwd),
            "interrupt": self.interrupt,
            "per_rank": self.per_rank,
            "port": self.port,
            "plain": self.plain,
        }

    def __repr__(self) -> str:
        lines = ["In words for any shell:", f"  {self.plain}", "", "What ddpnb runs:"]
        for argv in self.argvs:
            lines.append(f"  {shlex.join(argv)}")
        lines += ["", f"In the folder:\n  {self.cwd}", "", "With these variables:"]
        lines += [f"  {key}={shlex.quote(value)}" for key, value in sorted(self.env.items())]
        if self.files:
            lines += ["", "Files it writes:"]
            for path, text in self.files.items():
                lines.append(f"  {path}" + (f"  ({len(text.splitlines())} lines)" if text else ""))
        return "\n".join(lines)


class Launcher(Protocol):
    """A mechanism that starts ranks. A launcher is a value: it holds only its own options."""

    @property
    def name(self) -> str:
        """The word for it on a command line: "torchrun", "spawn", "python"."""

    def check(self, spec: LaunchSpec, text: bytes | None) -> None:
        """Raise SpecError when this launcher cannot run the spec, whose script holds this text."""

    def command(
        self, spec: LaunchSpec, run: RunDir, environ: Mapping[str, str], text: bytes | None
    ) -> Command:
        """Return the exact command that would run; pure."""

    def to_json(self) -> dict[str, Any]:
        """Return the name and the options, as run.json holds them."""


def python(module: str) -> tuple[str, ...]:
    """Return the start of a command that runs one of our modules with the kernel's interpreter.

    -P keeps the working folder out of sys.path: a student's types.py must not break our own
    imports.
    """
    return (sys.executable, "-P", "-m", module)


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the kernel's variables without those that would mislead a rank."""
    return {
        key: value
        for key, value in environ.items()
        if key not in _LEFT_OVER
        and not key.startswith(_LEFT_OVER_PREFIXES)
        # ipykernel's choice of back end: a rank has no notebook to draw into
        and not (key == "MPLBACKEND" and value.startswith("module://"))
    }


def utf8(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that makes a rank's Python speak UTF-8, unless the user has set it."""
    return {} if "PYTHONUTF8" in environ else {"PYTHONUTF8": "1"}


def rank_environment(spec: LaunchSpec, run: RunDir, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that every launcher sets for its ranks, the user's own on top."""
    env = {"DDPNB_RUN": str(run.path), "OMP_NUM_THREADS": str(spec.threads), **utf8(environ)}
    if sys.platform == "linux" and "GLOO_SOCKET_IFNAME" not in environ:
        # One machine: gloo would otherwise resolve the host name, which laptops often cannot.
        env["GLOO_SOCKET_IFNAME"] = "lo"
    if spec.device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    elif spec.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(spec.gpus)
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # nvidia-smi's: its numbers are the ones meant
    return env | dict(spec.env)


def plain_line(argv: Sequence[str], spec: LaunchSpec) -> str:
    """Return one shell line that does the same without ddpnb.

    It is shown in notebooks, which people publish: the user's own variables appear by name only.
    """
    settings = {"OMP_NUM_THREADS": str(spec.threads)}
    if spec.device == "cpu":
        settings["CUDA_VISIBLE_DEVICES"] = ""
    elif spec.gpus:
        settings |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(spec.gpus)}
    words = [f"{key}={value}" for key, value in settings.items() if key not in spec.env]
    words += [f'{key}="${key}"' for key in spec.env]
    folder = f"cd {shlex.quote(str(spec.cwd))} && " if spec.module else ""
    return folder + " ".join([*words, shlex.join(argv)])
