"""The live view's HTML, made from a Snapshot: pure text in, escaped text out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Literal

from ddpnb.lines import plain_text
from ddpnb.monitor import KEPT_LINES, RankView
from ddpnb.notebook.watch import Snapshot, rank_state
from ddpnb.records import LogLine
from ddpnb.words import duration, ending

__all__ = [
    "COLOURS",
    "MOST_CARDS",
    "MUTED",
    "SYMBOLS",
    "Selected",
    "head",
    "log",
    "notes",
    "number",
    "pairs",
    "ranks",
    "run_mark",
    "safe",
    "short",
    "state_mark",
    "trouble",
]

Selected = int | Literal["all", "launcher"]
"""Whose lines the log shows."""

MOST_CARDS = 8
"""Up to so many ranks each have room for words; more become small marks."""
_MOST_CHARACTERS = 2_000  # of one line; a browser lays out a megabyte on one line very slowly
_SHORT_CHARACTERS = 500

# Each state has a shape and a word: colour alone tells one reader in twelve nothing.
SYMBOLS = {
    "pending": "◌",
    "starting": "◌",
    "running": "▶",
    "done": "✔",
    "succeeded": "✔",
    "failed": "✖",
    "stopped": "■",
    "ended": "□",
    "lost": "?",
}
# JupyterLab's own colours, which follow its theme; elsewhere ones to be read on white and on black.
_OURS = "ddpnb: "  # how the supervisor's own lines begin in launcher.log
_GREY = "var(--jp-ui-font-color2, #808080)"
_BLUE = "var(--jp-brand-color1, #2b7de1)"
_GREEN = "var(--jp-success-color1, #2e9e4f)"
_RED = "var(--jp-error-color1, #e04040)"
_ORANGE = "var(--jp-warn-color1, #d9822b)"
# JupyterLab's own background for what comes from stderr
_STDERR = "var(--jp-rendermime-error-background, rgba(224, 64, 64, 0.15))"
COLOURS = {
    "running": _BLUE,
    "done": _GREEN,
    "succeeded": _GREEN,
    "failed": _RED,
    "stopped": _ORANGE,
    "lost": _RED,
}
MUTED = f"color: {_GREY}"
_BORDER = "1px solid var(--jp-border-color2, rgba(128, 128, 128, 0.4))"
_CODE = (
    "font-family: var(--jp-code-font-family, monospace); font-size: var(--jp-code-font-size, 13px);"
    " line-height: 1.35"
)


def head(snapshot: Snapshot) -> str:
    """Return the line above all: what runs, how it stands, for how long, its last numbers."""
    view, spec = snapshot.view, snapshot.spec
    words = [_count(spec.world_size, "rank"), f"on {spec.device}"]
    if snapshot.seconds is not None:
        words.append(duration(snapshot.seconds))
    if view.step is not None:
        words.append(f"step {view.step}")
    words += [f"{name} {number(value)}" for name, value in list(view.metrics.items())[:6]]
    line = (
        f"<b>{safe(spec.target)}</b> &nbsp;{run_mark(snapshot)}"
        f"&nbsp; <span style='{MUTED}'>{safe(' · '.join(words))}</span>"
    )
    below = "".join(f"<div style='{MUTED}'>{safe(text)}</div>" for text in notes(snapshot))
    return f"<div style='line-height: 1.6'>{line}{below}</div>"


def ranks(snapshot: Snapshot) -> str:
    """Return how each rank stands."""
    everyone = range(snapshot.spec.world_size)
    if len(everyone) <= MOST_CARDS:
        inside = "".join(_card(snapshot, rank) for rank in everyone)
        style = "display: flex; flex-wrap: wrap; gap: 4px 6px; line-height: 1.5; margin: 0 0 4px"
        return f"<div style='{style}'>{inside}</div>"
    states = {rank: rank_state(snapshot, rank) for rank in everyone}
    counts = Counter(states.values())
    told = ", ".join(f"{count} {SYMBOLS[state]} {state}" for state, count in counts.items())
    marks = "".join(
        f"<span title='rank {rank}: {state}' style='min-width: 3.2em; text-align: center;"
        f" border: {_BORDER}; border-radius: 3px; color: {COLOURS.get(state, _GREY)}'>"
        f"{rank}&nbsp;{SYMBOLS[state]}</span>"
        for rank, state in states.items()
    )
    return (
        f"<div style='line-height: 1.5'>{safe(told)}<div style='display: flex; flex-wrap: wrap;"
        f" gap: 2px; font-size: 0.9em'>{marks}</div></div>"
    )


def log(snapshot: Snapshot, selected: Selected) -> str:
    """Return the last lines of one rank, of all or of the launcher, the newest lowest."""
    if selected == "all":
        known: Sequence[LogLine] = snapshot.recent
    elif selected == "launcher":
        known = snapshot.view.launcher
    else:
        known = snapshot.view.ranks.get(selected, RankView(rank=selected)).lines
    open_ends = [line for line in snapshot.unfinished if _is_of(line, selected)]
    lines = [*known, *open_ends][-KEPT_LINES:]
    width = len(str(snapshot.spec.world_size - 1))
    text = "".join(_line(line, width if selected == "all" else None) for line in lines)
    if not lines:
        quiet = (
            "nothing was printed"
            if snapshot.done
            else "nothing printed yet (importing torch takes a while)"
        )
        text = f"<span style='{MUTED}'>{quiet}</span>"
    # A box that fills from below keeps the newest line in sight without a script. `flex: none` and
    # `overflow: visible` keep JupyterLab's own rules for <pre> from undoing it. The two widths let
    # a long line scroll inside the box instead of widening it beyond the page.
    return (
        "<div style='display: flex; flex-direction: column-reverse; overflow: auto;"
        " width: 0; min-width: 100%; box-sizing: border-box; max-height: 300px; padding: 4px 8px;"
        f" border: {_BORDER}; border-radius: 3px'>"
        f"<pre style='flex: none; margin: 0; padding: 0; overflow: visible; white-space: pre;"
        f" background: transparent; color: inherit; {_CODE}'>{text}</pre></div>"
    )


def trouble(snapshot: Snapshot) -> str:
    """Return who failed first and of what, or what is wrong with this view; empty when neither.

    The whole report, with the traceback, is in the summary below the view.
    """
    text = snapshot.trouble or _first_failure(snapshot)
    if not text:
        return ""
    return (
        f"<pre style='margin: 4px 0; padding: 4px 8px; border-left: 4px solid {_RED};"
        " overflow: auto; max-height: 24em; white-space: pre-wrap; background: transparent;"
        f" color: inherit; {_CODE}'>"
        f"{safe(text)}</pre>"
    )


def run_mark(snapshot: Snapshot) -> str:
    """Return the state of the run, with the reason where it says more."""
    state, reason = snapshot.view.state.value, snapshot.view.reason
    return state_mark(state, f" ({reason})" if reason and reason != state else "")


def state_mark(state: str, more: str = "") -> str:
    """Return a state as shape and word in its colour."""
    style = f"color: {COLOURS.get(state, _GREY)}; white-space: nowrap"
    return f"<span style='{style}'>{SYMBOLS[state]} {safe(state + more)}</span>"


def safe(text: str) -> str:
    """Return what a run said as text for HTML: no markup, no terminal's control sequences."""
    return escape(plain_text(text))


