"""Whole logs are searched, and the lines around a hit shown."""

import pytest

from ddpnb import log_search
from ddpnb.log_search import Search, around
from ddpnb.rundir import RunDir


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path)
    for rank in (0, 1):
        run.rank(rank).path.mkdir(parents=True)
    run.rank(0).stdout.write_text("".join(f"step {i} loss {i / 7:.3f}\n" for i in range(100_000)))
    run.rank(1).stderr.write_text("Warning: Übung\nno newline and a Warning")
    run.launcher_log.write_text("W torchrun warns\n")
    return run


def search(run, pattern, **options):
    return Search(run, pattern, **options).result()


def found(result):
    return [(hit.rank, hit.stream, hit.text) for hit in result.hits]


def test_a_text_is_found_in_every_rank_and_counted(run):
    result = search(run, "warning")

    assert result.total == 2
    assert found(result) == [
        (1, "stderr", "Warning: Übung"),
        (1, "stderr", "no newline and a Warning"),
    ]
    assert search(run, "warning", case=True).total == 0


def test_a_line_far_down_is_found_with_its_offset(run):
    (hit,) = search(run, "step 99999 ", ranks=[0]).hits

    data = run.rank(0).stdout.read_bytes()
    assert data[hit.offset :].startswith(b"step 99999 ")


def test_only_so_many_hits_are_sent_but_all_are_counted(run):
    result = search(run, "step")

    assert (result.total, len(result.hits)) == (100_000, log_search.MOST_HITS)


def test_the_launcher_is_searched_when_it_is_named(run):
    assert found(search(run, "torchrun", ranks=[None])) == [(None, "launcher", "W torchrun warns")]
    assert search(run, "torchrun").total == 0


def test_a_regular_expression_is_found(run):
    result = search(run, r"^step 4242\d loss [\d.]+$", regex=True)

    assert [hit.text.split()[1] for hit in result.hits] == [f"4242{i}" for i in range(10)]


def test_every_line_is_matched_by_itself_and_none_is_counted_twice(run):
    run.rank(1).stdout.write_text("one\n\nthree\n")

    assert found(search(run, r"\A\Z", regex=True, ranks=[1])) == [(1, "stdout", "")]


@pytest.mark.parametrize("pattern", ["(", "(?u)step", "a{99999999999}"])
def test_what_is_no_regular_expression_is_told(run, pattern):
    assert "not a regular expression" in search(run, pattern, regex=True).trouble


def test_an_expression_that_never_ends_is_given_up(run, monkeypatch):
    monkeypatch.setattr(log_search, "SECONDS", 0.5)
    run.rank(1).stdout.write_text("a" * 64 + "\n")

    assert "given up after 0.5 s" in search(run, "(a+)+$b", regex=True).trouble


def test_the_lines_around_a_place_are_shown(run):
    (hit,) = search(run, "step 50000 ", ranks=[0]).hits

    lines = around(run, 0, "stdout", hit.offset)

    numbers = [int(line.text.split()[1]) for line in lines]
    assert numbers == list(range(49_900, 50_100))
    assert lines[100].offset == hit.offset


def test_the_lines_around_the_first_and_the_last_are_fewer(run):
    first = around(run, 0, "stdout", 0)
    last = around(run, 1, "stderr", search(run, "no newline").hits[0].offset)

    assert first[0].text == "step 0 loss 0.000"
    assert [line.text for line in last] == ["Warning: Übung", "no newline and a Warning"]


def test_a_search_that_is_cancelled_finds_nothing_and_leaves_no_process(run):
    run.rank(1).stdout.write_text("a" * 64 + "\n")
    search_ = Search(run, "(a+)+$b", regex=True)

    search_.cancel()

    assert search_.result() is None


def test_a_pattern_that_will_mean_something_else_one_day_is_searched_without_a_word(run, recwarn):
    assert search(run, "[[a]tep 4242 ", regex=True).total == 0
    assert not recwarn


def test_a_text_at_the_end_of_a_line_is_not_counted_with_the_next(run):
    run.rank(1).stdout.write_text("end\nend end\n\nend")

    assert [hit.offset for hit in search(run, "end", ranks=[1]).hits] == [0, 4, 13]
