"""The Python that runs here and in Jupyter, and the versions of what notebooks need."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from ddpnb.checkup.check import Check
from ddpnb.checkup.here import Here

__all__ = [
    "bytecode",
    "ipykernel",
    "judge_bytecode",
    "judge_ipykernel",
    "kernel",
    "python",
    "release",
]

_LEAST_PYTHON = (3, 11)


def python(here: Here) -> Check:
    """Check the version of Python and the system that it runs on."""
    found = f"{platform.python_version()} in {sys.prefix}, {platform.system()} {platform.machine()}"
    if sys.version_info < _LEAST_PYTHON:
        return Check("Python", "fail", found, "ddpnb needs Python 3.11 or newer")
    if sys.platform != "linux":
        fix = "runs on Linux are what is tested; elsewhere processes may be left behind"
        return Check("Python", "warn", found, fix)
    return Check("Python", "ok", found)


def kernel(here: Here) -> Check:
    """Check that notebooks run with this Python."""
    if "ipykernel" in sys.modules and "JPY_PARENT_PID" in here.environ:
        return Check("kernel", "ok", f"this process is the notebook's kernel: {sys.executable}")
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError:
        found = "jupyter_client is not installed for this Python, so no notebook can run with it"
        return Check("kernel", "warn", found, "pip install jupyterlab ipykernel")
    try:
        spec = KernelSpecManager().get_kernel_spec("python3")
    except NoSuchKernel:
        fix = f"{sys.executable} -m ipykernel install --sys-prefix"
        return Check("kernel", "warn", "Jupyter here knows no kernel `python3`", fix)
    jupyter = here.which("jupyter")
    if jupyter is not None and Path(jupyter).parent != Path(sys.executable).parent:
        found = f"`jupyter` on PATH is {jupyter}, not this Python's ({sys.executable})"
        return Check("kernel", "note", found, _OTHER_PYTHON)
    command = str(spec.argv[0])
    if Path(command).is_absolute() and Path(command).parent != Path(sys.executable).parent:
        found = f"the kernel `python3` is {command}, not this Python ({sys.executable})"
        return Check("kernel", "warn", found, _OTHER_PYTHON)
    return Check("kernel", "ok", f"notebooks run with this Python: {sys.executable}")


_OTHER_PYTHON = (
    "`ddpnb lab` opens notebooks with this Python; or name it for Jupyter: python -m ipykernel"
    " install --user --name ddpnb, and choose the kernel ddpnb"
)


def ipykernel(here: Here) -> Check:
    """Check the version of ipykernel, on which depends when a click is seen."""
    return judge_ipykernel(release("ipykernel"))


def judge_ipykernel(version: str | None) -> Check:
    """Return what this version of ipykernel means for a notebook with live views."""
    if version is None:
        fix = "pip install ipykernel"
        return Check("ipykernel", "warn", "not installed: no notebook can run here", fix)
    numbers = [int(part) if part.isdecimal() else 0 for part in version.split(".")[:2]]
    newer = "pip install -U ipykernel, then restart the kernel"
    if numbers >= [7, 4]:
        return Check("ipykernel", "ok", f"{version}: a click is seen while a cell awaits a job")
    if numbers >= [7, 1]:
        found = f"{version}: a click is seen while a cell waits, in JupyterLab 4.4 and newer"
        return Check("ipykernel", "ok", found)
    if numbers >= [7, 0]:
        return Check("ipykernel", "note", f"{version}: the first release with subshells", newer)
    found = (
        f"{version}: a click, as on Stop, is seen only once the cell has ended; the interrupt ■"
        " works at any time"
    )
    if numbers >= [6, 31]:
        return Check("ipykernel", "note", found, newer)
    return Check("ipykernel", "warn", f"{found}; nothing before 6.31 was tested", newer)


def bytecode(here: Here) -> Check:
    """Check that importing torch need not compile it each time, which takes twice as long."""
    spec = importlib.util.find_spec("torch")  # finds it, and does not import it
    if spec is None or spec.origin is None:
        return Check("bytecode", "skip", "needs torch")
    cache = Path(importlib.util.cache_from_source(spec.origin))
    folder = next(path for path in cache.parents if path.exists())
    return judge_bytecode(
        Path(spec.origin).parent,
        folder,
        compiled=cache.exists(),
        writes=not sys.dont_write_bytecode,
        writable=os.access(folder, os.W_OK),
    )


def judge_bytecode(
    torch: Path, folder: Path, *, compiled: bool, writes: bool, writable: bool
) -> Check:
    """Return whether ranks find torch compiled.

    Args:
        torch: its folder.
        folder: the one into which its compiled files go.
        writes: this Python keeps what it compiles.
        writable: it may write into the folder.
    """
    if compiled:
        return Check("bytecode", "ok", f"torch is compiled: {folder}")
    slow = "each rank takes twice as long to import torch"
    if not writes:
        found = f"torch is not compiled, and PYTHONDONTWRITEBYTECODE (or -B) keeps it so: {slow}"
        return Check("bytecode", "warn", found, f"once: python -m compileall -q {torch}")
    if not writable:
        found = f"torch is not compiled, and {folder} cannot be written: {slow}"
        fix = 'export PYTHONPYCACHEPREFIX="$HOME/.cache/pycache" before you start Jupyter'
        return Check("bytecode", "warn", found, fix)
    return Check("bytecode", "ok", "the first import of torch will compile it, once")


def release(package: str) -> str | None:
    """Return the version of an installed package, without importing it; None: not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
