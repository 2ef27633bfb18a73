"""What a person sees of a run, live and saved: nothing of it may become markup by itself."""

import re
from pathlib import Path

import pytest

from ddpnb.monitor import RankView, RunView
from ddpnb.notebook import markup, summary
from ddpnb.notebook.curve import picture
from ddpnb.notebook.watch import Snapshot, rank_state
from ddpnb.records import Exit, JobState, LogLine, RankFailure
from ddpnb.spec import LaunchSpec

HOSTILE = "<script>alert('1')</script> & \"q\" \x1b]0;title\x07\x1b[31mred\x1b[0m <img src=x>"


def line(rank, text, stream="stdout"):
    return LogLine(rank=rank, stream=stream, text=text, offset=0)


def snapshot(*, world_size=2, text="hello", state=JobState.SUCCEEDED, codes=(0, 0), **more):
    lines = {rank: (line(rank, f"{rank} {text}"),) for rank in range(world_size)}
    ranks = {
        rank: RankView(
            rank=rank,
            local_rank=rank,
            started=1.0,
            lines=lines[rank],
            line_count=1,
            exit=Exit(rank=rank, exitcode=codes[rank])
            if state.done and rank < len(codes)
            else None,
        )
        for rank in range(world_size)
    }
    values = {
        "spec": LaunchSpec(name="t", script=Path("/w/t.py"), nproc_per_node=world_size),
        "view": RunView(run_id="run-1", world_size=world_size, state=state, ranks=ranks),
        "folder": "/runs/run-1",
        "plain": "torchrun --nproc-per-node 2 t.py",
        "recent": tuple(line for found in lines.values() for line in found),
    }
    return Snapshot(**(values | more))


def all_html(shown):
    live = [markup.head(shown), markup.ranks(shown), markup.trouble(shown)]
    logs = [markup.log(shown, selected) for selected in ("all", "launcher", 0, 1)]
    return "".join([*live, *logs, summary.html(shown, live=True), summary.html(shown, live=False)])


def tags(html):
    return set(re.findall(r"</?([a-zA-Z]+)", html))


@pytest.mark.parametrize(
    "shown",
    [
        snapshot(text=HOSTILE),
        snapshot(folder=f"/runs/{HOSTILE}", plain=HOSTILE),
        snapshot(state=JobState.FAILED, codes=(1, -9), cause=HOSTILE),
        snapshot(trouble=HOSTILE),
        snapshot(results={0: {HOSTILE: HOSTILE}}),
        snapshot(state=JobState.PENDING, waits_for=HOSTILE),
        snapshot(unfinished=(line(0, HOSTILE, "stderr"), line(None, HOSTILE, "launcher"))),
        snapshot(spec=LaunchSpec(name="t", script=Path(f"/w/{HOSTILE}.py"), nproc_per_node=2)),
        snapshot(
            state=JobState.FAILED,
            failures=(RankFailure(rank=0, type="E", message=HOSTILE, hint=HOSTILE),),
        ),
        snapshot(
            view=RunView(run_id=HOSTILE, world_size=2, reason=HOSTILE, state=JobState.STOPPED)
        ),
    ],
)
def test_nothing_that_a_run_says_becomes_markup(shown):
    html = all_html(shown)

    known = set("b br code details div pre span summary table td th tr".split())
    assert tags(html) <= known
    assert "script&gt;" in html
    assert "\x1b" not in html and "title" not in html


def test_running_summary_is_one_line_below_a_live_view():
    shown = snapshot(state=JobState.RUNNING)

    assert "the live view is above" in summary.html(shown, live=True)
    assert "0 hello" not in summary.html(shown, live=True)
    assert "0 hello" in summary.html(shown, live=False)


def test_ended_summary_holds_lines_states_and_the_way_back():
    shown = snapshot(results={0: {"accuracy": 0.98765}}, seconds=63.2)

    html = summary.html(shown, live=True)

    for text in ("✔ succeeded", "1 min 03 s", "0 hello", "1 hello", "exit code 0", "0.9877"):
        assert text in html
    assert "/runs/run-1" in html and "torchrun --nproc-per-node 2 t.py" in html


