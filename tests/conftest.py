"""What every test gets: a home, a runs folder and a working directory of its own, and a check that
it left nothing running.

Tests import `require` and `wait_until` from `tests.conftest`. No test sleeps: it waits for a
condition, with a deadline far beyond what the condition takes on a quiet machine.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from ddpnb.warm import client
from ddpnb.warm.state import WarmFiles, WarmState

ROOT = Path(__file__).resolve().parent.parent
THIS_PROCESS = psutil.Process()
NEEDS = {"browser", "cgroup", "gpu", "mount", "netns", "slurm"}

T = TypeVar("T")


def require(need: str, condition: object, reason: str) -> None:
    """Skip where `condition` does not hold, or fail where DDPNB_REQUIRE names `need`."""
    __tracebackhide__ = True
    if condition:
        return
    if need in required():
        pytest.fail(f"DDPNB_REQUIRE names {need}: {reason}")
    pytest.skip(reason, allow_module_level=True)


def wait_until(condition: Callable[[], T], timeout: float = 120.0, what: str = "") -> T:
    """Return the first true value of `condition`, or fail after `timeout` seconds."""
    __tracebackhide__ = True
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout:g} s: {what or 'the condition held'}")
        time.sleep(0.05)
    return value


def required() -> set[str]:
    """Return the needs that DDPNB_REQUIRE names."""
    return {need.strip() for need in os.environ.get("DDPNB_REQUIRE", "").split(",")} - {""}


def pytest_configure() -> None:
    """Refuse a misspelled DDPNB_REQUIRE, which would require nothing."""
    if unknown := required() - NEEDS:
        raise pytest.UsageError(
            f"DDPNB_REQUIRE names {sorted(unknown)}; it may name {sorted(NEEDS)}"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal out single tests, those of the browser all to one worker: two JupyterLabs are slow."""
    from xdist.scheduler import LoadScopeScheduling

    class OneBrowser(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            # Not by xdist_group marks, which xdist 3.8 loses under pytest 9.2.
            return "browser" if nodeid.startswith("tests/browser/") else nodeid

    return OneBrowser(config, log)


@pytest.fixture(autouse=True, scope="session")
def session_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give longer-lived fixtures a home and a runs folder; fail if they leave something behind.

    All tests share the home, so that matplotlib lists the machine's fonts only once.
    """
    place, runs = tmp_path_factory.getbasetemp(), runs_in_the_repository()
    with pytest.MonkeyPatch.context() as monkeypatch, nothing_left(place):
        monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        monkeypatch.setenv("DDPNB_RUNS", str(place / "runs"))
        monkeypatch.delenv("DDPNB_RUN", raising=False)
        # Kernels of other folders find this checkout.
        monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        # Each kernel of a test would else import torch a further time.
        monkeypatch.setenv("DDPNB_WARM", "0")
        yield
    assert runs_in_the_repository() == runs


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each test write nowhere but under its own `tmp_path`; fail if it leaves something."""
    with nothing_left(tmp_path):
        monkeypatch.setenv("DDPNB_RUNS", str(tmp_path / "runs"))
        monkeypatch.chdir(tmp_path)
        yield


@pytest.fixture(scope="session")
def warm_process(session_place: None) -> Iterator[WarmState]:
    """Return a warm process of this process; all tests that ask for it share it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("DDPNB_WARM", "1")
        client.start()
        wait_until(lambda: own_warm_process().stage != "warming", what="torch is imported")
    yield own_warm_process()
    files, state = require_warm_process()
    client.stop(files, state)


@pytest.fixture
def warm(warm_process: WarmState, monkeypatch: pytest.MonkeyPatch) -> WarmState:
    """Let a test, and the kernels that it starts, have warm processes."""
    monkeypatch.setenv("DDPNB_WARM", "1")
    return warm_process


def own_warm_process() -> WarmState:
    """Return what the warm process of this process says of itself."""
    return require_warm_process()[1]


def require_warm_process() -> tuple[WarmFiles, WarmState]:
    found = client.find()
    assert found is not None
    return found


@contextlib.contextmanager
def nothing_left(place: Path, timeout: float = 30.0) -> Iterator[None]:
    """Fail, and end them, if the block leaves processes or listening ports behind.

    What is just ending may take its time, up to `timeout` seconds.
    """
    pids, ports = set(psutil.pids()), listening_ports()

    yield

    deadline = time.monotonic() + timeout
    while (left := processes_since(pids, place)) or listening_ports() - ports:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    told = [f"{process.pid}: {command_line(process)}" for process in left]
    told += [f"this process listens on port {port}" for port in listening_ports() - ports]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    if told:
        pytest.fail("left running:\n" + "\n".join(told), pytrace=False)


def runs_in_the_repository() -> set[Path]:
    return {run for where in (".", "*", "tests/*") for run in ROOT.glob(f"{where}/.ddpnb/runs/*")}


def listening_ports() -> set[int]:
    connections = THIS_PROCESS.net_connections("tcp")
    return {found.laddr.port for found in connections if found.status == psutil.CONN_LISTEN}


def processes_since(pids: set[int], place: Path) -> list[psutil.Process]:
    """Return the processes that are not in `pids` and come from this process or from `place`."""
    found = []
    for pid in set(psutil.pids()) - pids:
        try:
            process = psutil.Process(pid)
            if is_ours(process, pids, place) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def is_ours(process: psutil.Process, pids: set[int], place: Path) -> bool:
    """Whether a new process was started by this one or with a folder under `place`.

    The second finds what has left our process tree: every child of a test inherits DDPNB_RUNS.
    What a longer-lived fixture's process starts (a browser's tabs, say) is neither.
    """
    words = process.cmdline()
    # multiprocessing's own helper lives as long as the process that imported it
    if "resource_tracker" in " ".join(words):
        return False
    if "ddpnb.warm.process" in words and f'"pid": {THIS_PROCESS.pid},' in words[-1]:
        return True  # also a rank that was forked from it, which has its words and environment
    elder = next((parent for parent in process.parents() if parent.pid in pids), None)
    environment = process.environ()
    words += [environment.get("DDPNB_RUN", ""), environment.get("DDPNB_RUNS", "")]
    return elder == THIS_PROCESS or any(Path(word).is_relative_to(place) for word in words)


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return "ended meanwhile"
