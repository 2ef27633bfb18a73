"""What a launch costs: `python benchmarks/launch.py [--rounds N]`.

All rows are measured in one interleaved run, so that a busy machine slows them alike; read the
ratios first. Prints a table for docs/performance.md.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ddpnb

SCRIPT = """
import time, torch.distributed as dist
dist.init_process_group("gloo")
print("meet", time.time())
dist.destroy_process_group()
"""
TICKER = """
import time
for _ in range(20):
    print(time.time())
    time.sleep(0.15)
"""


def main() -> None:
    """Measure every row in turn, several times over, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("meet.py").write_text(SCRIPT)
        Path("ticker.py").write_text(TICKER)
        rows: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, measure in MEASURES.items():
                rows.setdefault(name, []).append(measure())
        show(rows, rounds)
        os.chdir("/")


def show(rows: dict[str, list[float]], rounds: int) -> None:
    """Print the table, each row beside the one it is compared with."""
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {load}, {rounds} rounds\n")
    print("| what | median s | min s | max s | ratio |\n| --- | --- | --- | --- | --- |")
    for name, values in rows.items():
        middle = statistics.median(values)
        base = COMPARED.get(name)
        ratio = f"{middle / statistics.median(rows[base]):.2f} of {base}" if base else ""
        print(f"| {name} | {middle:.3f} | {min(values):.3f} | {max(values):.3f} | {ratio} |")


def seconds(action: Callable[[], object]) -> float:
    """Return how long an action takes."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def python(code: str) -> float:
    """Return the seconds of a fresh interpreter that runs this code."""
    return seconds(lambda: subprocess.run([sys.executable, "-P", "-c", code], check=True))


def import_ddpnb() -> float:
    """Return the seconds of `import ddpnb` itself, in a fresh interpreter."""
    code = "import time; t = time.perf_counter(); import ddpnb; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True)
    return float(done.stdout)


def torchrun_meets() -> float:
    """Return the seconds from starting plain torchrun to both ranks having met."""
    begun = time.time()
    argv = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "meet.py",
    ]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return max(float(line.split()[1]) for line in done.stdout.splitlines()) - begun


def ddpnb_meets() -> float:
    """Return the seconds from `launch` to both ranks having met."""
    begun = time.time()
    job = ddpnb.launch("meet.py", nproc_per_node=2)
    job.wait(600)
    return max(float(str(line).split()[1]) for line in job.logs()) - begun


def launch_returns() -> float:
    """Return the seconds until `launch` gives the cell back."""
    taken = time.perf_counter()
    job = ddpnb.launch("ticker.py", launcher=ddpnb.Python())
    taken = time.perf_counter() - taken
    job.kill()
    return taken


def line_is_seen() -> float:
    """Return the median seconds from a rank's print to the line being in `job.logs`."""
    job = ddpnb.launch("ticker.py", launcher=ddpnb.Python())
    seen: list[float] = []
    while not job.done:
        lines = job.logs(0)
        now = time.time()
        seen += [now - float(str(line)) for line in lines[len(seen) :]]
        time.sleep(0.02)
    return statistics.median(seen)


MEASURES: dict[str, Callable[[], float]] = {
    "python -c pass": lambda: python("pass"),
    "import ddpnb, alone": import_ddpnb,
    "launch() returns": launch_returns,
    "a printed line is in job.logs": line_is_seen,
    "torchrun: both ranks have met": torchrun_meets,
    "ddpnb: both ranks have met": ddpnb_meets,
}
COMPARED = {"ddpnb: both ranks have met": "torchrun: both ranks have met"}

if __name__ == "__main__":
    main()
