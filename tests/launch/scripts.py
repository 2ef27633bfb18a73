"""Small training scripts for the tests; those without torch start at once."""

from pathlib import Path


def script(text: str, name: str = "train.py") -> str:
    """Write a script into the working folder and return its name."""
    Path(name).write_text(text, encoding="utf-8")
    return name


SAY_RANK = """
import os
print("rank", os.environ.get("RANK"), "of", os.environ.get("WORLD_SIZE"))
"""

ALL_REDUCE = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} sum {total.item()} port {os.environ['MASTER_PORT']}")
dist.destroy_process_group()
"""

# Ends only when it is made to; its helper lives in a session of its own.
STUBBORN = """
import signal, subprocess, sys
for signum in (signal.SIGINT, signal.SIGTERM):
    signal.signal(signum, lambda *_: print("no"))
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("up")
while True:
    signal.pause()
"""

SLEEP = """
import time
print("up")
time.sleep(600)
"""
