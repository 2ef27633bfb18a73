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
from ddpnb.execution import Execution, read_notebook
from ddpnb.job import Job
from ddpnb.lab import lessons_folder
from ddpnb.records import RunResult
from ddpnb.run_list import readable_runs
from ddpnb.terminal.demo_views import LiveDemo, PlainDemo, View, short_name
from ddpnb.terminal.follower import Follower
from ddpnb.terminal.pane import console
from ddpnb.terminal.panel import safe_text, state_style
from ddpnb.terminal.streams import Interrupts, Output, is_interactive

__all__ = ["FIRST_LESSON", "run_demo"]

FIRST_LESSON = "00_launch_first_job.ipynb"

_TICK = 0.2
_SOURCE_LINES = 6
_LEAVE_SECONDS = 60.0
"""How long runs may take to stop once their kernel is gone: their grace, and then some."""
_START_SECONDS = 10.0
"""Within this time a supervisor that was started has said so, on any machine."""


def run_demo(folder: Path | None = None, notebook: Path | None = None) -> int:
    """Run the notebook in a new folder inside `folder`; return the exit code of `ddpnb demo`."""
    path = notebook or lessons_folder() / FIRST_LESSON
    nb = read_notebook(path)  # before the folder is made: it may be none
    execution = Execution(nb, path.stem, _new_folder(folder))
    screen = console()
    view: View = LiveDemo(screen) if is_interactive(sys.stdout) else PlainDemo()
    followers: dict[Path, Follower] = {}
    with Interrupts() as interrupts:
        with view:
            execution.start()
            kernel_ended = None
            while kernel_ended is None or not _all_over(followers, kernel_ended, interrupts):
                time.sleep(_TICK)
                if interrupts.count:
                    execution.kill()
                if execution.done and kernel_ended is None:
                    kernel_ended = time.monotonic()
                _look_for_runs(execution, followers)
                view.show(execution, list(followers.values()))
        _show_results(execution, list(followers.values()), screen)
    if interrupts.signum:
        screen.print(Text("interrupted: the kernel and its runs were stopped", style="yellow"))
        return 128 + interrupts.signum
    if execution.failure is not None:
        _show_failure(execution)
        return 1
    return 0


def _new_folder(chosen: Path | None) -> Path:
    """Make and return a folder for this demonstration alone; nothing that was there is touched."""
    parent = (chosen or Path("ddpnb-demo")).expanduser().absolute()
    if chosen is None and not os.access(parent if parent.exists() else parent.parent, os.W_OK):
        parent = Path(tempfile.mkdtemp(prefix="ddpnb-demo-"))
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
    for run in readable_runs(execution.runs):
        if run.path not in followers:
            followers[run.path] = Follower(run, max_bytes=1 << 14)
    for follower in followers.values():
        if not follower.view.state.done:
            follower.poll()


def _all_over(followers: dict[Path, Follower], kernel_ended: float, interrupts: Interrupts) -> bool:
    """Return whether every run has ended, as those of a kernel that is gone do by themselves."""
    waited = time.monotonic() - kernel_ended
    left = [follower for follower in followers.values() if not follower.view.state.done]
    # A launch that was cut short has a folder and no processes, and never will.
    started = [follower for follower in left if follower.run.processes.exists()]
    if interrupts.count > 1 or waited > _LEAVE_SECONDS:
        for follower in started:
            Job(follower.run).kill()
    return not left or (not started and waited > _START_SECONDS)


def _show_results(execution: Execution, followers: list[Follower], screen: Console) -> None:
    notebook, page = execution.save()
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
        screen.print()
        screen.print(table)
    screen.print()
    for what, path in (
        ("the notebook as it ran", notebook),
        ("the same as a web page", page),
        ("the folders of its runs", execution.runs),
    ):
        screen.print(Text(f"{what:<25}{safe_text(_from_here(path))}"), soft_wrap=True)


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


def _from_here(path: Path) -> str:
    """Return the path as short as it can be typed in this folder."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


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
