"""The widgets of the live view: in the kernel's environment, and in that of the Jupyter server.

A widget has two halves. The kernel's is a Python package, the browser's is an extension that the
server hands out, and the server may live in another environment. Its files are read; nothing of it
is run.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ddpnb.checkup.check import Check
from ddpnb.checkup.here import Here
from ddpnb.checkup.python import release

__all__ = ["Server", "judge_widgets", "server", "servers", "widgets"]

_MANAGER = "@jupyter-widgets/jupyterlab-manager"  # the extension of the package jupyterlab_widgets
_SYSTEM = ("usr/local/share/jupyter", "usr/share/jupyter")


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running Jupyter server of this user."""

    pid: int
    prefix: Path
    """Its environment."""
    port: int | None = None


def widgets(here: Here) -> Check:
    """Check the kernel's half of the widgets."""
    return judge_widgets(release("ipywidgets"), release("anywidget"))


def judge_widgets(ipywidgets: str | None, anywidget: str | None) -> Check:
    """Return what these versions mean for the live view."""
    if ipywidgets is None:
        found = "no ipywidgets in the kernel's environment: a launch shows text, without buttons"
        return Check("widgets", "warn", found, "pip install ipywidgets, then restart the kernel")
    found = f"ipywidgets {ipywidgets}, anywidget {anywidget or 'missing'}"
    if int(ipywidgets.partition(".")[0]) < 8:
        fix = "pip install -U ipywidgets, in the environments of kernel and server"
        return Check("widgets", "warn", found, fix)
    if anywidget is None:
        return Check("widgets", "note", found, "pip install anywidget, for plots that update")
    return Check("widgets", "ok", found)


def server(here: Here, runtime: Path | None = None, user: Path | None = None) -> Check:
    """Check the server's half of the widgets, where a server of this user runs.

    Args:
        runtime: where servers write down who they are; None: Jupyter's own place.
        user: the user's own Jupyter folder, likewise.
    """
    name = "Jupyter server"
    if runtime is None or user is None:
        try:
            from jupyter_core.paths import jupyter_data_dir, jupyter_runtime_dir
        except ImportError:
            return Check(name, "skip", "jupyter_core is not installed for this Python")
        runtime, user = Path(jupyter_runtime_dir()), Path(jupyter_data_dir())
    running = servers(here, runtime)
    if not running:
        return Check(name, "skip", "none of yours runs here (a hub's may run out of sight)")
    # In a kernel the server that started it is the one that counts.
    ours = next((one for one in running if one.pid == os.getppid()), running[-1])
    places = [ours.prefix / "share/jupyter", user, *(here.root / path for path in _SYSTEM)]
    version = _extension(places, _MANAGER)
    elsewhere = ours.prefix != Path(sys.prefix)
    found = f"pid {ours.pid}" + (f" on port {ours.port}" if ours.port else "")
    found += f" in {ours.prefix}" + (", not the kernel's environment" if elsewhere else "")
    pip = f"{ours.prefix / 'bin/python'} -m pip install"
    if version is None:
        fix = f"{pip} jupyterlab_widgets, then reload the page"
        found = f"{found}: it has no jupyterlab_widgets, so the browser shows no live view"
        return Check(name, "warn", found, fix)
    found += f"; jupyterlab-manager {version}"
    kernels = release("ipywidgets") or ""
    if kernels.startswith("8.") and version.partition(".")[0] in ("1", "2", "3"):
        fix = f"{pip} -U jupyterlab_widgets, then reload the page"
        return Check(name, "warn", f"{found}, of ipywidgets 7; the kernel has {kernels}", fix)
    if _extension(places, "anywidget") is None:
        fix = f"{pip} anywidget, then reload the page"
        return Check(name, "note", f"{found}; no anywidget", fix)
    return Check(name, "ok", found)


def servers(here: Here, runtime: Path) -> list[Server]:
    """Return the servers that have written themselves down and still run, oldest first."""
    found = []
    files = sorted(runtime.glob("jpserver-*.json"), key=lambda file: file.stat().st_mtime)
    for file in files:
        try:
            told = json.loads(file.read_bytes())
            pid, port = int(told["pid"]), told.get("port")
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half written, or of another release
        prefix = _prefix(here, pid)
        if prefix is not None:
            port = port if isinstance(port, int) else None
            found.append(Server(pid=pid, prefix=prefix, port=port))
    return found


def _prefix(here: Here, pid: int) -> Path | None:
    """Return the environment of a running Python: that of the `bin` which it was started from."""
    command = here.read(f"proc/{pid}/cmdline")
    if not command:
        return None
    program = Path(command.partition("\0")[0])
    if not program.is_absolute():
        try:
            program = (here.root / f"proc/{pid}/exe").readlink()
        except OSError:
            return None
    return program.parent.parent


def _extension(places: list[Path], name: str) -> str | None:
    """Return the version of an extension of JupyterLab that lies in one of the places."""
    for place in places:
        try:
            told = json.loads((place / "labextensions" / name / "package.json").read_bytes())
            return str(told["version"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None
