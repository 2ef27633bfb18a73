"""A lock among the processes of this machine."""

import subprocess
import sys
import threading

from ddpnb.machine_lock import machine_lock
from tests.conftest import ROOT

HOLD = """
import sys
from ddpnb.machine_lock import machine_lock
with machine_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_holds_it_and_the_other_waits(tmp_path):
    seen = []

    def second():
        with machine_lock(tmp_path.name):
            seen.append("second")

    with machine_lock(tmp_path.name):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.1)
        assert seen == []
    thread.join(60)
    assert seen == ["second"]


def test_the_end_of_a_process_releases_it(tmp_path):
    command = [sys.executable, "-c", HOLD, tmp_path.name]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.kill()

    with machine_lock(tmp_path.name, timeout=60):
        pass


def test_one_that_is_never_released_is_done_without(tmp_path, caplog):
    with machine_lock(tmp_path.name), machine_lock(tmp_path.name, timeout=0.05):
        pass

    assert "going on without the lock" in caplog.text
