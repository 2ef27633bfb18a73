"""Follow a run from a terminal: a live panel under its log, or plain lines where nobody looks.

    [rank 1] step 3: the loss is 0.25          a line of rank 1; its stderr goes to ours
    [launcher] ...                             what torchrun itself says, on stderr
    [ddpnb] succeeded after 3.2 s; ...         the last line

Called by `ddpnb run`; `ddpnb demo` uses the parts. Only reads the run folder, and orders a stop when
it is interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Protocol, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ddpnb.failures import read_exits
from ddpnb.job import Job
from ddpnb.monitor import RunView, fold, fold_end
from ddpnb.panel import Screen, clock, draw_run, numbers, safe_text, state_style
from ddpnb.records import Event, LogLine, RunResult
from ddpnb.rundir import RunDir
from ddpnb.tail import Tail, plain_text

__all__ = [
    "Follower",
    "Interrupts",
    "LiveView",
    "Output",
    "PlainView",
    "View",
    "is_interactive",
    "outcome",
    "room",
    "watch",
]

_PREFIX_STYLES = ("cyan", "magenta", "blue", "green", "yellow")
_LIVE_BYTES = 64 << 10
"""Of all ranks' output together, what a terminal is given in one tick; the files have the rest."""


def is_interactive(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether somebody watches this stream on a screen whose cursor can be moved."""
    # `!ddpnb run` in a notebook gets a pseudo-terminal, but its output cell moves no cursor; the
    # kernel's variable JPY_PARENT_PID tells (ipykernel 6 and 7).
    in_notebook = "JPY_PARENT_PID" in environ
    return stream.isatty() and not in_notebook and environ.get("TERM", "dumb") != "dumb"


def outcome(result: RunResult) -> str:
    """Return how a run ended, e.g. `failed (time limit of 60 s passed) after 61.0 s`."""
    why = f" ({result.reason})" if result.reason not in (None, result.state.value) else ""
    after = "" if result.seconds is None else f" after {result.seconds:.1f} s"
    return f"{result.state.value}{why}{after}"


def room(console: Console) -> Screen:
    """Return the room for a run's ranks: at most half of the screen, for the log needs some too."""
    width, height = console.size
    return Screen(width=width, rows=max(4, height // 2 - 4))


class Interrupts:
    """Ctrl-C and SIGTERM in place of KeyboardInterrupt: counted, and passed on at once."""

    def __init__(self) -> None:
        self.count = 0
        self.signum: int | None = None
        """The first signal that came."""
        self.act: Callable[[], object] = lambda: None
        """What a signal does; also while we are blocked, say by a pager that does not read on."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, _: FrameType | None) -> None:
        self.count += 1
        self.signum = self.signum or signum
        self.act()


@dataclass
class Follower:
    """What is known of a run, kept up to date from its folder."""

    run: RunDir
    max_bytes: int | None = None
    """Most bytes of one stream that become lines at one poll; None: all."""
    unfinished: dict[int, str] = field(default_factory=dict)
    """Lines that have no end yet, by rank."""

    def __post_init__(self) -> None:
        self._tail = Tail(self.run, max_bytes=self.max_bytes)
        world_size = self.run.read_spec().world_size
        self.view = RunView(run_id=self.run.run_id, world_size=world_size)

    def poll(self) -> list[LogLine | Event]:
        """Take in what is new, and return it."""
        state, reason = self.run.state()  # before the files: when it is done, they are whole
        records = self._tail.poll(final=state.done)
        self.view = fold(self.view, records, state, reason)
        self.unfinished = {}
        if state.done:
            self.view = fold_end(self.view, read_exits(self.run))
        else:
            lines = self._tail.unfinished()
            self.unfinished = {line.rank: line.text for line in lines if line.rank is not None}
        return records


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


def watch(job: Job, view: View, interrupts: Interrupts) -> None:
    """Show the run until it has ended; Ctrl-C or SIGTERM stops it, a second one kills."""
    follower = Follower(job.run, max_bytes=view.max_bytes)
    interrupts.act = lambda: job.stop(wait=False)
    told = 0
    if interrupts.count:  # it came while the run was being started
        interrupts.act()
    while True:
        records = follower.poll()
        view.show(follower, records)
        if follower.view.state.done:
            break
        if interrupts.count > told:
            told = interrupts.count
            view.say(_what_happens_now(told, job.spec.grace))
        if interrupts.count > 1:
            interrupts.act()  # the supervisor counts orders, and two at once may reach it as one
        time.sleep(view.interval)
    view.end(job.peek())


class Output:
    """One of our own streams. When nobody reads it any more, what is written goes nowhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, lines: Sequence[str]) -> None:
        """Write lines, at once."""
        if not lines:
            return
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except BrokenPipeError:
            self._give_up()
        except OSError as error:
            self._give_up()
            problem = f"[ddpnb] cannot write the log any further: {error.strerror}; the run goes on"
            if self._stream is not sys.stderr:
                Output(sys.stderr).write([problem])

    def _give_up(self) -> None:
        # Not close(): Python would try to flush what is left in the buffer, and complain at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


class PlainView:
    """Every line of every rank, with its rank before it; for pipes, files and notebooks."""

    interval = 0.1
    max_bytes = None

    def __init__(self, job: Job, stdout: TextIO, stderr: TextIO) -> None:
        self._out, self._err = Output(stdout), Output(stderr)
        self._job = job

    def __enter__(self) -> Self:
        spec = self._job.spec
        ranks = f"{spec.world_size} rank{'s' if spec.world_size > 1 else ''}"
        what = safe_text(f"{ranks} of {spec.target} on {spec.device}; run folder {self._job.folder}")
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
        self._out.write([f"[ddpnb] {outcome(result)}; run folder {safe_text(str(self._job.folder))}"])


class LiveView:
    """The log scrolls by as from any program; under it stands a panel with the state of each rank."""

    interval = 0.2

    def __init__(self, job: Job, console: Console) -> None:
        self.max_bytes = max(1 << 10, _LIVE_BYTES // (2 * job.spec.world_size))
        self._job = job
        self._console = console
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._begun = time.monotonic()
        self._said = ""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, follower: Follower, records: Sequence[LogLine | Event]) -> None:
        """Print the new lines above the panel, and draw the panel again."""
        lines = [_log_text(record) for record in records if isinstance(record, LogLine)]
        if lines:
            # The terminal wraps long lines itself, and then copies them whole.
            self._console.print(Text("\n").join(lines), soft_wrap=True)
        spec = self._job.spec
        title = f"{safe_text(spec.target)}  {clock(time.monotonic() - self._begun)}"
        done = follower.view.state.done
        note = self._said or "Ctrl-C stops the run"
        notes = [] if done else [Text(note, style="yellow" if self._said else "dim")]
        panel = draw_run(
            follower.view,
            title=title,
            screen=room(self._console),
            unfinished=follower.unfinished,
            notes=notes,
        )
        self._live.update(panel, refresh=True)

    def say(self, text: str) -> None:
        """Say it at the foot of the panel."""
        self._said = text

    def end(self, result: RunResult) -> None:
        """Leave the panel where it is; below it, how the run ended and where its files are."""
        self._live.stop()
        said = Text(outcome(result), style=state_style(result.state.value))
        folder = safe_text(str(self._job.folder))
        self._console.print(said.append(f"; run folder {folder}", style="default"), soft_wrap=True)


def _log_text(line: LogLine) -> Text:
    if line.rank is None:
        return Text(f"[launcher] {plain_text(line.text)}", style="dim")
    style = _PREFIX_STYLES[line.rank % len(_PREFIX_STYLES)]
    return Text.assemble((f"[rank {line.rank}] ", style), Text.from_ansi(line.text, end=""))


def _what_happens_now(count: int, grace: float) -> str:
    if count == 1:
        return f"stopping: the ranks may take {grace:g} s to end themselves; Ctrl-C again kills them"
    return "killing all that is left"
