"""torchrun's agent with one addition: the exit codes that it knows go to agent.json.

Started by the launcher Torchrun; its arguments are torchrun's own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from ddpnb.json_files import reserve, write_json
from ddpnb.rundir import RunDir

__all__ = ["main"]


def main() -> None:
    """Run torchrun and leave as it would, with the ranks' exit codes on disk."""
    # A stop that comes while torch is being imported ends the agent without a traceback of it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    run = RunDir(Path(os.environ["DDPNB_RUN"]))
    with contextlib.suppress(OSError):  # full already: the ranks will say so
        reserve(run.agent)
    try:
        torchrun.main(sys.argv[1:])
    except ChildFailedError as error:
        # Only ranks that failed are listed; every other one has left with 0.
        codes = {str(rank): failure.exitcode for rank, failure in error.failures.items()}
        write_json(run.agent, {"exitcodes": codes})
        print(error, file=sys.stderr)
        sys.exit(1)
    except SignalException as error:
        print(f"torchrun was told to stop by {error.sigval.name}", file=sys.stderr)
        sys.exit(128 + error.sigval)
    write_json(run.agent, {"exitcodes": {}})


if __name__ == "__main__":
    main()
