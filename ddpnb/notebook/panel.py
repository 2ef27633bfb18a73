"""The widgets of one live view.

They are filled from a thread, so nothing here prints, starts a process, or waits.
"""

from __future__ import annotations

import threading
from typing import Any

import ipywidgets

from ddpnb.job import Job
from ddpnb.notebook import markup
from ddpnb.notebook.watch import Snapshot

__all__ = ["Panel"]


class Panel:
    """Owns the widgets; `draw` may be called from any thread."""

    def __init__(self, job: Job, snapshot: Snapshot) -> None:
        self._job = job
        self._snapshot = snapshot
        # The watching thread draws, and so does a click, which arrives on any thread of the kernel.
        self._lock = threading.Lock()
        self._head, self._ranks, self._trouble, self._log = (ipywidgets.HTML() for _ in range(4))
        self._stop = ipywidgets.Button(
            description="Stop",
            icon="stop",
            tooltip="Ask the ranks to end; what they save on the way is kept",
            layout=ipywidgets.Layout(width="auto", min_width="7em"),
        )
        self._stop.on_click(self._on_stop)
        self._choice = _choice(snapshot.spec.world_size)
        self._choice.observe(self._on_choice, names="value")
        top = ipywidgets.HBox(
            [self._head, self._stop],
            layout=ipywidgets.Layout(justify_content="space-between", align_items="flex-start"),
        )
        self._box = ipywidgets.VBox([top, self._ranks, self._choice, self._log, self._trouble])
        for widget, name in (
            (self._box, "view"),
            (self._head, "head"),
            (self._ranks, "ranks"),
            (self._stop, "stop"),
            (self._choice, "choice"),
            (self._log, "log"),
            (self._trouble, "trouble"),
        ):
            widget.add_class(f"ddpnb-{name}")
        self.draw(snapshot)

    def bundle(self) -> dict[str, Any]:
        """Return the view by mime type, for `display(..., raw=True)`.

        The plain text replaces the widgets' own, which spells out every trait of every widget.
        """
        plain = f"(the live view of {self._job.run_id}; it needs the running notebook)"
        bundle: dict[str, Any] = self._box._repr_mimebundle_()
        return bundle | {"text/plain": plain}

    def draw(self, snapshot: Snapshot) -> None:
        """Show a snapshot; a widget whose text is as before sends nothing."""
        with self._lock:
            self._snapshot = snapshot
            self._head.value = markup.head(snapshot)
            self._ranks.value = markup.ranks(snapshot)
            self._log.value = markup.log(snapshot, self._choice.value)
            trouble = markup.trouble(snapshot)
            self._trouble.value = trouble
            self._trouble.layout.display = "" if trouble else "none"
            if snapshot.done and not self._stop.disabled:
                self._stop.disabled = True
            if snapshot.done:
                self._stop.description = "Stop"

    def _on_stop(self, button: Any) -> None:
        button.disabled = True
        button.description = "stopping…"
        self._job.stop(wait=False)

    def _on_choice(self, change: Any) -> None:
        with self._lock:
            self._log.value = markup.log(self._snapshot, change["new"])


def _choice(world_size: int) -> Any:
    options: list[tuple[str, markup.Selected]] = [("all ranks", "all")] if world_size > 1 else []
    options += [(f"rank {rank}", rank) for rank in range(world_size)]
    options.append(("launcher", "launcher"))
    if world_size > markup.MOST_CARDS:
        return ipywidgets.Dropdown(
            options=options,
            description="lines of",
            layout=ipywidgets.Layout(width="16em"),
            style={"description_width": "initial"},
        )
    return ipywidgets.ToggleButtons(options=options, style={"button_width": "auto"})
