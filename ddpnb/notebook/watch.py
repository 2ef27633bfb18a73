"""Watch a run: read what is new in its folder, and put together all that a view shows of it.

Called by `dashboard`; it knows files and no widgets.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddpnb.failures import describe, read_exits, read_failures
from ddpnb.job import Job
from ddpnb.json_files import read_json
from ddpnb.monitor import KEPT_LINES, RunView, fold, fold_end
from ddpnb.records import Event, JobState, LogLine, RankFailure
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec
from ddpnb.tail import Tail

__all__ = ["Snapshot", "Watch", "rank_state"]

# What becomes lines at one look: ranks that flood their logs must not flood kernel and browser.
_MAX_BYTES = 1 << 20
"""Of all streams together, evenly."""
_MAX_BYTES_EACH = 65_536
_MAX_LINES = 8_000
"""Of all streams together, evenly."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All that a view shows of a run at one moment."""

    spec: LaunchSpec
    view: RunView
    folder: str
    plain: str = ""
    """The launch without ddpnb, as one shell line."""
    gpus: tuple[str, ...] = ()
    """What cuda:0, cuda:1, ... of the ranks are, for people."""
    seconds: float | None = None
    """How long the run has taken so far; None before it has begun."""
    waits_for: str = ""
    """What must happen before it can begin."""
    records: tuple[LogLine | Event, ...] = ()
    """What is new since the look before."""
    recent: tuple[LogLine, ...] = ()
    """The last lines of all ranks together, as they came."""
    unfinished: tuple[LogLine, ...] = ()
    """Lines that have no end yet, e.g. progress bars on their way."""
    failures: tuple[RankFailure, ...] = ()
    cause: str = ""
    """Why the run failed, in several lines."""
    results: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What the ranks reported; known when the run has ended."""
    trouble: str = ""
    """What went wrong with watching itself."""

    @property
    def done(self) -> bool:
        """True when nothing more will come."""
        return self.view.state.done


def rank_state(snapshot: Snapshot, rank: int) -> str:
    """Return one word for a rank: starting, running, done, failed, stopped, ended."""
    known = snapshot.view.ranks.get(rank)
    state = "starting" if known is None else known.state
    if not snapshot.done or state == "done":
        return state
    if state in ("starting", "running"):
        return "ended"  # the run is over, and nobody knows how this rank's process left
    if snapshot.view.state is JobState.STOPPED:
        return "stopped"
    later = any(f.rank == rank and f.consequence_of is not None for f in snapshot.failures)
    return "ended" if later else state


class Watch:
    """Follows one run; owns how far its files have been read."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._run: RunDir = job.run
        described = self._run.read_run()
        self._created = float(described["created"])
        self._after = list(described.get("after", ()))
        self._gpus = tuple(_gpu_name(gpu) for gpu in described.get("gpus", ()))
        self._plain = str((read_json(self._run.command) or {}).get("plain", ""))
        streams = 2 * job.spec.world_size
        self._tail = Tail(
            self._run,
            max_bytes=max(1 << 10, min(_MAX_BYTES_EACH, _MAX_BYTES // streams)),
            max_lines=max(10, _MAX_LINES // streams),
        )
        self._view = RunView(run_id=job.run_id, world_size=job.spec.world_size)
        self._recent: deque[LogLine] = deque(maxlen=KEPT_LINES)
        self._records: tuple[LogLine | Event, ...] = ()
        self._started: float | None = None

    def first(self) -> Snapshot:
        """Return what is known before anything has been read."""
        return self._snapshot()

    def look(self) -> Snapshot:
        """Read what is new; when the snapshot says `done`, it holds everything."""
        # The state first: what was written before the end is there when we read after it.
        state, reason = self._run.state()
        records = self._tail.poll(final=state.done)
        self._view = fold(self._view, records, state, reason, time.time())
        self._recent.extend(r for r in records if isinstance(r, LogLine) and r.rank is not None)
        self._records = tuple(records)
        return self._final() if state.done else self._snapshot()

    def _snapshot(self, **more: Any) -> Snapshot:
        values: dict[str, Any] = {
            "spec": self._job.spec,
            "view": self._view,
            "folder": str(self._run.path),
            "plain": self._plain,
            "gpus": self._gpus,
            "seconds": self._seconds(),
            "waits_for": self._waits_for() if self._view.state is JobState.PENDING else "",
            "records": self._records,
            "recent": tuple(self._recent),
            "unfinished": tuple(self._tail.unfinished()),
        }
        return Snapshot(**(values | more))

    def _final(self) -> Snapshot:
        self._view = fold_end(self._view, read_exits(self._run))
        failed = self._view.state in (JobState.FAILED, JobState.LOST)
        failures = read_failures(self._run) if failed else []
        ended = read_json(self._run.exit) or {}
        begun, end = ended.get("started"), ended.get("ended")
        return self._snapshot(
            seconds=end - begun if begun and end else None,
            unfinished=(),  # the last look has made lines of them
            failures=tuple(failures),
            cause=describe(self._run, failures) if failed else "",
            results=self._job.results,
        )

    def _seconds(self) -> float | None:
        if self._started is None:
            self._started = (read_json(self._run.processes) or {}).get("started")
        return None if self._started is None else time.time() - self._started

    def _waits_for(self) -> str:
        beside = [RunDir(self._run.path.parent / run_id) for run_id in self._after]
        holders = [run for run in beside if not run.is_over()]
        if not holders:
            return "starting…"
        mine = self._job.spec.gpus
        parts = []
        for run in holders:
            theirs = set(run.read_spec().gpus)
            held = [gpu for gpu in mine if gpu in theirs] or ["?"]
            parts.append(f"GPU {', '.join(held)} held by run {run.run_id}")
        return f"waiting for {'; '.join(parts)}; gpus=[...] chooses others"


def _gpu_name(gpu: Mapping[str, Any]) -> str:
    return f"GPU {gpu['index']} {gpu['name']}" + (f" (MIG {gpu['uuid']})" if gpu.get("mig") else "")
