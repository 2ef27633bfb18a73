"""When a rank waits for another in vain: which one had left, and where the others were."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ddpnb.lines import shown_text
from ddpnb.records import Exit, RankFailure
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec
from ddpnb.tracebacks import operation, place_in_stacks, place_in_traceback

__all__ = [
    "LOST_CONNECTION",
    "SAME_MOMENT_SECONDS",
    "TIMED_OUT",
    "last_text",
    "who_left_early",
    "with_wait",
]

SAME_MOMENT_SECONDS = 1.0
_LEAVING_SECONDS = 10.0  # what Python may take to leave with torch in it
_TAIL_BYTES = 16_384
# What gloo and NCCL say when another rank has left (torch 2.13).
LOST_CONNECTION = re.compile(
    r"Connection (closed|reset) by|gloo/transport|ncclRemoteError|Broken pipe|NCCL.*abort"
)
TIMED_OUT = re.compile(
    r"Timed out waiting \d+ ?ms for|Watchdog caught collective operation timeout"
)


def who_left_early(
    run: RunDir, spec: LaunchSpec, found: Sequence[RankFailure], exits: Sequence[Exit]
) -> RankFailure | None:
    """Return the rank whose script had come to its end when another failed of missing it.

    Args:
        found: the ranks that failed, by cause.
        exits: how each rank's process ended.
    """
    first = next((f for f in found if f.time and _is_missing_another(run, f)), None)
    if first is None:
        return None
    left = {exit_.rank: exit_ for exit_ in exits if _has_left(run, exit_)}
    if first is not found[0] and found[0].rank not in left and found[0].signal != "SIGTERM":
        return None
    assert first.time is not None
    # Connections close before a process has ended, on a busy machine long before.
    lost = LOST_CONNECTION.search(first.message) and not TIMED_OUT.search(first.message)
    before = first.time + (_LEAVING_SECONDS if lost else SAME_MOMENT_SECONDS)
    early = min(left.values(), key=lambda exit_: exit_.time or 0.0, default=None)
    if early is None or (early.time or 0.0) > before:
        return None
    place = place_in_traceback(first.traceback, spec.script, run.script)
    during = (operation(first.traceback) or "a collective") + (f" ({place})" if place else "")
    how = "left with exit code 0" if early.exitcode == 0 else "came to the end of its script"
    return RankFailure(
        rank=early.rank,
        time=early.time,
        exitcode=early.exitcode,
        message=f"{how} while rank {first.rank} was still in {during}",
        hint=(
            "all ranks must take part in every collective, `backward` of a DDP model included: look"
            " for a loop, a `break`, a `return` or a sys.exit that depends on the rank or on its"
            " own share of the data, and let the ranks agree first (an all_reduce of the flag)"
        ),
    )


def _has_left(run: RunDir, exit_: Exit) -> bool:
    """Return whether a rank was through with its script, however its process was ended then.

    The launcher may have ended it on its way out, or torch's threads have aborted it there.
    """
    if exit_.exitcode == 0:
        return exit_.time is not None
    ends = (event for event in run.rank(exit_.rank).read_events() if event.kind == "end")
    return any(event.data.get("attempt") == exit_.attempt for event in ends)


def with_wait(run: RunDir, spec: LaunchSpec, failures: list[RankFailure]) -> RankFailure:
    """Return the first failure; if it waited in vain, with what the others did meanwhile."""
    first = failures[0]
    if first.hint or not TIMED_OUT.search(f"{first.message}\n{first.traceback}"):
        return first
    place = place_in_traceback(first.traceback, spec.script, run.script)
    waited = f"rank {first.rank} waited in {operation(first.traceback) or 'a collective'}"
    words = [waited + (f" ({place})" if place else "")]
    for other in failures[1:]:
        if other.rank is not None and other.rank != first.rank:
            text = last_text(run.rank(other.rank).stacks)
            was_at = place_in_stacks(text, spec.script, run.script)
            if was_at is not None:
                words.append(f"rank {other.rank} had not come so far, it was at {was_at}")
    advice = (
        "do slow work before init_process_group or on all ranks alike, or give"
        " init_process_group a longer timeout="
    )
    return replace(first, hint="; ".join([*words, advice]))


def last_text(path: Path) -> str:
    """Return the end of a log as a terminal would show it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return ""
    return "\n".join(shown_text(line) for line in (lines if size <= _TAIL_BYTES else lines[1:]))


def _is_missing_another(run: RunDir, failure: RankFailure) -> bool:
    text = failure.message or last_text(run.rank(failure.rank or 0).stderr)
    return bool(LOST_CONNECTION.search(text) or TIMED_OUT.search(text))
