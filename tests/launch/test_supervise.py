"""Nothing is left behind, and the state tells the truth.

`test_faults.py` has the faults that come alone; here is what needs a scene of its own.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

import ddpnb
from ddpnb.json_files import read_json
from ddpnb.process import ProcessId
from ddpnb.records import JobState
from tests.conftest import wait_until
from tests.launch.scripts import SLEEP, STUBBORN, script

DEADLINE = 180


def pids_of(job):
    """Return every process that has the run in its environment, as ProcessIds."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
        except psutil.Error:
            continue
        if environ.get("DDPNB_RUN") == str(job.folder):
            found.append(ProcessId.of(process.pid))
    return [process for process in found if process is not None]


def launched(code, *, nproc_per_node=2, launcher=None, **options):
    """Launch a script and return its job when all ranks have printed."""
    job = ddpnb.launch(script(code), nproc_per_node=nproc_per_node, launcher=launcher, **options)

    def up():
        return [line for line in job.logs() if str(line) == "up"]

    wait_until(lambda: len(up()) == nproc_per_node, what="every rank is up")
    return job


def ended(job, processes):
    wait_until(lambda: job.done, what=f"{job} is done")
    wait_until(lambda: not [p for p in processes if p.is_alive()], what="all are gone")
    return job.run.state()


@pytest.mark.parametrize(
    "launcher", [ddpnb.Torchrun(), ddpnb.Spawn(), ddpnb.Python()], ids=lambda one: one.name
)
def test_stop_ends_ranks_that_refuse_and_their_helpers(launcher):
    code = f"def main():\n    exec({STUBBORN!r})\nif __name__ == '__main__':\n    main()\n"
    nproc = 1 if launcher.name == "python" else 2
    job = launched(code, nproc_per_node=nproc, launcher=launcher, grace=0.5)
    processes = pids_of(job)

    assert job.stop() is JobState.STOPPED

    assert len(processes) >= 2 * nproc
    assert ended(job, processes) == (JobState.STOPPED, "stopped")
    assert "no" in [str(line) for line in job.logs(0)]


@pytest.mark.parametrize("max_restarts", [0, 1])
def test_stop_lets_a_rank_save_while_the_other_leaves_at_once(max_restarts):
    code = """
import os, sys, time
print("up")
try:
    time.sleep(600)
except KeyboardInterrupt:
    if os.environ["RANK"] == "1":
        sys.exit(0)
    print("saving")
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        time.sleep(0.05)
    print("saved")
"""
    job = launched(code, launcher=ddpnb.Torchrun(max_restarts=max_restarts), grace=60)

    assert job.stop() is JobState.STOPPED

    assert [str(line) for line in job.logs(0)] == ["up", "saving", "saved"]
    assert [str(line) for line in job.logs(1)] == ["up"]


def test_a_stop_after_a_rank_has_failed_does_not_hide_the_failure():
    code = """
import os, signal, time
if os.environ["RANK"] == "1":
    print("up")
    raise ValueError("the cause")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up")
time.sleep(600)
"""
    job = launched(code, grace=0.5)
    wait_until(lambda: job.run.rank(1).error(0).exists(), what="rank 1 has failed")

    assert job.stop() is JobState.FAILED

    with pytest.raises(ddpnb.WorkerFailedError, match="First to fail: rank 1, ValueError"):
        job.result()


def test_kill_does_not_wait_for_the_grace():
    job = launched(STUBBORN, grace=3600)

    assert job.kill() is JobState.STOPPED


def test_killing_the_launcher_leaves_no_helper_of_a_rank():
    job = launched(STUBBORN)
    processes = pids_of(job)

    ProcessId.from_json(read_json(job.run.processes)["launcher"]).send(signal.SIGKILL)

    assert ended(job, processes) == (JobState.FAILED, None)


