"""Lesson 02's checks without a run: how a script is read, and what a run is taken to show."""

from pathlib import Path
from typing import Any

import pytest

from ddpnb.exercises import Verdict, check
from ddpnb.exercises.readings import Reading
from ddpnb.exercises.repairs import FAULTS, Seen
from ddpnb.exercises.script_runs import ScriptRun, with_observer
from ddpnb.records import JobState, RankFailure, RunResult

RIGHT = "torchrun --standalone --nproc_per_node=4 experiment.py hyperparams.yaml"
TABLE = [[(0, 0), (1, 1)], [(0, 2), (1, 3)]]
FAULT = {fault.name: fault for fault in FAULTS}


def read(fault: str, text: str) -> str:
    """Return the hint for a text, "" when it reads well."""
    return FAULT[fault].read(Reading.of(text))


def ran(
    calls: list[dict[str, Any]] | None = None, *, error: str = "", reason: str | None = None
) -> ScriptRun:
    """Return a run in which two ranks met, and then did what is given."""
    met: list[dict[str, Any]] = [{"call": "load", "pid": 1, "parent": 0}]
    for rank in (0, 1):
        met.append({"call": "load", "pid": 10 + rank, "parent": 1})
        met.append({"call": "init", "pid": 10 + rank, "rank": rank, "backend": "gloo"})
    failures = (RankFailure(rank=0, type="RuntimeError", message=error),) if error else ()
    return ScriptRun(
        file="guide.py",
        device="cpu",
        reading=Reading.of(""),
        result=RunResult(
            run_id="r",
            state=JobState.FAILED if error else JobState.SUCCEEDED,
            returncode=1 if error else 0,
            reason=reason,
            failures=failures,
        ),
        calls=tuple(met + (calls or [])),
        deadline=90,
    )


def see(fault: str, run: ScriptRun) -> Seen:
    return FAULT[fault].see(run)


def fetched(**by_rank: list[int]) -> list[dict[str, Any]]:
    rows = {10: by_rank["rank_0"], 11: by_rank["rank_1"]}
    return [{"call": "item", "pid": pid, "index": i} for pid, row in rows.items() for i in row]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("guard", "if '__main__' == __name__:\n    main()"),
        ("import", "import torch\ntorch.multiprocessing.spawn(f)"),
        ("import", "from torch.multiprocessing import spawn\nspawn(f)"),
        ("address", "init_process_group('gloo', init_method='tcp://127.0.0.1:2', rank=r)"),
        ("address", "d.update(MASTER_ADDR='x'); e['MASTER_ADDR'] = e['MASTER_PORT'] = '1'"),
        ("backend", "init_process_group()"),
        ("backend", "init_process_group(backend=chosen)"),
        ("device", "init_process_group(device_id=d)\nDDP(model.to(d))\nx.to(d)"),
        ("save", "def f(r):\n    if r == 0:\n        torch.save(m, 'p')"),
        ("destroy", "dist.destroy_process_group()"),
    ],
)
def test_a_repair_in_other_words_reads_well(fault: str, text: str):
    assert read(fault, text) == ""


@pytest.mark.parametrize(
    ("fault", "text", "hint"),
    [
        ("guard", "if __name__ == 'main':\n    main()", "started or imported"),
        ("guard", "main()", "started or imported"),
        ("import", "train(0, 1)", "keeps `mp.spawn`"),
        ("import", "import multiprocessing as mp\nmp.spawn(f)", "Which name"),
        ("address", "e['MASTER_ADDR'] = '127.0.0.1'", "two variables"),
        ("backend", "init_process_group(backend='nccl')", "between GPUs"),
        ("backend", "init_process_group('gloo')", "on GPUs it is slow"),
        (
            "device",
            "from t import DistributedDataParallel as D\nD(m, device_ids=[r])",
            "names a GPU",
        ),
        ("device", "DistributedDataParallel(m.to(d))", "Both must be moved"),
        ("device", "DistributedDataParallel(m.to(d))\nx.to(d)", "its own GPU"),
        ("data", "DistributedSampler(d)", "nobody tells it"),
        ("save", "print()", "Nobody saves"),
        ("save", "if __name__ == '__main__':\n    torch.save(m, 'p')", "how many need"),
    ],
)
def test_a_fault_is_read_with_a_hint(fault: str, text: str, hint: str):
    assert hint in read(fault, text)


