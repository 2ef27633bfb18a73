"""The checks of lesson 02 on real runs of the guide's script, each with one fault left in it."""

from pathlib import Path

import nbformat
import pytest

import ddpnb
from ddpnb.exercises import check
from tests.conftest import ROOT
from tests.notebooks.lesson_02 import ERRORS, HINTS, REPAIRS, mended

# Importing torch three times takes a minute on a machine that does other work as well.
DEADLINE = 300


def guides_script() -> str:
    notebook = nbformat.read(ROOT / "notebooks/02_ranks_and_launchers.ipynb", as_version=4)
    magic = "%%ddp_script repaired.py\n"
    (cell,) = [cell for cell in notebook.cells if cell.source.startswith(magic)]
    return cell.source.removeprefix(magic)


@pytest.mark.parametrize("fault", REPAIRS)
def test_one_fault_left_in_fails_its_own_check_and_no_other(fault: str):
    Path("guide.py").write_text(mended(guides_script(), but=fault))

    verdicts = {name: check(f"02-{name}", "guide.py", deadline=DEADLINE) for name in REPAIRS}

    assert [name for name, verdict in verdicts.items() if not verdict.passed] == [fault]
    assert HINTS[fault] in verdicts[fault].hint
    assert "plain Python" in verdicts[fault].detail
    assert any(seen in verdicts[fault].detail for seen in ERRORS.get(fault, ["came to its end"]))
    assert f"Still open: {fault}." in check("02-repair", "guide.py", deadline=DEADLINE).hint
    assert len(ddpnb.runs()) == 1, "one run for all the checks of one text"


def test_a_script_that_hangs_is_ended_and_said_to():
    Path("guide.py").write_text("import time\n\ntime.sleep(600)\n")

    verdict = check("02-repair", "guide.py", deadline=3)

    assert "was ended (time limit of 3 s passed)" in verdict.detail
    assert "hangs or waits" in verdict.hint
    assert [job.done for job in ddpnb.runs()] == [True]
