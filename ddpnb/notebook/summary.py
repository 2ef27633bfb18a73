"""The static summary of a run: HTML that needs no script, no style sheet and no kernel.

It is what GitHub, nbconvert and a reopened notebook show. Pure: a Snapshot in, text out.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from ddpnb.lines import plain_text
from ddpnb.monitor import RankView
from ddpnb.notebook.markup import MOST_CARDS, MUTED, pairs, run_mark, safe, short
from ddpnb.notebook.watch import Snapshot, rank_state
from ddpnb.records import LogLine
from ddpnb.words import duration, ending

__all__ = ["bundle", "css_class", "html", "text"]

_LINES = 10
_CELL = "text-align: left; padding: 1px 12px 1px 0; vertical-align: top"
_PRE = (
    "margin: 2px 0 8px; padding: 2px 8px; border-left: 3px solid rgba(128, 128, 128, 0.4);"
    " overflow: auto; white-space: pre-wrap; background: transparent; color: inherit;"
    # nbconvert's style sheet gives <pre> the font of the text around it
    " font-family: var(--jp-code-font-family, monospace)"
)


def bundle(snapshot: Snapshot, *, live: bool, curve: bytes | None = None) -> dict[str, str]:
    """Return the summary by mime type, for `display(..., raw=True)`.

    Args:
        live: True when a live view stands above it, so that one line is enough while the run lasts.
        curve: what the ranks logged, as a PNG.
    """
    return {"text/html": html(snapshot, live=live, curve=curve), "text/plain": text(snapshot)}


def css_class(folder: str | Path) -> str:
    """Return the class of a run's summaries, by which its live view hides them while it is there.

    A page without the live view (on GitHub, reopened without a kernel) shows them.
    """
    return f"ddpnb-summary-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}"


def html(snapshot: Snapshot, *, live: bool, curve: bytes | None = None) -> str:
    """Return the summary as HTML."""
    name = css_class(snapshot.folder)
    if live and not snapshot.done and not snapshot.trouble:
        attach = f"<code>ddpnb.attach({safe(repr(snapshot.view.run_id))})</code>"
        return (
            f"<div class='{name}' style='{MUTED}'>Launched; while its kernel lives, the live view"
            f" is above. How it ended, and all that the ranks wrote: {attach}</div>"
        )
    took = "" if snapshot.seconds is None else f" after {duration(snapshot.seconds)}"
    parts = [
        f"<b>{safe(snapshot.spec.target)}</b>: {run_mark(snapshot)}{took}",
        _cause(snapshot),
        _ranks_table(snapshot),
        _picture(curve),
        _said(snapshot),
        _place(snapshot),
    ]
    body = "".join(f"<div>{part}</div>" for part in parts if part)
    return f"<div class='{name}' style='line-height: 1.5'>{body}</div>"


def text(snapshot: Snapshot) -> str:
    """Return the summary as plain text, where no HTML is shown."""
    view = snapshot.view
    why = f" ({view.reason})" if view.reason else ""
    lines = [plain_text(f"{view.run_id}: {snapshot.spec.target} {view.state.value}{why}")]
    if view.metrics:
        lines.append(plain_text(pairs(view.metrics)))
    for rank in _first(snapshot.spec.world_size):
        lines += [f"[rank {rank}] {line}" for line in _last(snapshot, rank)]
    if snapshot.cause:
        lines += [plain_text(line) for line in snapshot.cause.split("\n")]
    return "\n".join(lines)


def _cause(snapshot: Snapshot) -> str:
    said = snapshot.trouble or snapshot.cause
    return f"<pre style='{_PRE}'>{safe(said)}</pre>" if said else ""


def _ranks_table(snapshot: Snapshot) -> str:
    ranks = _first(snapshot.spec.world_size)
    given = [
        ("rank", [str(rank) for rank in ranks]),
        ("ended", [_ended(snapshot, rank) for rank in ranks]),
        ("GPU", [_gpu(snapshot, rank) for rank in ranks]),
        ("reported", [pairs(snapshot.results.get(rank, {})) for rank in ranks]),
    ]
    columns = [(name, cells) for name, cells in given if any(cells)]
    titles = "".join(f"<th style='{_CELL}'>{name}</th>" for name, _ in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td style='{_CELL}'>{safe(cell)}</td>" for cell in row) + "</tr>"
        for row in zip(*(cells for _, cells in columns), strict=True)
    )
    more = _more(snapshot.spec.world_size, "the run folder has them")
    table = f"<table style='margin: 2px 0'><tr>{titles}</tr>{rows}</table>{more}"
    if not snapshot.view.metrics:
        return table
    last = safe(pairs(snapshot.view.metrics))
    return f"{table}<div>last logged, the mean of the ranks: {last}</div>"


def _picture(curve: bytes | None) -> str:
    if curve is None:
        return ""
    data = base64.b64encode(curve).decode()
    return f"<img alt='curves of what was logged' src='data:image/png;base64,{data}'>"


def _said(snapshot: Snapshot) -> str:
    """Return the last lines of each rank."""
    parts = []
    for rank in _first(snapshot.spec.world_size):
        known = snapshot.view.ranks.get(rank, RankView(rank=rank))
        lines = _last(snapshot, rank)
        if lines:
            left = known.line_count - len(lines)
            part = f", the last {len(lines)} of {known.line_count:,} lines" if left > 0 else ""
            shown = safe("\n".join(lines))
            parts.append(
                f"<div style='{MUTED}'>rank {rank}{part}</div><pre style='{_PRE}'>{shown}</pre>"
            )
    if not parts:
        return ""
    # Open, because a reader on GitHub came for these lines; of a failed run the cause stands above.
    opened = "" if snapshot.cause else " open"
    return f"<details{opened}><summary>what the ranks printed</summary>{''.join(parts)}</details>"


def _place(snapshot: Snapshot) -> str:
    said = []
    if snapshot.folder not in snapshot.cause:  # the report of a failure names it
        said.append(f"everything it wrote: <code>{safe(snapshot.folder)}</code>")
    if snapshot.plain:
        said.append(f"the same without ddpnb: <code>{safe(snapshot.plain)}</code>")
    return "".join(f"<div style='{MUTED}'>{text}</div>" for text in said)


def _last(snapshot: Snapshot, rank: int) -> list[str]:
    lines: Sequence[LogLine] = snapshot.view.ranks.get(rank, RankView(rank=rank)).lines[-_LINES:]
    return [short(plain_text(line.text)) for line in lines]


def _ended(snapshot: Snapshot, rank: int) -> str:
    known = snapshot.view.ranks.get(rank, RankView(rank=rank))
    state = rank_state(snapshot, rank)
    if known.exit is None or known.exit.exitcode is None:
        return state
    return f"{state}, {ending(known.exit.exitcode)}"


def _gpu(snapshot: Snapshot, rank: int) -> str:
    if snapshot.spec.device != "cuda":
        return ""
    local_rank = snapshot.view.ranks.get(rank, RankView(rank=rank, local_rank=rank)).local_rank
    return snapshot.gpus[local_rank] if local_rank < len(snapshot.gpus) else ""


def _first(world_size: int) -> range:
    return range(min(world_size, MOST_CARDS))


def _more(world_size: int, where: str) -> str:
    left = world_size - MOST_CARDS
    return f"<div style='{MUTED}'>and {left} more ranks; {where}</div>" if left > 0 else ""
