"""The process in which torch.multiprocessing.spawn runs, so that the notebook's kernel never does.

Started by the launcher Spawn. Each rank loads the script as a spawned child does, not as __main__,
and calls one function of it.
"""

from __future__ import annotations

import ast
import contextlib
import os
import sys
from pathlib import Path

from torch.multiprocessing.spawn import (
    ProcessExitedException,
    ProcessRaisedException,
    spawn,
)

from ddpnb.call import FILLED, Parameters, arguments
from ddpnb.contract import rank_variables
from ddpnb.json_files import reserve, write_json
from ddpnb.records import Worker
from ddpnb.rundir import RunDir
from ddpnb.worker.bootstrap import Rank, enter, load_script, report_failures
from ddpnb.worker.leave import leave

__all__ = ["be_rank", "main"]


def main() -> None:
    """Spawn the ranks, wait for them, and write down how they ended."""
    run = RunDir(Path(os.environ["DDPNB_RUN"]))
    with contextlib.suppress(OSError):  # full already: the ranks will say so
        reserve(run.agent)
    nprocs = run.read_spec().nproc_per_node
    function = run.read_run()["launcher"]["function"]
    context = spawn(  # type: ignore[no-untyped-call]
        be_rank, args=(function,), nprocs=nprocs, join=False
    )
    returncode = 0
    try:
        while not context.join():
            pass  # returns False each time that one more rank has left with 0
    except (ProcessRaisedException, ProcessExitedException) as error:
        print(error, file=sys.stderr)
        returncode = 1
    codes = {str(rank): process.exitcode for rank, process in enumerate(context.processes)}
    write_json(run.agent, {"exitcodes": codes})
    sys.exit(returncode)


def be_rank(local_rank: int, function: str) -> None:
    """Be one rank: what mp.spawn calls in each process."""
    run = RunDir(Path(os.environ["DDPNB_RUN"]))
    world_size = run.read_spec().nproc_per_node
    os.environ.update(rank_variables(local_rank, world_size, run.run_id, os.environ))
    rank = enter(run, Worker.from_env())
    report_failures(rank, lambda: _call(rank, function))
    leave(0)  # what it raises, mp.spawn takes to the parent


def _call(rank: Rank, function: str) -> None:
    """Load the script and call its function, rank, local_rank and world_size filled by name."""
    module = load_script(rank, "__mp_main__")
    node = next(
        node
        for node in ast.parse(rank.snapshot.read_bytes()).body
        if isinstance(node, ast.FunctionDef) and node.name == function
    )
    filled = {name: getattr(rank.worker, name) for name in FILLED}
    args, keywords = arguments(Parameters.of(node), rank.spec.args, filled)
    getattr(module, function)(*args, **keywords)


if __name__ == "__main__":
    main()
