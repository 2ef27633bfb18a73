"""Follow a run from a terminal: a live panel under its log, or plain lines where nobody looks.

    [rank 1] step 3: the loss is 0.25          a line of rank 1; its stderr goes to ours
    [launcher] ...                             what torchrun itself says, on stderr
    [ddpnb] succeeded after 3.2 s; ...         the last line

Called by `ddpnb run`. Reads the run folder, and orders a stop when it is interrupted.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.text import Text

from ddpnb.errors import WorkerFailedError
from ddpnb.job import Job
from ddpnb.lines import plain_text
from ddpnb.records import Event, LogLine, RunResult
from ddpnb.terminal.follower import Follower, outcome
from ddpnb.terminal.pane import Pane, console
from ddpnb.terminal.panel import Screen, clock, draw_run, numbers, safe_text, state_style
from ddpnb.terminal.streams import Interrupts, Output, is_interactive
from ddpnb.words import duration

__all__ = ["LiveView", "PlainView", "View", "result_of", "view_of", "watch"]

_PREFIX_STYLES = ("cyan", "magenta", "blue", "green", "yellow")
_LIVE_BYTES = 64 << 10
"""Of all ranks' output together, what a terminal is given in one tick; the files have the rest."""


logger = logging.getLogger(__name__)


class View(Protocol):
    """A way to show a run while it goes on."""

    interval: float
    """Seconds between two looks at the run."""
    max_bytes: int | None

    def show(self, follower: Follower, records: Sequence[LogLine | Event]) -> None:
        """Show what is new."""

    def say(self, text: str) -> None:
        """Say something to whoever pressed Ctrl-C."""

    def end(self, result: RunResult) -> None:
        """Show how it ended."""


def view_of(job: Job, *, stops: bool = True) -> LiveView | PlainView:
    """Return the way to show a run here: a live panel on a terminal, plain lines elsewhere.

    Args:
        stops: whether Ctrl-C will stop the run, or only the watching.
    """
    if is_interactive(sys.stdout):
        return LiveView(job, console(), stops=stops)
    return PlainView(job, sys.stdout, sys.stderr)


def watch(job: Job, view: View, interrupts: Interrupts, *, stops: bool = True) -> bool:
    """Show the run until it has ended; return whether it has.

    Args:
        stops: Ctrl-C or SIGTERM stops the run, a second one kills it. False: it ends the watching.
    """
    follower = Follower(job.run, max_bytes=view.max_bytes)

    def obey() -> None:
        if interrupts.count > 1:
            job.kill(wait=False)
        else:
            job.stop(wait=False)

    if stops:
        interrupts.act = obey
    told, shown = 0, True
    if interrupts.count:  # it came while the run was being started
        interrupts.act()
    while True:
        done = job.done  # before the look: when it is done, the files are whole
        if shown:
            try:
                view.show(follower, follower.poll())
            except Exception as error:  # a fault of the display must not cost the training
                logger.debug("the display of %s has failed", job.run_id, exc_info=True)
                shown = False
                problem = f"the display has failed ({type(error).__name__}: {error})"
                folder = job.folder
                say = f"[ddpnb] {problem}; the run goes on, and its files are in {folder}"
                Output(sys.stderr).write([safe_text(say)])
        if shown and follower.behind:
            continue
        if done:
            break
        if interrupts.count and not stops:
            return False
        if interrupts.count > told:
            told = interrupts.count
            view.say(_what_happens_now(told, job.spec.grace))
        time.sleep(view.interval)
    view.end(job.peek())
    return True


def result_of(job: Job) -> RunResult:
    """Return how an ended run ended; why it failed, if it has, goes to stderr."""
    try:
        return job.result()
    except WorkerFailedError as error:
        Output(sys.stderr).write(["", *safe_text(str(error)).split("\n")])
        return error.result