def launched_by_another(*, detach=False, before=""):
    """Launch from a process that is then killed; return the job and the processes that it had."""
    script(SLEEP)
    code = (
        f"import ddpnb, os, time\n{before}\n"
        f"job = ddpnb.launch('train.py', launcher=ddpnb.Python(), detach={detach}, grace=1)\n"
        "print(job.run_id, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        job = ddpnb.attach(owner.stdout.readline().strip())
        wait_until(lambda: job.logs(0))
        processes = pids_of(job)
        owner.kill()
    return job, processes


@pytest.mark.parametrize("detach", [False, True])
def test_a_run_ends_with_its_owner_unless_it_is_detached(detach):
    job, processes = launched_by_another(detach=detach)

    if detach:
        assert job.state is JobState.RUNNING
        assert job.stop() is JobState.STOPPED
    else:
        assert ended(job, processes) == (JobState.STOPPED, "owner died")


def test_without_pidfds_a_run_still_ends_with_its_owner_and_a_stop_still_stops(
    tmp_path, monkeypatch
):
    # Every Python started from here on has none, as on Linux before 5.3 or on macOS.
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os\ndel os.pidfd_open\n")
    paths = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    job, processes = launched_by_another(before="assert not hasattr(os, 'pidfd_open')")

    assert ended(job, processes) == (JobState.STOPPED, "owner died")
    second = launched(STUBBORN, nproc_per_node=1, launcher=ddpnb.Python(), grace=0.2)
    assert second.stop() is JobState.STOPPED


def test_a_detach_while_it_runs_lets_it_outlive_its_owner():
    job = launched(SLEEP, nproc_per_node=1, launcher=ddpnb.Python())

    job.detach()

    wait_until(lambda: read_json(job.run.processes)["detached"])
    assert job.stop() is JobState.STOPPED


def test_the_time_limit_makes_a_run_fail():
    job = launched(SLEEP, nproc_per_node=1, launcher=ddpnb.Python(), timeout=1, grace=0.2)

    with pytest.raises(ddpnb.WorkerFailedError, match="time limit of 1 s passed"):
        job.wait(DEADLINE)

    assert job.state is JobState.FAILED


def test_wait_with_a_timeout_leaves_the_job_alone():
    job = launched(SLEEP, nproc_per_node=1, launcher=ddpnb.Python())

    with pytest.raises(TimeoutError, match=r"still runs after 0\.1 s"):
        job.wait(0.1)

    assert job.state is JobState.RUNNING
    job.kill()


def test_an_interrupted_wait_stops_the_job_and_says_so(caplog):
    job = launched(SLEEP, nproc_per_node=1, launcher=ddpnb.Python())

    def interrupt(*_):
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            job.wait(DEADLINE)
    finally:
        signal.signal(signal.SIGALRM, previous)

    assert job.state is JobState.STOPPED
    assert f"stopping {job.run_id}" in caplog.text


class Clicks(logging.Handler):
    """Interrupts this process each time that something is logged."""

    def emit(self, record):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_second_interrupt_right_after_the_first_does_not_undo_the_stop():
    job = launched(SLEEP, nproc_per_node=1, launcher=ddpnb.Python())
    log, clicks = logging.getLogger("ddpnb.job"), Clicks()
    # A shell that starts the tests in the background has them ignore SIGINT.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    log.addHandler(clicks)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            job.wait(DEADLINE)
    finally:
        log.removeHandler(clicks)
        timer.join()
        signal.signal(signal.SIGINT, previous)

    wait_until(lambda: job.done, 10)
    assert job.state is JobState.STOPPED


def test_a_cancelled_await_stops_the_job():
    job = launched(SLEEP, nproc_per_node=1, launcher=ddpnb.Python())

    async def wait_a_little():
        await asyncio.wait_for(outcome(job), 0.2)

    async def outcome(job):
        return await job

    with ThreadPoolExecutor(1) as pool, pytest.raises(TimeoutError):
        pool.submit(asyncio.run, wait_a_little()).result(DEADLINE)

    wait_until(lambda: job.done)
    assert job.state is JobState.STOPPED


def test_a_rank_is_armed_to_die_with_its_parent():
    job = launched(SLEEP)
    ranks = [start.data for rank in (0, 1) for start in job.run.rank(rank).starts()]
    names = [ProcessId(pid=r["pid"], start_time=r["start_time"]) for r in ranks]
    agent = ProcessId.from_json(read_json(job.run.processes)["launcher"])
    supervisor = ProcessId.from_json(read_json(job.run.processes)["supervisor"])
    supervisor.send(signal.SIGSTOP)  # so that nobody but the kernel can end the ranks

    agent.send(signal.SIGKILL)

    try:
        wait_until(lambda: not [name for name in names if name.is_alive()])
    finally:
        supervisor.send(signal.SIGCONT)
    wait_until(lambda: job.done)


def test_nothing_of_ours_listens(monkeypatch):
    job = launched(SLEEP, nproc_per_node=1, launcher=ddpnb.Python())
    ours = [*pids_of(job), *(ProcessId.from_json(p) for p in _supervising(job))]

    ports = {c.laddr.port for p in ours for c in psutil.Process(p.pid).net_connections()}

    job.kill()
    assert ports == set()


def _supervising(job):
    processes = read_json(job.run.processes)
    return [processes["keeper"], processes["supervisor"]]


def test_the_streams_are_exact_and_in_the_log_within_moments():
    code = (
        "import os, sys, time\n"
        "os.write(1, b'nul \\x00 bad \\xff no newline')\n"
        "os.write(2, b'\\r 10%\\r 20%\\r100%\\n')\n"
        "print(flush=True)\n"
        "print('x' * 300_000)\n"
        "os._exit(7)\n"
    )
    job = ddpnb.launch(script(code), launcher=ddpnb.Python())
    with pytest.raises(ddpnb.WorkerFailedError):
        job.wait(DEADLINE)

    written = job.run.rank(0).stdout.read_bytes()
    assert written == b"nul \x00 bad \xff no newline\n" + b"x" * 300_000 + b"\n"
    assert [str(line) for line in job.logs(0) if line.stream == "stderr"] == ["100%"]
    assert all(line.time and abs(line.time - time.time()) < DEADLINE for line in job.logs(0))


def test_run_files_are_private():
    job = launched(SLEEP, nproc_per_node=1, launcher=ddpnb.Python())
    job.kill()

    modes = {oct(path.stat().st_mode & 0o077) for path in job.folder.rglob("*") if path.is_file()}

    assert modes == {"0o0"}


SAVES = """
import pathlib, signal, time
try:
    print("up")
    signal.pause()
except KeyboardInterrupt:
    time.sleep(1.5)  # what a save takes
    pathlib.Path("saved").touch()
"""


def test_a_stop_that_is_asked_for_twice_still_lets_the_ranks_save(tmp_path):
    job = launched(SAVES, nproc_per_node=1, launcher=ddpnb.Python())
    wait_until(lambda: job.logs(0), DEADLINE, "the rank is up")

    for _ in range(3):
        job.stop(wait=False)

    assert job.stop() is JobState.STOPPED
    assert (tmp_path / "saved").exists()


def test_a_stop_right_after_the_launch_is_a_stop():
    script(SLEEP)

    states = [ddpnb.launch("train.py", launcher=ddpnb.Python()).stop() for _ in range(10)]

    assert set(states) == {JobState.STOPPED}


@pytest.mark.parametrize("after", [0.01, 0.05, 0.1, 0.2])
def test_a_launch_that_is_interrupted_leaves_no_run_behind(after):
    script(SLEEP)
    # A shell that starts the tests in the background has them ignore SIGINT.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        job = ddpnb.launch("train.py", launcher=ddpnb.Python())
        wait_until(lambda: job.done, what="the interrupt")
    except KeyboardInterrupt:
        if "job" in locals():
            job.kill()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, previous)

    assert all(one.done for one in ddpnb.runs())


