"""Processes named so that no other is meant."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

from ddpnb.process import ProcessId, descendants
from tests.conftest import wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_process_id_is_not_the_pid_alone():
    me = ProcessId.of(os.getpid())
    stranger = ProcessId(pid=me.pid, start_time=me.start_time + 1, boot_id=me.boot_id)
    other_boot = ProcessId(pid=me.pid, start_time=me.start_time, boot_id="another")

    assert me.is_alive()
    assert ProcessId.from_json(me.to_json()) == me
    assert not stranger.is_alive()
    assert not stranger.send(signal.SIGKILL)
    assert not other_boot.is_alive()


def test_a_pid_of_another_container_is_nobody_here():
    me = ProcessId.of(os.getpid())
    apart = replace(me, pid_namespace=me.pid_namespace + 1)

    assert not apart.is_alive() and apart.is_elsewhere()
    assert not apart.send(signal.SIGKILL)
    assert not replace(me, pid_namespace=0).is_elsewhere()  # written by an older version


def test_a_zombie_is_not_alive():
    child = subprocess.Popen(SLEEP)
    name = ProcessId.of(child.pid)

    assert name.send(signal.SIGKILL)

    wait_until(lambda: not name.is_alive())  # nobody has waited for it yet
    assert child.wait(60) == -signal.SIGKILL
    assert ProcessId.of(child.pid) is None


def test_send_works_without_pidfds(monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    child = subprocess.Popen(SLEEP)

    assert ProcessId.of(child.pid).send(signal.SIGKILL)

    assert child.wait(60) == -signal.SIGKILL


def test_descendants_finds_grandchildren_in_sessions_of_their_own():
    code = f"import subprocess; subprocess.Popen({SLEEP!r}, start_new_session=True).wait()"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)

    (grandchild,) = wait_until(lambda: descendants(child.pid))

    assert {child.pid, grandchild.pid} <= {process.pid for process in descendants(os.getpid())}
    grandchild.send(signal.SIGKILL)
    assert child.wait(60) == 0
