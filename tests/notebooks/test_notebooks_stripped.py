"""The lessons are kept without what a run leaves in them, and prose stands in markdown cells."""

import re
from pathlib import Path

import nbformat
import pytest

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_COMMENT_LINES = 3  # in a row; what needs more is prose

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def longest_comment(source: str) -> int:
    """Return the number of lines of the longest run of comment lines."""
    runs = re.findall(r"(?:^[ \t]*#.*\n?)+", source, re.MULTILINE)
    return max((len(run.splitlines()) for run in runs), default=0)


def test_there_are_notebooks():
    assert NOTEBOOKS


@every_notebook
def test_notebook_is_valid_and_opens_without_a_question(path: Path):
    notebook = read(path)

    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"


@every_notebook
def test_notebook_is_named_for_its_place_and_what_it_does(path: Path):
    assert re.fullmatch(r"\d\d(_[a-z0-9]+)+", path.stem)


@every_notebook
def test_notebook_is_stripped(path: Path):
    kept = [cell.id for cell in code_cells(path) if cell.outputs or cell.execution_count]

    assert kept == [], "make fix strips it"
    assert "widgets" not in read(path).metadata, "make fix strips it"


@every_notebook
def test_prose_stands_in_markdown_cells(path: Path):
    wordy = [
        cell.source
        for cell in code_cells(path)
        if longest_comment(cell.source) > MOST_COMMENT_LINES
    ]

    assert wordy == []


def test_a_long_comment_is_measured():
    assert longest_comment("x = 1\n# one\n# two\ny = 2  # not a line of its own\n# one\n") == 2