def test_summary_needs_neither_script_nor_style_sheet():
    html = summary.html(snapshot(), live=False)

    assert not {"script", "style", "link"} & tags(html)
    assert set(re.findall("class='([^']*)'", html)) == {summary.css_class("/runs/run-1")}
    assert "http" not in html


def test_summary_holds_the_curves_as_a_picture():
    points = [(step, 1.0 + step, None if step == 3 else 1 / (step + 1)) for step in range(50)]
    told = [{"metric": "<i>$loss", "rank": rank, "points": points} for rank in (0, 1)]

    png = picture(told)
    html = summary.html(snapshot(), live=False, curve=png)

    assert png.startswith(b"\x89PNG") and len(png) < 40_000
    assert "src='data:image/png;base64,iVBOR" in html
    assert "loss" not in html


@pytest.mark.parametrize("values", [[], [1.0], [None, None, 1.0]])
def test_what_makes_no_curve_makes_no_picture(values):
    points = [(step, 1.0, value) for step, value in enumerate(values)]

    assert picture([{"metric": "loss", "rank": 0, "points": points}]) is None


def test_summary_shows_eight_ranks_of_many():
    html = summary.html(snapshot(world_size=64, codes=(0,) * 64), live=True)

    assert "7 hello" in html and "8 hello" not in html
    assert "and 56 more ranks" in html


def test_plain_text_of_the_summary_has_the_cause():
    shown = snapshot(state=JobState.FAILED, codes=(0, 1), cause="First to fail: rank 1, E: no")

    assert "First to fail: rank 1, E: no" in summary.text(shown)
    assert "[rank 1] 1 hello" in summary.text(shown)


def test_ranks_say_in_words_how_they_ended():
    failures = (RankFailure(rank=1, exitcode=1), RankFailure(rank=0, consequence_of=1))
    shown = snapshot(state=JobState.FAILED, codes=(-15, 1), failures=failures)

    assert [rank_state(shown, rank) for rank in (0, 1)] == ["ended", "failed"]
    assert "killed by SIGTERM" in markup.ranks(shown)
    assert "exit code 1" in markup.ranks(shown)


def test_stopped_ranks_have_not_failed():
    shown = snapshot(state=JobState.STOPPED, codes=(-2, 0))

    assert [rank_state(shown, rank) for rank in (0, 1)] == ["stopped", "done"]


def test_log_shows_one_rank_or_all_with_their_numbers():
    shown = snapshot()

    assert "1 hello" not in markup.log(shown, 0)
    assert "0 │</span> 0 hello" in markup.log(shown, "all")
    assert "1 │</span> 1 hello" in markup.log(shown, "all")
    assert "nothing was printed" in markup.log(shown, "launcher")


def test_log_ends_with_the_bar_that_is_on_its_way():
    shown = snapshot(state=JobState.RUNNING, unfinished=(line(1, " 42%|####", "stderr"),))

    assert markup.log(shown, 1).index("1 hello") < markup.log(shown, 1).index("42%")
    assert "42%" not in markup.log(shown, 0)


def test_log_cuts_a_line_that_would_choke_a_browser():
    html = markup.log(snapshot(text="x" * 100_000), "all")

    assert len(html) < 10_000
    assert "the line goes on in the log file" in html


def test_head_tells_which_gpus_and_what_is_waited_for():
    spec = LaunchSpec(
        name="t", script=Path("/w/t.py"), nproc_per_node=2, device="cuda", gpus=("2", "3")
    )
    shown = snapshot(
        spec=spec,
        gpus=("GPU 2 H", "GPU 3 H"),
        state=JobState.PENDING,
        waits_for="waiting for GPU 2",
    )

    html = markup.head(shown)

    assert "cuda:0 is GPU 2 H, cuda:1 is GPU 3 H" in html
    assert "waiting for GPU 2" in html
