"""What the live view costs: `python benchmarks/view.py [--only WORD] [--rounds N]`.

In a JupyterLab of its own, in Chromium, beside what people use without it: `widgets.Output` and
`print`, filled by a thread that follows the ranks' files. Prints tables for docs/performance.md.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Error, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ddpnb
from ddpnb.json_files import write_json
from ddpnb.process import ProcessId
from ddpnb.records import Event
from ddpnb.rundir import RunDir, runs_folder
from ddpnb.spec import LaunchSpec
from tests.browser.conftest import Lab, NotebookPage, chromium
from tests.conftest import wait_until

RANKS = 4
LINES = 100_000
STEADY_SECONDS = 60
WIDE_SECONDS = 20
PATIENCE = 60.0  # for the last line to be shown

FLOOD = f"""
import os, pathlib, time

rank = os.environ["RANK"]
text = "x" * 90
pathlib.Path(f"ready.{{rank}}").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.01)
begun = time.process_time()
for i in range({LINES}):
    print(f"{{rank}} {{i:06d}}", text)
moment = time.time()
print(f"LAST {{rank}} {{moment:.3f}}", flush=True)
told = pathlib.Path(f"told.{{rank}}.new")
told.write_text(f"{{time.process_time() - begun}} {{moment:.3f}}")
told.rename(f"told.{{rank}}")
while not pathlib.Path("end").exists():
    time.sleep(0.05)
"""
STEADY = """
import os, pathlib, time

rank = os.environ["RANK"]
pathlib.Path(f"ready.{rank}").touch()
begun = time.monotonic()
i = 0
while not pathlib.Path("end").exists():
    print(f"{rank} {i:06d}", "x" * 90, flush=True)
    i += 1
    time.sleep(max(0.0, begun + i / 100 - time.monotonic()))
"""
SLEEPING = """
import os, pathlib, time

pathlib.Path(f"ready.{os.environ['RANK']}").touch()
print("up", flush=True)
while not pathlib.Path("end").exists():
    time.sleep(0.5)
"""
# A button and a label, by whose round trip through the kernel the page's patience is measured.
PING = """
import os, pathlib
import ipywidgets as widgets

button, label = widgets.Button(description="ping"), widgets.Label("0")
button.add_class("ping"), label.add_class("pong")
button.on_click(lambda _: setattr(label, "value", str(int(label.value) + 1)))
display(button, label)
pathlib.Path("kernel.pid").write_text(str(os.getpid()))
"""
# What is done without ddpnb: one thread follows all files, ten times a second.
FOLLOW = """
import os, subprocess, sys, threading, time

ranks = []
for rank in range({ranks}):
    with open(f"log.{{rank}}", "wb") as log:
        env = os.environ | {{"RANK": str(rank), "PYTHONUNBUFFERED": "1"}}
        ranks.append(subprocess.Popen([sys.executable, "script.py"], stdout=log, env=env))
logs = [open(f"log.{{rank}}") for rank in range({ranks})]
{show}
def follow():
    while not os.path.exists("end"):
        for rank, log in enumerate(logs):
            if text := log.read():
                show(rank, text)
        time.sleep(0.1)
threading.Thread(target=follow, daemon=True).start()
"""
OUTPUT = """
outputs = [widgets.Output() for _ in range({ranks})]
display(widgets.VBox(outputs))
def show(rank, text):
    outputs[rank].append_stdout(text)
"""
PRINT = """
def show(rank, text):
    print(text, end="")
