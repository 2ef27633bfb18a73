"""Whether a rank that is forked from a warm process would be the same as a new interpreter."""

from __future__ import annotations

import contextlib
import hashlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddpnb.warm.state import WarmState

__all__ = ["different", "fingerprint", "is_read_at_load", "recorded"]

# What libraries, or the interpreter itself, read as they are loaded, and never again. What is read
# by Python code is not listed: the warm process writes down each variable that its imports read.
_READ_AT_LOAD = tuple(
    "OMP_ GOMP_ KMP_ MKL_ OPENBLAS_ GOTO_ BLIS_ DNNL_ ONEDNN_ ATEN_ NPY_ NUMPY_ LD_ GLIBC_ MALLOC_"
    " PYTHON TORCH_LOGS TORCH_CPP_LOG TORCH_SHOW_CPP TORCH_ALLOW_TF32 PYTORCH_ CUDA_ KINETO_ LC_"
    " LANG".split()
)
# Read later than that, or set anew in each forked rank (see `rank`).
_APPLIED = frozenset(
    "OMP_NUM_THREADS CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER PYTORCH_NVML_BASED_CUDA_CHECK"
    " TORCH_DISTRIBUTED_DEBUG".split()
)


def is_read_at_load(name: str) -> bool:
    """Return whether a variable of this name must be there before the libraries are."""
    return name.startswith(_READ_AT_LOAD)


def different(state: WarmState, environ: Mapping[str, str]) -> list[str]:
    """Return the variables whose values would come too late for a forked rank.

    Args:
        environ: all variables of the rank.
    """
    names = {*state.read, *state.environ, *filter(is_read_at_load, environ)} - _APPLIED
    found = {name for name in names if environ.get(name) != state.environ.get(name)}
    if not environ.get("OMP_NUM_THREADS", "").isdigit():
        found.add("OMP_NUM_THREADS")  # a list for nested regions; only one number can be applied
    return sorted(found)


@contextlib.contextmanager
def recorded() -> Iterator[set[str]]:
    """Yield a set that gets the name of each variable that Python code reads meanwhile."""
    read: set[str] = set()
    usual = type(os.environ)

    class Recording(usual):  # type: ignore[misc, valid-type]
        def __getitem__(self, name: str) -> str:
            read.add(name)
            return super().__getitem__(name)  # type: ignore[no-any-return]

        def __contains__(self, name: object) -> bool:
            read.add(str(name))
            return bool(super().__contains__(name))

    os.environ.__class__ = Recording
    try:
        yield read
    finally:
        os.environ.__class__ = usual


def fingerprint() -> str:
    """Return what changes when a package is installed, removed or, like ours, edited in place."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    if site.ENABLE_USER_SITE:
        folders.add(site.getusersitepackages())
    ours = sorted(Path(__file__).parent.parent.rglob("*.py"))
    paths = [*sorted(map(Path, folders)), *ours]
    dates = "".join(f"{path} {_changed(path)}\n" for path in paths)
    return hashlib.sha256(f"{sys.version}\n{dates}".encode()).hexdigest()


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
