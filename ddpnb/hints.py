"""What usually helps, for failures that everybody meets once."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from ddpnb.records import RankFailure
from ddpnb.spec import LaunchSpec

__all__ = ["hint"]

_OUT_OF_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_MEMORY = "smaller batches, fewer DataLoader workers or less data held by each rank need less of it"


def hint(
    failure: RankFailure,
    spec: LaunchSpec,
    *,
    stopped: bool = False,
    oom_kills: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Return what to try after this failure, or "".

    Args:
        stopped: somebody ended the run, so that a signal is no riddle.
        oom_kills: processes that the out-of-memory killer ended meanwhile; None: not known.
    """
    if failure.signal is not None and not failure.type:
        return "" if stopped else _of_signal(failure.signal, spec, oom_kills)
    text = f"{failure.message}\n{failure.traceback}"
    if "bootstrapping phase" in text:
        return _missing_guard(text, spec)
    if "attempted relative import with no known parent package" in text and spec.script is not None:
        module, folder = _as_module(spec.script)
        return (
            f"{spec.script.name} uses a relative import, so it must be run as a module:"
            f" `-m {module}` from the folder {folder}"
        )
    chosen = spec.env.get("PYTHONIOENCODING") or environ.get("PYTHONIOENCODING")
    if failure.type == "UnicodeEncodeError" and chosen:
        return (
            f"the output's encoding was chosen by PYTHONIOENCODING={chosen} and cannot show this"
            " text; take the variable away, or set it to utf-8"
        )
    if "EADDRINUSE" in text or "Address already in use" in text:
        return "another process has the port; leave the port out, and a free one is taken"
    if _OUT_OF_SPACE.search(failure.message):
        return (
            "a disk is full; what ranks print goes to the run folder: make room on its disk"
            " (`ddpnb clean` removes old runs), or set DDPNB_RUNS to a folder on another"
        )
    return ""


def _of_signal(name: str, spec: LaunchSpec, oom_kills: int | None) -> str:
    if name == "SIGKILL":
        if oom_kills:
            return (
                "the kernel's out-of-memory killer was at work while this run went on"
                f" ({oom_kills} killed): the machine's memory was full, not the GPU's; {_MEMORY}"
            )
        known = "" if oom_kills is None else ", though its counter here shows nothing"
        return (
            f"nobody here sent this signal; probably the out-of-memory killer{known}, or a limit of"
            f" the cluster (see `dmesg`, or the job's accounting): host memory, not the GPU's;"
            f" {_MEMORY}"
        )
    if name == "SIGBUS":
        return (
            "most often /dev/shm is full, through which DataLoader workers hand over their batches"
            f" ({_shared_memory()}); use fewer workers, or a container with a larger --shm-size"
        )
    if name in ("SIGSEGV", "SIGILL", "SIGFPE"):
        detail = spec.env.get("TORCH_DISTRIBUTED_DEBUG") or os.environ.get(
            "TORCH_DISTRIBUTED_DEBUG", ""
        )
        if detail.upper() == "DETAIL":
            return (
                "native code crashed. TORCH_DISTRIBUTED_DEBUG=DETAIL is known to do this when DDP"
                " is constructed on gloo; INFO tells nearly as much"
            )
        return (
            "native code crashed, in an extension or in a library: the stack above is where Python"
            " was; suspect a package that was built for another torch or another CPU"
        )
    if name == "SIGABRT":
        return (
            "native code gave up; its own last words stand in the rank's stderr. If they are"
            " `terminate called without an active exception`, Python ended while threads of torch"
            " still ran: call torch.distributed.destroy_process_group() before a rank leaves"
        )
    if name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGXCPU", "SIGUSR1", "SIGUSR2"):
        return (
            "somebody outside this run sent the signal: a scheduler at its time limit, an"
            " administrator, or a `kill`"
        )
    return ""


def _shared_memory() -> str:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:
        return "there is no /dev/shm here"
    return f"{usage.free >> 20} of {usage.total >> 20} MiB are free now"


def _missing_guard(text: str, spec: LaunchSpec) -> str:
    place = re.search(rf'File "{re.escape(str(spec.script))}", line (\d+), in <module>', text)
    line = f", line {place[1]}" if place else ""
    return (
        f"{spec.target}{line} starts processes at the top level of the script, and each of them"
        " runs the script again; put that line under `if __name__ == '__main__':`"
    )


def _as_module(script: Path) -> tuple[str, Path]:
    parts, folder = [script.stem], script.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), folder
