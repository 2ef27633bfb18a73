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
    notebook.wait_for(".ddpnb-confirm", "The ranks are asked to end")
    notebook.screenshot(f"confirm-{theme}")
    notebook.page.locator(".ddpnb-stop-now").click()

    notebook.wait_for(".ddpnb-title", "■ stopped")
    notebook.wait_for(".jp-OutputArea-output", "JobState.STOPPED")
    notebook.wait_for(".jp-OutputArea-output", "talking.py: ■ stopped")
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
    notebook.wait_for(".jp-OutputArea-output:not(:has(.ddpnb-view))", cause)
    notebook.wait_for(".jp-RenderedText[data-mime-type*='stderr']", "WorkerFailedError")
    assert notebook.page.locator(".jp-OutputArea-output", has_text="went on").count() == 0
    assert notebook.page.locator(".ddpnb-stop").is_disabled()
    notebook.screenshot(f"failed-{theme}")


def test_view_of_64_ranks_stays_small(lab: Lab, notebook: NotebookPage):
    lab.set_theme("JupyterLab Light")
    script = "import ddpnb\nfrom ddpnb.notebook.watch import Snapshot\n" + MANY
    notebook.open("%load_ext ddpnb", script)

    notebook.run_all()

    notebook.wait_for(".ddpnb-ranks", "64 ◌ starting")
    assert notebook.page.locator(".ddpnb-choice select option").count() == 66
    assert notebook.page.locator(".ddpnb-ranks").bounding_box()["height"] < 200
    notebook.screenshot("many")


# 64 real ranks would take this machine down; the widgets do not know the difference.
MANY = """
from IPython.display import display
from ddpnb.monitor import RunView
from ddpnb.notebook.panel import Panel
from ddpnb.spec import LaunchSpec
from types import SimpleNamespace

spec = LaunchSpec(name="many", script="/somewhere/many.py", nproc_per_node=64)
spec = LaunchSpec.from_json(spec.to_json())
snapshot = Snapshot(spec=spec, view=RunView(run_id="many", world_size=64), folder="/somewhere")
display(Panel(SimpleNamespace(run_id="many"), snapshot).bundle(), raw=True)
"""