"""
LAUNCH = "%load_ext ddpnb\nimport ddpnb\njob = ddpnb.launch('script.py', nproc_per_node={ranks})"
DDPNB = LAUNCH.format(ranks=RANKS)

# Runs in the page until it is told to end: clicks, and notes when each LAST line is in sight.
WATCH = """(tabs) => {
  const bench = (window.bench = { clicks: [], seen: {}, foot: "", end: false });
  const pause = () => new Promise((resolve) => setTimeout(resolve, 5));
  const note = () => {
    const page = document.querySelector(".jp-NotebookPanel").textContent;
    for (const [token] of page.slice(-100000).matchAll(/LAST \\d \\d+\\.\\d{3}/g)) {
      bench.seen[token] ??= Date.now() / 1000;
    }
    const rows = document.querySelector(".ddpnb-rows")?.innerText || "";
    [bench.foot] = rows.trimEnd().match(/LAST \\d \\d+\\.\\d{3}$/) || [""];
  };
  const until = async (condition) => {
    const begun = performance.now();
    while (!condition() && performance.now() - begun < 60000) await pause();
    bench.clicks.push(performance.now() - begun);
  };
  const ping = async () => {
    const label = document.querySelector(".pong");
    const before = label.innerText;
    document.querySelector(".ping").click();
    await until(() => label.innerText !== before);
  };
  const turn = async (rank) => {
    document.querySelector(`[role=tab][data-writer="${rank}"]`).click();
    const own = new RegExp(`^(${rank} |LAST ${rank}|…|nothing printed yet)`);
    await until(() => own.test(document.querySelector(".ddpnb-rows").innerText));
  };
  if (!tabs) setInterval(note, 50); // which takes its own time
  (async () => {
    for (let i = 0; !bench.end; i++) {
      await (tabs ? turn(i % 4) : ping());
      await pause();
    }
  })();
}"""


def main() -> None:
    """Run what was asked for, and print a table each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="flood, steady or wide")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    version = f"Python {sys.version.split()[0]}, Chromium"
    print(
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {version}, {options.rounds} rounds"
    )
    with tempfile.TemporaryDirectory() as folder, environment(Path(folder)) as bench:
        for name, measure in (("flood", flood), ("steady", steady), ("wide", wide)):
            if options.only in name:
                measure(bench, options.rounds)


class Bench:
    """A JupyterLab and a browser; gives a notebook at a time."""

    def __init__(self, lab: Lab, browser: Any) -> None:
        self.lab = lab
        self._browser = browser
        self._count = 0
        self.received = 0
        """Bytes that the page was sent by the kernel's socket."""

    @contextmanager
    def notebook(self, script: str, *cells: str) -> Iterator[tuple[NotebookPage, Path]]:
        """Open a notebook beside script.py; on leaving, end what it runs, and its kernel."""
        self._count += 1
        context = self._browser.new_context(viewport={"width": 1300, "height": 1100})
        notebook = NotebookPage(self.lab, context.new_page(), f"view{self._count}")
        place = notebook.file.parent
        notebook.page.on("websocket", lambda socket: socket.on("framereceived", self._receive))
        notebook.open(*cells)
        (place / "script.py").write_text(script)
        try:
            yield notebook, place
        finally:
            (place / "end").touch()
            context.close()
            for session in self.lab.call("api/sessions"):
                self.lab.call(f"api/sessions/{session['id']}", "DELETE")

    def _receive(self, payload: bytes | str) -> None:
        self.received += len(payload)


@contextmanager
def environment(folder: Path) -> Iterator[Bench]:
    """Start a JupyterLab and a Chromium, whose runs go under `folder`."""
    os.environ["DDPNB_RUNS"] = str(folder / "runs")
    lab = Lab(folder / "lab")
    try:
        with sync_playwright() as playwright:
            options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            browser = playwright.chromium.launch(executable_path=chromium(), args=options)
            yield Bench(lab, browser)
            browser.close()
    finally:
        lab.close()