def number(value: object) -> str:
    """Return a metric's value in few characters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def pairs(values: Mapping[str, object]) -> str:
    """Return names and their values in one line, cut where it would be long."""
    return short(", ".join(f"{name} {number(value)}" for name, value in values.items()))


def short(line: str) -> str:
    """Return a line cut at what a person reads of it."""
    return line if len(line) <= _SHORT_CHARACTERS else f"{line[:_SHORT_CHARACTERS]}…"


def notes(snapshot: Snapshot) -> list[str]:
    """Return what is to be said of a run beside its state."""
    found = [snapshot.waits_for] if snapshot.waits_for else []
    if snapshot.gpus and snapshot.spec.device == "cuda":
        shown = [f"cuda:{i} is {name}" for i, name in enumerate(snapshot.gpus[:MOST_CARDS])]
        left = len(snapshot.gpus) - len(shown)
        found.append(", ".join(shown) + (f", and {left} more" if left else ""))
    said = [line.text for line in snapshot.view.launcher if line.text.startswith(_OURS)]
    if said and not snapshot.done:
        found.append(said[-1].removeprefix(_OURS))
    return found


def _first_failure(snapshot: Snapshot) -> str:
    if not snapshot.failures:
        return snapshot.cause
    first = snapshot.failures[0]
    who = "the launcher" if first.rank is None else f"rank {first.rank}"
    hint = f"\nWhat to try: {first.hint}" if first.hint else ""
    return f"First to fail: {who}, {first.summary}{hint}"


def _card(snapshot: Snapshot, rank: int) -> str:
    known = snapshot.view.ranks.get(rank, RankView(rank=rank))
    state = rank_state(snapshot, rank)
    words = []
    if known.exit is not None and known.exit.exitcode:
        words.append(ending(known.exit.exitcode))
    if known.attempt:
        words.append(f"start {known.attempt + 1}")
    if known.step is not None:
        words.append(f"step {known.step}")
    if known.progress and not snapshot.done:
        name, n, total = (known.progress.get(key) for key in ("name", "n", "total"))
        words.append(f"{name or ''} {n}{f'/{total}' if total else ''}".strip())
    more = f" <span style='{MUTED}'>· {safe(' · '.join(words))}</span>" if words else ""
    return (
        f"<span style='border: {_BORDER}; border-left: 4px solid {COLOURS.get(state, _GREY)};"
        f" border-radius: 3px; padding: 0 8px'>rank {rank} {state_mark(state)}{more}</span>"
    )


def _is_of(line: LogLine, selected: Selected) -> bool:
    if selected == "launcher":
        return line.rank is None
    return line.rank is not None if selected == "all" else line.rank == selected


def _line(line: LogLine, width: int | None) -> str:
    text = plain_text(line.text)
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}… (the line goes on in the log file)"
    text = safe(text)
    if line.stream == "stderr":
        text = f"<span style='background: {_STDERR}'>{text}</span>"
    if width is None:
        return f"{text}\n"
    return f"<span style='{MUTED}'>{line.rank!s:>{width}} │</span> {text}\n"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
