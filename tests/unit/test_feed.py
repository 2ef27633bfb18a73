"""What the live view is told: lines and points, numbered, kept for browsers that come late."""

import itertools
import json
import math

from ddpnb.notebook.feed import KEPT_BYTES, KEPT_CHARACTERS, KEPT_LINES, Feed
from ddpnb.notebook.points import MOST_POINTS, MOST_SENT, Points
from ddpnb.records import Event, LogLine


def line(rank, text, *, stream="stdout", time=None):
    return LogLine(rank=rank, stream=stream, text=text, offset=0, time=time)


def texts(told):
    return [row[1] for row in told["rows"]]


def test_lines_are_numbered_by_writer():
    feed = Feed()

    first = feed.add([line(0, "a"), line(None, "w"), line(0, "b", stream="stderr")], now=5.0)
    second = feed.add([line(0, "c", time=7.0)], now=6.0)

    assert first["0"] == {"from": 0, "first": 0, "rows": [(0, "a", 5.0, 0), (1, "b", 5.0, 0)]}
    assert texts(first["launcher"]) == ["w"]
    assert second == {"0": {"from": 2, "first": 2, "rows": [(0, "c", 7.0, 0)]}}


def test_lines_of_one_writer_stand_by_their_time_and_never_go_back():
    feed = Feed()

    told = feed.add(
        [
            line(0, "out", time=2.0),
            line(0, "undated"),
            line(0, "err", stream="stderr", time=1.0),
        ],
        now=2.3,
    )["0"]
    later = feed.add([line(0, "next", time=2.2)], now=2.5)["0"]

    assert [row[1:3] for row in told["rows"]] == [("err", 1.0), ("out", 2.0), ("undated", 2.3)]
    assert [row[1:3] for row in later["rows"]] == [("next", 2.3)]


def test_a_browser_that_missed_a_message_is_sent_what_it_lacks():
    feed = Feed()
    feed.add([line(0, str(i)) for i in range(10)], now=0.0)

    assert texts(feed.since({"0": 7})["0"]) == ["7", "8", "9"]
    assert feed.since({"0": 10}) == {}


def test_a_browser_that_comes_late_is_sent_the_last_lines_and_their_number():
    feed = Feed()
    feed.add([line(0, str(i)) for i in range(KEPT_LINES + 100)], now=0.0)

    told = feed.since({})["0"]

    assert told["first"] > 100
    assert texts(told)[-1] == str(KEPT_LINES + 99)
    assert told["first"] + len(told["rows"]) == KEPT_LINES + 100


def test_a_message_holds_little_of_each_writer():
    feed = Feed()

    told = feed.add([line(0, "x" * 1000) for _ in range(1000)], now=0.0)["0"]

    assert len(json.dumps(told)) < 1.2 * KEPT_BYTES
    assert told["first"] + len(told["rows"]) == 1000


def test_a_long_line_is_cut():
    feed = Feed()

    (row,) = feed.add([line(0, "x" * 1_000_000)], now=0.0)["0"]["rows"]

    assert row[1].endswith("(the line goes on in the log file)")
    assert len(row[1]) < 301_000


def metric(rank, step, **data):
    return Event(rank=rank, time=float(step), kind="metric", step=step, data=data)


def test_points_are_grouped_by_metric_and_rank():
    points = Points()

    told = points.add([metric(0, 1, loss=0.5), metric(1, 1, loss=0.25), metric(0, 2, loss=0.125)])

    assert told == [
        {"metric": "loss", "rank": 0, "points": [(1, 1.0, 0.5), (2, 2.0, 0.125)]},
        {"metric": "loss", "rank": 1, "points": [(1, 1.0, 0.25)]},
    ]
    assert points.all() == told


def test_a_value_that_is_not_finite_is_no_number_in_json():
    points = Points()

    (told,) = points.add([metric(0, 1, loss=math.nan), metric(0, 2, loss=math.inf)])

    assert told["points"] == [(1, 1.0, None), (2, 2.0, None)]
    json.dumps(told, allow_nan=False)


def test_a_long_curve_is_thinned_out_evenly():
    points = Points()
    for step in range(10 * MOST_POINTS):
        points.add([metric(0, step, loss=1.0)])

    (curve,) = points.all()

    steps = [point[0] for point in curve["points"]]
    assert MOST_POINTS / 2 <= len(steps) <= MOST_POINTS + 1
    assert len({b - a for a, b in itertools.pairwise(steps)}) == 1
    assert steps[-1] > 9.9 * MOST_POINTS


def test_long_lines_are_kept_within_a_bound():
    feed = Feed()

    for _ in range(100):
        feed.add([line(0, "x" * 60_000)], now=0.0)

    kept = feed._writers["0"].rows
    assert sum(len(row[1]) for row in kept) <= KEPT_CHARACTERS
    assert feed.since({})["0"]["first"] + len(feed.since({})["0"]["rows"]) == 100


def test_very_many_points_are_sent_as_every_nth():
    points = Points()
    names = [f"m{i}" for i in range(100)]
    points.add(
        Event(rank=0, time=1.0, kind="metric", step=step, data=dict.fromkeys(names, 1.0))
        for step in range(1500)
    )

    sent = points.all()

    assert len(sent) == 100
    assert sum(len(one["points"]) for one in sent) <= MOST_SENT
    assert sent[0]["points"][0][0] == 0
