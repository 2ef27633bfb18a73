"""Read from a run folder why the run failed: which rank was first, and what the others died of."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

from ddpnb.hints import hint
from ddpnb.json_files import read_json
from ddpnb.lines import plain_text, shown_text
from ddpnb.missing import (
    LOST_CONNECTION,
    SAME_MOMENT_SECONDS,
    TIMED_OUT,
    last_text,
    who_left_early,
    with_wait,
)
from ddpnb.records import Exit, RankFailure
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec
from ddpnb.tail import read_lines
from ddpnb.words import signal_name

__all__ = ["describe", "read_exits", "read_failures"]

_LAST_LINES = 5
_FATAL = "Fatal Python error:"  # faulthandler's stacks follow
_TRACEBACK = "Traceback (most recent call last):"
# What a rank raises when mp.spawn's child failed: it says that, and not why.
_CHILD_FAILED = ("ProcessExitedException", "ProcessRaisedException")


def read_exits(run: RunDir) -> list[Exit]:
    """Return how the last attempt of each rank ended, as exit.json has it."""
    ended = read_json(run.exit) or {}
    known = {field.name for field in fields(Exit)}  # a newer version may say more
    return [
        Exit(**{key: value for key, value in exit_.items() if key in known})
        for exit_ in ended.get("exits", [])
    ]


def read_failures(run: RunDir) -> list[RankFailure]:
    """Return the ranks that failed, the first first; the launcher if no rank is to blame."""
    spec = run.read_spec()
    found = []
    for exit_ in read_exits(run):
        error = read_json(run.rank(exit_.rank).error(exit_.attempt))
        if error is not None or exit_.exitcode not in (0, None):
            found.append(_failure(run, spec, exit_, error))
    if (read_json(run.exit) or {}).get("reason"):
        found = [failure for failure in found if failure.type]  # the others, our stop has ended
    if not found or _launcher_was_killed(run, found):
        return _launcher_failure(run)
    found = _by_cause(found)
    left = who_left_early(run, spec, found, read_exits(run))
    if left is not None:  # also where it was ended on its way out
        found = [left, *(failure for failure in found if failure.rank != left.rank)]
    first, *others = found
    failures = [first] + [
        other
        if (other.type, other.message) == (first.type, first.message) and first.type
        else replace(other, consequence_of=first.rank)
        for other in others
    ]
    return [with_wait(run, spec, failures), *failures[1:]]


def _by_cause(failures: list[RankFailure]) -> list[RankFailure]:
    """Return the failures by time; of those at the same moment, what others have caused comes last.

    A rank that takes its process group down before its error is recorded (a `finally` of its own)
    is outrun by the others, which fail of nothing but that. And a launcher ends the other ranks so
    soon that a busy machine shows both ends at once.
    """
    found = sorted(failures, key=lambda failure: (failure.time is None, failure.time or 0.0))
    moment = (found[0].time or 0.0) + SAME_MOMENT_SECONDS
    at_once = [f for f in found if f.time is not None and f.time <= moment]
    later = found[len(at_once) :]
    at_once.sort(key=_is_a_consequence)
    return at_once + later


def _is_a_consequence(failure: RankFailure) -> int:
    """Return 0 for a failure of its own, more the likelier it is that of another rank."""
    # gloo words a wait in vain like a lost connection, but that is a failure of its own.
    if LOST_CONNECTION.search(failure.message) and not TIMED_OUT.search(failure.message):
        return 2
    return 1 if failure.signal == "SIGTERM" else 0  # as the launcher ends the others


def describe(run: RunDir, failures: list[RankFailure]) -> str:
    """Return the report of a failed run for a person; its last lines name the cause."""
    state, reason = run.state()
    parts = [f"{run.run_id} {state.value}" + (f" ({reason})" if reason else "") + "."]
    others = failures[1:]
    if others:
        same = [f for f in others if f.consequence_of is None]
        later = [f for f in others if f.consequence_of is not None]
        if same:
            width = run.read_spec().world_size
            alike = [failures[0], *same]
            whom = f"all {width} ranks" if len(alike) == width else f"ranks {_numbers(alike)}"
            parts.append(f"The same error on {whom}.")
        if later:
            parts.append(
                "Ended as a consequence: " + "; ".join(f"rank {f.rank}, {_short(f)}" for f in later)
            )
    parts.append(f"All that the ranks wrote: {run.path}")
    if failures:
        first = failures[0]
        if first.traceback:
            parts.append(f"\n{first.traceback.rstrip()}")
        elif first.rank is not None and (said := _last_lines(run, first.rank)):
            parts.append("\n".join([f"\nThe last lines of rank {first.rank}:", *said]))
        who = "the launcher" if first.rank is None else f"rank {first.rank}"
        parts.append(f"\nFirst to fail: {who}, {first.summary}")
        if first.hint:
            parts.append(f"What to try: {first.hint}")
    return "\n".join(parts)


def _failure(
    run: RunDir, spec: LaunchSpec, exit_: Exit, error: dict[str, Any] | None
) -> RankFailure:
    code = exit_.exitcode
    if error is not None and (code is None or signal_name(code) == "SIGTERM"):
        code = error["exitcode"]  # the launcher's SIGTERM met it on its way out
    died_of = signal_name(code)
    failure = RankFailure(rank=exit_.rank, time=exit_.time, exitcode=code, signal=died_of)
    stderr = last_text(run.rank(exit_.rank).stderr)
    if error is not None:
        failure = replace(
            failure,
            time=float(error["time"]),
            type=error["type"],
            message=error["message"],
            traceback=error["traceback"],
            hint=error.get("hint", ""),
        )
        if error["type"].rpartition(".")[2] in _CHILD_FAILED:
            told = failure.message if _TRACEBACK in failure.message else stderr
            failure = _cause_in(told, failure)
        if error["type"] == "SystemExit":
            failure = replace(failure, traceback=stderr)
    elif code is not None and (code > 0 or _FATAL in stderr):
        failure = replace(failure, traceback=stderr)
    clean = replace(
        failure,
        type=_shown(failure.type),
        message=_shown(failure.message),
        traceback=_shown(failure.traceback),
    )
    ended = read_json(run.exit) or {}
    stopped, kills = ended.get("reason") is not None, ended.get("oom_kills")
    return replace(clean, hint=failure.hint or hint(clean, spec, stopped=stopped, oom_kills=kills))


def _launcher_was_killed(run: RunDir, found: list[RankFailure]) -> bool:
    """Return whether the ranks died of nothing but the death of torchrun's agent, or of spawn's.

    Under Python() the launched process is the rank.
    """
    code = (read_json(run.exit) or {}).get("returncode") or 0
    apart = run.read_run()["launcher"].get("name") != "python"
    return apart and code < 0 and all(f.signal == "SIGKILL" and not f.type for f in found)


def _launcher_failure(run: RunDir) -> list[RankFailure]:
    ended = read_json(run.exit) or {}
    if ended.get("reason") or ended.get("returncode") in (0, None):
        return []
    code = ended["returncode"]
    failure = RankFailure(
        rank=None,
        time=ended.get("ended"),
        traceback=last_text(run.launcher_log),
        exitcode=code,
        signal=signal_name(code),
    )
    if code > 0:
        why = "the launcher's own output above says why no rank was started"
    elif ended.get("oom_kills") and failure.signal == "SIGKILL":
        why = hint(failure, run.read_spec(), oom_kills=ended["oom_kills"])
    else:
        why = "somebody outside this run ended the launcher, and the ranks ended with it"
    return [replace(failure, hint=why)]


def _cause_in(text: str, failure: RankFailure) -> RankFailure:
    """Return the failure with the error of the child process, the first one in the text."""
    _, found, block = text.partition(_TRACEBACK)
    block = block.partition(_TRACEBACK)[0]
    error = re.search(r"^([A-Za-z_][\w.]*):(.*(?:\n(?:[ \t]+.*)?)*)", block, re.MULTILINE)
    if not found or error is None:
        return failure
    message = " ".join(error[2].split())
    return replace(
        failure,
        type=error[1],
        message=message,
        traceback=_TRACEBACK + block[: error.end()].rstrip() + "\n",
    )


def _shown(text: str) -> str:
    """Return a rank's text without what would act on a terminal; its lines stay."""
    data = text.encode("utf-8", "backslashreplace")
    return "\n".join(plain_text(shown_text(line)) for line in data.split(b"\n"))


def _last_lines(run: RunDir, rank: int) -> list[str]:
    lines = [line.text for line in read_lines(run, [rank], last=_LAST_LINES)]
    return [f"  {_shown(line)}" for line in lines if line.strip()]


def _short(failure: RankFailure) -> str:
    """Return in a few words how a rank ended that is not to blame."""
    if failure.signal == "SIGTERM" and not failure.type:
        return "ended by the launcher (SIGTERM)"
    text = failure.summary.splitlines()[0]
    if LOST_CONNECTION.search(failure.message):
        text = f"which lost its connection ({failure.type})"
    return text if len(text) <= 120 else text[:119] + "…"


def _numbers(failures: list[RankFailure]) -> str:
    return ", ".join(str(failure.rank) for failure in sorted(failures, key=lambda f: f.rank or 0))
