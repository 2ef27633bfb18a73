"""Show a job below the cell that launched it: a live view, and a summary that outlives the kernel.

One thread a job reads the run folder five times a second and fills the widgets. The thread never
prints and never starts a process: what a thread prints lands below whichever cell ran last
(ipykernel 7.4).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, display

from ddpnb.api import rerun
from ddpnb.errors import RunDirError
from ddpnb.job import Job
from ddpnb.lines import plain_text
from ddpnb.notebook import summary
from ddpnb.notebook.curve import picture
from ddpnb.notebook.points import Points
from ddpnb.notebook.watch import Snapshot, Watch
from ddpnb.records import Event

__all__ = ["settle", "show"]

_LIVE_SECONDS = 0.2
_SLOWEST_SECONDS = 1.0
_SHARE = 0.04
"""Of a core, what looking may take: with hundreds of ranks the looks come less often."""
_STATIC_SECONDS = 1.0
_SETTLE_SECONDS = 10.0
_GREET_SECONDS = 10.0
"""What a browser gets to show the live view; where its extension is missing, it never does."""

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
        elif view.job.run.is_over():
            view.join(_SETTLE_SECONDS)


class _View(threading.Thread):
    """Watches one job; owns its live view, when there are widgets, and its summary.

    Args:
        before: the view of an earlier run of the same, whose place this one takes.
    """

    def __init__(self, job: Job, before: _View | None = None) -> None:
        super().__init__(name=f"ddpnb view of {job.run_id}", daemon=True)
        self.job = job
        self._watch = Watch(job)
        self._last = self._watch.first()
        self._points = Points()
        self._curve: bytes | None = None
        self._lock = threading.Lock()  # held while the panel is drawn or replaced
        self._place: DisplayHandle | None = None
        self._panel: Any
        self._summary: DisplayHandle
        if before is not None:
            self._panel, self._place, self._summary = before._panel, before._place, before._summary
            self._panel.follow(job, self._last, self._again)
            self._summary.update(self._bundle(), raw=True)
            return
        self._panel = _panel(job, self._last, self._again)
        if self._panel is not None:
            self._place = display(self._panel.bundle(), raw=True, display_id=True)
        if hasattr(self._panel, "greeted"):
            timer = threading.Timer(_GREET_SECONDS, self._fall_back)
            timer.daemon = True
            timer.start()
        self._summary = display(self._bundle(), raw=True, display_id=True)

    def run(self) -> None:
        try:
            while not self._last.done:
                begun, spent = time.monotonic(), time.thread_time()
                self._last = self._watch.look()
                self._points.add(one for one in self._last.records if isinstance(one, Event))
                self._draw()
                self._pause(begun, time.thread_time() - spent)
            self._draw_curve()
        except (RunDirError, OSError) as error:
            self._give_up(error)
        except Exception as error:
            logger.exception("the view of %s has ended", self.job.run_id)
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Say why nothing more is shown; what could not be drawn is not drawn again."""
        self._last = replace(self._last, trouble=f"This view has ended: {error}", records=())
        text = plain_text(f"{self._last.trouble}. How the run stands: job.state, job.logs()")
        with self._lock:
            self._summary.update(
                {"text/html": f"<pre>{escape(text)}</pre>", "text/plain": text}, raw=True
            )

    def _draw_curve(self) -> None:
        """Add the curves to the summary, which is there already: a picture can take a second."""
        try:
            self._curve = picture(self._points.all())
        except Exception:  # of values that no axis can bear; the numbers themselves are there
            logger.debug("no picture of %s", self.job.run_id, exc_info=True)
        if self._curve is not None:
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            if self._panel is not None:
                self._panel.draw(self._last)
            if self._panel is None or self._last.done:
                self._summary.update(self._bundle(), raw=True)

    def _fall_back(self) -> None:
        """Take the plainer widgets where no browser has shown the live view."""
        if self._panel.greeted.is_set():
            return
        from ddpnb.notebook.panel import Panel

        with self._lock:
            self._panel = Panel(self.job, self._last)
            if self._place is not None:
                self._place.update(self._panel.bundle(), raw=True)

    def _again(self) -> Job:
        """Launch the same again, in this view; variables that hold the old job get the new one."""
        new = rerun(self.job)
        view = _View(new, before=self)
        _views.append(view)
        view.start()
        shell = get_ipython()
        names = {} if shell is None else shell.user_ns
        for name, value in list(names.items()):
            if value is self.job:
                names[name] = new
        return new

    def _pause(self, begun: float, spent: float) -> None:
        if self._last.done:
            return
        shortest = _STATIC_SECONDS if self._panel is None else _LIVE_SECONDS
        interval = max(shortest, min(_SLOWEST_SECONDS, spent / _SHARE))
        until = begun + interval
        # Short steps: a job that ends is drawn at once, so the cell that awaited it need not wait.
        while time.monotonic() < until and not self.job.run.is_over():
            time.sleep(min(0.05, interval))

    def _bundle(self) -> dict[str, str]:
        return summary.bundle(self._last, live=self._panel is not None, curve=self._curve)


def _panel(job: Job, snapshot: Snapshot, again: Callable[[], Job]) -> Any:
    """Return the live view, or what there is in its place: plainer widgets, or None."""
    try:
        from ddpnb.notebook.live_view import LiveView
    except ModuleNotFoundError:  # no anywidget
        try:
            from ddpnb.notebook.panel import Panel
        except ModuleNotFoundError:  # no ipywidgets either
            return None
        return Panel(job, snapshot)
    return LiveView(job, snapshot, again)
