"""What browsers may ask of the live view, as the kernel answers it. No browser, no kernel."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from ddpnb.monitor import RunView
from ddpnb.notebook.live_view import LiveView
from ddpnb.notebook.watch import Snapshot
from ddpnb.records import JobState
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec
from tests.conftest import wait_until


def snapshot(state):
    spec = LaunchSpec(name="t", script=Path("/w/t.py"))
    view = RunView(run_id="one", world_size=1, state=state)
    return Snapshot(spec=spec, view=view, folder="/w/one")


@pytest.fixture
def sent(monkeypatch):
    found = []
    monkeypatch.setattr(LiveView, "send", lambda self, content, buffers=None: found.append(content))
    return found


@pytest.fixture
def job(tmp_path):
    run = RunDir(tmp_path / "one")
    run.rank(0).path.mkdir(parents=True)
    run.rank(0).stdout.write_text("a" * 64 + "\nneedle\n")
    return SimpleNamespace(run_id="one", run=run, folder=run.path)


def ask(view, **content):
    view._on_message(None, {"view": "browser", **content}, None)


def told(sent, kind):
    return [message for message in sent if message["type"] == kind]


def test_of_two_clicks_on_rerun_only_one_launches(job, sent):
    launched = []

    def rerun():
        launched.append("again")
        view.follow(job, snapshot(JobState.RUNNING), rerun)
        return SimpleNamespace(run_id="two")

    view = LiveView(job, snapshot(JobState.SUCCEEDED), rerun)
    ask(view, type="order", what="rerun")
    ask(view, type="order", what="rerun")

    wait_until(lambda: len(told(sent, "said")) == 2)
    assert launched == ["again"]
    said = sorted(message["text"] for message in told(sent, "said"))
    assert said == ["it runs already", "launched again: two"]


def test_a_new_search_takes_the_place_of_the_one_on_its_way(job, sent):
    view = LiveView(job, snapshot(JobState.RUNNING), lambda: None)
    ask(view, type="search", id=1, text="(a+)+$b", regex=True)
    wait_until(lambda: view._search_on_its_way)

    ask(view, type="search", id=2, text="needle")

    wait_until(lambda: told(sent, "found"))
    (found,) = told(sent, "found")
    assert (found["id"], found["to"], found["total"]) == (2, "browser", 1)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"type": []},
        {"type": "hello", "have": 3},
        {"type": "hello", "have": {"0": "x"}},
        {"type": "search"},
        {"type": "search", "text": "x", "writers": 5},
        {"type": "search", "text": "x", "writers": ["x"]},
        {"type": "window", "writer": "0"},
        {"type": "window", "writer": "0", "offset": 0, "kind": 9},
        {"type": "window", "writer": "0", "offset": float("inf"), "kind": 0},
        {"type": "download", "writer": None},
        {"type": "order", "what": ["stop"]},
    ],
)
def test_nonsense_from_a_browser_raises_nothing(job, content):
    view = LiveView(job, snapshot(JobState.RUNNING), lambda: None)

    ask(view, **content)
