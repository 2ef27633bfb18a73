"""A rank that has torch in it leaves as Python would, and is not aborted on its way."""

import pytest

import ddpnb
from tests.launch.scripts import script

DEADLINE = 180

LAST_WORDS = """
import atexit, os, sys, threading, time
import torch

class Kept:
    def __del__(self):
        print("an object has gone")

def main():
    global kept, unclosed
    kept = Kept()
    unclosed = open(f"unclosed.{os.environ.get('RANK', 0)}", "w")
    unclosed.write("written and not closed")
    atexit.register(print, "atexit")
    threading.Thread(target=lambda: (time.sleep(0.2), print("a thread has ended"))).start()
    os.write(1, b"without a newline")

if __name__ == "__main__":
    main()
"""
WITH_A_DAEMON = """
import threading, time
import torch

word = "x"

def use():
    while True:
        len(word)

threading.Thread(target=use, daemon=True).start()
unclosed = open("unclosed", "w")
unclosed.write("written and not closed")
"""
MEET_AND_LEAVE = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    for _ in range(20):
        model(torch.randn(8, 64)).sum().backward()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
every_launcher = pytest.mark.parametrize(
    "launcher", [ddpnb.Torchrun(), ddpnb.Spawn(), ddpnb.Python()], ids=lambda one: one.name
)


@every_launcher
def test_what_a_script_can_rely_on_at_its_end_is_done(launcher, tmp_path):
    job = ddpnb.launch(script(LAST_WORDS), launcher=launcher)

    assert job.wait(DEADLINE).state is ddpnb.JobState.SUCCEEDED

    text = job.run.rank(0).stdout.read_text()
    said = ["without a newline", "a thread has ended", "atexit", "an object has gone"]
    assert [text.count(words) for words in said] == [1, 1, 1, 1]
    assert text.index("a thread has ended") < text.index("atexit")
    assert (tmp_path / "unclosed.0").read_text() == "written and not closed"


def test_a_daemon_thread_is_not_robbed_of_what_it_uses(tmp_path):
    job = ddpnb.launch(script(WITH_A_DAEMON), launcher=ddpnb.Python())

    assert job.wait(DEADLINE).state is ddpnb.JobState.SUCCEEDED
    assert job.run.rank(0).stderr.read_text() == ""
    assert (tmp_path / "unclosed").read_text() == "written and not closed"


@pytest.mark.parametrize(
    ("leaves", "code"),
    [
        ("sys.exit()", 0),
        ("sys.exit(7)", 7),
        ("sys.exit(-1)", 255),
        ("sys.exit('words')", 1),
        ("1 / 0", 1),
        ("os._exit(9)", 9),
    ],
)
def test_the_exit_code_is_that_of_python(leaves, code):
    job = ddpnb.launch(script(f"import os, sys, torch\n{leaves}\n"), launcher=ddpnb.Python())

    try:
        result = job.wait(DEADLINE)
    except ddpnb.WorkerFailedError as error:
        result = error.result

    assert [exit_.exitcode for exit_ in result.exits] == [code]


@pytest.mark.parametrize("launcher", [ddpnb.Torchrun(), ddpnb.Spawn()], ids=lambda one: one.name)
def test_ranks_that_have_met_are_not_aborted_on_their_way_out(launcher):
    for _ in range(2):  # with Python taking itself down, every second run failed here
        job = ddpnb.launch(script(MEET_AND_LEAVE), nproc_per_node=4, launcher=launcher)

        assert job.wait(DEADLINE).state is ddpnb.JobState.SUCCEEDED
