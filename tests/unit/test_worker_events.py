"""What a rank writes with log, progress and report, read back from the run folder."""

import json
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ddpnb.json_files import read_json
from ddpnb.rank_dir import RankDir
from ddpnb.records import Event
from ddpnb.rundir import RunDir
from ddpnb.worker.events import log, progress, report


@pytest.fixture
def rank1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RankDir:
    """Make this process rank 1 of a run, and return its files."""
    monkeypatch.setenv("DDPNB_RUN", str(tmp_path / "a run"))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    return RunDir(tmp_path / "a run").rank(1)


def events(files: RankDir) -> list[Event]:
    return list(files.read_events())


def test_log_writes_one_event_a_call(rank1: RankDir):
    log(3, loss=0.5, accuracy=1)
    log(step=4, loss=0.25)

    first, second = events(rank1)
    assert (first.rank, first.kind, first.step) == (1, "metric", 3)
    assert first.data == {"loss": 0.5, "accuracy": 1.0}
    assert second.step == 4


@pytest.mark.parametrize(
    "value",
    [
        2,
        2.0,
        True + 1,
        np.float32(2),
        np.int64(2),
        np.array(2.0),
        torch.tensor(2),
        torch.tensor(2.0, requires_grad=True),
        torch.full((1, 1), 2.0),
        np.array([2.0]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_log_takes_numbers_of_every_kind(rank1: RankDir, value: object):
    log(0, loss=value)

    (event,) = events(rank1)
    assert event.data == {"loss": 2.0}


def test_log_keeps_nan_and_infinity(rank1: RankDir):
    log(0, a=math.nan, b=torch.tensor(-math.inf))

    (event,) = events(rank1)
    assert math.isnan(event.data["a"])
    assert event.data["b"] == -math.inf


@pytest.mark.parametrize("value", ["0.5", None, [1.0], torch.zeros(2), 1j], ids=repr)
def test_log_names_the_metric_that_is_no_number(rank1: RankDir, value: object):
    with pytest.raises(TypeError, match="loss"):
        log(0, accuracy=1.0, loss=value)

    assert events(rank1) == []


def test_log_refuses_the_name_of_a_column(rank1: RankDir):
    with pytest.raises(TypeError, match="'time'"):
        log(0, time=1.0)


def test_log_writes_whole_lines_from_threads_and_forked_processes(rank1: RankDir):
    def many(name: str) -> None:
        for step in range(100):
            log(step, **{name: step})

    log(0, parent=0)
    child = os.fork()
    if child == 0:
        many("child")
        os._exit(0)
    threads = [threading.Thread(target=many, args=(f"thread{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.waitpid(child, 0)[1] == 0

    names = [name for event in events(rank1) for name in event.data]
    assert {name: names.count(name) for name in set(names)} == {
        "parent": 1,
        "child": 100,
        **{f"thread{i}": 100 for i in range(4)},
    }


def test_progress_yields_everything_and_tells_the_first_and_last_count(rank1: RankDir):
    assert list(progress("abc", name="letters")) == ["a", "b", "c"]

    first, *_, last = [event.data for event in events(rank1)]
    assert first == {"n": 0, "total": 3, "name": "letters"}
    assert last == {"n": 3, "total": 3, "name": "letters"}


def test_progress_writes_at_most_five_times_a_second(rank1: RankDir):
    for _ in progress(range(100_000)):
        pass

    found = events(rank1)
    seconds = found[-1].time - found[0].time
    assert len(found) <= 2 + 5 * (seconds + 1)


def test_progress_counts_what_has_no_length(rank1: RankDir):
    def three() -> Iterator[int]:
        yield from range(3)

    list(progress(three()))
    list(progress(three(), total=3))

    assert [event.data["total"] for event in events(rank1)] == [None, None, 3, 3]


def test_progress_tells_the_last_count_when_the_loop_breaks(rank1: RankDir):
    for item in progress(range(10)):
        if item == 2:
            break

    assert events(rank1)[-1].data["n"] == 2  # the third was not finished


def test_report_keeps_the_union_of_its_calls(rank1: RankDir):
    report(accuracy=torch.tensor(0.5), rank=1)
    report(accuracy=np.float64(0.75), sizes=np.array([1, 2]), note=None, pair=(1, {"a": "é"}))

    assert read_json(rank1.result(0)) == {
        "accuracy": 0.75,
        "rank": 1,
        "sizes": [1, 2],
        "note": None,
        "pair": [1, {"a": "é"}],
    }


def test_report_keeps_attempts_apart(rank1: RankDir, monkeypatch: pytest.MonkeyPatch):
    report(a=1)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    report(b=2)

    assert read_json(rank1.result(0)) == {"a": 1}
    assert rank1.last("result") == {"b": 2}


def test_report_loses_nothing_between_threads(rank1: RankDir):
    threads = [threading.Thread(target=report, kwargs={f"k{i}": i}) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert read_json(rank1.result(0)) == {f"k{i}": i for i in range(16)}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "object"),
        (torch.zeros(2, 2), "Tensor"),
        (np.zeros(1001), "ndarray"),
        ({1: 2}, "dict"),
        ([Path("x")], "Path"),
    ],
    ids=["object", "matrix", "long", "int-key", "nested"],
)
def test_report_names_the_key_and_the_type_that_json_cannot_hold(
    rank1: RankDir, value: object, kind: str
):
    with pytest.raises(TypeError, match=rf"weights.*{kind}"):
        report(ok=1, weights=value)

    assert not rank1.result(0).exists()


def test_rank_0_prints_outside_of_a_run(capsys: pytest.CaptureFixture[str]):
    log(10, loss=0.1234, steps=3)
    report(accuracy=0.9664, name="cnn", sizes=[1, 2])
    assert list(progress(range(2))) == [0, 1]

    assert capsys.readouterr().out.splitlines() == [
        "step 10  loss 0.1234  steps 3",
        "report  accuracy 0.9664  name cnn  sizes [1, 2]",
    ]


def test_other_ranks_are_silent_outside_of_a_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RANK", "1")
    log(10, loss=0.1234)
    report(accuracy=0.9664)

    assert capsys.readouterr().out == ""


def test_events_are_lines_that_any_program_can_read(rank1: RankDir):
    log(1, loss=0.5)

    (line,) = rank1.events.read_text().splitlines()
    assert json.loads(line)["data"] == {"loss": 0.5}
