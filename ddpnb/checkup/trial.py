"""Launch `reduce` on real ranks, and print how that went, as JSON.

    python -P -m ddpnb.checkup.trial cpu 2 180

In a process of its own: no view of it appears in the notebook, the runs go to the folder that its
DDPNB_RUNS names, and when it is killed its ranks end, as those of any owner.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ddpnb.api import launch
from ddpnb.errors import DdpnbError, WorkerFailedError
from ddpnb.records import JobState, RunResult
from ddpnb.rundir import runs_folder

__all__ = ["trial"]


def trial(device: str, nproc_per_node: int, timeout: float, cwd: Path) -> dict[str, Any]:
    """Return what came of one launch: seconds, or who failed first and of what."""
    try:
        job = launch(
            module="ddpnb.checkup.reduce",
            name="doctor",
            nproc_per_node=nproc_per_node,
            device=device,
            timeout=timeout,
            cwd=cwd,
        )
        result = job.wait()
    except WorkerFailedError as error:
        return {"error": _first_words(error.result), "hint": _hint(error.result)}
    except DdpnbError as error:
        return {"error": str(error), "hint": ""}
    if result.state is not JobState.SUCCEEDED:
        return {"error": f"{result.state.value}: {result.reason}", "hint": ""}
    return {"seconds": result.seconds, **result.results[0]}


def _first_words(result: RunResult) -> str:
    if not result.failures:
        return result.reason or result.state.value
    first = result.failures[0]
    who = "the launcher" if first.rank is None else f"rank {first.rank}"
    why = f" ({result.reason})" if result.reason else ""
    return f"{who}: {first.summary}{why}"


def _hint(result: RunResult) -> str:
    return result.failures[0].hint if result.failures else ""


if __name__ == "__main__":
    runs = runs_folder()
    runs.mkdir(parents=True, exist_ok=True)
    told = trial(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), runs)
    print(json.dumps(told))
