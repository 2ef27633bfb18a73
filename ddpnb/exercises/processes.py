"""The processes of a run as a tree, read from its folder: who started whom."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ddpnb.job import Job
from ddpnb.json_files import read_json

__all__ = ["ProcessTree", "process_tree"]

KEEPER = "keeper: outlives all others, writes down how the run ended"
SUPERVISOR = "supervisor: starts and stops the run, sees the kernel go"


@dataclass(frozen=True, kw_only=True)
class ProcessTree:
    """The kernel, what it started, and the ranks at the leaves."""

    owner: int | None
    """Process id of the kernel; None for a detached run."""
    chain: tuple[tuple[int, str], ...]
    """Process id and part of each process between the kernel and the ranks."""
    ranks: tuple[tuple[int, int], ...]
    """Rank and process id."""

    @property
    def count(self) -> int:
        """Processes of the run itself, without the kernel."""
        return len(self.chain) + len(self.ranks)

    def __repr__(self) -> str:
        lines = [] if self.owner is None else [f"{self.owner}  kernel: runs the notebook's cells"]
        depth = len(lines)
        for pid, part in self.chain:
            lines.append(f"{_branch(depth, last=True)}{pid}  {part}")
            depth += 1
        for rank, pid in self.ranks:
            last = rank == self.ranks[-1][0]
            lines.append(f"{_branch(depth, last=last)}{pid}  rank {rank}: runs the script")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def process_tree(job: Job) -> ProcessTree:
    """Return the processes of a job, also after they have ended: the run folder remembers them."""
    processes = read_json(job.run.processes) or {}
    launcher = job.run.read_run().get("launcher", {}).get("name", "launcher")
    parts = {
        "keeper": KEEPER,
        "supervisor": SUPERVISOR,
        "launcher": f"{launcher}: starts the ranks",
    }
    owner = job.run.read_run().get("owner")
    starts = {rank: job.run.rank(rank).starts() for rank in job.run.ranks()}
    return ProcessTree(
        owner=None if owner is None else owner["pid"],
        chain=tuple((processes[k]["pid"], part) for k, part in parts.items() if processes.get(k)),
        ranks=tuple((rank, found[-1].data["pid"]) for rank, found in starts.items() if found),
    )


def _branch(depth: int, *, last: bool) -> str:
    return "" if depth == 0 else "   " * (depth - 1) + ("└─ " if last else "├─ ")
