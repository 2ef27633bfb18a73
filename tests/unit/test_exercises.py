"""Predictions, checks, myths and devices: what they keep, say, and escape."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from ddpnb.errors import DdpnbError
from ddpnb.exercises import (
    Verdict,
    check,
    compare,
    device_for,
    exercise,
    launch_timeline,
    myth,
    predict,
)
from ddpnb.exercises import process_tree as tree_of
from ddpnb.job import Job
from ddpnb.json_files import append_json_lines, write_json
from ddpnb.launchers.torchrun import Torchrun
from ddpnb.process import ProcessId
from ddpnb.records import Event
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec

HOSTILE = "<img src=x onerror=alert(1)> & \"quotes\" 'too' </td> `<b>code</b>`"
GONE = ProcessId(pid=1, start_time=1, boot_id="an earlier boot")


def answers() -> dict[str, dict[str, object]]:
    return json.loads(Path(".ddpnb/answers.json").read_text())


def ended_job(
    results: dict[int, dict[str, object]], *, returncode: int = 0, reason: str | None = None
) -> Job:
    """Return the job of a run folder as one would lie there after the run."""
    run = RunDir.propose(Path("runs"), "job")
    spec = LaunchSpec(name="job", script=Path("/s.py"), nproc_per_node=max(1, len(results)))
    run.create(spec, launcher=Torchrun().to_json(), command={}, script=b"", owner=GONE)
    write_json(run.processes, {"keeper": GONE.to_json(), "supervisor": GONE.to_json()})
    for rank, values in results.items():
        files = run.rank(rank)
        files.path.mkdir(parents=True)
        write_json(files.result(0), values)
        start = Event(rank=rank, time=1.0, kind="start", data=asdict(GONE) | {"pid": 100 + rank})
        with files.events.open("ab") as file:
            append_json_lines(file.fileno(), [start.to_json()])
    write_json(run.exit, {"returncode": returncode, "reason": reason})
    return Job(RunDir.open(run.path))


def environment(rank: int, **changed: object) -> dict[str, object]:
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_PORT": "4711"}
    return variables | changed


def test_prediction_is_kept_beside_the_notebook():
    shown = predict("00-x", 5, question="How many?")

    assert answers()["00-x"]["answer"] == 5
    assert answers()["00-x"]["question"] == "How many?"
    assert "You say: 5" in repr(shown)
    assert Path(".ddpnb/.gitignore").read_text() == "*\n"


def test_prediction_of_none_asks_and_keeps_an_earlier_answer():
    asked = predict("00-x", None, question="How many?")
    predict("00-x", 5)
    again = predict("00-x", None, question="How many?")

    assert "None" in repr(asked)
    assert again.answer == 5


def test_prediction_changes_only_its_own_answer():
    predict("00-a", "one")
    predict("00-b", [1, 2])
    predict("00-a", "two")

    assert {name: kept["answer"] for name, kept in answers().items()} == {
        "00-a": "two",
        "00-b": [1, 2],
    }


def test_prediction_names_the_kind_of_answer_that_cannot_be_kept():
    with pytest.raises(TypeError, match="cannot be a set"):
        predict("00-x", {1, 2})

    assert not Path(".ddpnb/answers.json").exists()


def test_prediction_says_where_it_cannot_write(tmp_path: Path):
    (tmp_path / ".ddpnb").write_text("a file where a folder should be")

    with pytest.raises(DdpnbError, match="Not a directory"):
        predict("00-x", 1)


@pytest.mark.parametrize(
    ("predicted", "actual"),
    [(5, 5), (5, np.int64(5)), (0.5, 0.5001), (" Rank 0 ", "rank 0"), ((1, 2), [1, 2])],
)
def test_compare_sees_what_agrees(predicted: object, actual: object):
    predict("00-x", predicted, question="What?")

    comparison = compare("00-x", actual, explain="Because.")

    assert comparison.agrees
    assert "As you predicted" in repr(comparison) and "Because." in repr(comparison)


@pytest.mark.parametrize(("predicted", "actual"), [(4, 5), ("4", 4), ([1], [1, 2])])
def test_compare_shows_both_sides_when_they_differ(predicted: object, actual: object):
    predict("00-x", predicted, question="What?")

    comparison = compare("00-x", actual)

    assert not comparison.agrees
    assert "Not what you predicted" in repr(comparison)
    assert not re.search("wrong|error|fail", repr(comparison), re.IGNORECASE)


def test_compare_is_kind_when_nothing_was_predicted():
    comparison = compare("00-x", 5)

    assert not comparison.agrees
    assert "No prediction" in repr(comparison) and "It was: 5" in repr(comparison)


def test_check_names_its_verdict_and_passes_on_what_it_is_given():
    @exercise("test-sum")
    def check_sum(answer: int, *, terms: list[int]) -> Verdict:
        return Verdict(passed=answer == sum(terms), hint="Add them.", detail=f"{terms}")

    passed, open_ = check("test-sum", 3, terms=[1, 2]), check("test-sum", 4, terms=[1, 2])

    assert (passed.name, passed.passed) == ("test-sum", True)
    assert "passed" in repr(passed) and "Hint" not in repr(passed)
    assert "not yet" in repr(open_) and "Hint: Add them." in repr(open_)


def test_check_without_an_answer_asks_for_one():
    verdict = check("00-padding", None)

    assert not verdict.passed
    assert "None" in verdict.hint


def test_check_that_does_not_exist_names_those_that_do():
    with pytest.raises(LookupError, match="00-env"):
        check("00-nothing", 1)


@pytest.mark.parametrize("shown", ["prediction", "comparison", "verdict", "myth"])
def test_page_is_escaped(shown: str):
    predict("00-x", HOSTILE, question=HOSTILE)
    page = {
        "prediction": predict("00-x", None, question=HOSTILE),
        "comparison": compare("00-x", HOSTILE, explain=HOSTILE),
        "verdict": Verdict(name=HOSTILE, passed=False, hint=HOSTILE, detail=HOSTILE),
        "myth": myth(HOSTILE, HOSTILE, HOSTILE, HOSTILE),
    }[shown]._repr_html_()

    assert set(re.findall(r"</?([a-z]+)", page)) <= {"div", "code"}
    assert "&lt;img" in page


def test_source_becomes_a_link_only_when_it_is_an_address():
    linked = myth("c", "False", "f", 'https://example.org/"onclick="x')._repr_html_()
    named = myth("c", "False", "f", "javascript:alert(1)")._repr_html_()

    assert '<a href="https://example.org/&quot;onclick=&quot;x"' in linked
    assert "<a " not in named


def test_cards_fit_every_theme():
    page = Verdict(name="x", passed=True)._repr_html_()

    assert "var(--jp-ui-font-color1,inherit)" in page
    assert "var(--jp-layout-color2,transparent)" in page


def test_device_is_the_cpu_where_gpus_are_too_few(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    device = device_for(2)

    assert device == "cpu" and f"{device}" == "cpu"
    assert "gloo" in device._repr_html_()


def test_process_tree_shows_who_started_whom():
    job = ended_job({0: {}, 1: {}})

    tree = tree_of(job)

    assert tree.count == 4
    assert [line.strip(" └├─").split()[0] for line in repr(tree).splitlines()] == [
        "1",  # the kernel
        "1",  # the keeper
        "1",  # the supervisor
        "100",
        "101",
    ]
    assert "&lt;" not in tree._repr_html_()


def test_timeline_tells_when_each_rank_began_logged_and_ended():
    job = ended_job({0: {}, 1: {}})
    launched = job.run.read_run()["created"]
    for rank in (0, 1):
        logged = [
            Event(rank=rank, time=launched + 2, kind="metric", step=0, data={"ready": 1.0}),
            Event(rank=rank, time=launched + 3, kind="metric", step=1, data={"ready": 1.0}),
        ]
        with job.run.rank(rank).events.open("ab") as file:
            append_json_lines(file.fileno(), [event.to_json() for event in logged])
    write_json(job.run.exit, {"returncode": 0, "exits": [{"rank": 1, "time": launched + 4}]})

    found = launch_timeline(job)

    assert list(found[1]) == ["start", "ready", "exit"]
    assert found[1]["ready"] == pytest.approx(2) and found[1]["exit"] == pytest.approx(4)
    assert list(found[0]) == ["start", "ready"]


def test_env_passes_when_each_rank_reports_its_own():
    job = ended_job({rank: environment(rank) for rank in (0, 1)})

    assert check("00-env", job).passed


@pytest.mark.parametrize(
    ("results", "hint"),
    [
        ({0: environment(0), 1: {"RANK": 1}}, "LOCAL_RANK, WORLD_SIZE, MASTER_PORT"),
        ({0: environment(0), 1: environment(0)}, "Read RANK"),
        ({0: environment(0), 1: environment(1, WORLD_SIZE=1)}, "Read WORLD_SIZE"),
        ({0: environment(0), 1: environment(1, MASTER_PORT=1)}, "where all of them meet"),
        ({0: {}, 1: {}}, "RANK"),
    ],
)
def test_env_hints_at_what_is_missing(results: dict[int, dict[str, object]], hint: str):
    verdict = check("00-env", ended_job(results))

    assert not verdict.passed
    assert hint in verdict.hint


@pytest.mark.parametrize("check_id", ["00-env", "00-stop"])
def test_a_wrong_kind_of_answer_gets_a_hint(check_id: str):
    assert "job itself" in check(check_id, "first").hint


def test_env_waits_for_a_run_that_ended_well():
    assert "await" in check("00-env", ended_job({0: {}}, returncode=1)).hint


def test_port_passes_with_the_port_of_each_run():
    jobs = [ended_job({0: environment(0, MASTER_PORT=port)}) for port in (4711, 4712)]

    assert check("00-port", [4711, "4712"], jobs=jobs).passed
    assert not check("00-port", [4712, 4711], jobs=jobs).passed
    assert not check("00-port", 4711, jobs=jobs).passed


def test_port_asks_for_the_environment_first():
    verdict = check("00-port", [1, 2], jobs=[ended_job({0: {"RANK": 0}})])

    assert "MASTER_PORT" in verdict.hint


def test_stop_passes_when_each_rank_saved_its_count():
    job = ended_job({0: {"stopped_at": 3}, 1: {"stopped_at": 4}}, returncode=1, reason="stopped")

    assert check("00-stop", job).passed


def test_stop_tells_a_clean_stop_from_other_ends():
    by_itself = ended_job({0: {"stopped_at": 3}})
    killed = ended_job({0: {}}, returncode=1, reason="stopped")

    assert "by itself" in check("00-stop", by_itself).hint
    assert "before it could save" in check("00-stop", killed).hint


@pytest.mark.parametrize(
    ("answer", "passed"), [(3, True), ("3", True), (1, False), (0, False), ("x", False)]
)
def test_padding_knows_the_answer_and_has_a_hint_for_others(answer: object, passed: bool):
    verdict = check("00-padding", answer)

    assert verdict.passed is passed
    assert passed or verdict.hint
