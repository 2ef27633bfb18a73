"""Two notebooks that keep their runs in one folder, as two notebooks side by side do."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

import ddpnb
from ddpnb.records import JobState
from tests.conftest import wait_until

EACH = 6

WAIT = """
import pathlib, time
while not pathlib.Path("end").exists():
    time.sleep(0.05)
"""
LAUNCH = f"""
import ddpnb
jobs = [ddpnb.launch("train.py", launcher=ddpnb.Python(), grace=1.0) for _ in range({EACH})]
"""


@contextlib.contextmanager
def kernel(folder: Path) -> Iterator[tuple[KernelManager, Any]]:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(folder))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=240)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def test_each_kernel_sees_all_runs_and_takes_only_its_own_with_it(tmp_path):
    (tmp_path / "train.py").write_text(WAIT)
    with kernel(tmp_path) as (first, one), kernel(tmp_path) as (_, two):
        one.execute(LAUNCH)
        two.execute(LAUNCH)
        wait_until(lambda: states().count(JobState.RUNNING) == 2 * EACH, what="all of them run")
        assert len({job.run_id for job in ddpnb.runs()}) == 2 * EACH

        os.kill(first.provisioner.pid, signal.SIGKILL)  # our own child, not reaped yet

        wait_until(lambda: states().count(JobState.STOPPED) == EACH, what="its own runs end")
        assert states().count(JobState.RUNNING) == EACH
        assert {job.peek().reason for job in ddpnb.runs() if job.done} == {"owner died"}
        (tmp_path / "end").touch()
        wait_until(lambda: states().count(JobState.SUCCEEDED) == EACH, what="the others go on")


def states() -> list[JobState]:
    return [job.state for job in ddpnb.runs()]