class PlainView:
    """Every line of every rank, with its rank before it; for pipes, files and notebooks."""

    interval: float = 0.1
    max_bytes: int | None = None

    def __init__(self, job: Job, stdout: TextIO, stderr: TextIO) -> None:
        self._out, self._err = Output(stdout), Output(stderr)
        self._job = job

    def __enter__(self) -> Self:
        spec = self._job.spec
        ranks = f"{spec.world_size} rank{'s' if spec.world_size > 1 else ''}"
        what = safe_text(
            f"{ranks} of {spec.target} on {spec.device}; run folder {self._job.folder}"
        )
        self._out.write([f"[ddpnb] {what}"])
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, follower: Follower, records: Sequence[LogLine | Event]) -> None:
        """Write the new lines, and the numbers that rank 0 logged, as plain torchrun would."""
        out: list[str] = []
        err: list[str] = []
        for record in records:
            if isinstance(record, LogLine):
                who = "launcher" if record.rank is None else f"rank {record.rank}"
                to = out if record.stream == "stdout" else err
                to.append(f"[{who}] {plain_text(record.text)}")
            elif record.kind == "metric" and record.rank == 0:
                out.append(f"[rank 0] step {record.step}  {numbers(record.data)}")
        self._out.write(out)
        self._err.write(err)

    def say(self, text: str) -> None:
        """Write to stderr, with our name."""
        self._err.write([f"[ddpnb] {text}"])

    def end(self, result: RunResult) -> None:
        """Write the last line."""
        self._out.write(
            [f"[ddpnb] {outcome(result)}; run folder {safe_text(str(self._job.folder))}"]
        )


class LiveView:
    """The log scrolls by as from any program; under it a panel shows where each rank is."""

    interval: float = 0.2
    max_bytes: int | None

    def __init__(self, job: Job, screen: Console, *, stops: bool = True) -> None:
        self._note = "Ctrl-C stops the run" if stops else "Ctrl-C stops watching; the run goes on"
        self.max_bytes = max(1 << 10, _LIVE_BYTES // (2 * job.spec.world_size))
        self._job = job
        self._screen = screen
        self._pane = Pane(screen)
        self._said = ""

    def __enter__(self) -> Self:
        self._pane.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._pane.__exit__()

    def show(self, follower: Follower, records: Sequence[LogLine | Event]) -> None:
        """Print the new lines above the panel, and draw the panel again."""
        # Without the launcher's: the panel has its last line, and torchrun's long report of a
        # failure says again what the rank has said already.
        logged = [record for record in records if isinstance(record, LogLine)]
        lines = [_log_text(line.rank, line.text) for line in logged if line.rank is not None]
        if lines:
            self._pane.print(Text("\n").join(lines))
        spec = self._job.spec
        title = f"{safe_text(spec.target)}  {clock(follower.seconds)}"
        if left := follower.view.seconds_left:
            title += f"  about {duration(left)} to go"
        done = follower.view.state.done
        note = self._said or self._note
        notes = [] if done else [Text(note, style="yellow" if self._said else "dim")]
        panel = draw_run(
            follower.view,
            title=title,
            screen=Screen.of(self._screen),
            unfinished=follower.unfinished,
            notes=notes,
        )
        self._pane.draw(panel)

    def say(self, text: str) -> None:
        """Say it at the foot of the panel."""
        self._said = text

    def end(self, result: RunResult) -> None:
        """Leave the panel where it is; below it, how the run ended and where its files are."""
        self._pane.__exit__()
        said = Text(outcome(result), style=state_style(result.state.value))
        folder = safe_text(str(self._job.folder))
        self._pane.print(said.append(f"; run folder {folder}", style="default"))


def _log_text(rank: int, text: str) -> Text:
    style = _PREFIX_STYLES[rank % len(_PREFIX_STYLES)]
    return Text.assemble((f"[rank {rank}] ", style), Text.from_ansi(text, end=""))


def _what_happens_now(count: int, grace: float) -> str:
    if count == 1:
        return (
            f"stopping: the ranks may take {grace:g} s to end themselves; Ctrl-C again kills them"
        )
    return "killing all that is left"
