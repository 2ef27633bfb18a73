"""Fold the records of a run into what a person wants to see of it now. Pure: no files, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddpnb.records import Event, Exit, JobState, LogLine

__all__ = [
    "KEPT_LINES",
    "RankView",
    "RunView",
    "fold",
    "fold_end",
    "metric_columns",
    "stragglers",
]

KEPT_LINES = 200
"""Lines of each rank that a view keeps; the files have them all."""


@dataclass(frozen=True, kw_only=True)
class RankView:
    """What is known of one rank."""

    rank: int
    local_rank: int = 0
    pid: int | None = None
    attempt: int = 0
    started: float | None = None
    """Unix time in seconds at which the rank's process began."""
    step: int | None = None
    step_time: float | None = None
    """Unix time in seconds of the newest metric, by the rank's clock."""
    rate: float | None = None
    """Steps a second, the newest ones counting most."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The newest value of each metric."""
    progress: Mapping[str, Any] = field(default_factory=dict)
    """The newest progress event: n, total, name."""
    progress_began: tuple[float, int] | None = None
    """Time and n of the first progress event under this name."""
    progress_time: float | None = None
    lines: tuple[LogLine, ...] = ()
    """The last `KEPT_LINES` lines."""
    line_count: int = 0
    last_time: float | None = None
    """Unix time in seconds at which anything of this rank was read last."""
    exit: Exit | None = None

    @property
    def seconds_left(self) -> float | None:
        """How long the progress will take if it goes on as so far; None: nobody can tell."""
        total, n = self.progress.get("total"), self.progress.get("n", 0)
        if not total or self.progress_began is None or self.progress_time is None:
            return None
        began, first = self.progress_began
        if n <= first or self.progress_time <= began:
            return None
        return float((total - n) * (self.progress_time - began) / (n - first))

    @property
    def state(self) -> str:
        """One word for a person: starting, running, done, failed."""
        if self.exit is not None:
            return (
                "done" if self.exit.exitcode == 0 else "failed" if self.exit.exitcode else "ended"
            )
        return "starting" if self.started is None else "running"


@dataclass(frozen=True, kw_only=True)
class RunView:
    """What is known of a run."""

    run_id: str
    world_size: int
    state: JobState = JobState.PENDING
    reason: str | None = None
    ranks: Mapping[int, RankView] = field(default_factory=dict)
    launcher: tuple[LogLine, ...] = ()
    """The last lines of the launcher's own output."""

    @property
    def step(self) -> int | None:
        """The step that every rank which counts steps has reached."""
        steps = [rank.step for rank in self.ranks.values() if rank.step is not None]
        return min(steps) if steps else None

    @property
    def seconds_left(self) -> float | None:
        """How long the slowest rank's progress will take; None: nobody can tell, or it is over."""
        left = [rank.seconds_left for rank in self.ranks.values()]
        known = [seconds for seconds in left if seconds is not None]
        return None if self.state.done else max(known, default=None)

    @property
    def metrics(self) -> dict[str, float]:
        """The newest value of each metric, averaged over the ranks that log it."""
        values: dict[str, list[float]] = {}
        for rank in self.ranks.values():
            for name, value in rank.metrics.items():
                values.setdefault(name, []).append(value)
        return {name: sum(numbers) / len(numbers) for name, numbers in values.items()}


def fold(
    view: RunView,
    records: Iterable[LogLine | Event],
    state: JobState,
    reason: str | None,
    now: float | None = None,
) -> RunView:
    """Return the view with new records and the run's state taken in.

    Args:
        now: Unix time in seconds at which the records were read.
    """
    ranks: dict[int, RankView] = dict(view.ranks)
    lines: dict[int | None, list[LogLine]] = {}
    told: dict[int, dict[str, Any]] = {}
    for record in records:
        if isinstance(record, LogLine):
            lines.setdefault(record.rank, []).append(record)
        else:
            if record.rank not in told:
                told[record.rank] = vars(ranks.get(record.rank, RankView(rank=record.rank))).copy()
            _take_event(told[record.rank], record)
    # One value a rank, not one an event: a run that is attached to late may have a million.
    for number, values in told.items():
        ranks[number] = RankView(**values | {"last_time": now or values["last_time"]})
    for rank, new in lines.items():
        if rank is not None:
            old = ranks.get(rank, RankView(rank=rank))
            kept = (*old.lines, *new)[-KEPT_LINES:]
            ranks[rank] = replace(
                old,
                lines=kept,
                line_count=old.line_count + sum(line.stands_for for line in new),
                last_time=now or old.last_time,
            )
    launcher = (*view.launcher, *lines.get(None, ()))[-KEPT_LINES:]
    return replace(view, ranks=ranks, launcher=launcher, state=state, reason=reason)


def fold_end(view: RunView, exits: Iterable[Exit]) -> RunView:
    """Return the view with the exit of each rank taken in."""
    ranks = dict(view.ranks)
    for exit_ in exits:
        ranks[exit_.rank] = replace(ranks.get(exit_.rank, RankView(rank=exit_.rank)), exit=exit_)
    return replace(view, ranks=ranks)


def stragglers(view: RunView) -> list[int]:
    """Return the ranks that have fallen behind the leading one by 5 % of its steps, at least 3."""
    steps = {rank.rank: rank.step for rank in view.ranks.values() if rank.step is not None}
    lead = max(steps.values(), default=0)
    return [rank for rank, step in sorted(steps.items()) if lead - step >= max(3, lead / 20)]


def metric_columns(events: Iterable[Event]) -> dict[str, list[Any]]:
    """Return all metric events as columns of equal length: rank, step, time and one a metric.

    None stands where a metric was not logged.
    """
    rows = [event for event in events if event.kind == "metric"]
    rows.sort(key=lambda event: event.time)
    names = sorted({name for event in rows for name in event.data})
    columns: dict[str, list[Any]] = {
        "rank": [event.rank for event in rows],
        "step": [event.step for event in rows],
        "time": [event.time for event in rows],
    }
    return columns | {name: [event.data.get(name) for event in rows] for name in names}


def _take_event(rank: dict[str, Any], event: Event) -> None:
    """Take an event into the fields of a RankView."""
    data = event.data
    if event.kind == "start":
        rank["started"] = event.time
        rank["pid"] = data.get("pid")
        rank["attempt"] = data.get("attempt", 0)
        rank["local_rank"] = data.get("local_rank", 0)
    elif event.kind == "metric":
        rank["rate"] = _rate(rank["rate"], rank["step"], rank["step_time"], event)
        rank["step"], rank["step_time"] = event.step, event.time
        rank["metrics"] = {**rank["metrics"], **data}
    elif event.kind == "progress":
        if rank["progress_began"] is None or rank["progress"].get("name") != data.get("name"):
            rank["progress_began"] = (event.time, int(data.get("n") or 0))
        rank["progress"], rank["progress_time"] = data, event.time


def _rate(
    rate: float | None, step: int | None, step_time: float | None, event: Event
) -> float | None:
    """Return steps a second after this metric, smoothed over about five of them."""
    if step is None or event.step is None or step_time is None:
        return rate
    steps, seconds = event.step - step, event.time - step_time
    if steps <= 0 or seconds <= 0:
        return rate  # a second metric of the same step, or a clock that was set back
    now = steps / seconds
    return now if rate is None else 0.8 * rate + 0.2 * now
