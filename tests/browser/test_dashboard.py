"""The live view as a person sees and uses it."""

import pytest

from tests.browser.conftest import Lab, NotebookPage

pytestmark = pytest.mark.browser

TALKING = """%%ddp -n 2 talking.py
import os, sys, time
from ddpnb.worker import log

rank = int(os.environ["RANK"])
print(f"rank {rank} is here", flush=True)
for step in range(100_000):
    print(f"step {step:5d} of rank {rank}  <b>not bold</b>", flush=True)
    print(f"\\rbar {step}", end="", file=sys.stderr, flush=True)
    log(step, loss=1 / (step + 1))
    time.sleep(0.1)
"""
FAILING = """%%ddp -n 2 failing.py
import os, time

print("about to fail", flush=True)
if os.environ["RANK"] == "1":
    raise ValueError("the <i>second</i> rank's own error")
time.sleep(600)
"""


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_view_shows_ranks_and_stops_them(theme: str, lab: Lab, notebook: NotebookPage):
    lab.set_theme(f"JupyterLab {theme}")
    notebook.name += theme
    notebook.open("%load_ext ddpnb", TALKING, "await job\njob.state")

    notebook.run_all()

    notebook.wait_for(".ddpnb-title", "running")
    notebook.wait_for(".ddpnb-log", "0 │ step")
    notebook.wait_for(".ddpnb-log", "1 │ step")
    notebook.wait_for(".ddpnb-log", "<b>not bold</b>")
    notebook.wait_for(".ddpnb-log", "bar ")
    notebook.wait_for(".ddpnb-ranks", "step ")
    notebook.screenshot(f"running-{theme}")
    notebook.page.locator(".ddpnb-page-curves").click()
    notebook.page.locator("canvas.ddpnb-curve").first.wait_for()
    notebook.screenshot(f"curves-{theme}")
    notebook.page.locator(".ddpnb-page-machine").click()
    notebook.wait_for(".ddpnb-machine", "MiB")
    notebook.screenshot(f"machine-{theme}")
    notebook.page.locator(".ddpnb-page-log").click()
    notebook.page.locator(".ddpnb-choice button", has_text="rank 1").click()
    notebook.wait_for(".ddpnb-rows", "of rank 1")
    assert "of rank 0" not in notebook.page.locator(".ddpnb-rows").inner_text()
    notebook.screenshot(f"rank-{theme}")

    notebook.page.locator(".ddpnb-stop").click()
    notebook.wait_for(".ddpnb-confirm", "Stop this run?")
    notebook.screenshot(f"confirm-{theme}")
    notebook.page.locator(".ddpnb-stop-now").click()

    notebook.wait_for(".ddpnb-title", "■ stopped")
    notebook.wait_for(".jp-OutputArea-output", "JobState.STOPPED")
    assert notebook.page.locator(".ddpnb-stop").is_disabled()
    notebook.screenshot(f"stopped-{theme}")


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_view_names_the_cause_when_a_rank_fails(theme: str, lab: Lab, notebook: NotebookPage):
    lab.set_theme(f"JupyterLab {theme}")
    notebook.name += theme
    notebook.open("%load_ext ddpnb", FAILING, "await job", "print('went' + ' on')")

    notebook.run_all()

    cause = "First to fail: rank 1, ValueError: the <i>second</i> rank's own error"
    notebook.wait_for(".ddpnb-trouble", cause)
    notebook.wait_for(".jp-RenderedText[data-mime-type*='stderr']", "WorkerFailedError")
    assert notebook.page.locator(".jp-OutputArea-output", has_text="went on").count() == 0
    assert notebook.page.locator(".ddpnb-stop").is_disabled()
    notebook.screenshot(f"failed-{theme}")


def test_view_of_64_ranks_stays_small_and_shows_the_ranks_that_are_asked_for(
    lab: Lab, notebook: NotebookPage
):
    lab.set_theme("JupyterLab Light")
    notebook.open("%load_ext ddpnb", MANY)

    notebook.run_all()

    notebook.wait_for(".ddpnb-ranks", "64 ▶ running")
    assert notebook.page.locator(".ddpnb-ranks").bounding_box()["height"] < 200
    which = notebook.page.locator(".ddpnb-which")
    assert which.input_value() == "all"
    notebook.wait_for(".ddpnb-rows", "63 │ from 63")
    which.fill("2-3, 60")
    which.press("Enter")
    rows = notebook.page.locator(".ddpnb-rows")
    assert rows.inner_text().split("\n") == [" 2 │ from 2", " 3 │ from 3", "60 │ from 60"]
    notebook.page.locator(".ddpnb-chip").nth(3).click(modifiers=["Control"])
    assert which.input_value() == "2, 60"
    which.fill("64")
    which.press("Enter")
    notebook.wait_for(".ddpnb-said", "There is no rank 64")
    assert which.input_value() == "2, 60"
    notebook.screenshot("many")


# 64 real ranks would take this machine down; the view does not know the difference.
MANY = """
from types import SimpleNamespace
from IPython.display import display
from ddpnb.monitor import RunView, fold
from ddpnb.notebook.live_view import LiveView
from ddpnb.notebook.watch import Snapshot
from ddpnb.records import Event, JobState, LogLine
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec
from pathlib import Path

spec = LaunchSpec(name="many", script=Path("/somewhere/many.py"), nproc_per_node=64)
records = [Event(rank=r, time=1.0, kind="start", data={}) for r in range(64)]
records += [Event(rank=r, time=2.0, kind="progress", data={"n": r, "total": 64}) for r in range(64)]
records += [LogLine(rank=r, stream="stdout", text=f"from {r}", offset=0) for r in range(64)]
view = fold(RunView(run_id="many", world_size=64), records, JobState.RUNNING, None)
snapshot = Snapshot(spec=spec, view=view, folder="/somewhere", records=tuple(records))
place = Path("/somewhere")
job = SimpleNamespace(run_id="many", run=RunDir(place), folder=place, spec=spec)
live = LiveView(job, snapshot, lambda: None)
live.draw(snapshot)
display(live.bundle(), raw=True)
"""