def flood(bench: Bench, rounds: int) -> None:
    """Measure while four ranks write 400,000 lines as fast as they can."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for number in range(rounds):
        print(f"round {number + 1} at {time.strftime('%H:%M:%S')}", file=sys.stderr, flush=True)
        rows.setdefault("no view", []).append(flood_unseen(bench))
        rows.setdefault("ddpnb", []).append(flood_seen(bench, DDPNB))
        rows.setdefault("ddpnb, tabs clicked", []).append(flood_seen(bench, DDPNB, tabs=True))
        if number == 0:  # a minute each, and no closer by repetition
            for name, show in (("print", PRINT), ("widgets.Output", OUTPUT)):
                cell = FOLLOW.format(ranks=RANKS, show=show.format(ranks=RANKS))
                rows[name] = [flood_seen(bench, cell)]
    print(f"\nFlood: {RANKS} ranks x {LINES:,} lines of 100 bytes\n")
    table(
        rows,
        {
            "kernel CPU s": "kernel",
            "worst click s": "click",
            "last line shown after s": "shown",
            "lines lost on disk": "lost",
            "lines found by search": "found",
            "notebook KB": "kilobytes",
            "ranks' CPU s": "cpu",
            "ranks' wall s": "wall",
        },
    )


def flood_unseen(bench: Bench) -> dict[str, Any]:
    """Let the ranks write with nobody looking."""
    place = bench.lab.work / f"unseen{time.time_ns()}"
    place.mkdir()
    (place / "script.py").write_text(FLOOD)
    job = ddpnb.launch(place / "script.py", nproc_per_node=RANKS, cwd=place)
    begun = go(place)
    told = wait_until(lambda: read_told(place), 240)
    (place / "end").touch()
    job.wait(240)
    return {"cpu": sum(cpu for cpu, _ in told), "wall": max(end for _, end in told) - begun}


def flood_seen(bench: Bench, cell: str, *, tabs: bool = False) -> dict[str, Any]:
    """Let the ranks write while a page shows it, and is clicked on all the time."""
    found: dict[str, Any] = {}
    with bench.notebook(FLOOD, PING, cell) as (notebook, place):
        notebook.run_all()
        wait_until(lambda: len(list(place.glob("ready.*"))) == RANKS, 240)
        notebook.page.locator(".pong").wait_for()
        if tabs:
            notebook.page.locator('[role=tab][data-writer="3"]').wait_for()
        kernel = kernel_of(place)
        before = cpu_seconds(kernel)
        notebook.page.evaluate(WATCH, tabs)
        begun = go(place)
        told = wait_until(lambda: read_told(place), 240)
        rank, (_, last) = max(enumerate(told), key=lambda one: one[1][1])
        # The view keeps lines in the order of 0.1 s: at its foot stands the last line of some rank.
        token = "" if cell == DDPNB else f"LAST {rank} {last:.3f}"
        seen = None if tabs else wait_for_token(notebook, token)
        if tabs:  # another tab may be open when the last line comes
            notebook.page.wait_for_timeout(1500)
        found["kernel"] = cpu_seconds(kernel) - before
        if not tabs:
            found["shown"] = "never" if seen is None else seen - last
        found["cpu"] = sum(cpu for cpu, _ in told)
        found["wall"] = last - begun
        found["click"] = worst_click(notebook)
        if cell == DDPNB:
            found["lost"] = lines_lost()
            found["found"] = found_by_search(notebook)
        found["kilobytes"] = saved_kilobytes(notebook)
    return found


def wait_for_token(notebook: NotebookPage, token: str) -> float | None:
    """Return when the page had this text in sight, as Unix time; None: not within a minute.

    Args:
        token: "" for the last line at the foot of the view, once no other comes.
    """
    until = time.monotonic() + PATIENCE
    foot = ""
    while time.monotonic() < until:
        try:
            seen, last = notebook.page.evaluate("() => [window.bench.seen, window.bench.foot]")
        except Error:
            return None  # the page has died of it
        if token in seen:
            return float(seen[token])
        if not token and last in seen and last == foot:
            return float(seen[last])
        foot = last
        time.sleep(0.5)
    return None


def worst_click(notebook: NotebookPage) -> Any:
    """Return the seconds that the slowest click took; clicks are over behind this."""
    try:
        told = notebook.page.evaluate(
            "() => { window.bench.end = true; return window.bench.clicks; }"
        )
    except Error:
        return "page died"
    return max(told) / 1000 if told else f"> {PATIENCE:g}"


def lines_lost() -> int:
    """Return how many of the newest run's lines are not in its files."""
    (newest, *_) = sorted(ddpnb.runs(), key=lambda job: job.run_id, reverse=True)
    lost = 0
    for rank in range(RANKS):
        there = {line[:8] for line in newest.run.rank(rank).stdout.read_bytes().split(b"\n")}
        lost += sum(b"%d %06d" % (rank, i) not in there for i in range(LINES))
    return lost


