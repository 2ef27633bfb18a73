"""The magics in a real kernel, run from top to bottom as `nbconvert --execute` would.

The scripts import no torch, so that most of the time goes into torchrun's own start.
"""

import contextlib
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HELLO = """%%ddp -n 2 {file}
import os
print("<b>rank</b>", os.environ["RANK"], "says {word}", flush=True)
"""
FAILING = """%%ddp -n 2 failing.py
import os, time
if os.environ["RANK"] == "1":
    raise ValueError("on purpose")
time.sleep(600)
"""


@pytest.fixture
def run_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that runs cells in a kernel of their own and gives the notebook back."""

    def run(*cells: str) -> Any:
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in ("%load_ext ddpnb", *cells)]
        )
        client = NotebookClient(notebook, timeout=300, store_widget_state=False)
        # A failing cell ends the run; what it shows is in the notebook.
        with contextlib.suppress(CellExecutionError):
            client.execute(cwd=str(tmp_path))
        return notebook

    return run


def summary(cell: Any) -> str:
    """Return the static summary that a launching cell holds."""
    found = [o.data["text/html"] for o in cell.outputs if "text/html" in o.get("data", {})]
    assert len(found) == 1
    return found[0]


def printed(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def test_cell_runs_as_a_script_and_its_summary_is_stored(run_all, tmp_path):
    notebook = run_all(
        HELLO.format(file="hello.py", word="hello"),
        "result = await job\nprint(result.state.value, len(job.logs()))",
    )

    assert printed(notebook.cells[2]).strip() == "succeeded 2"
    html = summary(notebook.cells[1])
    assert "✔ succeeded" in html
    for rank in (0, 1):
        assert f"&lt;b&gt;rank&lt;/b&gt; {rank} says hello" in html
    assert "widgets" not in notebook.metadata
    assert (tmp_path / "hello.py").read_text().startswith("# %%ddp -n 2 hello.py")


def test_two_jobs_at_once_do_not_mix(run_all):
    notebook = run_all(
        HELLO.format(file="one.py", word="first").replace("-n 2", "-n 2 --as one"),
        HELLO.format(file="two.py", word="second").replace("-n 2", "-n 2 --as two"),
        "print('from the next cell')",
        "await two\nawait one\nprint(one.state.value, two.state.value)",
    )

    assert printed(notebook.cells[4]).strip() == "succeeded succeeded"
    assert printed(notebook.cells[3]) == "from the next cell\n"
    for cell, word, other in ((1, "first", "second"), (2, "second", "first")):
        html = summary(notebook.cells[cell])
        assert html.count(f"says {word}") == 2
        assert other not in html


def test_failing_job_stops_run_all_with_a_short_message(run_all):
    notebook = run_all(FAILING, "await job", "print('went on')")

    error = notebook.cells[2].outputs[-1]
    text = "\n".join(error.traceback)
    assert error.ename == "WorkerFailedError"
    assert "First to fail: rank 1, ValueError: on purpose" in text
    assert 'failing.py", line 4' in text
    assert "job.py" not in text and "asyncio" not in text
    assert notebook.cells[3].outputs == []
    assert "First to fail: rank 1" in summary(notebook.cells[1])


def test_refused_cell_stops_run_all_before_anything_starts(run_all, tmp_path):
    notebook = run_all("%%ddp -n 2 bad.py\nx = 1\n!ls\n", "print('went on')")

    error = notebook.cells[1].outputs[-1]
    assert error.ename == "CellError"
    assert "line 3 of the cell is a shell command" in "\n".join(error.traceback)
    assert len(error.traceback) == 1
    assert notebook.cells[2].outputs == []
    assert not (tmp_path / "bad.py").exists()


def test_summary_alone_follows_the_run_without_ipywidgets(run_all):
    notebook = run_all(
        # What an import of a package that is not installed does.
        "import sys\nsys.modules['ipywidgets'] = None",
        HELLO.format(file="hello.py", word="hello"),
        "await job",
    )

    (output,) = notebook.cells[2].outputs
    assert set(output.data) == {"text/html", "text/plain"}
    assert "✔ succeeded" in summary(notebook.cells[2])
    assert "1 says hello" in output.data["text/plain"]


def test_launch_shows_itself_without_the_magics(run_all):
    notebook = run_all(
        "open('t.py', 'w').write('print(6 * 7)')",
        "import ddpnb\njob = ddpnb.launch('t.py', launcher=ddpnb.Python())\nresult = await job",
    )

    assert "42" in summary(notebook.cells[2])


WAIT_FOR_WIDGETS = """
import asyncio, time
view = dashboard._views[-1]
deadline = time.monotonic() + 200
while type(view._panel).__name__ != "Panel" and time.monotonic() < deadline:
    await asyncio.sleep(0.05)
await job
print(type(view._panel).__name__)
"""


def test_plainer_widgets_take_over_where_no_browser_shows_the_live_view(run_all):
    # Nothing here ever draws a widget, as where the server lacks the extension.
    notebook = run_all(
        "from ddpnb.notebook import dashboard\ndashboard._GREET_SECONDS = 0.1",
        HELLO.format(file="hello.py", word="hello"),
        WAIT_FOR_WIDGETS,
    )

    assert printed(notebook.cells[3]).strip() == "Panel"
    kinds = [set(o.data) for o in notebook.cells[2].outputs if o.output_type != "stream"]
    assert any("application/vnd.jupyter.widget-view+json" in kind for kind in kinds)
    assert "✔ succeeded" in summary(notebook.cells[2])
