"""When each rank of a run began, reached what it logged, and ended: read from the run folder."""

from __future__ import annotations

from ddpnb.failures import read_exits
from ddpnb.job import Job

__all__ = ["launch_timeline"]


def launch_timeline(job: Job) -> dict[int, dict[str, float]]:
    """Return for each rank the seconds from the launch to each thing that it did, in their order.

    The first is "start", when the rank's process runs its first line, and the last is "exit". In
    between stands the first time of each name that the rank gave to `log(...)`.
    """
    launched = float(job.run.read_run()["created"])
    found: dict[int, dict[str, float]] = {}
    for rank in job.run.ranks():
        moments: dict[str, float] = {}
        for event in job.run.rank(rank).read_events():
            names = ["start"] if event.kind == "start" else list(event.data)
            for name in names if event.kind in ("start", "metric") else ():
                moments.setdefault(name, event.time - launched)
        found[rank] = moments
    for exit_ in read_exits(job.run):
        if exit_.time is not None:
            found.setdefault(exit_.rank, {})["exit"] = exit_.time - launched
    return found
