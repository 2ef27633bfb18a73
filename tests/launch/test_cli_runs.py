"""`ddpnb ps, logs, attach, stop, clean` on real runs, live and ended."""

import json
import signal
import sys

import pytest

import ddpnb as package
from ddpnb.records import JobState
from tests.conftest import wait_until
from tests.launch.scripts import SLEEP, script
from tests.launch.test_cli_run import ddpnb, said, started

DEADLINE = 180
COUNT = "import sys\nfor i in range(5):\n    print('line', i)\nprint('oops', file=sys.stderr)\n"


@pytest.fixture
def ended():
    job = package.launch(script(COUNT), launcher=package.Python())
    job.wait(DEADLINE)
    return job


@pytest.fixture
def live():
    """A detached run, as another process has left it behind."""
    job = package.launch(script(SLEEP), launcher=package.Python(), detach=True, grace=1)
    wait_until(lambda: job.logs(0), what="the rank is up")
    yield job
    job.kill()


def test_ps_lists_live_and_ended_runs(ended, live):
    lines = ddpnb("ps").stdout.splitlines()

    assert [line.split()[:3] for line in lines] == [
        ["run", "state", "script"],
        [ended.run_id, "succeeded", "train.py"],
        [live.run_id, "running", "train.py"],
    ]
    told = [json.loads(line) for line in ddpnb("ps", "--json").stdout.splitlines()]
    assert [one["folder"] for one in told] == [str(ended.folder), str(live.folder)]


def test_logs_prints_all_lines_one_rank_or_the_last_ones(ended):
    part = ended.run_id[-4:]

    assert "[rank 0] line 4" in ddpnb("logs").stdout
    assert ddpnb("logs", part, "-r", "0").stdout.splitlines()[:2] == ["line 0", "line 1"]
    assert len(ddpnb("logs", part, "-n", "2").stdout.splitlines()) == 2
    assert ddpnb("logs", part, "-r", "0", "-f", "-n", "1").stdout == "line 4\noops\n"
    for rank in ("7", "x", "-1"):
        refused = ddpnb("logs", part, "-r", rank)
        assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
        assert "has ranks 0 to 0, and `launcher`" in refused.stderr


def test_logs_follows_a_live_run_until_ctrl_c(live):
    with started("logs", "-f") as process:
        wait_until(lambda: "[rank 0] up" in said())
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 130

    assert not live.done
    assert "Traceback" not in said()


def test_attach_watches_and_ctrl_c_leaves_the_run_alone(live):
    with started("attach", live.run_id) as process:
        wait_until(lambda: "[rank 0] up" in said())
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 130

    assert not live.done
    assert f"{live.run_id} goes on" in said()


def test_attach_ends_with_the_run_and_its_exit_code(live):
    with started("attach") as process:
        wait_until(lambda: "[rank 0] up" in said())
        stopped = ddpnb("stop", live.run_id)
        assert process.wait(DEADLINE) == 128 + signal.SIGTERM

    assert stopped.stdout.splitlines()[-1] == f"{live.run_id}: stopped"
    assert live.state is JobState.STOPPED


def test_stop_of_an_ended_run_only_says_so_and_now_kills(ended, live):
    found = ddpnb("stop", "--now", ended.run_id, live.run_id)

    assert found.stdout.splitlines() == [
        f"{ended.run_id}: succeeded",
        f"{live.run_id}: stopped",
    ]
    assert found.returncode == 0


def test_clean_removes_ended_runs_and_never_a_live_one(ended, live):
    assert f"would remove {ended.run_id}" in ddpnb("clean", "--keep", "0", "--dryrun").stdout
    assert ended.folder.exists()

    found = ddpnb("clean", "--keep", "0")

    assert found.stdout.startswith("removed 1 of 2 runs, ")
    assert not ended.folder.exists()
    assert not live.done


def test_a_fault_of_the_display_does_not_end_the_run(capsys):
    from ddpnb.terminal.streams import Interrupts
    from ddpnb.terminal.views import PlainView, watch

    class Broken(PlainView):
        def show(self, follower, records):
            raise OverflowError("too much")

    job = package.launch(script(COUNT), launcher=package.Python())
    with Interrupts() as interrupts:
        view = Broken(job, sys.stdout, sys.stderr)
        assert watch(job, view, interrupts)

    assert job.state is JobState.SUCCEEDED
    said = capsys.readouterr().err
    assert "the display has failed (OverflowError: too much); the run goes on" in said
