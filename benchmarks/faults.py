"""Strike runs and look at what is left: `python benchmarks/faults.py [--only WORD] [--rounds N]`.

Every fault of `tests/launch/faults.py` under every launcher, round robin, so that a busy machine
slows all alike; then a detached run whose kernel is killed, the time in which a rank's death is
known, and many runs one after another and at once, of which what may leak is counted. Prints a
table; --append FILE adds it, dated, to a document.
"""

import argparse
import itertools
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
from ddpnb.launchers.base import Launcher
from tests.conftest import wait_until
from tests.launch.fault_scenes import DEADLINE, environment, scene_of
from tests.launch.faults import FAULTS, LAUNCHERS, LEFT_SECONDS, Fault, Outcome, strike

HEAD = (
    "| launcher | fault | rounds | state right | cause right | processes left | lines lost |"
    " s to exit.json: median | max |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)
DYING = """
import os, signal, time

def main():
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    open(f"up.{rank}", "w").close()
    while not os.path.exists("die"):
        time.sleep(0.001)
    if rank == size - 1:
        open("died", "w").write(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)

if __name__ == "__main__":
    main()
"""
KERNEL_SIGKILL = next(fault for fault in FAULTS if fault.name == "kernel SIGKILL")
SHORT = """
def main():
    print("here")

if __name__ == "__main__":
    main()
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
        lines = [*map(detached, LAUNCHERS), *known(given.rounds or 5), *leaks()]
        text += "\n\n" + "\n".join(f"- {line}" for line in lines)
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
        cells = [
            launcher,
            fault,
            len(found),
            sum(one.state_right for one in found),
            sum(one.cause_right for one in found),
            sum(one.left for one in found),
            sum(one.lost for one in found),
            f"{statistics.median(times):.2f}" if times else "",
            f"{max(times):.2f}" if times else "",
        ]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def heading() -> str:
    """Return when and on what this was measured."""
    import torch

    cores, load = os.cpu_count(), os.getloadavg()[0]
    return (
        f"{time.strftime('%Y-%m-%d')}, {cores} cores, load {load:.1f},"
        f" Python {sys.version.split()[0]}, torch {torch.__version__}"
    )


def detached(name: str) -> str:
    """Kill the kernel of a detached run; return what became of the run."""
    with (
        tempfile.TemporaryDirectory() as folder,
        environment(Path(folder)),
        scene_of(LAUNCHERS[name], Path(folder), cell="", detach=True) as scene,
    ):
        wait_until(scene.writes, DEADLINE, "every rank writes")
        KERNEL_SIGKILL.act(scene)
        goal = scene.counted(0) + 1000
        wait_until(lambda: scene.counted(0) > goal, DEADLINE, "the run goes on")
        job = ddpnb.attach(scene.job.run_id)
        scene.order("end")
        state = job.wait(DEADLINE).state.value
        return (
            f"{name}, detached, its kernel is SIGKILLed: re-attached, {state},"
            f" {scene.lost()} lines lost, {len(scene.strangers())} processes left"
        )


def known(rounds: int) -> list[str]:
    """Return how soon a death is known and a run is over, beside plain torchrun, interleaved."""
    plain: list[float] = []
    over: dict[str, list[float]] = {name: [] for name in LAUNCHERS}
    seen: dict[str, list[float]] = {name: [] for name in LAUNCHERS}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as place:
            plain.append(plain_torchrun(Path(place)))
        for name, launcher in LAUNCHERS.items():
            with tempfile.TemporaryDirectory() as place:
                over_after, seen_after = under_ddpnb(launcher, Path(place))
            over[name].append(over_after)
            seen[name].append(seen_after)
    return [
        f"{name}, a rank is SIGKILLed, rounds: {rounds}; the supervisor knows after"
        f" {statistics.median(seen[name]):.3f} s (max {max(seen[name]):.3f}), exit.json is there"
        f" after {statistics.median(over[name]):.2f} s (max {max(over[name]):.2f})"
        for name in LAUNCHERS
    ] + [
        f"plain torchrun, the same script, interleaved, has ended after"
        f" {statistics.median(plain):.2f} s (max {max(plain):.2f})"
    ]


def under_ddpnb(launcher: Launcher, place: Path) -> tuple[float, float]:
    """Return the seconds from a rank's death to exit.json, and to when the supervisor saw it."""
    (place / "dying.py").write_text(DYING)
    os.environ["DDPNB_RUNS"] = str(place / "runs")
    width = 1 if launcher.name == "python" else 2
    job = ddpnb.launch(place / "dying.py", launcher=launcher, nproc_per_node=width, cwd=place)
    strike_when_up(place, width)
    try:
        job.wait(DEADLINE)
    except ddpnb.WorkerFailedError as error:
        died = float((place / "died").read_text())
        seen = next(e.time for e in error.result.exits if e.rank == width - 1)
        return job.run.exit.stat().st_mtime - died, (seen or float("nan")) - died
    raise RuntimeError("the run did not fail")


def plain_torchrun(place: Path) -> float:
    """Return the seconds from a rank's death to the end of plain torchrun."""
    (place / "dying.py").write_text(DYING)
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with subprocess.Popen(
        [*argv, "dying.py"], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        strike_when_up(place, 2)
        process.wait(DEADLINE)
        return time.time() - float((place / "died").read_text())


def strike_when_up(place: Path, width: int) -> None:
    """Let the last rank die when all are there."""
    while not all((place / f"up.{rank}").exists() for rank in range(width)):
        time.sleep(0.01)
    (place / "die").touch()


def leaks(in_a_row: int = 50, at_once: int = 8) -> list[str]:
    """Run many jobs, of all launchers in turn, and return what is held more of than before."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        os.environ |= {"DDPNB_RUNS": str(place / "runs"), "TMPDIR": str(place / "tmp")}
        (place / "tmp").mkdir()
        (place / "short.py").write_text(SHORT)
        launchers = itertools.cycle(LAUNCHERS.values())

        def launch() -> ddpnb.Job:
            launcher = next(launchers)
            width = 1 if launcher.name == "python" else 2
            return ddpnb.launch(
                place / "short.py", launcher=launcher, nproc_per_node=width, cwd=place
            )

        launch().wait(DEADLINE)  # what is loaded only once
        before = held(place)
        for name, width, turns in (("one after another", 1, in_a_row), ("at once", at_once, 1)):
            for _ in range(turns):
                jobs = [launch() for _ in range(width)]
                for job in jobs:
                    job.wait(DEADLINE)
            after = held_in_the_end(place, before)
            more = {key: value - before[key] for key, value in after.items()}
            told = ", ".join(f"{value} {key}" for key, value in more.items())
            lines.append(f"{width * turns} jobs {name}: more than before: {told}")
    return lines


def held_in_the_end(place: Path, before: dict[str, int]) -> dict[str, int]:
    """Return what is held when nothing more goes away: a keeper leaves after its last word."""
    until = time.monotonic() + LEFT_SECONDS
    while (now := held(place)) != before and time.monotonic() < until:
        time.sleep(0.05)
    return now


def held(place: Path) -> dict[str, int]:
    """Return what may leak: of this process, and of all that was started here."""
    me, ours = psutil.Process(), [p for p in psutil.process_iter() if _is_ours(p, place)]
    return {
        "processes": len(ours),
        "descriptors": me.num_fds(),
        "threads": threading.active_count(),
        "ports": sum(len(process.net_connections()) for process in [me, *ours]),
        "temporary files": sum(1 for _ in (place / "tmp").rglob("*")),
    }


def _is_ours(process: psutil.Process, place: Path) -> bool:
    try:
        there = process.environ().get("DDPNB_RUNS") == str(place / "runs")
    except psutil.Error:
        return False
    return bool(there and process.pid != os.getpid())


if __name__ == "__main__":
    main()
