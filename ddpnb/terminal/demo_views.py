"""What a terminal shows of a notebook that runs: its cells, and the ranks of the run at hand."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from ddpnb.execution import Cell, Execution
from ddpnb.job import Job
from ddpnb.terminal.follower import Follower, outcome
from ddpnb.terminal.pane import Pane
from ddpnb.terminal.panel import Screen, clock, draw_run, numbers, safe_text, state_style
from ddpnb.terminal.streams import Output

__all__ = ["LiveDemo", "PlainDemo", "View", "short_name"]

_NEWS_SECONDS = 5.0
"""Without a terminal: how often a run that goes on is worth a line."""


class View(Protocol):
    """A way to show a notebook while it runs."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, execution: Execution, followers: list[Follower]) -> None:
        """Show what is new."""


class LiveDemo:
    """What is over scrolls by; what goes on stands below: the cell, and the ranks of its run."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._pane = Pane(screen)
        self._begun = time.monotonic()
        self._told: set[int | Path] = set()

    def __enter__(self) -> None:
        self._pane.__enter__()

    def __exit__(self, *_: object) -> None:
        self._pane.draw(Text(end=""))
        self._pane.__exit__()

    def show(self, execution: Execution, followers: list[Follower]) -> None:
        """Say what is over since the last look, and draw what goes on."""
        for follower in followers:
            if follower.view.state.done and follower.run.path not in self._told:
                self._told.add(follower.run.path)
                said = outcome(Job(follower.run).peek())
                self._pane.print(
                    Text.assemble(
                        "        run ",
                        f"{short_name(follower)}: {_ranks(follower)} ",
                        (said, state_style(follower.view.state.value)),
                    )
                )
        for cell in execution.cells:
            if cell.seconds is not None and cell.number not in self._told:
                self._told.add(cell.number)
                line = _cell_line(cell, len(execution.cells))
                self._pane.print(line, whole=False)
        self._pane.draw(self._panel(execution, followers))

    def _panel(self, execution: Execution, followers: list[Follower]) -> RenderableType:
        cell, elapsed = execution.current, clock(time.monotonic() - self._begun)
        where = f"cell {cell.number} of {len(execution.cells)}" if cell else "starting the kernel"
        parts: list[RenderableType] = [Rule(f"{where}  {elapsed}", align="left", style="dim")]
        if cell is not None:
            line = Text(no_wrap=True, overflow="ellipsis")
            parts.append(line.append(f"{cell.heading}  ", "bold").append(cell.first_line, "dim"))
        going_on = [follower for follower in followers if not follower.view.state.done]
        for follower in going_on[-1:]:
            parts.append(
                draw_run(
                    follower.view,
                    title=f"run {short_name(follower)}",
                    screen=Screen.of(self._screen),
                    unfinished=follower.unfinished,
                    notes=[],
                )
            )
        return Group(*parts)


class PlainDemo:
    """The same as plain lines."""

    def __init__(self) -> None:
        self._out = Output(sys.stdout)
        self._cell = 0
        self._told: dict[Path, tuple[float, str]] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, execution: Execution, followers: list[Follower]) -> None:
        """Write what is new; of a run that goes on, not more than a line in five seconds."""
        lines = []
        now = execution.current.number if execution.current else 0
        for cell in execution.cells[self._cell : now]:
            lines.append(f"cell {cell.number} of {len(execution.cells)}: {_words(cell)}")
        self._cell = now
        for follower in followers:
            said_at, said = self._told.get(follower.run.path, (0.0, ""))
            text = _news(follower)
            due = follower.view.state.done or time.monotonic() > said_at + _NEWS_SECONDS
            if text != said and due:
                self._told[follower.run.path] = time.monotonic(), text
                lines.append(f"  run {short_name(follower)}: {text}")
        self._out.write(lines)


def _cell_line(cell: Cell, count: int) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    sign, style = ("✗", "bold red") if cell.failed else ("✓", "green")
    text.append(f"{sign} {cell.number:>2}/{count} ", style=style)
    return text.append(f"{cell.seconds or 0:5.1f} s  ", style="dim").append(_words(cell))


def _words(cell: Cell) -> str:
    return f"{cell.heading}: {cell.first_line}" if cell.heading else cell.first_line


def _news(follower: Follower) -> str:
    """Return in a line where a run stands."""
    view = follower.view
    if view.state.done:
        return f"{_ranks(follower)} {outcome(Job(follower.run).peek())}"
    states = sorted({view.ranks[rank].state for rank in view.ranks} or {"starting"})
    step = "" if view.step is None else f", step {view.step}"
    return f"{_ranks(follower)} {' and '.join(states)}{step}  {numbers(view.metrics)}".rstrip()


def _ranks(follower: Follower) -> str:
    count = follower.view.world_size
    return f"{count} rank{'s' if count > 1 else ''}"


def short_name(follower: Follower) -> str:
    """Return the name of the run without its date and its tail."""
    return safe_text(follower.run.read_spec().name)
