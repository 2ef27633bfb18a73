"""Show a job below the cell that launched it: a live view, and a summary that outlives the kernel.

One thread a job reads the run folder five times a second and fills the widgets. The thread never
prints and never starts a process: what a thread prints lands below whichever cell ran last
(ipykernel 7.4).
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import Any

from IPython.display import DisplayHandle, display

from ddpnb.job import Job
from ddpnb.notebook import summary
from ddpnb.notebook.watch import Snapshot, Watch

__all__ = ["settle", "show"]

_LIVE_SECONDS = 0.2
_STATIC_SECONDS = 1.0
_SETTLE_SECONDS = 10.0

logger = logging.getLogger(__name__)
_views: list[_View] = []


def show(job: Job) -> None:
    """Show a job below the current cell and keep it up to date until it has ended."""
    try:
        view = _View(job)
    except Exception as error:  # the run is on its way, and its handle must not be lost
        logger.exception("no view of %s", job.run_id)
        display({"text/plain": f"{job!r}\nIt runs, but cannot be shown: {error}"}, raw=True)
        return
    _views.append(view)
    view.start()


def settle(*_: Any) -> None:
    """Let the views of ended jobs finish before a cell does, so that it is saved with them."""
    for view in list(_views):
        if not view.is_alive():
            _views.remove(view)
        elif view.job.done:
            view.join(_SETTLE_SECONDS)


class _View(threading.Thread):
    """Watches one job; owns its live view, when there are widgets, and its summary."""

    def __init__(self, job: Job) -> None:
        super().__init__(name=f"ddpnb view of {job.run_id}", daemon=True)
        self.job = job
        self._watch = Watch(job)
        self._last = self._watch.first()
        self._panel = _panel(job, self._last)
        if self._panel is not None:
            display(self._panel.bundle(), raw=True)
        self._summary: DisplayHandle = display(self._bundle(), raw=True, display_id=True)

    def run(self) -> None:
        try:
            while not self._last.done:
                begun = time.monotonic()
                if not self.job.run.run.exists():
                    raise FileNotFoundError(f"the run folder {self.job.folder} is gone")
                self._last = self._watch.look()
                self._draw()
                self._pause(begun)
        except Exception as error:
            logger.exception("the view of %s has ended", self.job.run_id)
            trouble = (
                f"This view has ended: {error}. The run goes on: see job.state and job.logs()."
            )
            self._last = replace(self._last, trouble=trouble)
            self._draw()

    def _draw(self) -> None:
        if self._panel is not None:
            self._panel.draw(self._last)
        if self._panel is None or self._last.done or self._last.trouble:
            self._summary.update(self._bundle(), raw=True)

    def _pause(self, begun: float) -> None:
        if self._last.done:
            return
        interval = _STATIC_SECONDS if self._panel is None else _LIVE_SECONDS
        until = begun + interval
        # Short steps: a job that ends is drawn at once, so the cell that awaited it need not wait.
        while time.monotonic() < until and not self.job.done:
            time.sleep(min(0.05, interval))

    def _bundle(self) -> dict[str, str]:
        return summary.bundle(self._last, live=self._panel is not None)


def _panel(job: Job, snapshot: Snapshot) -> Any:
    """Return the widgets, or None where ipywidgets is not installed."""
    try:
        from ddpnb.notebook.panel import Panel
    except ModuleNotFoundError:
        return None
    return Panel(job, snapshot)
