"""Run a learner's script once, in processes of its own and with a deadline; keep what was seen.

What runs is a copy, in a folder that is thrown away afterwards, with `worker.observer` in front of
its first import: no line changes its number. Each text runs once, however many checks look at it.
"""

from __future__ import annotations

import ast
import contextlib
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpnb.api import start
from ddpnb.errors import WorkerFailedError
from ddpnb.exercises.devices import device_for
from ddpnb.exercises.readings import Reading
from ddpnb.launchers.python import Python
from ddpnb.records import RunResult, parse_json_lines
from ddpnb.rundir import RunDir

__all__ = ["DEADLINE", "ScriptRun", "run_script", "with_observer"]

DEADLINE = 120.0  # seconds; a machine that does much else takes a minute for a script of 6 s

_OBSERVER = "import ddpnb.worker.observer; "
_GRACE = 2.0
_runs: dict[tuple[str, str, str], ScriptRun] = {}


@dataclass(frozen=True, kw_only=True)
class ScriptRun:
    """One run of a script that starts its own ranks, and what it was seen to do."""

    file: str
    device: str
    reading: Reading
    result: RunResult
    calls: tuple[dict[str, Any], ...]
    """What `worker.observer` noted, each process's calls in their order."""
    deadline: float

    @property
    def error(self) -> str:
        """What the script died of, in a line; "" when it ended well or was ended."""
        if self.was_ended or not self.result.failures:
            return ""
        return self.result.failures[0].summary.strip().splitlines()[0]

    @property
    def was_ended(self) -> bool:
        """True when the deadline, or somebody, ended it."""
        return self.result.reason is not None

    @property
    def ended_well(self) -> bool:
        """True when the script came to its end by itself."""
        return self.result.returncode == 0 and not self.was_ended

    @property
    def started(self) -> int:
        """How many processes the script started that loaded it."""
        loads = [call for call in self.calls if call["call"] == "load"]
        pids = {load["pid"] for load in loads}
        return len([load for load in loads if load["parent"] in pids])

    @property
    def ranks(self) -> dict[int, int]:
        """The rank of each process that joined the group, by process id."""
        return {c["pid"]: c["rank"] for c in self.calls if c["call"] == "init"}

    def of(self, call: str) -> dict[int, list[dict[str, Any]]]:
        """Return the calls of one kind by rank; a rank that made none has no entry."""
        found = defaultdict(list)
        for noted in self.calls:
            if noted["call"] == call and noted["pid"] in self.ranks:
                found[self.ranks[noted["pid"]]].append(noted)
        return dict(found)

    def told(self) -> str:
        """Say what was run, by which launcher, on how many ranks, and how it ended."""
        ranks = "no rank" if not self.started else f"{self.started} ranks"
        seconds = f"{self.result.seconds:.0f} s" if self.result.seconds is not None else "a while"
        ran = (
            f"`python {self.file}` ran for {seconds} on {self.device}: plain Python, in which"
            f" `mp.spawn` started {ranks}."
        )
        if self.was_ended:
            return f"{ran} It did not end by itself, and was ended ({self.result.reason})."
        if self.ended_well:
            return f"{ran} It came to its end."
        return f"{ran} It failed: {(self.error or 'it left no word').rstrip('.')}."


def run_script(path: Path, text: str, *, deadline: float = DEADLINE) -> ScriptRun:
    """Return the run of this text, which is run now unless it has been.

    Raises:
        SyntaxError: the text is no Python; nothing was run.
    """
    reading = Reading.of(text)
    # Two ranks, for which there must be two GPUs; a word says "cpu" or "cuda" to the launch.
    device = str(device_for(2))
    key = (path.name, text, device)
    if key not in _runs:
        print(
            f"Running {path.name} with plain Python, in processes of its own,"
            f" for at most {deadline:g} s ...",
            flush=True,
        )
        result, calls = _run(path.name, with_observer(text, reading), device, deadline)
        run = ScriptRun(
            file=path.name,
            device=device,
            reading=reading,
            result=result,
            calls=calls,
            deadline=deadline,
        )
        if run.was_ended:  # next time the machine may be less busy
            return run
        _runs[key] = run
    return _runs[key]


def with_observer(text: str, reading: Reading) -> str:
    """Return the text with the observer on the line of its first import."""
    for node in reading.tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and not _is_future(node):
            lines = text.splitlines(keepends=True)
            lines[node.lineno - 1] = _OBSERVER + lines[node.lineno - 1]
            return "".join(lines)
    return text  # it has nothing of torch that could be observed


def _run(
    name: str, text: str, device: str, deadline: float
) -> tuple[RunResult, tuple[dict[str, Any], ...]]:
    with tempfile.TemporaryDirectory(prefix="ddpnb-check-") as folder:
        copy = Path(folder, name)
        copy.write_text(text, encoding="utf-8")
        job = start(
            copy,
            launcher=Python(),
            device=device,
            cwd=folder,
            timeout=deadline,
            grace=_GRACE,
            name=f"check {copy.stem}",
        )
        with contextlib.suppress(WorkerFailedError):
            job.wait()
        return job.peek(), _calls(job.run)


def _is_future(node: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _calls(run: RunDir) -> tuple[dict[str, Any], ...]:
    return tuple(call for file in run.all_calls() for call in parse_json_lines(file.read_bytes()))
