"""Strike runs and look at what is left: `python benchmarks/faults.py [--only WORD] [--rounds N]`.

Every fault of `tests/launch/faults.py` under every launcher, round robin, so that a busy machine
slows all alike. Prints a table; --append FILE adds it, dated, to a document. Then a detached run,
many runs one after another, and several at once: what a process may leak is counted.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ddpnb
from tests.launch.faults import FAULTS, LAUNCHERS, Fault, Outcome, strike

HEAD = (
    "| launcher | fault | rounds | state and cause right | processes left | lines lost |"
    " s to exit.json: median (max) |\n| --- | --- | --- | --- | --- | --- | --- |"
)
DYING = """
import os, signal, time
open(f"up.{os.environ['RANK']}", "w").close()
while not os.path.exists("die"):
    time.sleep(0.001)
if os.environ["RANK"] == "1":
    open("died", "w").write(str(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


def main() -> None:
    """Strike as often as asked, and print what was true afterwards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="Only faults and launchers with this word.")
    parser.add_argument("--rounds", type=int, help="Of each; by default each fault's own number.")
    parser.add_argument("--append", type=Path, help="A document that the table is added to.")
    given = parser.parse_args()
    chosen = [
        (launcher, fault)
        for fault in FAULTS
        for launcher in LAUNCHERS
        if given.only in f"{launcher} {fault.name}"
    ]
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    for number in range(given.rounds or max(fault.rounds for _, fault in chosen)):
        for launcher, fault in chosen:
            if number < (given.rounds or fault.rounds):
                outcomes.setdefault((launcher, fault.name), []).extend(once(fault, launcher))
    text = table(outcomes)
    if not given.only:
        text += "\n\n" + "\n".join(f"- {line}" for line in [*known(), *leaks()])
    print(text)
    if given.append is not None:
        with given.append.open("a") as file:
            file.write(f"\n## {heading()}\n\n{text}\n")


def once(fault: Fault, launcher: str) -> list[Outcome]:
    """Strike once, in a folder of its own; nothing where it is not possible here."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        outcome = strike(fault, launcher, Path(place))
    if outcome is not None and (not outcome.right or outcome.left or outcome.lost):
        print(f"{launcher}, {fault.name}: {outcome}", file=sys.stderr, flush=True)
    return [] if outcome is None else [outcome]


def table(outcomes: dict[tuple[str, str], list[Outcome]]) -> str:
    """Return a row for each launcher and fault."""
    rows = [HEAD]
    for (launcher, fault), found in outcomes.items():
        times = [one.seconds for one in found if one.seconds is not None]
        took = f"{statistics.median(times):.2f} ({max(times):.2f})" if times else ""
        right, count = sum(one.right for one in found), len(found)
        left, lost = sum(one.left for one in found), sum(one.lost for one in found)
        rows.append(
            f"| {launcher} | {fault} | {count} | {right} of {count} | {left} | {lost} | {took} |"
        )
    return "\n".join(rows)


def heading() -> str:
    """Return when and on what this was measured."""
    import torch

    cores, load = os.cpu_count(), os.getloadavg()[0]
    return (
        f"{time.strftime('%Y-%m-%d')}, {cores} cores, load {load:.1f},"
        f" Python {sys.version.split()[0]}, torch {torch.__version__}"
    )


def known(rounds: int = 5) -> list[str]:
    """Return how soon a death is known and a run is over, beside plain torchrun, interleaved."""
    ours, theirs, seen = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as place:
            theirs.append(plain_torchrun(Path(place)))
        with tempfile.TemporaryDirectory() as place:
            over, known_after = under_ddpnb(Path(place))
        ours.append(over)
        seen.append(known_after)
    return [
        f"a rank is SIGKILLed under torchrun, {rounds} rounds: the supervisor knows after"
        f" {statistics.median(seen):.3f} s (max {max(seen):.3f}); the run is over after"
        f" {statistics.median(ours):.2f} s, plain torchrun has ended after"
        f" {statistics.median(theirs):.2f} s"
    ]


def under_ddpnb(place: Path) -> tuple[float, float]:
    """Return the seconds from a rank's death to exit.json, and to when the supervisor saw it."""
    (place / "dying.py").write_text(DYING)
    os.environ["DDPNB_RUNS"] = str(place / "runs")
    job = ddpnb.launch(place / "dying.py", nproc_per_node=2, cwd=place)
    strike_when_up(place)
    try:
        job.wait(300)
    except ddpnb.WorkerFailedError as error:
        died = float((place / "died").read_text())
        seen = next(e.time for e in error.result.exits if e.rank == 1)
        return job.run.exit.stat().st_mtime - died, (seen or float("nan")) - died
    raise RuntimeError("the run did not fail")


def plain_torchrun(place: Path) -> float:
    """Return the seconds from a rank's death to the end of plain torchrun."""
    (place / "dying.py").write_text(DYING)
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with subprocess.Popen(
        [*argv, "dying.py"], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        strike_when_up(place)
        process.wait(300)
        return time.time() - float((place / "died").read_text())


def strike_when_up(place: Path) -> None:
    """Let rank 1 die when both are there."""
    while not all((place / f"up.{rank}").exists() for rank in (0, 1)):
        time.sleep(0.01)
    (place / "die").touch()


def leaks(in_a_row: int = 50, at_once: int = 8) -> list[str]:
    """Run many jobs and return what this process, and the temporary folder, hold more of."""
    lines = []
    with tempfile.TemporaryDirectory() as place:
        os.environ |= {"DDPNB_RUNS": f"{place}/runs", "TMPDIR": place}
        script = Path(place) / "short.py"
        script.write_text("print('here')\n")
        ddpnb.launch(script, launcher=ddpnb.Python(), cwd=place).wait(300)
        before = held(Path(place))
        for name, width, turns in (("one after another", 1, in_a_row), ("at once", at_once, 1)):
            for _ in range(turns):
                jobs = [
                    ddpnb.launch(script, launcher=ddpnb.Python(), cwd=place) for _ in range(width)
                ]
                for job in jobs:
                    job.wait(300)
            more = {key: value - before[key] for key, value in held(Path(place)).items()}
            told = ", ".join(f"{value} {key}" for key, value in more.items())
            lines.append(f"{width * turns} jobs {name}: more than before: {told}")
    return lines


def held(place: Path) -> dict[str, int]:
    """Return what may leak: of this process, and of all that was started here."""
    me = psutil.Process()
    return {
        "processes": sum(_is_ours(process, place) for process in psutil.process_iter()),
        "descriptors": me.num_fds(),
        "threads": threading.active_count(),
        "ports": len(me.net_connections()),
        "temporary files": len(list(place.iterdir())),
    }


def _is_ours(process: psutil.Process, place: Path) -> bool:
    try:
        return process.environ().get("DDPNB_RUNS") == f"{place}/runs" and process.pid != os.getpid()
    except psutil.Error:
        return False


if __name__ == "__main__":
    main()
