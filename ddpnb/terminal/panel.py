"""Draw a run for a terminal: a row for each rank, or a grid of small cells for many ranks.

Pure: from a RunView to what rich can print. Called by the views here. Whatever a rank or a
user wrote enters as Text, never as a string that rich would read for markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ddpnb.lines import plain_text, shown_text
from ddpnb.monitor import RankView, RunView
from ddpnb.records import JobState
from ddpnb.words import signal_name

__all__ = ["Screen", "clock", "draw_run", "numbers", "safe_text", "state_label", "state_style"]

_GLYPHS = {
    "starting": "·",
    "running": "●",
    "done": "✓",
    "failed": "✗",
    "stopped": "■",
    "ended": "?",
}
_STYLES = {
    "pending": "dim",
    "starting": "dim",
    "running": "cyan",
    "done": "green",
    "succeeded": "green",
    "failed": "bold red",
    "stopped": "yellow",
    "lost": "bold red",
    "ended": "yellow",
}
_WIDE, _NARROW = 100, 72
"""Columns from which pid and bar have room, and below which only the newest metric has."""
_BAR_CELLS = 12


@dataclass(frozen=True, kw_only=True)
class Screen:
    """How much room there is, in characters."""

    width: int
    rows: int
    """Lines that the ranks may take."""

    @classmethod
    def of(cls, console: Console) -> Screen:
        """Return the room for the ranks: at most half of the screen, for the log needs some too."""
        width, height = console.size
        return cls(width=width, rows=max(4, height // 2 - 4))


def safe_text(text: str) -> str:
    """Return text that does nothing to a terminal but appear on it."""
    lines = (line.encode("utf-8", "backslashreplace") for line in text.split("\n"))
    return "\n".join(plain_text(shown_text(line)) for line in lines)


def clock(seconds: float) -> str:
    """Return seconds as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def numbers(metrics: Mapping[str, float], *, width: int = 0) -> str:
    """Return metrics as `loss 0.1234  accuracy 0.9`, each number at least `width` wide."""
    parts = (f"{safe_text(name)} {f'{value:.4g}':<{width}}" for name, value in metrics.items())
    return "  ".join(parts)


def state_label(rank: RankView, run: JobState) -> str:
    """Return where a rank stands; of a failed one, how it ended."""
    state = _state(rank, run)
    if state == "failed":
        code = rank.exit.exitcode if rank.exit is not None else None
        return f"failed, {signal_name(code) or f'exit {code}'}"
    if state in ("starting", "running") and rank.attempt:
        return f"{state}, restart {rank.attempt}"
    return state


def state_style(state: str) -> str:
    """Return the style for a word of state, of a rank or of a run."""
    return _STYLES.get(state.partition(",")[0], "")


