"""The notebook's packages, here in the kernel's environment and in that of the server."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import psutil

from ddpnb.diagnose.report import Check

__all__ = ["bytecode", "kernel", "server"]

_SECONDS = 60.0
_KERNEL = ("ipykernel", "ipywidgets", "anywidget")
_SERVER = ("jupyterlab", "jupyterlab_widgets", "anywidget")
_ASK = (
    "import json, sys\nfrom importlib import metadata\n"
    "there = {d.metadata['Name'].lower().replace('-', '_'): d.version"
    " for d in metadata.distributions() if d.metadata['Name']}\n"
    "print(json.dumps({name: there.get(name) for name in sys.argv[1:]}))"
)


def kernel() -> Check:
    """Tell which of the packages that a notebook's view needs are here."""
    versions = {name: _version(name) for name in _KERNEL}
    found = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        return Check(
            name="kernel",
            status="warn",
            found=f"{found}: runs are shown as text",
            fix=f"install {' and '.join(missing)} in this environment",
        )
    major, minor = (int(part) for part in (versions["ipykernel"] or "0.0").split(".")[:2])
    if (major, minor) < (7, 1):
        return Check(
            name="kernel",
            status="note",
            found=f"{found}: this ipykernel sees no click while a cell awaits",
            fix="ipykernel 7.4 does",
        )
    return Check(name="kernel", status="ok", found=found)


def server() -> Check:
    """Tell whether the Jupyter servers that run here can show widgets."""
    servers = _servers()
    if not servers:
        return Check(
            name="server",
            status="note",
            found="no Jupyter server of this user runs here",
            fix="a server elsewhere needs jupyterlab_widgets and anywidget in its own environment",
        )
    lacking, found = [], []
    for python in servers:
        if python == sys.executable:
            versions = {name: _version(name) for name in _SERVER}
        else:
            versions = _ask(python)
        found.append(
            f"{python}: " + ", ".join(f"{n} {v or 'missing'}" for n, v in versions.items())
        )
        missing = [name for name in _SERVER[1:] if versions.get(name) is None]
        if missing:
            lacking.append(f"{python} -m pip install {' '.join(missing)}")
    if lacking:
        return Check(
            name="server",
            status="warn",
            found="; ".join(found),
            fix=f"{'; '.join(lacking)}, then reload the page",
        )
    return Check(name="server", status="ok", found="; ".join(found))


def bytecode() -> Check:
    """Tell whether torch's bytecode is kept, without which every rank compiles it anew."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return Check(name="bytecode", status="note", found="torch is not installed")
    folder = Path(spec.origin).parent / "__pycache__"
    kept = Path(importlib.util.cache_from_source(spec.origin)).exists()
    if kept:
        return Check(name="bytecode", status="ok", found="torch is compiled")
    if not os.access(folder if folder.exists() else folder.parent, os.W_OK):
        return Check(
            name="bytecode",
            status="warn",
            found=f"torch is not compiled, and {folder.parent} cannot be written: each start of a"
            " rank compiles it again, which takes many seconds",
            fix="set PYTHONPYCACHEPREFIX to a folder that you can write",
        )
    if sys.dont_write_bytecode:
        return Check(
            name="bytecode",
            status="warn",
            found="torch is not compiled, and PYTHONDONTWRITEBYTECODE keeps it so",
            fix="unset PYTHONDONTWRITEBYTECODE, or run: python -m compileall " + str(folder.parent),
        )
    return Check(name="bytecode", status="note", found="torch is compiled at its first import")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _servers() -> list[str]:
    """Return the interpreters of this user's running Jupyter servers."""
    try:
        from jupyter_core.paths import jupyter_runtime_dir
    except ImportError:
        return []
    found = []
    for file in sorted(Path(jupyter_runtime_dir()).glob("jpserver-*.json")):
        try:
            process = psutil.Process(int(json.loads(file.read_text())["pid"]))
            python = process.cmdline()[0]
        except (psutil.Error, OSError, ValueError, KeyError, IndexError):
            continue  # it has ended, or is just starting
        if Path(python).name.startswith("python") and python not in found:
            found.append(python)
    return found


def _ask(python: str) -> dict[str, str | None]:
    try:
        done = subprocess.run(
            [python, "-P", "-c", _ASK, *_SERVER],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
        told: dict[str, str | None] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return told
