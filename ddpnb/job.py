"""Job: the handle on a run. It holds only the run's folder, so it can be made again anywhere."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

from ddpnb.errors import RunDirError, WorkerFailedError
from ddpnb.failures import describe, read_exits, read_failures
from ddpnb.json_files import read_json
from ddpnb.lines import plain_text
from ddpnb.monitor import metric_columns
from ddpnb.process import ProcessId, command_line
from ddpnb.records import JobState, LogLine, RunResult
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec
from ddpnb.tail import read_lines

__all__ = ["Job", "Metrics"]

_POLL_SECONDS = 0.05
_KEEPERS = {"ddpnb.launchers.supervise", "ddpnb.warm.process"}
"""The modules that a keeper was started with; one of them is a word of its command."""

logger = logging.getLogger(__name__)


class Metrics(dict[str, list[Any]]):
    """Columns of one length: rank, step, time (Unix, in seconds), and one for each metric.

    None stands where a metric was not logged.
    """

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with these columns; ImportError where pandas is missing."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas") from error
        return pandas.DataFrame(self)


class _Interrupted(asyncio.CancelledError):
    """The cancelling of an `await job` that ends its run, told in one line by a notebook."""

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}. What shall go on without its cell: job.detach() first."]


class Job:
    """One launched run: its state, its output, its results.

    `await job` waits in a cell while clicks are still seen; `job.wait()` blocks. Both return a
    RunResult or raise WorkerFailedError, and both stop the job when they are interrupted, unless it
    is detached.
    """

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.spec: LaunchSpec = run.read_spec()
        """What was asked for."""

    @property
    def run_id(self) -> str:
        """Name of the run, unique in its folder."""
        return self.run.run_id

    @property
    def folder(self) -> Path:
        """The run folder: everything that is known of this job."""
        return self.run.path

    @property
    def state(self) -> JobState:
        """Where the run stands now."""
        return self.run.state()[0]

    @property
    def reason(self) -> str | None:
        """Why the run was ended from outside, or None."""
        return self.run.state()[1]

    @property
    def done(self) -> bool:
        """True when nothing more will happen."""
        return self.state.done

    @property
    def results(self) -> dict[int, dict[str, Any]]:
        """What each rank gave to `report(...)` so far, by rank."""
        found = {rank: self.run.rank(rank).last("result") for rank in self.run.ranks()}
        return {rank: result for rank, result in found.items() if result is not None}

    def metrics(self) -> Metrics:
        """Return all that was given to `log(...)` as columns: rank, step, time and one a metric."""
        events = (e for rank in self.run.ranks() for e in self.run.rank(rank).read_events())
        return Metrics(metric_columns(events))

    def logs(
        self, rank: int | Literal["launcher"] | None = None, *, last: int | None = None
    ) -> list[LogLine]:
        """Return the lines so far of one rank, of the launcher, or of all ranks merged by time.

        Args:
            last: only so many, the newest; what a long run wrote before is then not read.
        """
        if rank is None or rank == "launcher":
            return read_lines(self.run, rank, last=last)
        if not 0 <= rank < self.spec.world_size:
            raise IndexError(
                f"rank is {rank}, but {self.run_id} has ranks 0 to {self.spec.world_size - 1}"
            )
        return read_lines(self.run, [rank], last=last)

    def stop(self, *, wait: bool = True) -> JobState:
        """End the run politely: SIGINT to its ranks, after `grace` seconds SIGTERM, then SIGKILL.

        Args:
            wait: False returns at once, as a button's callback must.
        """
        while not self.run.processes.exists() and not self.done:
            time.sleep(_POLL_SECONDS)  # another process is just launching it
        self._order(signal.SIGTERM)
        while wait and not self.done:
            time.sleep(_POLL_SECONDS)
        return self.state

    def kill(self, *, wait: bool = True) -> JobState:
        """End the run now, with SIGKILL to everything that it started.

        Args:
            wait: False returns at once, as a signal's handler must.
        """
        self._order(signal.SIGUSR2)
        while wait and not self.done:
            self._order(signal.SIGUSR2)
            time.sleep(_POLL_SECONDS)
        return self.state

    def detach(self) -> None:
        """Let the run go on when this kernel ends."""
        self._order(signal.SIGUSR1)

    def wait(self, timeout: float | None = None) -> RunResult:
        """Block until the run has ended; return its result, or raise WorkerFailedError.

        An interrupt (the notebook's stop button, Ctrl-C) stops the job, a second one kills it.

        Args:
            timeout: seconds after which TimeoutError is raised; the job goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not self.done:
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"{self.run_id} still runs after {timeout:g} s")
                time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            self._stop_or_kill()
            raise
        return self._outcome()

    def result(self, timeout: float | None = None) -> RunResult:
        """Return the result of the run, as `wait` does."""
        return self.wait(timeout)

    def __await__(self) -> Generator[Any, None, RunResult]:
        return self._wait_async().__await__()

    async def _wait_async(self) -> RunResult:
        try:
            while not self.done:
                # Polling, not an event: the notebook's interrupt only arrives when the loop wakes.
                await asyncio.sleep(_POLL_SECONDS)
        except asyncio.CancelledError:
            if not self._is_detached():
                logger.warning("interrupted: stopping %s", self.run_id)
                self.stop(wait=False)
                raise _Interrupted(f"{self.run_id} is being stopped") from None
            raise
        # In a thread: all metrics of a long run take seconds to read, and the loop has other tasks.
        return await asyncio.to_thread(self._outcome)

    def peek(self) -> RunResult:
        """Return what is known now as a RunResult, without waiting and without raising."""
        state, reason = self.run.state()
        ended = read_json(self.run.exit) or {}
        begun, finished = ended.get("started"), ended.get("ended")
        return RunResult(
            run_id=self.run_id,
            state=state,
            reason=reason,
            returncode=ended.get("returncode"),
            seconds=finished - begun if begun and finished else None,
            exits=tuple(read_exits(self.run)),
            failures=tuple(read_failures(self.run)) if state is JobState.FAILED else (),
            results=self.results,
            metrics=self.metrics(),
        )

    def __repr__(self) -> str:
        try:
            state, reason = self.run.state()
        except RunDirError as error:  # removed, or spoilt
            return f"<Job {plain_text(self.run_id)}: {plain_text(str(error))}>"
        why = f" ({reason})" if reason and reason != state.value else ""
        width = self.spec.world_size
        what = f"{width} {'rank' if width == 1 else 'ranks'} of {self.spec.target}"
        return plain_text(f"<Job {self.run_id}: {state.value}{why}, {what}>")

    def _outcome(self) -> RunResult:
        result = self.peek()
        if result.state in (JobState.FAILED, JobState.LOST):
            raise WorkerFailedError(describe(self.run, list(result.failures)), result)
        return result

    def _order(self, signum: int) -> None:
        processes = read_json(self.run.processes)
        if processes is None or self.done:
            return
        keeper = ProcessId.from_json(processes["keeper"])
        words = command_line(keeper.pid) if keeper.is_alive() else None
        if words and not _KEEPERS.intersection(words):
            raise RunDirError(f"{self.run.processes} names a process that is no supervisor")
        if not keeper.send(signum) and keeper.is_elsewhere():
            raise RunDirError(
                f"{self.run_id} runs on {keeper.host}, and can only be stopped there:"
                f" `ddpnb stop {self.run_id}`"
            )

    def _is_detached(self) -> bool:
        return bool((read_json(self.run.processes) or {}).get("detached"))

    def _stop_or_kill(self) -> None:
        """Stop the run; another interrupt meanwhile kills it, and cannot undo the stop."""
        again: list[int] = []
        # In the main thread, to which Python gives every interrupt.
        before = signal.signal(signal.SIGINT, lambda signum, _: again.append(signum))
        try:
            if self._is_detached():
                return
            logger.warning("interrupted: stopping %s", self.run_id)
            self.stop(wait=False)
            while not (self.done or again):
                time.sleep(_POLL_SECONDS)
            self.kill()
        finally:
            signal.signal(signal.SIGINT, before or signal.default_int_handler)
