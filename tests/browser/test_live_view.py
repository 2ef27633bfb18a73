"""The live view in a real browser: reload, a second view, search, floods, lost messages."""

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Lab, NotebookPage

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

    notebook.save("widget-view")
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


def test_a_second_browser_sees_the_same_and_may_stop_the_run(
    lab: Lab, notebook: NotebookPage, browser: Any
):
    notebook.open("%load_ext ddpnb", COUNTING)
    notebook.run_all()
    notebook.wait_for(".ddpnb-rows", "rank 1 line 3")
    notebook.save("widget-view")
    context = browser.new_context()
    second = NotebookPage(lab, context.new_page(), notebook.name)

    second.open_again()

    second.wait_for(".ddpnb-rows", "rank 1 line 3")
    second.page.locator(".ddpnb-stop").click()
    second.page.locator(".ddpnb-stop-now").click()
    notebook.wait_for(".ddpnb-title", "■ stopped")
    second.wait_for(".ddpnb-title", "■ stopped")
    context.close()


def test_lines_of_some_ranks_are_shown_together(lab: Lab, notebook: NotebookPage):
    short = "%%ddp -n 3 short.py\nimport os\nprint('from', os.environ['RANK'])\n"
    notebook.open("%load_ext ddpnb", short, "await job")
    notebook.run_all()
    notebook.wait_for(".ddpnb-title", "succeeded")

    choose(notebook, "rank 0")
    notebook.wait_for(".ddpnb-rows", "from 0")
    notebook.page.locator(".ddpnb-chip", has_text="rank 2").click(modifiers=["Control"])

    words = rows(notebook).split()  # in the order in which the two ranks happened to write
    assert sorted([words[:4], words[4:]]) == [["0", "│", "from", "0"], ["2", "│", "from", "2"]]
    notebook.page.keyboard.press("Shift+Tab")
    notebook.page.keyboard.press("Enter")  # the chip before it, by the keyboard alone
    assert rows(notebook).split() == ["from", "1"]


def test_a_ranks_log_is_downloaded_whole_and_its_lines_are_copied(lab: Lab, notebook: NotebookPage):
    short = "%%ddp -n 2 short.py\nimport os\nprint('ü from', os.environ['RANK'])\n"
    notebook.open("%load_ext ddpnb", short, "await job")
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook.run_all()
    notebook.wait_for(".ddpnb-title", "succeeded")
    choose(notebook, "rank 1")

    with notebook.page.expect_download() as waiting:
        notebook.page.locator(".ddpnb-download").click()
    notebook.page.locator(".ddpnb-copy").click()
    notebook.wait_for(".ddpnb-said", "copied")

    assert waiting.value.suggested_filename.endswith("rank-1-stdout.log")
    assert Path(waiting.value.path()).read_bytes() == "ü from 1\n".encode()
    assert notebook.page.evaluate("() => navigator.clipboard.readText()") == "ü from 1"


def test_a_detached_run_is_found_again_when_the_kernel_was_restarted(
    lab: Lab, notebook: NotebookPage
):
    detached = COUNTING.replace("%%ddp", "%%ddp --detach")
    notebook.open(
        "%load_ext ddpnb", detached, "%load_ext ddpnb\nimport ddpnb\njob = ddpnb.attach()"
    )
    notebook.run_cell(0)
    notebook.run_cell(1)
    notebook.wait_for(".ddpnb-rows", "rank 1 line 3")

    notebook.restart_kernel()
    notebook.run_cell(2)

    attached = notebook.page.locator(".jp-CodeCell").nth(2)
    attached.locator(".ddpnb-title", has_text="running").wait_for()
    attached.locator(".ddpnb-rows", has_text="rank 1 line 3").wait_for()
    notebook.screenshot("attached")
    attached.locator(".ddpnb-stop").click()
    attached.locator(".ddpnb-stop-now").click()
    attached.locator(".ddpnb-title", has_text="■ stopped").wait_for()
    notebook.wait_for(".ddpnb-deaf", "ddpnb.attach(")  # the view of before says that it is cut off


def test_a_notebook_opened_again_shows_what_the_run_left(lab: Lab, notebook: NotebookPage):
    logged = """%%ddp -n 2 logged.py
import os, time
from ddpnb.worker import log

for step in range(20):
    log(step, loss=1 / (step + 1) + 0.1 * int(os.environ["RANK"]))
    time.sleep(0.02)
print("what stays")
"""
    notebook.open("%load_ext ddpnb", logged, "await job")
    notebook.run_all()
    notebook.wait_for(".ddpnb-title", "succeeded")
    summary = notebook.page.locator("[class^=ddpnb-summary]")
    assert not summary.is_visible()  # the live view has it all
    notebook.save("data:image/png")
    for session in lab.call("api/sessions"):
        lab.call(f"api/sessions/{session['id']}", "DELETE")

    notebook.open_again()

    summary.wait_for()
    assert "what stays" in summary.inner_text()
    assert summary.locator("img").evaluate("image => image.naturalWidth") > 100
    notebook.screenshot("reopened")


def test_bars_and_lines_of_two_ranks_stay_whole_while_other_cells_print(
    lab: Lab, notebook: NotebookPage
):
    bars = """%%ddp -n 2 bars.py
import os, sys, time

rank = os.environ["RANK"]
for i in range(8):
    print("rank", end=" ")
    print(rank, end=" ", flush=True)
    print("line", i, flush=True)
    print(f"\\r{i + 1}/8 of {rank}", end="", file=sys.stderr, flush=True)
    time.sleep(0.1)
"""
    notebook.open("%load_ext ddpnb", bars, "print('another ' + 'cell')", "await job")
    notebook.run_all()
    notebook.wait_for(".ddpnb-title", "succeeded")

    notebook.wait_for(".jp-OutputArea-output", "another cell")
    for rank in (0, 1):
        choose(notebook, f"rank {rank}")
        seen = rows(notebook).split("\n")
        assert [one for one in seen if "line" in one] == [f"rank {rank} line {i}" for i in range(8)]
        assert [one for one in seen if "/8" in one] == [f"8/8 of {rank}"]
    notebook.screenshot("bars")


def test_plainer_widgets_take_over_where_the_extension_is_missing(tmp_path: Path, browser: Any):
    lab = Lab(tmp_path / "lab", without=("anywidget",))
    context = browser.new_context()
    notebook = NotebookPage(lab, context.new_page(), "plain")
    try:
        notebook.open("%load_ext ddpnb", COUNTING, "await job")
        notebook.run_all()

        notebook.wait_for(".ddpnb-log", "rank 1 line 3")
        notebook.screenshot("plain")
        notebook.page.locator(".ddpnb-stop").click()
        notebook.wait_for(".ddpnb-head", "■ stopped")
    finally:
        context.close()
        lab.close()
