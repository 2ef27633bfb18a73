"""The live view in a real browser: reload, a second view, search, floods, lost messages."""

import pytest

from tests.browser.conftest import Lab, NotebookPage
from tests.conftest import wait_until

pytestmark = pytest.mark.browser

COUNTING = """%%ddp -n 2 counting.py
import os, time

rank = os.environ["RANK"]
for i in range(100_000):
    print(f"rank {rank} line {i}", flush=True)
    time.sleep(0.2 if i > 3000 else 0)
"""
FLOOD = """%%ddp -n 2 flood.py
import os, pathlib, time

rank = os.environ["RANK"]
for i in range(300_000):
    print(f"rank {rank} flood {i:06d} " + "x" * 60)
print("the last line of", rank, flush=True)
while not pathlib.Path("end").exists():
    time.sleep(0.1)
"""


def rows(notebook: NotebookPage) -> str:
    return notebook.page.locator(".ddpnb-rows").first.inner_text()


def choose(notebook: NotebookPage, name: str) -> None:
    notebook.page.locator(".ddpnb-choice button", has_text=name).first.click()


def test_a_reload_and_a_second_view_bring_everything_back(lab: Lab, notebook: NotebookPage):
    notebook.open("%load_ext ddpnb", COUNTING, "from ddpnb.notebook import show\nshow(job)")
    notebook.run_all()
    notebook.wait_for(".ddpnb-rows", "rank 1 line 3")
    notebook.page.locator(".ddpnb-view").nth(1).wait_for()
    choose(notebook, "rank 1")
    notebook.wait_for(".ddpnb-rows", "rank 1 line 3")
    assert "rank 0" not in rows(notebook)

    notebook.page.keyboard.press("Control+s")
    file = lab.work / notebook.name / f"{notebook.name}.ipynb"
    wait_until(
        lambda: "widget-view" in file.read_text(), what="the notebook is saved with its views"
    )
    notebook.page.reload()

    notebook.page.locator(".ddpnb-view").first.wait_for()
    notebook.wait_for(".ddpnb-title", "running")
    notebook.wait_for(".ddpnb-rows", "rank 0 line 3")
    notebook.screenshot("reloaded")


def test_the_whole_log_is_searched_and_a_hit_shown_where_it_stands(
    lab: Lab, notebook: NotebookPage
):
    notebook.open("%load_ext ddpnb", FLOOD)
    notebook.run_all()
    notebook.wait_for(".ddpnb-rows", "the last line of")

    query = notebook.page.locator(".ddpnb-query")
    query.fill("flood 012345 ")
    query.press("Enter")
    notebook.wait_for(".ddpnb-found", "2 lines")
    notebook.page.locator(".ddpnb-found-line", has_text="rank 1 flood 012345").click()

    notebook.wait_for(".ddpnb-hit", "rank 1 flood 012345")
    assert "rank 1 flood 012340" in rows(notebook)
    assert notebook.page.locator(".ddpnb-follow").inner_text().endswith("paused")
    notebook.screenshot("found")
    notebook.page.locator(".ddpnb-follow").click()
    notebook.wait_for(".ddpnb-rows", "the last line of")
    query.fill(r"flood 0000\d\d x+$")
    notebook.page.locator("input[type=checkbox]").first.check()
    query.press("Enter")
    notebook.wait_for(".ddpnb-found", "100 lines")


def test_tabs_and_the_stop_button_work_while_ranks_flood(lab: Lab, notebook: NotebookPage):
    endless = FLOOD.replace("300_000", "10**9")
    notebook.open("%load_ext ddpnb", endless, "await job")
    notebook.run_all()
    notebook.wait_for(".ddpnb-rows", "flood")

    choose(notebook, "rank 1")
    notebook.wait_for(".ddpnb-rows", "rank 1 flood")
    choose(notebook, "launcher")
    choose(notebook, "rank 0")
    notebook.wait_for(".ddpnb-rows", "rank 0 flood")
    notebook.page.locator(".ddpnb-stop").click()
    notebook.page.locator(".ddpnb-stop-now").click()

    notebook.wait_for(".ddpnb-title", "■ stopped")
    notebook.page.locator(".ddpnb-rerun").wait_for()


def test_lines_of_a_message_that_was_lost_come_again(lab: Lab, notebook: NotebookPage):
    # Every third message is dropped on its way, as an iopub rate limit does it.
    losing = """
from ddpnb.notebook.live_view import LiveView

send, sent = LiveView.send, []
def lossy(self, content, buffers=None):
    sent.append(content)
    if "to" in content or len(sent) % 3:
        send(self, content, buffers)
LiveView.send = lossy
"""
    short = COUNTING.replace("100_000", "200").replace("0.2 if i > 3000 else 0", "0.05")
    notebook.open("%load_ext ddpnb", losing, short, "await job")
    notebook.run_all()
    notebook.wait_for(".ddpnb-title", "succeeded")

    choose(notebook, "rank 1")
    notebook.wait_for(".ddpnb-rows", "rank 1 line 199")
    lines = []
    for _ in range(200):
        lines = notebook.page.evaluate("() => document.querySelector('.ddpnb-rows').innerText")
        notebook.page.locator(".ddpnb-rows").first.press("Home")
        top = notebook.page.locator(".ddpnb-rows").first
        top.evaluate("node => { node.scrollTop = 0; }")
        if "rank 1 line 0\n" in top.inner_text():
            break
    else:
        pytest.fail(f"the first line is not there: {lines}")
    count = notebook.page.locator(".ddpnb-space").first.evaluate("n => n.offsetHeight / 18")
    assert count == 200


def test_a_run_is_launched_again_in_the_same_view(lab: Lab, notebook: NotebookPage):
    hello = "%%ddp -n 1 hello.py\nprint('hello', flush=True)\n"
    notebook.open("%load_ext ddpnb", hello, "await job\nfirst = job.run_id")
    notebook.run_all()
    notebook.wait_for(".ddpnb-title", "succeeded")

    notebook.page.locator(".ddpnb-rerun").click()

    notebook.wait_for(".ddpnb-said", "launched again")
    notebook.wait_for(".ddpnb-title", "running")
    notebook.wait_for(".ddpnb-title", "succeeded")
    assert notebook.page.locator(".ddpnb-view").count() == 1
