"""Every lesson runs from top to bottom without a click, and its exercises can be solved."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import ddpnb
from ddpnb.records import JobState
from tests.conftest import ROOT
from tests.notebooks import lesson_02

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
DEADLINE = 600  # seconds for one cell, on a machine that does other work as well

# By lesson: a stub in the exercises, and what a learner would put in its place.
SOLUTIONS = {
    "00": {
        'report(RANK=os.environ["RANK"])': (
            'names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT")\n'
            "report(**{name: os.environ[name] for name in names})"
        ),
        "ports = None": 'ports = [job.results[0]["MASTER_PORT"] for job in (first, second)]',
        "# your line here": (
            "import time\n"
            'while len(set(counter.metrics()["rank"])) < 2:\n'
            "    time.sleep(0.1)\n"
            "counter.stop()"
        ),
        "counted_twice = None": "counted_twice = 3",
    },
    "02": lesson_02.SOLUTIONS,
}
# By lesson: names of the runs that are meant to fail before the exercises are solved.
FAILING = {"02": {"guide", "check repaired"}}


def lesson_of(path: Path) -> str:
    return path.stem[:2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder for a notebook, whose kernel and ranks find this checkout."""
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    folder = tmp_path / "a learner's folder"
    folder.mkdir()
    return folder


def run(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """Run a notebook in a kernel of its own; raise at the first cell that fails."""
    client = NotebookClient(
        notebook,
        timeout=DEADLINE,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,
    )
    return client.execute()


def check_accuracies() -> None:
    """Lesson 00: the same accuracy for 1, 2 and 4 ranks, as the run folders tell."""
    results = {}
    for job in ddpnb.runs():
        if "accuracy" in job.results.get(0, {}):
            results[job.spec.world_size] = job.results
    accuracies = {ranks: result[0]["accuracy"] for ranks, result in results.items()}

    assert sorted(accuracies) == [1, 2, 4]
    assert min(accuracies.values()) >= 0.93
    assert max(accuracies.values()) - min(accuracies.values()) <= 0.01
    for ranks, result in results.items():
        assert len({values["accuracy"] for values in result.values()}) == 1
        assert sum(values["tested"] for values in result.values()) == 297
        assert sorted(values["rank"] for values in result.values()) == list(range(ranks))


def check_launchers() -> None:
    """Lesson 02: each launcher started the ranks that it was asked for, and they met."""
    who = [job for job in ddpnb.runs() if job.spec.name == "who"]
    counted = {
        job.run.read_run()["launcher"]["name"]: [r["counted"] for r in job.results.values()]
        for job in who
    }

    assert counted == {"python": [1], "spawn": [2, 2], "torchrun": [2, 2]}


AFTERWARDS = {"00": check_accuracies, "02": check_launchers}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_lesson_runs_from_top_to_bottom(path: Path, folder: Path):
    run(nbformat.read(path, as_version=4), folder)

    failed = {job.spec.name for job in ddpnb.runs() if job.state is JobState.FAILED}
    assert failed == FAILING.get(lesson_of(path), set())
    assert all(job.done and job.state is not JobState.LOST for job in ddpnb.runs())
    AFTERWARDS.get(lesson_of(path), lambda: None)()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_exercises_pass_once_they_are_solved(path: Path, folder: Path):
    notebook = exercises_of(nbformat.read(path, as_version=4))
    for stub, solution in SOLUTIONS.get(lesson_of(path), {}).items():
        (cell,) = [cell for cell in notebook.cells if stub in cell.source]
        cell.source = cell.source.replace(stub, solution)

    run(notebook, folder)

    checked = [cell for cell in notebook.cells if "check(" in cell.source]
    verdicts = [text for cell in checked for text in texts_of(cell) if ": " in text]
    assert len(verdicts) == len(checked) > 0
    assert [text for text in verdicts if "passed" not in text.splitlines()[0]] == []


def exercises_of(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Keep the cell that loads ddpnb and the cells from the heading "Exercises" to the next one."""
    first = next(cell for cell in notebook.cells if cell.source.startswith("%load_ext"))
    headings = [
        (at, cell.source.splitlines()[0])
        for at, cell in enumerate(notebook.cells)
        if cell.source.startswith("## ")
    ]
    begin = next(at for at, heading in headings if heading == "## Exercises")
    end = next(at for at, _ in headings if at > begin)
    notebook.cells = [first, *notebook.cells[begin:end]]
    return notebook


def texts_of(cell: nbformat.NotebookNode) -> list[str]:
    return [output.data["text/plain"] for output in cell.outputs if output.output_type != "stream"]
