"""`ddpnb demo`: run a lesson from end to end, and show in the terminal what its ranks do meanwhile.

What the ranks do is read from their run folders, as any other reader would: the kernel tells this
process nothing but which cell it is at.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ddpnb.errors import DdpnbError
from ddpnb.execution import Execution
from ddpnb.job import Job
from ddpnb.lab import lessons_folder
from ddpnb.records import RunResult
from ddpnb.rundir import RunDir
from ddpnb.terminal.demo_views import LiveDemo, PlainDemo, View, short_name
from ddpnb.terminal.follower import Follower
from ddpnb.terminal.panel import safe_text, state_style
from ddpnb.terminal.streams import Interrupts, Output, is_interactive

__all__ = ["FIRST_LESSON", "run_demo"]

FIRST_LESSON = "00_launch_first_job.ipynb"

_TICK = 0.2
_SOURCE_LINES = 6
_LEAVE_SECONDS = 60.0
"""How long runs may take to stop once their kernel is gone: their grace, and then some."""


def run_demo(folder: Path | None = None, notebook: Path | None = None) -> int:
    """Run the notebook in a new folder inside `folder`; return the exit code of `ddpnb demo`."""
    execution = Execution(notebook or lessons_folder() / FIRST_LESSON, _new_folder(folder))
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    view: View = LiveDemo(execution, console) if is_interactive(sys.stdout) else PlainDemo()
    followers: dict[Path, Follower] = {}
    with Interrupts() as interrupts:
        with view:
            execution.start()
            while not execution.done:
                if interrupts.count:
                    _stop(execution, interrupts)
                _look_for_runs(execution, followers)
                view.show(execution, list(followers.values()))
                time.sleep(_TICK)
            _wait_for_runs(execution, followers, interrupts)
            view.show(execution, list(followers.values()))
        _show_results(execution, list(followers.values()), console)
    if interrupts.signum:
        console.print(Text("interrupted; nothing was left running", style="yellow"))
        return 128 + interrupts.signum
    if execution.failure is not None:
        _show_failure(execution)
        return 1
    return 0


def _new_folder(chosen: Path | None) -> Path:
    """Make and return a folder for this demonstration alone; nothing that was there is touched."""
    parent = (chosen or Path("ddpnb-demo")).expanduser().absolute()
    if chosen is None and not parent.exists() and not os.access(parent.parent, os.W_OK):
        parent = Path(tempfile.gettempdir()) / f"ddpnb-demo-{os.getuid()}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=parent))
        (work / ".gitignore").write_text("*\n")
    except OSError as error:
        raise DdpnbError(
            f"cannot write in {parent}: {error.strerror}; name a folder that you can write:"
            " ddpnb demo DIR"
        ) from error
    return work


def _look_for_runs(execution: Execution, followers: dict[Path, Follower]) -> None:
    for file in sorted(execution.runs.glob("*/run.json")):
        if file.parent not in followers:
            followers[file.parent] = Follower(RunDir.open(file.parent), max_bytes=1 << 14)
    for follower in followers.values():
        if not follower.view.state.done:
            follower.poll()


def _stop(execution: Execution, interrupts: Interrupts) -> None:
    """Stop the runs, then take their owner away; on a second Ctrl-C kill them."""
    for file in execution.runs.glob("*/run.json"):
        job = Job(RunDir.open(file.parent))
        if job.reason is None or interrupts.count > 1:
            job.stop(wait=False)
    execution.kill()


def _wait_for_runs(
    execution: Execution, followers: dict[Path, Follower], interrupts: Interrupts
) -> None:
    """Return when every run has ended: those of a dead kernel do so by themselves."""
    deadline = time.monotonic() + _LEAVE_SECONDS
    while True:
        _look_for_runs(execution, followers)
        left = [follower for follower in followers.values() if not follower.view.state.done]
        if not left:
            return
        if interrupts.count > 1 or time.monotonic() > deadline:
            for follower in left:
                Job(follower.run).kill()
        time.sleep(_TICK)


def _show_results(execution: Execution, followers: list[Follower], console: Console) -> None:
    name = "notebook"
    notebook, page = execution.save(name)
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for title, right in (("run", False), ("ranks", True), ("state", False), ("seconds", True)):
        table.add_column(title, justify="right" if right else "left", no_wrap=True)
    table.add_column("result", overflow="fold")
    for follower in followers:
        result = Job(follower.run).peek()
        state = result.state.value
        seconds = "" if result.seconds is None else f"{result.seconds:.1f}"
        table.add_row(
            Text(short_name(follower)),
            Text(str(follower.view.world_size)),
            Text(state, style=state_style(state)),
            Text(seconds),
            Text(_finding(result)),
        )
    if followers:
        console.print()
        console.print(table)
    console.print()
    for what, path in (
        ("the notebook as it ran", notebook),
        ("the same as a web page", page),
        ("the folders of its runs", execution.runs),
    ):
        console.print(Text(f"{what:<25}{safe_text(str(path))}"))


def _finding(result: RunResult) -> str:
    """Return the accuracy that a run reported, or why it failed."""
    if result.failures:
        first = result.failures[0]
        who = "the launcher" if first.rank is None else f"rank {first.rank}"
        return safe_text(f"{who}: {first.summary.splitlines()[0]}")
    for values in result.results.values():
        accuracy = values.get("accuracy")
        if accuracy is not None:
            is_number = isinstance(accuracy, (int, float))
            return f"accuracy {accuracy:.4g}" if is_number else safe_text(f"accuracy {accuracy}")
    return ""


def _show_failure(execution: Execution) -> None:
    lines = [""]
    cell = execution.current
    if cell is not None:
        source = safe_text(cell.source).splitlines()
        more = ["    ..."] if len(source) > _SOURCE_LINES else []
        lines.append(f"Cell {cell.number} of {len(execution.cells)} failed ({cell.heading}):")
        lines += [*(f"    {line}" for line in source[:_SOURCE_LINES]), *more, ""]
    lines += safe_text(execution.failure or "").splitlines()
    Output(sys.stderr).write(lines)
