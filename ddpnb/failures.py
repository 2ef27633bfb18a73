"""Read from a run folder why the run failed: which rank was first, and what the others died of."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddpnb.json_files import read_json
from ddpnb.lines import plain_text, shown_text
from ddpnb.records import Exit, RankFailure
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec

__all__ = ["describe", "read_exits", "read_failures"]

_SAME_MOMENT_SECONDS = 1.0
# What gloo and NCCL say when another rank has left (torch 2.13).
_LOST_CONNECTION = re.compile(
    r"Connection (closed|reset) by|gloo/transport|ncclRemoteError|Broken pipe|NCCL.*abort"
)
_TAIL_BYTES = 16_384
_FATAL = "Fatal Python error:"  # faulthandler's stacks follow
_TRACEBACK = "Traceback (most recent call last):"
# What a rank raises when mp.spawn's child failed: it says that, and not why.
_CHILD_FAILED = ("ProcessExitedException", "ProcessRaisedException")


def read_exits(run: RunDir) -> list[Exit]:
    """Return how the last attempt of each rank ended, as exit.json has it."""
    ended = read_json(run.exit) or {}
    return [Exit(**exit_) for exit_ in ended.get("exits", [])]


def read_failures(run: RunDir) -> list[RankFailure]:
    """Return the ranks that failed, the first first; the launcher if no rank is to blame."""
    spec = run.read_spec()
    found = []
    for exit_ in read_exits(run):
        error = read_json(run.rank(exit_.rank).error(exit_.attempt))
        if error is not None or exit_.exitcode not in (0, None):
            found.append(_failure(run, spec, exit_, error))
    if not found:
        return _launcher_failure(run)
    first, *others = _by_cause(found)
    return [first] + [
        other
        if (other.type, other.message) == (first.type, first.message) and first.type
        else replace(other, consequence_of=first.rank)
        for other in others
    ]


def _by_cause(failures: list[RankFailure]) -> list[RankFailure]:
    """Return the failures by time; of those at the same moment, what others have caused comes last.

    A rank that takes its process group down before its error is recorded (a `finally` of its own)
    is outrun by the others, which fail of nothing but that. And a launcher ends the other ranks so
    soon that a busy machine shows both ends at once.
    """
    found = sorted(failures, key=lambda failure: (failure.time is None, failure.time or 0.0))
    moment = (found[0].time or 0.0) + _SAME_MOMENT_SECONDS
    at_once = [f for f in found if f.time is not None and f.time <= moment]
    later = found[len(at_once) :]
    at_once.sort(key=_is_a_consequence)
    return at_once + later


def _is_a_consequence(failure: RankFailure) -> int:
    """Return 0 for a failure of its own, more the likelier it is that of another rank."""
    if _LOST_CONNECTION.search(failure.message):
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
            parts.append(f"The same error on ranks {_numbers([failures[0], *same])}.")
        if later:
            parts.append(
                "Ended as a consequence: " + "; ".join(f"rank {f.rank}, {_short(f)}" for f in later)
            )
    parts.append(f"All that the ranks wrote: {run.path}")
    if failures:
        first = failures[0]
        if first.traceback:
            parts.append(f"\n{first.traceback.rstrip()}")
        who = "the launcher" if first.rank is None else f"rank {first.rank}"
        parts.append(f"\nFirst to fail: {who}, {first.summary}")
        if first.hint:
            parts.append(f"What to try: {first.hint}")
    return "\n".join(parts)


def _failure(
    run: RunDir, spec: LaunchSpec, exit_: Exit, error: dict[str, Any] | None
) -> RankFailure:
    code = exit_.exitcode
    failure = RankFailure(
        rank=exit_.rank,
        time=exit_.time,
        exitcode=code,
        signal=_signal_name(code),
    )
    stderr = _last_text(run.rank(exit_.rank).stderr)
    if error is not None:
        failure = replace(
            failure,
            time=float(error["time"]),
            type=error["type"],
            message=error["message"],
            traceback=error["traceback"],
            exitcode=error["exitcode"] if code is None else code,
            hint=error.get("hint", ""),
        )
        if error["type"].rpartition(".")[2] in _CHILD_FAILED:
            failure = _cause_in(stderr, failure)
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
    stopped = (read_json(run.exit) or {}).get("reason") is not None
    return replace(clean, hint=failure.hint or _hint(clean, spec, stopped=stopped))


def _launcher_failure(run: RunDir) -> list[RankFailure]:
    ended = read_json(run.exit) or {}
    if ended.get("reason") or ended.get("returncode") in (0, None):
        return []
    text = _last_text(run.launcher_log)
    code = ended["returncode"]
    return [
        RankFailure(
            rank=None,
            time=ended.get("ended"),
            traceback=text,
            exitcode=code,
            signal=_signal_name(code),
            hint="the launcher's own output above says why no rank was started",
        )
    ]


def _cause_in(stderr: str, failure: RankFailure) -> RankFailure:
    """Return the failure with the error of the child process, which is the first one on stderr."""
    _, found, block = stderr.partition(_TRACEBACK)
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


def _hint(failure: RankFailure, spec: LaunchSpec, *, stopped: bool) -> str:
    """Return what usually helps, for failures that everybody meets once."""
    text = f"{failure.message}\n{failure.traceback}"
    if "bootstrapping phase" in text:
        place = re.search(rf'File "{re.escape(str(spec.script))}", line (\d+), in <module>', text)
        line = f", line {place[1]}" if place else ""
        return (
            f"{spec.target}{line} starts processes at the top level of the script, and each of them"
            " runs the script again; put that line under `if __name__ == '__main__':`"
        )
    if "attempted relative import with no known parent package" in text and spec.script is not None:
        module, folder = _as_module(spec.script)
        return (
            f"{spec.script.name} uses a relative import, so it must be run as a module:"
            f" `-m {module}` from the folder {folder}"
        )
    chosen = spec.env.get("PYTHONIOENCODING") or os.environ.get("PYTHONIOENCODING")
    if failure.type == "UnicodeEncodeError" and chosen:
        return (
            f"the output's encoding was chosen by PYTHONIOENCODING={chosen} and cannot show this"
            " text; take the variable away, or set it to utf-8"
        )
    if "EADDRINUSE" in text or "Address already in use" in text:
        return "another process has the port; leave the port out, and a free one is taken"
    if failure.signal == "SIGKILL" and not stopped:
        return (
            "nobody here sent this signal; most often the machine ran out of memory (see `dmesg`)"
        )
    return ""


def _as_module(script: Path) -> tuple[str, Path]:
    parts, folder = [script.stem], script.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), folder


def _last_text(path: Path) -> str:
    """Return the end of a log as a terminal would show it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return ""
    return "\n".join(shown_text(line) for line in (lines if size <= _TAIL_BYTES else lines[1:]))


def _signal_name(code: int | None) -> str | None:
    if code is None or code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _short(failure: RankFailure) -> str:
    text = failure.summary.splitlines()[0]
    return text if len(text) <= 120 else text[:119] + "…"


def _numbers(failures: list[RankFailure]) -> str:
    return ", ".join(str(failure.rank) for failure in sorted(failures, key=lambda f: f.rank or 0))
