"""Run one notebook without a browser, in a kernel of this very interpreter.

Called by `demo`. The kernel is started in a thread of its own, because nbclient takes Ctrl-C for
itself where it runs in the main thread, and the main thread has the screen to draw.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from ddpnb.errors import DdpnbError
from ddpnb.process import ProcessId, descendants
from ddpnb.terminal.panel import safe_text

__all__ = ["Cell", "Execution", "read_notebook"]

_WIDGETS = "application/vnd.jupyter.widget-view+json"
_TRACEBACK_LINES = 25
_MOST_SOCKET_PATH = 80  # unix(7): 108 bytes, with the name of the socket


@dataclass
class Cell:
    """A code cell, and how far it has come."""

    number: int
    """Among the code cells, from 1."""
    heading: str
    """The last heading above it."""
    source: str
    started: float | None = None
    seconds: float | None = None
    """None: it has not ended."""
    failed: bool = False
    """True when it raised, and was not tagged `raises-exception`."""

    @property
    def first_line(self) -> str:
        """The first line of its source."""
        return safe_text(next(line for line in self.source.splitlines() if line.strip()))


def read_notebook(path: Path) -> Any:
    """Return the notebook in a file."""
    try:
        # In the newest format of this nbformat, with the ids of cells that it wants.
        return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise DdpnbError(f"{path} is no notebook that can be read: {error}") from error


class Execution:
    """A notebook on its way through a kernel. Owns a thread and the kernel's process."""

    def __init__(self, nb: Any, name: str, work: Path) -> None:
        self.nb = nb
        self.name = name
        self.work = work
        self.runs = work / ".ddpnb" / "runs"
        """Where the runs of the notebook go."""
        self.cells = _code_cells(self.nb)
        self.current: Cell | None = None
        self.failure: str | None = None
        """What went wrong, for a person; None: nothing has."""
        self._by_index = dict(zip(_indices(self.nb), self.cells, strict=True))
        self._manager: AsyncKernelManager | None = None
        self._thread = threading.Thread(target=self._main, name="notebook", daemon=True)

    def start(self) -> None:
        """Start the kernel and run the cells in order; returns at once."""
        self._thread.start()

    @property
    def done(self) -> bool:
        """True when the kernel is gone."""
        return not self._thread.is_alive()

    def kill(self) -> None:
        """Kill the kernel and its children; runs see that their owner is gone, and stop."""
        provisioner = self._manager.provisioner if self._manager is not None else None
        pid = provisioner.pid if isinstance(provisioner, LocalProvisioner) else None
        kernel = ProcessId.of(pid) if pid else None
        if kernel is not None:
            for process in (kernel, *descendants(kernel.pid)):
                process.send(signal.SIGKILL)

    def _main(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="ddpnb-") as place:
                asyncio.run(self._execute(Path(place)))
        except CellExecutionError as error:
            self.failure = _last_traceback(self.current, self._by_index, self.nb) or str(error)
        except Exception as error:  # a dead kernel, no ports, a full disk: whoever waits must hear
            self.failure = f"{type(error).__name__}: {error}"

    async def _execute(self, place: Path) -> None:
        self._manager = AsyncKernelManager(
            kernel_name="ddpnb",
            kernel_spec_manager=_OwnInterpreter(),
            connection_file=str(place / "kernel.json"),
            # Sockets in a folder that is ours alone, rather than ports; their names must be short.
            transport="ipc" if len(str(place)) < _MOST_SOCKET_PATH else "tcp",
        )
        client = NotebookClient(
            self.nb,
            km=self._manager,
            timeout=None,
            startup_timeout=300,
            store_widget_state=False,
            on_cell_execute=self._note_start,
            on_cell_executed=self._note_end,
        )
        # What the kernel says outside of any cell would land in the middle of our screen.
        with (self.work / "kernel.log").open("wb") as log:
            await client.async_execute(
                cleanup_kc=True,
                cwd=str(self.work),
                env=_environment(place, self.runs),
                stdout=log,
                stderr=log,
            )

    def _note_start(self, *, cell_index: int, **_: Any) -> None:
        self.current = self._by_index[cell_index]
        self.current.started = time.monotonic()

    def _note_end(self, *, cell_index: int, execute_reply: dict[str, Any], **_: Any) -> None:
        cell = self._by_index[cell_index]
        raised = execute_reply["content"]["status"] == "error"
        cell.failed = raised and "raises-exception" not in self.nb.cells[cell_index].metadata.get(
            "tags", []
        )
        cell.seconds = time.monotonic() - (cell.started or 0.0)

    def save(self) -> tuple[Path, Path]:
        """Write the notebook as far as it has run, and a web page of it; return both paths."""
        from nbconvert import HTMLExporter  # slow to import, and not needed before the end

        _drop_widgets(self.nb)
        notebook, page = self.work / f"{self.name}.ipynb", self.work / f"{self.name}.html"
        nbformat.write(self.nb, notebook)  # type: ignore[no-untyped-call]
        # No scripts from elsewhere: the page is the same without a network.
        exporter = HTMLExporter(  # type: ignore[no-untyped-call]
            require_js_url="", jquery_url="", mathjax_url="", mermaid_js_url=""
        )
        text, _ = exporter.from_notebook_node(self.nb)
        page.write_text(text, encoding="utf-8")
        log = self.work / "kernel.log"
        if log.exists() and not log.stat().st_size:
            log.unlink()
        return notebook, page


class _OwnInterpreter(KernelSpecManager):
    """Knows one kernel: this interpreter's, whatever kernels are installed under whatever name."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return it."""
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        startup = "--InteractiveShellApp.exec_PYTHONSTARTUP=False"
        return KernelSpec(argv=[*argv, startup], display_name="ddpnb", language="python")


def _environment(place: Path, runs: Path) -> dict[str, str]:
    """Return our variables, with a fresh profile of IPython: the user's startup files stay out."""
    return dict(os.environ) | {"IPYTHONDIR": str(place / "ipython"), "DDPNB_RUNS": str(runs)}


def _indices(nb: Any) -> list[int]:
    cells = enumerate(nb.cells)
    return [i for i, cell in cells if cell.cell_type == "code" and cell.source.strip()]


def _code_cells(nb: Any) -> list[Cell]:
    wanted, heading = set(_indices(nb)), ""
    found: list[Cell] = []
    for index, cell in enumerate(nb.cells):
        if cell.cell_type == "markdown":
            titles = [line for line in cell.source.splitlines() if line.startswith("#")]
            heading = safe_text(titles[-1].lstrip("# ")) if titles else heading
        elif index in wanted:
            found.append(Cell(number=len(found) + 1, heading=heading, source=cell.source))
    return found


def _last_traceback(cell: Cell | None, by_index: dict[int, Cell], nb: Any) -> str:
    """Return the end of what the cell raised, as its output has it."""
    index = next((i for i, found in by_index.items() if found is cell), None)
    outputs = [] if index is None else nb.cells[index].outputs
    tracebacks = [out.traceback for out in outputs if out.output_type == "error"]
    if not tracebacks:
        return ""
    lines = safe_text("\n".join(tracebacks[-1])).splitlines()
    return "\n".join(lines[-_TRACEBACK_LINES:])


def _drop_widgets(nb: Any) -> None:
    """Take out the live views: blank without a kernel, and their summaries stand beside."""
    for index in _indices(nb):
        cell = nb.cells[index]
        cell.outputs = [out for out in cell.outputs if _WIDGETS not in out.get("data", {})]
