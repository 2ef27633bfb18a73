"""Problems that people reported of runs in notebooks, and what happens here instead.

Each test names the public reports it is about.
"""

import json

import nbformat
from nbclient import NotebookClient

import ddpnb
from tests.conftest import wait_until
from tests.launch.fault_scenes import DEADLINE, environment, scene_of


def execute(scene, code):
    """Run a cell in the scene's kernel and return what it printed.

    A kernel aborts cells that were sent before it was through with a failed one; those are sent
    again.
    """
    return wait_until(lambda: execute_once(scene, code), DEADLINE, "the kernel runs a cell")


def execute_once(scene, code):
    said = []

    def hook(message):
        said.append(message["content"].get("text", ""))

    reply = scene.client.execute_interactive(code, timeout=DEADLINE, output_hook=hook)
    assert reply["content"]["status"] in ("ok", "aborted"), reply["content"]
    return "".join(said) if reply["content"]["status"] == "ok" else None


# 18: the stop button interrupts the waiting cell, and the ranks go on
# ipython/ipython#3400, lava-nc/lava#88


def test_an_interrupted_wait_ends_the_ranks_and_leaves_the_kernel_usable(tmp_path):
    with environment(tmp_path), scene_of(ddpnb.Python(), tmp_path, cell="job.wait()") as scene:
        wait_until(scene.writes, DEADLINE, "the rank writes")
        processes = scene.processes()

        scene.kernel.interrupt_kernel()

        wait_until(lambda: scene.job.done, DEADLINE, "the run is over")
        wait_until(lambda: not any(p.is_alive() for p in processes), DEADLINE, "nothing is left")
        assert scene.job.state is ddpnb.JobState.STOPPED
        assert scene.lost() == 0
        again = (
            "(open('short.py', 'w').write('print(6 * 7)'),"
            " print(ddpnb.launch('short.py', launcher=ddpnb.Python()).wait().state.value))"
        )
        assert "succeeded" in execute(scene, again)


def test_an_interrupt_of_another_cell_does_not_touch_a_run(tmp_path):
    with environment(tmp_path), scene_of(ddpnb.Python(), tmp_path, cell="") as scene:
        wait_until(scene.writes, DEADLINE, "the rank writes")
        scene.client.execute("open('asleep', 'w').close()\nimport time\ntime.sleep(600)")
        asleep = tmp_path / "notebook" / "asleep"
        wait_until(asleep.exists, DEADLINE, "the other cell sleeps")

        scene.kernel.interrupt_kernel()

        assert "the kernel is free" in execute(scene, "print('the kernel is free')")
        before = scene.counted(0)
        wait_until(lambda: scene.counted(0) > before, DEADLINE, "the rank goes on")
        assert not scene.job.done


# 27: logs pumped by threads end up in the wrong rank's widget, or are lost
# jupyter-widgets/ipywidgets#2358, #4020, #1794, #3017

RECORDED = """
import json
from ddpnb.notebook.live_view import LiveView

lines = {}
def send(self, content, buffers=None):
    for writer, told in content.get("lines", {}).items():
        lines.setdefault(writer, []).extend(row[1] for row in told["rows"])
LiveView.send = send
"""
FIVE_LINES = """%%ddp -n 2 five.py
import os, time

rank = os.environ["RANK"]
for i in range(5):
    print("rank", rank, "line", i, flush=True)
    time.sleep(0.3)
"""


def test_each_rank_has_its_own_lines_while_other_cells_run(tmp_path, monkeypatch):
    cells = [
        "%load_ext ddpnb",
        RECORDED,
        FIVE_LINES,
        "print('from the next cell')",
        "result = await job",
        "print(json.dumps(lines))",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])

    NotebookClient(notebook, timeout=DEADLINE, store_widget_state=False).execute(cwd=str(tmp_path))

    assert printed(notebook.cells[3]) == "from the next cell\n"
    lines = json.loads(printed(notebook.cells[5]))
    for rank in ("0", "1"):
        assert lines[rank] == [f"rank {rank} line {i}" for i in range(5)]


def printed(cell):
    return "".join(output.get("text", "") for output in cell.outputs)