def test_a_keeper_killed_while_helpers_linger_is_noticed():
    code = (
        "import signal, subprocess, sys\n"
        "helper = 'import signal, time; signal.signal(15, lambda *_: None);'\n"
        "helper += 'print(1, flush=True); time.sleep(600)'\n"
        "process = subprocess.Popen([sys.executable, '-c', helper], start_new_session=True,\n"
        "                           stdout=subprocess.PIPE)\n"
        "process.stdout.readline()\n"
        "print('up')\n"
    )
    job = launched(code, nproc_per_node=1, launcher=ddpnb.Python())
    processes = pids_of(job)

    ProcessId.from_json(read_json(job.run.processes)["keeper"]).send(signal.SIGKILL)

    assert ended(job, processes)[0] is not JobState.LOST


def test_a_run_that_waits_for_one_whose_folder_is_gone_starts(tmp_path):
    job = launched(SLEEP, nproc_per_node=1, launcher=ddpnb.Python())
    job.kill()
    described = read_json(job.run.run)
    waiting = job.run.propose(tmp_path / "runs", "waiting")
    waiting.create(
        job.spec,
        launcher=described["launcher"],
        command=read_json(job.run.command) | {"env": {"DDPNB_RUN": str(waiting.path)}},
        script=b"print('started')",
        owner=ProcessId.of(os.getpid()),
        after=["20200101-000000-gone-0000"],
    )

    subprocess.run(
        [sys.executable, "-P", "-m", "ddpnb.launchers.supervise", str(waiting.path)], check=True
    )

    assert ddpnb.attach(waiting.run_id).wait(DEADLINE).state is JobState.SUCCEEDED


def test_what_the_launching_process_ignores_or_blocks_does_not_reach_the_run():
    code = (
        "import signal, ddpnb\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})\n"
        "print(ddpnb.launch('train.py', launcher=ddpnb.Python(), detach=True).run_id)\n"
    )
    script("import signal\nprint(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))\nexit(3)\n")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    job = ddpnb.attach(done.stdout.strip())

    with pytest.raises(ddpnb.WorkerFailedError, match="SystemExit: 3"):
        job.wait(DEADLINE)

    assert str(job.logs(0)[0]) == "[]"
