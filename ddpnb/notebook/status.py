"""What the live view is told of a run besides its lines: plain values for JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddpnb.lines import plain_text
from ddpnb.monitor import RankView, stragglers
from ddpnb.notebook.markup import notes, pairs
from ddpnb.notebook.watch import Snapshot, rank_state
from ddpnb.records import JobState, RankFailure
from ddpnb.tracebacks import place_in_traceback
from ddpnb.usage import GpuUse, ProcessUse
from ddpnb.words import duration, ending, size

__all__ = ["failure", "gpu", "rank", "ranks", "run"]

_CONTEXT = 3
"""Lines of the script shown before and behind the one that failed."""


def run(snapshot: Snapshot, run_id: str, *, detached: bool) -> dict[str, Any]:
    """Return how the run stands as a whole."""
    view, spec = snapshot.view, snapshot.spec
    state, reason = view.state, view.reason
    eta = view.seconds_left
    return {
        "run_id": run_id,
        "target": plain_text(spec.target),
        "command": plain_text(snapshot.plain),
        "folder": plain_text(snapshot.folder),
        "device": spec.device,
        "world_size": spec.world_size,
        "grace": spec.grace,
        "state": state.value,
        "reason": plain_text(reason) if reason and reason != state.value else "",
        "elapsed": "" if snapshot.seconds is None else duration(snapshot.seconds),
        "eta": "" if eta is None else duration(eta),
        "done": snapshot.done,
        "detached": detached,
        "notes": [plain_text(note) for note in notes(snapshot)],
        "trouble": plain_text(snapshot.trouble),
    }


def ranks(
    snapshot: Snapshot, used: Mapping[int, ProcessUse], *, now: float
) -> list[dict[str, Any]]:
    """Return how each rank stands.

    Args:
        used: what the ranks' processes use, by rank.
        now: Unix time in seconds.
    """
    behind = set() if snapshot.done else set(stragglers(snapshot.view))
    return [
        rank(snapshot, number, used.get(number), behind=number in behind, now=now)
        for number in range(snapshot.spec.world_size)
    ]


def rank(
    snapshot: Snapshot, number: int, used: ProcessUse | None, *, behind: bool, now: float
) -> dict[str, Any]:
    """Return how one rank stands."""
    known = snapshot.view.ranks.get(number, RankView(rank=number))
    told: dict[str, Any] = {"rank": number, "state": rank_state(snapshot, number)}
    if known.attempt:
        told["attempt"] = known.attempt
    if known.step is not None:
        told["step"] = known.step
    if known.rate is not None and not snapshot.done and not _has_paused(known, now):
        told["rate"] = f"{known.rate:.3g}"
    if known.exit is not None and known.exit.exitcode is not None:
        told["exit"] = ending(known.exit.exitcode)
    if known.progress:
        progress = known.progress
        told["progress"] = {
            "n": progress.get("n", 0),
            "total": progress.get("total"),
            "name": plain_text(str(progress.get("name") or "")),
        }
    if reported := snapshot.results.get(number):
        told["reported"] = plain_text(pairs(reported))
    if snapshot.spec.device == "cuda" and known.local_rank < len(snapshot.gpus):
        told["gpu"] = plain_text(snapshot.gpus[known.local_rank])
    if behind:
        told["behind"] = True
    if known.last_time is not None and not snapshot.done and now - known.last_time >= 1:
        told["quiet"] = duration(now - known.last_time)
    if used is not None and not snapshot.done:
        told["cpu"] = f"{used.cpu_percent:.0f} %"
        told["rss"] = size(used.rss_bytes)
    return told


def _has_paused(known: RankView, now: float) -> bool:
    """Return whether steps have come to a halt, so that their rate says nothing any more."""
    if not known.rate or known.step_time is None:
        return True
    return now - known.step_time > max(5.0, 5 / known.rate)


def gpu(use: GpuUse, pids: Mapping[int, int]) -> dict[str, Any]:
    """Return what goes on on a GPU.

    Args:
        pids: ranks by process id, to name who holds its memory.
    """
    holders = [f"rank {pids[pid]}" if pid in pids else f"pid {pid}" for pid in use.pids]
    return {
        "index": use.index,
        "name": plain_text(use.name),
        "percent": f"{use.percent:.0f} %",
        "memory": f"{size(use.used_bytes)} of {size(use.total_bytes)}",
        "power": "" if use.watts is None else f"{use.watts:.0f} W",
        "temperature": "" if use.celsius is None else f"{use.celsius:.0f} °C",
        "holders": ", ".join(holders),
    }


def failure(snapshot: Snapshot, snapshot_file: Path) -> dict[str, Any] | None:
    """Return who failed first, of what, and where in the script; None if nobody did.

    Args:
        snapshot_file: the script as it ran.
    """
    if snapshot.view.state not in (JobState.FAILED, JobState.LOST):
        return None
    report = plain_text_lines(snapshot.cause)
    if not snapshot.failures:
        return {"title": f"The run has {snapshot.view.state.value}", "report": report}
    first = snapshot.failures[0]
    who = "the launcher" if first.rank is None else f"rank {first.rank}"
    return {
        "title": f"First to fail: {who}, {plain_text_lines(first.summary)}",
        "rank": first.rank,
        "hint": plain_text_lines(first.hint),
        "place": _place(first, snapshot, snapshot_file),
        "others": [plain_text_lines(_other(f)) for f in snapshot.failures[1:]],
        "report": report,
    }


def plain_text_lines(text: str) -> str:
    """Return a text of several lines without what would act on a page or a terminal."""
    return "\n".join(plain_text(line) for line in text.split("\n"))


def _other(failed: RankFailure) -> str:
    return f"rank {failed.rank}: {failed.summary.splitlines()[0]}"


def _place(first: RankFailure, snapshot: Snapshot, snapshot_file: Path) -> dict[str, Any] | None:
    """Return the line of the user's code that failed, with those around it."""
    place = place_in_traceback(first.traceback, snapshot.spec.script, snapshot_file)
    if place is None:
        return None
    source = snapshot_file if place.file == str(snapshot.spec.script) else Path(place.file)
    try:
        lines: Sequence[str] = source.read_text(errors="replace").split("\n")
    except OSError:
        lines = ()
    begin = max(0, place.line - 1 - _CONTEXT)
    return {
        "file": plain_text(Path(place.file).name),
        "line": place.line,
        "first": begin + 1,
        "lines": [plain_text(line) for line in lines[begin : place.line + _CONTEXT]],
    }