def draw_run(
    view: RunView, *, title: str, screen: Screen, unfinished: Mapping[int, str], notes: list[Text]
) -> RenderableType:
    """Return the whole panel of a run.

    Args:
        title: what is running, without the state.
        unfinished: last lines that have no end yet, by rank: progress bars on their way.
        notes: lines at the foot.
    """
    ranks = [view.ranks.get(rank, RankView(rank=rank)) for rank in range(view.world_size)]
    heading = Text.assemble(
        title, "  ", (view.state.value, state_style(view.state.value)), overflow="ellipsis"
    )
    body: RenderableType
    if len(ranks) <= screen.rows:
        body = _table(view, ranks, screen, unfinished)
    else:
        summary = Text(_summary(view, ranks), no_wrap=True, overflow="ellipsis")
        body = Group(summary, _grid(view, ranks, screen))
    feet = list(notes)
    if view.launcher and not view.state.done:
        text = f"launcher: {plain_text(view.launcher[-1].text)}"
        feet.insert(0, Text(text, style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(Rule(heading, align="left", style="dim"), body, *feet)


def _state(rank: RankView, run: JobState) -> str:
    # On a run that somebody stopped no rank is to blame for how it ended.
    stopped = run is JobState.STOPPED and rank.exit is not None and rank.state != "done"
    return "stopped" if stopped else rank.state


def _summary(view: RunView, ranks: list[RankView]) -> str:
    """Return what the grid does not tell: how many ranks are where, the mean of each metric."""
    counts = Counter(_state(rank, view.state) for rank in ranks)
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    parts = [f"all {said}" if len(counts) == 1 else said]
    steps = [rank.step for rank in ranks if rank.step is not None]
    if steps:
        low, high = min(steps), max(steps)
        parts.append(f"step {low}" if low == high else f"steps {low} to {high}")
    if view.metrics:
        parts.append(numbers(view.metrics))
    return "  ".join(parts)


def _table(
    view: RunView, ranks: list[RankView], screen: Screen, unfinished: Mapping[int, str]
) -> Table:
    """Return one row a rank, with the columns for which there is something to say, and room."""
    columns: dict[str, list[Text]] = {
        "rank": [Text(str(rank.rank), style="bold") for rank in ranks],
        "state": [_state_text(rank, view.state) for rank in ranks],
        "pid": [Text(str(rank.pid or "")) for rank in ranks] if screen.width >= _WIDE else [],
        "step": [Text("" if rank.step is None else str(rank.step)) for rank in ranks],
        "rate": [_rate(rank) for rank in ranks] if screen.width >= _WIDE else [],
        "metrics": [_metrics(rank, screen.width) for rank in ranks],
        "progress": [_progress(rank, screen.width) for rank in ranks],
        "last line": [_last_line(rank, unfinished.get(rank.rank)) for rank in ranks],
    }
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True, header_style="dim")
    shown = {name: texts for name, texts in columns.items() if any(texts) or name == "last line"}
    for name in shown:
        right = "right" if name in ("rank", "pid", "step", "rate") else "left"
        last = name == "last line"
        table.add_column(
            name,
            justify="right" if right == "right" else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if last else None,
            min_width=8 if last else None,
        )
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    return table


def _state_text(rank: RankView, run: JobState) -> Text:
    label = state_label(rank, run)
    return Text(label, style=state_style(label))


def _rate(rank: RankView) -> Text:
    return Text("" if rank.rate is None else f"{rank.rate:.3g}/s")


def _metrics(rank: RankView, width: int) -> Text:
    metrics = dict(rank.metrics)
    if width < _NARROW:
        metrics = dict(list(metrics.items())[:1])
    return Text(numbers(metrics, width=6))  # else the columns behind it dance


def _progress(rank: RankView, width: int) -> Text:
    if not rank.progress:
        return Text()
    n, total = rank.progress.get("n", 0), rank.progress.get("total")
    name = safe_text(str(rank.progress.get("name") or ""))
    count = f"{n}/{total}" if total else f"{n}"
    text = Text()
    if total and width >= _NARROW:
        full = min(_BAR_CELLS, _BAR_CELLS * n // total)
        text.append("━" * full, style="green").append("━" * (_BAR_CELLS - full), style="dim")
        text.append(" ")
    return text.append(f"{count} {name}".rstrip() if width >= _WIDE else count)


def _last_line(rank: RankView, unfinished: str | None) -> Text:
    text = unfinished or next((line.text for line in reversed(rank.lines) if line.text.strip()), "")
    return Text(plain_text(text).expandtabs().strip(), style="dim")


def _grid(view: RunView, ranks: list[RankView], screen: Screen) -> Text:
    """Return a cell a rank: number, sign, step; failed ranks first where not all have room."""
    number = len(str(len(ranks) - 1))
    step = max(len(str(rank.step)) if rank.step is not None else 0 for rank in ranks)
    cell = number + 2 + (step + 1 if step else 0)
    across = max(1, (screen.width + 2) // (cell + 2))
    room = across * screen.rows
    chosen, hidden = ranks, 0
    if len(ranks) > room:
        room = across * max(1, screen.rows - 1)
        # Stable, so that equals stay in the order of their numbers.
        first = sorted(ranks, key=lambda rank: _state(rank, view.state) != "failed")[:room]
        chosen, hidden = sorted(first, key=lambda rank: rank.rank), len(ranks) - room
    text = Text(no_wrap=True)
    for position, rank in enumerate(chosen):
        if position:
            text.append("\n" if position % across == 0 else "  ")
        state = _state(rank, view.state)
        text.append(f"{rank.rank:>{number}} ", style="dim")
        text.append(_GLYPHS.get(state, "?"), style=state_style(state))
        if step:
            text.append(f" {'' if rank.step is None else rank.step:>{step}}")
    if hidden:
        text.append(f"\nand {hidden} more", style="dim")
    return text