@pytest.mark.parametrize(
    ("fault", "run", "hint"),
    [
        ("guard", ran(error="... its bootstrapping phase ..."), "starts ranks again"),
        ("address", ran(error="... EADDRINUSE ..."), "has that port"),
        ("address", ran(error="MASTER_PORT expected"), "do not find"),
        ("backend", ran(error="ProcessGroupNCCL is only for GPUs"), "still asks for nccl"),
        ("device", ran(error="device_ids ..."), "DDP refuses"),
        ("device", ran(error="Expected all tensors to be on the same device"), "left on another"),
        ("data", ran(fetched(rank_0=[0, 1, 1, 0], rank_1=[0, 1, 1, 0])), "Does the loader use it"),
        ("data", ran(fetched(rank_0=[0, 1, 0, 1], rank_1=[2, 3, 2, 3])), "the same order"),
        ("save", ran([{"call": "save", "pid": pid} for pid in (10, 11)]), "exactly one"),
        ("save", ran(), "exactly one"),
        ("destroy", ran([{"call": "destroy", "pid": 10}]), "its own part"),
    ],
)
def test_a_run_shows_a_repair_that_only_reads_well(fault: str, run: ScriptRun, hint: str):
    assert hint in see(fault, run).hint


@pytest.mark.parametrize(
    ("fault", "run"),
    [
        ("guard", ran()),
        ("import", ran()),
        ("address", ran()),
        ("backend", ran()),
        ("device", ran([{"call": "wrap", "pid": 10, "device": "cpu"}])),
        ("data", ran(fetched(rank_0=[0, 1, 2, 3], rank_1=[2, 3, 1, 0]))),
        ("save", ran([{"call": "save", "pid": 10}])),
        ("destroy", ran([{"call": "destroy", "pid": pid} for pid in (10, 11)])),
    ],
)
def test_a_run_shows_a_repair(fault: str, run: ScriptRun):
    assert see(fault, run).hint == "" and see(fault, run).fact


@pytest.mark.parametrize("fault", ["data", "save", "destroy"])
def test_a_run_that_failed_shows_nothing_of_what_comes_last(fault: str):
    assert see(fault, ran(error="something else")) == Seen()


def test_a_run_says_what_ran_and_how_it_ended():
    assert "`mp.spawn` started 2 ranks" in ran().told()
    assert "RuntimeError: oh" in ran(error="oh").told()
    assert "was ended (time limit" in ran(reason="time limit of 3 s passed").told()


def test_observer_stands_on_the_line_of_the_first_import():
    text = '"""Doc."""\nfrom __future__ import annotations\n\nimport os\nimport torch\n'

    lines = with_observer(text, Reading.of(text)).splitlines()

    assert lines[3] == "import ddpnb.worker.observer; import os"
    assert lines[:3] + lines[4:] == text.splitlines()[:3] + text.splitlines()[4:]


def test_a_script_that_is_not_there_or_no_python_is_not_run():
    Path("bad.py").write_text("x = 1\nif\n")

    missing, bad = check("02-save", "none.py"), check("02-save", "bad.py")

    assert "cell that writes the script" in missing.hint
    assert "Line 2 is no Python" in bad.hint
    assert "name of the script" in check("02-save", 1).hint


@pytest.mark.parametrize(
    ("table", "hint"),
    [
        ([[(0, 0), (1, 1)], [(None, None)] * 2], "place of each `None`"),
        ([[(0, 0), (1, 1)], [(2, 2), (3, 3)]], "starts again"),
        ([[(0, 0), (1, 1)], [(0, 0), (1, 1)]], "same rank"),
        ([[(0, 1), (1, 2)], [(0, 3), (1, 4)]], "are 0 to 3"),
        ([[(0, 2), (1, 3)], [(0, 0), (1, 1)]], "first machine"),
        ([(0, 0), (1, 1)], "two lists"),
        (7, "two lists"),
    ],
)
def test_table_hints_at_what_is_counted_wrong(table: object, hint: str):
    assert hint in check("02-table", table).hint


def test_table_passes_for_two_machines():
    assert check("02-table", TABLE).passed
    assert check("02-table", [[list(pair) for pair in machine] for machine in TABLE]).passed


@pytest.mark.parametrize(
    "line",
    [
        RIGHT,
        "torchrun --standalone --nproc-per-node 4 experiment.py hyperparams.yaml",
        "python -m torch.distributed.run --standalone --nproc_per_node 4 experiment.py"
        " hyperparams.yaml",
        "torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 --nnodes=1 --nproc-per-node=4"
        " experiment.py hyperparams.yaml",
        "torchrun --nproc_per_node 4 --rdzv_endpoint localhost --rdzv_backend c10d experiment.py"
        " hyperparams.yaml",
    ],
)
def test_command_passes_however_it_is_spelled(line: str):
    assert check("02-command", line).passed


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("python experiment.py hyperparams.yaml", "Begin with"),
        ("torchrun 'experiment.py", "Begin with"),
        (RIGHT.replace("--standalone ", ""), "meeting place"),
        (RIGHT.replace("=4", "=2"), "How many processes"),
        (RIGHT.replace("hyperparams.yaml", ""), "only argument"),
        ("torchrun experiment.py hyperparams.yaml --standalone --nproc_per_node=4", "before it"),
        (RIGHT.replace("--standalone", "--alone"), "Options stand between"),
        ("torchrun", "Options stand between"),
    ],
)
def test_command_hints_at_what_is_missing(line: str, hint: str):
    verdict: Verdict = check("02-command", line)

    assert not verdict.passed
    assert hint in verdict.hint
