"""Records folded into a view."""

import sys

import pytest

from ddpnb.job import Metrics
from ddpnb.monitor import KEPT_LINES, RunView, fold, fold_end, metric_columns
from ddpnb.records import Event, Exit, JobState, LogLine

EMPTY = RunView(run_id="r", world_size=2)


def line(rank, text):
    return LogLine(rank=rank, stream="stdout", text=text, offset=0)


def metric(rank, step, time=0.0, **data):
    return Event(rank=rank, time=time, kind="metric", step=step, data=data)


def folded(*records, view=EMPTY):
    return fold(view, records, JobState.RUNNING, None)


def test_fold_leaves_the_view_it_was_given_alone():
    folded(line(0, "a"), metric(0, 1, loss=1.0))

    assert EMPTY.ranks == {}


def test_fold_keeps_the_last_lines_of_each_rank_and_counts_all():
    view = folded(*(line(0, str(i)) for i in range(KEPT_LINES + 50)), line(1, "x"))

    assert view.ranks[0].line_count == KEPT_LINES + 50
    assert [str(one) for one in view.ranks[0].lines[:2]] == ["50", "51"]
    assert len(view.ranks[1].lines) == 1


def test_fold_puts_the_launchers_lines_apart():
    assert [str(one) for one in folded(line(None, "W..."), line(0, "a")).launcher] == ["W..."]


def test_view_shows_the_step_that_all_ranks_reached_and_the_mean_of_metrics():
    view = folded(metric(0, 5, loss=1.0), metric(1, 4, loss=2.0, acc=0.5))

    assert view.step == 4
    assert view.metrics == {"loss": 1.5, "acc": 0.5}


def test_rank_state_goes_from_starting_to_its_exit():
    start = Event(rank=0, time=1.0, kind="start", data={"pid": 7, "attempt": 1})
    running = folded(line(1, "early"), start)

    ended = fold_end(running, [Exit(rank=0, exitcode=0), Exit(rank=1, exitcode=-9)])

    assert (running.ranks[0].state, running.ranks[1].state) == ("running", "starting")
    assert (ended.ranks[0].state, ended.ranks[1].state) == ("done", "failed")
    assert (running.ranks[0].pid, running.ranks[0].attempt) == (7, 1)


def test_metric_columns_have_equal_lengths_and_none_for_gaps():
    columns = metric_columns(
        [metric(1, 1, time=2.0, acc=0.5), metric(0, 1, time=1.0, loss=3.0), folded_note()]
    )

    assert columns == {
        "rank": [0, 1],
        "step": [1, 1],
        "time": [1.0, 2.0],
        "acc": [None, 0.5],
        "loss": [3.0, None],
    }


def folded_note():
    return Event(rank=0, time=0.5, kind="note")


def test_metrics_are_columns_and_a_data_frame_where_pandas_is():
    import pandas

    columns = Metrics({"rank": [0, 1], "step": [1, 1], "time": [1.0, 2.0], "loss": [0.5, None]})

    frame = columns.to_pandas()

    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["rank", "step", "time", "loss"]
    assert frame["loss"].isna().tolist() == [False, True]
    assert columns == dict(columns)


def test_without_pandas_it_is_said_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(ImportError, match="pip install pandas"):
        Metrics().to_pandas()
