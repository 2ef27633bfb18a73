"""What a terminal would show of a run, drawn into text."""

import io
import os
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from ddpnb.monitor import RankView, RunView
from ddpnb.records import Exit, JobState, LogLine, RunResult
from ddpnb.terminal.follower import outcome
from ddpnb.terminal.panel import Screen, clock, draw_run, safe_text
from ddpnb.terminal.streams import Output, is_interactive


def line(rank: int | None, text: str) -> LogLine:
    stream = "launcher" if rank is None else "stdout"
    return LogLine(rank=rank, stream=stream, text=text, offset=0)


def view(ranks: list[RankView], world_size: int, state: JobState = JobState.RUNNING) -> RunView:
    known = {rank.rank: rank for rank in ranks}
    return RunView(run_id="x", world_size=world_size, ranks=known, state=state)


def drawn(found: RunView, width: int = 110, rows: int = 10, **more: dict[int, str]) -> str:
    to = io.StringIO()
    picture = draw_run(
        found,
        title="train.py",
        screen=Screen(width=width, rows=rows),
        unfinished=more.get("unfinished", {}),
        notes=[Text("a note")],
    )
    console = Console(file=to, width=width, force_terminal=True, color_system=None, emoji=False)
    console.print(picture)
    return to.getvalue()


RUNNING = RankView(
    rank=1,
    pid=4711,
    started=1.0,
    step=12,
    metrics={"loss": 0.25, "accuracy": 0.5},
    progress={"n": 3, "total": 8, "name": "epochs"},
    lines=(line(1, "[bold]\x1b[31mred\x1b[0m[/bold] :smile:"),),
)


def test_a_row_tells_all_of_a_rank():
    found = drawn(view([RUNNING], 2))

    assert "train.py  running" in found
    row = next(row for row in found.splitlines() if "4711" in row)
    for text in ("1  running", "12", "loss 0.25", "accuracy 0.5", "3/8 epochs", "[bold]red[/bold]"):
        assert text in row
    assert ":smile:" in row
    assert "0  starting" in found
    assert "a note" in found


def test_a_line_on_its_way_is_shown_in_place_of_the_last_one():
    assert " 42%|####" in drawn(view([RUNNING], 2), unfinished={1: "42%|####"})


def test_a_narrow_screen_leaves_out_what_has_no_room():
    found = drawn(view([RUNNING], 2), width=60)

    assert max(len(row) for row in found.splitlines()) <= 60
    assert "4711" not in found
    assert "accuracy" not in found
    assert "loss 0.25" in found


def test_columns_without_content_are_not_there():
    found = drawn(view([RankView(rank=0, started=1.0)], 1))

    assert not {"step", "metrics", "progress"} & set(found.split())


def test_many_ranks_are_cells():
    ranks = [RankView(rank=rank, started=1.0, step=rank // 8) for rank in range(64)]

    found = drawn(view(ranks, 64), rows=8)

    assert len(found.splitlines()) <= 8 + 3
    assert "all 64 running" in found
    assert "steps 0 to 7" in found
    assert "63 ● 7" in found


def test_failed_ranks_are_shown_first_where_not_all_have_room():
    exits = {500: 1}
    ranks = [
        RankView(rank=rank, started=1.0, exit=Exit(rank=rank, exitcode=exits.get(rank, 0)))
        for rank in range(512)
    ]

    found = drawn(view(ranks, 512, JobState.FAILED), width=60, rows=4)

    assert "500 ✗" in found
    assert "511 done" in found
    assert "more" in found


@pytest.mark.parametrize(
    ("code", "state", "label"),
    [
        (0, JobState.SUCCEEDED, "done"),
        (3, JobState.FAILED, "failed, exit 3"),
        (-9, JobState.FAILED, "failed, SIGKILL"),
        (None, JobState.LOST, "ended"),
        (-2, JobState.STOPPED, "stopped"),
        (0, JobState.STOPPED, "done"),
    ],
)
def test_state_of_a_rank_that_ended(code: int | None, state: JobState, label: str):
    rank = RankView(rank=0, started=1.0, exit=Exit(rank=0, exitcode=code))

    assert f"0  {label}" in drawn(view([rank], 1, state))


def test_a_restart_is_told():
    assert "running, restart 2" in drawn(view([RankView(rank=0, started=1.0, attempt=2)], 1))


def test_the_launchers_last_line_is_under_the_ranks():
    found = RunView(run_id="x", world_size=1, launcher=(line(None, "a [red]word[/red]"),))

    assert "launcher: a [red]word[/red]" in drawn(found)


def test_safe_text_keeps_words_alone():
    assert safe_text("a\x1b[2Jb\x1b]0;t\x07\n\x9bc\x1bc\udc80") == "ab\n�c�c\\udc80"


@pytest.mark.parametrize(("seconds", "text"), [(7.9, "0:07"), (754, "12:34"), (3723, "1:02:03")])
def test_clock(seconds: float, text: str):
    assert clock(seconds) == text


def test_outcome_says_why_and_after_how_long():
    why = "time limit of 60 s passed"
    found = RunResult(run_id="x", state=JobState.FAILED, reason=why, seconds=61)

    assert outcome(found) == "failed (time limit of 60 s passed) after 61.0 s"


def test_outcome_does_not_say_stopped_twice():
    found = RunResult(run_id="x", state=JobState.STOPPED, reason="stopped", seconds=1)

    assert outcome(found) == "stopped after 1.0 s"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "interactive"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
        ({"TERM": "xterm-color", "JPY_PARENT_PID": "1"}, False),  # `!ddpnb run` in a notebook
    ],
)
def test_who_watches(environ: dict[str, str], interactive: bool):
    assert is_interactive(Terminal(), environ) is interactive


def test_nobody_watches_a_file(tmp_path: Path):
    with (tmp_path / "log").open("w") as file:
        assert not is_interactive(file, {"TERM": "xterm"})


def test_output_goes_nowhere_when_nobody_reads_any_more():
    read, write = os.pipe()
    with os.fdopen(write, "w") as pipe:
        output = Output(pipe)
        os.close(read)

        output.write(["one"])
        output.write(["two"])


def test_output_says_so_when_the_disk_is_full(capsys: pytest.CaptureFixture[str]):
    with Path("/dev/full").open("w") as full:
        output = Output(full)

        output.write(["one"])
        output.write(["two"])

    assert capsys.readouterr().err.count("No space left on device; the run goes on") == 1