def found_by_search(notebook: NotebookPage) -> str:
    """Search for lines from everywhere in the logs; return how many of them were found."""
    wanted = [(rank, number) for rank in range(RANKS) for number in (0, LINES // 2, LINES - 1)]
    notebook.page.locator('[role=tab][data-writer="all"]').click()
    found = 0
    for rank, number in wanted:
        query = notebook.page.locator(".ddpnb-query")
        query.fill(f"{rank} {number:06d} x")
        query.press("Enter")
        notebook.page.locator(".ddpnb-found-line", has_text=f"{rank} {number:06d} x").wait_for()
        found += notebook.page.locator(".ddpnb-found-line").count() == 1
    return f"{found} of {len(wanted)}"


def saved_kilobytes(notebook: NotebookPage) -> Any:
    """Return the size of the notebook's file, in kilobytes, when it has been saved."""
    before = notebook.file.stat().st_mtime_ns
    try:
        notebook.page.keyboard.press("Control+s")
        wait_until(lambda: notebook.file.stat().st_mtime_ns > before, 60)
    except BaseException:  # pytest.fail's own, and Playwright's
        return "not saved"
    return notebook.file.stat().st_size / 1000


def steady(bench: Bench, rounds: int) -> None:
    """Measure while four ranks write 100 lines a second."""
    rows: dict[str, list[dict[str, Any]]] = {}
    output = FOLLOW.format(ranks=RANKS, show=OUTPUT.format(ranks=RANKS))
    printing = FOLLOW.format(ranks=RANKS, show=PRINT)
    for name, cell in (("ddpnb", DDPNB), ("print", printing), ("widgets.Output", output)):
        with bench.notebook(STEADY, PING, cell) as (notebook, place):
            notebook.run_all()
            wait_until(lambda: len(list(place.glob("ready.*"))) == RANKS, 240)
            kernel = kernel_of(place)
            before, received = cpu_seconds(kernel), bench.received
            notebook.page.wait_for_timeout(1000 * STEADY_SECONDS)
            rows[name] = [
                {
                    "bytes": (bench.received - received) / STEADY_SECONDS / 1e6,
                    "kernel": 100 * (cpu_seconds(kernel) - before) / STEADY_SECONDS,
                }
            ]
    print(f"\nSteady: {RANKS} ranks x 100 lines a second, {STEADY_SECONDS} s\n")
    table(rows, {"sent to the page MB/s": "bytes", "kernel CPU % of a core": "kernel"})


def wide(bench: Bench, rounds: int) -> None:
    """Measure how much of a core the kernel takes for many ranks."""
    rows = {
        "64 ranks, sleeping": [wide_sleeping(bench, 64)],
        "256 ranks, replayed, a line and a metric a second each": [wide_replayed(bench, 256)],
    }
    print(f"\nMany ranks, {WIDE_SECONDS} s\n")
    table(rows, {"kernel CPU % of a core": "kernel", "sent to the page MB/s": "bytes"})


def wide_sleeping(bench: Bench, ranks: int) -> dict[str, Any]:
    with bench.notebook(SLEEPING, PING, LAUNCH.format(ranks=ranks)) as (notebook, place):
        notebook.run_all()
        wait_until(lambda: len(list(place.glob("ready.*"))) == ranks, 240)
        notebook.wait_for(".ddpnb-ranks", f"{ranks} ▶ running")
        return share(bench, notebook, place)


def wide_replayed(bench: Bench, ranks: int) -> dict[str, Any]:
    """Have a process of this benchmark write a run folder, as 256 ranks would."""
    place = bench.lab.work / "replayed"
    place.mkdir()
    (place / "script.py").write_text("print('replayed')")
    stop = threading.Event()
    run = replay(place / "script.py", ranks, stop)
    cell = f"%load_ext ddpnb\nimport ddpnb\njob = ddpnb.attach({str(run.path)!r})"
    try:
        with bench.notebook(SLEEPING, PING, cell) as (notebook, opened):
            notebook.run_all()
            notebook.wait_for(".ddpnb-ranks", f"{ranks} ▶ running")
            return share(bench, notebook, opened)
    finally:
        stop.set()


def replay(script: Path, ranks: int, stop: threading.Event) -> RunDir:
    """Return a run folder that a thread of this process goes on writing, until it is to stop."""
    spec = LaunchSpec(name="replayed", script=script, nproc_per_node=ranks, cwd=script.parent)
    run = RunDir.propose(runs_folder(), spec.name)
    run.create(spec, launcher={}, command={"plain": ""}, script=None, owner=None)
    for rank in range(ranks):
        run.rank(rank).path.mkdir()
        start = Event(rank=rank, time=time.time(), kind="start", data={"local_rank": rank})
        run.rank(rank).events.write_text(json.dumps(start.to_json()) + "\n")
    me = ProcessId.of(os.getpid())
    assert me is not None
    now = time.time()
    ours = {"keeper": me.to_json(), "supervisor": me.to_json(), "started": now, "detached": True}
    write_json(run.processes, ours)

    def write() -> None:
        for step in itertools.count():
            sizes = {}
            for rank in range(ranks):
                files, now = run.rank(rank), time.time()
                metric = Event(rank=rank, time=now, kind="metric", step=step, data={"loss": 1.0})
                with files.stdout.open("a") as log, files.events.open("a") as events:
                    log.write(f"rank {rank} is at step {step}\n")
                    events.write(json.dumps(metric.to_json()) + "\n")
                    sizes[f"{rank}/stdout"] = log.tell()
            with run.timeline.open("a") as timeline:
                timeline.write(json.dumps({"time": time.time(), "sizes": sizes}) + "\n")
            if stop.wait(1.0):
                return

    threading.Thread(target=write, daemon=True).start()
    return run


def share(bench: Bench, notebook: NotebookPage, place: Path) -> dict[str, Any]:
    """Return what part of a core the kernel takes, and what the page is sent."""
    kernel = kernel_of(place)
    notebook.page.wait_for_timeout(3000)
    before, received = cpu_seconds(kernel), bench.received
    notebook.page.wait_for_timeout(1000 * WIDE_SECONDS)
    return {
        "kernel": 100 * (cpu_seconds(kernel) - before) / WIDE_SECONDS,
        "bytes": (bench.received - received) / WIDE_SECONDS / 1e6,
    }


def go(place: Path) -> float:
    """Let the ranks begin, once all are there; return when."""
    wait_until(lambda: len(list(place.glob("ready.*"))) == RANKS, 240)
    (place / "go").touch()
    return time.time()


def read_told(place: Path) -> list[tuple[float, float]]:
    """Return each rank's CPU seconds and the time of its last line, once all have told."""
    files = [place / f"told.{rank}" for rank in range(RANKS)]
    if not all(file.exists() for file in files):
        return []
    cpu_and_time = [file.read_text().split() for file in files]
    return [(float(cpu), float(moment)) for cpu, moment in cpu_and_time]


def kernel_of(place: Path) -> psutil.Process:
    return psutil.Process(int((place / "kernel.pid").read_text()))


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def table(rows: dict[str, list[dict[str, Any]]], columns: dict[str, str]) -> None:
    """Print medians, and for several rounds the worst in brackets."""
    print("| view | " + " | ".join(columns) + " |")
    print("| --- |" + " --- |" * len(columns))
    for name, measured in rows.items():
        cells = [cell([one[key] for one in measured if key in one]) for key in columns.values()]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def cell(values: list[Any]) -> str:
    """Return one cell: the median (the greatest), or the words that are there instead."""
    words = [value for value in values if isinstance(value, str)]
    if words or not values:
        return ", ".join(sorted(set(words)))
    middle = f"{statistics.median(values):.3g}"
    return middle if len(values) == 1 else f"{middle} ({max(values):.3g})"


if __name__ == "__main__":
    main()
