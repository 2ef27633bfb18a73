"""The machine as the checks see it: files, variables, and other programs asked with a deadline.

Each answer is fetched once. Torch is asked in a process of its own: the kernel imports no torch and
touches no CUDA.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ddpnb.launchers.base import python
from ddpnb.launchers.devices import Gpu, visible_gpus

__all__ = ["Answer", "GpuState", "Here", "ask"]

TORCH_SECONDS = 120.0
"""A cold import of torch takes this long on a slow file system."""
SMI_SECONDS = 60.0
"""nvidia-smi wakes every GPU first where the persistence mode is off."""

# The name last: it may hold commas.
_GPU_FIELDS = "index,uuid,driver_version,memory.total,memory.used,compute_mode,name"


@dataclass(frozen=True)
class Answer:
    """What another program said."""

    code: int | None
    """Exit code; None: it could not be asked, or gave no answer in time."""
    out: str = ""
    err: str = ""

    @property
    def words(self) -> str:
        """The last line of what it complained about."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """One GPU as nvidia-smi describes it now."""

    index: str
    uuid: str
    driver: str
    total_bytes: int | None
    used_bytes: int | None
    compute_mode: str
    name: str


class Here:
    """This machine, or in tests a folder that stands for one.

    Args:
        root: where /proc, /sys and /dev are.
    """

    def __init__(
        self, environ: Mapping[str, str] | None = None, root: Path = Path("/"), *, pid: int = 0
    ) -> None:
        self.environ = dict(os.environ if environ is None else environ)
        self.root = root
        self.pid = pid or os.getpid()

    def read(self, path: str) -> str | None:
        """Return the text of a file, or None when it is not there or not for us."""
        try:
            return (self.root / path.lstrip("/")).read_text("utf-8", "replace")
        except OSError:
            return None

    def which(self, program: str) -> str | None:
        """Return the path of a program, or None."""
        return shutil.which(program, path=self.environ.get("PATH"))

    @cached_property
    def torch(self) -> dict[str, Any] | str:
        """What torch says of itself, see `torch_facts`, or why it cannot be asked."""
        answer = ask(python("ddpnb.checkup.torch_facts"), TORCH_SECONDS, self.environ)
        if answer.code != 0:
            return answer.words
        try:
            facts = json.loads(answer.out.splitlines()[-1])
        except (ValueError, IndexError) as error:
            return f"its answer cannot be read: {error}"
        return facts if isinstance(facts, dict) else "its answer cannot be read"

    @cached_property
    def gpu_states(self) -> list[GpuState] | str:
        """Every GPU, or why nvidia-smi cannot tell; an empty list: there is no nvidia-smi."""
        program = self.which("nvidia-smi")
        if program is None:
            return []
        argv = [program, f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader,nounits"]
        answer = ask(argv, SMI_SECONDS, self.environ)
        if answer.code != 0:
            return answer.words
        return [state for line in answer.out.splitlines() if (state := _gpu_state(line))]

    @cached_property
    def visible(self) -> list[Gpu]:
        """The GPUs that CUDA_VISIBLE_DEVICES leaves; none where nvidia-smi does not answer."""
        states = self.gpu_states
        return visible_gpus(self.environ) if states and not isinstance(states, str) else []


def ask(argv: Sequence[str], seconds: float, environ: Mapping[str, str] | None = None) -> Answer:
    """Run a program and return what it says; after `seconds` it and its children are killed."""
    try:
        process = subprocess.Popen(
            argv,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Answer(None, err=f"{argv[0]} cannot be started: {error.strerror}")
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        return Answer(None, err=f"no answer within {seconds:g} s")
    except BaseException:  # the stop button: what was started goes too
        _kill(process)
        raise
    return Answer(process.returncode, out, err)


def _kill(process: subprocess.Popen[str]) -> None:
    """End a program of ours and its children; one that hangs in a driver is left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its own session; not yet reaped, so the pid is its
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=5)


def _gpu_state(line: str) -> GpuState | None:
    words = [word.strip() for word in line.split(",", 6)]
    if len(words) < 7:
        return None
    index, uuid, driver, total, used, mode, name = words
    return GpuState(
        index=index,
        uuid=uuid,
        driver=driver,
        total_bytes=_mebibytes(total),
        used_bytes=_mebibytes(used),
        compute_mode=mode,
        name=name,
    )


def _mebibytes(text: str) -> int | None:
    return int(text) << 20 if text.isdecimal() else None  # "[N/A]" on MIG and on shared memory
