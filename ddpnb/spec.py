"""LaunchSpec: what to run and how wide. Built once, never changed, kept in the run folder."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ddpnb.errors import SpecError

__all__ = ["Device", "LaunchSpec"]

Device = Literal["cpu", "cuda"]

# Enough for every machine this package has met; more is a slip of the keyboard that would take the
# machine down.
MAX_RANKS_PER_CORE = 32

DEFAULT_LOG_BYTES = 2 << 30
LEAST_LOG_BYTES = 1 << 20

LAUNCHERS_OWN = frozenset(
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT DDPNB_RUN"
    " DDPNB_MASTER_PORT TORCHELASTIC_RESTART_COUNT".split()
)
"""Variables that no user can set from outside: each rank is given its own."""


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """What to run and how wide; every value is already resolved and checked."""

    name: str
    """Short name of the run, part of the run folder's name."""
    script: Path | None = None
    """Absolute path of the script, or None when `module` is given."""
    module: str | None = None
    """Dotted name, run as `python -m module` from `cwd`."""
    args: tuple[str, ...] = ()
    """The script's own arguments: `sys.argv[1:]` of every rank."""
    nnodes: int = 1
    """Machines. This version launches on one."""
    nproc_per_node: int = 1
    """Ranks on each machine."""
    device: Device = "cpu"
    """What the ranks compute on: "cpu" hides every GPU from them."""
    gpus: tuple[str, ...] = ()
    """With device "cuda": the GPUs as nvidia-smi numbers them; cuda:i in the ranks is gpus[i]."""
    threads: int = 1
    """Intra-op threads of each rank (OMP_NUM_THREADS)."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the user sets for this run, over everything else."""
    cwd: Path = field(default_factory=Path.cwd)
    """Working folder of the ranks."""
    timeout: float | None = None
    """Seconds after which the run is stopped and counts as failed; None: no limit."""
    grace: float = 5.0
    """Seconds between the polite stop (SIGINT) and the next step (SIGTERM, then SIGKILL)."""
    detach: bool = False
    """True: the run outlives the kernel that started it."""
    max_log_bytes: int | None = DEFAULT_LOG_BYTES
    """What all logs of the run together may take on the disk; None: no limit."""

    def __post_init__(self) -> None:
        _check_strings("name", (self.name,))
        if (self.script is None) == (self.module is None):
            raise SpecError("give either a script or a module to run, not both and not neither")
        if self.module is not None and not all(
            part.isidentifier() for part in self.module.split(".")
        ):
            raise SpecError(
                f"module is {self.module!r}, which is no dotted name such as mypkg.train"
            )
        _check_count("nnodes", self.nnodes)
        _check_count("nproc_per_node", self.nproc_per_node)
        _check_count("threads", self.threads)
        if self.device not in ("cpu", "cuda"):
            raise SpecError(f"device is {self.device!r}; it must be 'cpu' or 'cuda'")
        _check_seconds("grace", self.grace)
        if self.timeout is not None:
            _check_seconds("timeout", self.timeout)
        if self.max_log_bytes is not None:
            _check_count("max_log_bytes", self.max_log_bytes)
            if self.max_log_bytes < LEAST_LOG_BYTES:
                raise SpecError(
                    f"max_log_bytes is {self.max_log_bytes}; it must be at least"
                    f" {LEAST_LOG_BYTES} (1 MiB), or None for no limit"
                )
        _check_strings("args", self.args)
        _check_env(self.env)

    def check_machine(self) -> None:
        """Raise SpecError when this machine should not launch it; a reader elsewhere may."""
        if self.nnodes != 1:
            raise SpecError(
                f"nnodes is {self.nnodes}; this version of ddpnb launches on one machine"
            )
        limit = max(64, MAX_RANKS_PER_CORE * (os.cpu_count() or 1))
        if self.nproc_per_node > limit:
            raise SpecError(
                f"nproc_per_node is {self.nproc_per_node}, which is more than this machine"
                f" should bear; ask for at most {limit}"
            )

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.nnodes * self.nproc_per_node

    @property
    def target(self) -> str:
        """What a person calls it: the script's file name, or `-m module`."""
        return f"-m {self.module}" if self.script is None else self.script.name

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        data = asdict(self)
        return data | {
            "script": None if self.script is None else str(self.script),
            "cwd": str(self.cwd),
            "env": dict(self.env),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LaunchSpec:
        """Build a spec from what `to_json` gave, ignoring fields of a newer version."""
        known = {f.name for f in fields(cls)}
        values = {key: value for key, value in data.items() if key in known}
        script = values.get("script")
        values |= {
            "script": None if script is None else Path(script),
            "cwd": Path(values["cwd"]),
            "args": tuple(values.get("args", ())),
            "gpus": tuple(values.get("gpus", ())),
        }
        return cls(**values)


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SpecError(f"{name} is {value!r}; it must be a whole number from 1")


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SpecError(f"{name} is {value!r}; it must be a number of seconds")
    if not math.isfinite(value) or value < 0:
        raise SpecError(f"{name} is {value!r}; it must be a number of seconds from 0")


def _check_strings(name: str, values: tuple[str, ...]) -> None:
    for value in values:
        if not isinstance(value, str):
            raise SpecError(f"{name} holds {value!r}; write it as a text: {str(value)!r}")
        if "\0" in value:
            raise SpecError(
                f"{name} holds {value!r}; a NUL character cannot be passed to a process"
            )


def _check_env(env: Mapping[str, str]) -> None:
    for key, value in env.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise SpecError(f"env has {key!r}: {value!r}; names and values must be strings")
        if key in LAUNCHERS_OWN:
            raise SpecError(
                f"env sets {key}, which the launcher sets for each rank; use nproc_per_node,"
                " master_port=, or a script that sets it itself"
            )
        if not key or "=" in key or "\0" in key + value:
            raise SpecError(f"env has {key!r}: {value!r}, which no process can be given")
