"""Which rank is named as the first to fail, from what is in a run folder."""

import json

import pytest

from ddpnb.failures import describe, read_failures
from ddpnb.json_files import read_json, write_json
from ddpnb.process import ProcessId
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec

WAITED = "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation"
LOST = "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4242"


@pytest.fixture
def run(tmp_path):
    run = RunDir.propose(tmp_path / "runs", "train")
    spec = LaunchSpec(name="train", script=tmp_path / "train.py", nproc_per_node=3)
    run.create(spec, launcher={}, command={}, script=None, owner=ProcessId.of(1))
    return run


def failed(run, *ranks):
    """Write how the ranks ended: (exitcode, time, message of the error or None)."""
    exits = []
    for rank, (exitcode, time, message) in enumerate(ranks):
        run.rank(rank).path.mkdir(parents=True)
        exits.append({"rank": rank, "attempt": 0, "exitcode": exitcode, "time": time})
        if message is not None:
            error = {"time": time, "type": "RuntimeError", "message": message, "traceback": ""}
            write_json(run.rank(rank).error(0), error | {"exitcode": exitcode})
    write_json(run.exit, {"returncode": 1, "reason": None, "exits": exits})
    return read_failures(run)


@pytest.mark.parametrize(
    ("ranks", "first"),
    [
        # the launcher's SIGTERM was seen before the death that it followed
        ([(-15, 10.0, None), (7, 10.1, None), (0, 11.0, None)], 1),
        # a lost connection was recorded before the error that had closed it
        ([(1, 10.0, LOST), (1, 10.2, "mine"), (-15, 10.3, None)], 1),
        # somebody ended rank 2 with SIGTERM; the others lost their connection to it
        ([(1, 10.0, LOST), (1, 10.1, LOST), (-15, 10.1, None)], 2),
        # rank 0 had waited in vain; the launcher ended rank 2, which had not come
        ([(1, 10.3, WAITED), (0, 12.0, None), (-15, 10.2, None)], 0),
        # far apart, time alone decides
        ([(-15, 10.0, None), (0, 12.0, None), (1, 20.0, "later")], 0),
    ],
)
def test_the_first_to_fail_is_the_one_that_no_other_explains(run, ranks, first):
    failures = failed(run, *ranks)

    assert failures[0].rank == first
    assert failures[0].consequence_of is None
    assert f"First to fail: rank {first}" in describe(run, failures)


def test_a_rank_that_had_raised_keeps_its_exit_code_when_sigterm_met_it_on_its_way_out(run):
    run.rank(1).path.mkdir(parents=True)
    error = {"time": 10.0, "type": "ValueError", "message": "no", "traceback": "", "exitcode": 1}
    write_json(run.rank(1).error(0), error)
    exits = [{"rank": 1, "attempt": 0, "exitcode": -15, "time": 10.1}]
    write_json(run.exit, {"returncode": 1, "reason": None, "exits": exits})

    (failure,) = read_failures(run)

    assert (failure.type, failure.exitcode, failure.signal) == ("ValueError", 1, None)


@pytest.mark.parametrize("code", [-6, -15])
def test_a_rank_that_was_through_and_was_ended_on_its_way_out_is_the_cause(run, code):
    failed(run, (1, 10.0, LOST), (code, 10.1, None), (0, 20.0, None))
    end = {"rank": 1, "time": 9.9, "kind": "end", "data": {"attempt": 0}}
    run.rank(1).events.write_text(json.dumps(end) + "\n")

    first, other = read_failures(run)

    assert (first.rank, first.exitcode, first.consequence_of) == (1, code, None)
    assert "came to the end of its script while rank 0 was still in" in first.message
    assert (other.rank, other.consequence_of) == (0, 1)


def test_the_error_of_a_spawned_child_is_the_cause(run):
    # what mp.spawn raises in the parent: the child's traceback is in the message, not on its stderr
    child = (
        "\n\n-- Process 1 terminated with the following error:\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 9, in train\n'
        "    dist.init_process_group()\n"
        "ValueError: MASTER_ADDR expected\n"
    )
    run.rank(0).path.mkdir(parents=True)
    kind = "torch.multiprocessing.spawn.ProcessRaisedException"
    error = {"time": 10.0, "type": kind, "message": child, "exitcode": 1}
    write_json(run.rank(0).error(0), error | {"traceback": f"Traceback of the parent\n{child}"})
    exits = [{"rank": 0, "attempt": 0, "exitcode": 1, "time": 10.1}]
    write_json(run.exit, {"returncode": 1, "reason": None, "exits": exits})

    first = read_failures(run)[0]

    assert first.summary == "ValueError: MASTER_ADDR expected"
    assert "train.py" in first.traceback and "the parent" not in first.traceback


def test_a_rank_that_our_own_stop_has_ended_is_not_to_blame(run):
    failed(run, (-2, 10.0, None), (-15, 12.0, None), (0, 12.0, None))
    write_json(run.exit, read_json(run.exit) | {"reason": "time limit of 3 s passed"})

    assert read_failures(run) == []
    assert describe(run, []).startswith(f"{run.run_id} failed (time limit of 3 s passed).")


@pytest.mark.parametrize(
    ("message", "seconds_later", "first"),
    [(LOST, 5.0, 1), (WAITED, -2.0, 1), (WAITED, 5.0, 0)],
)
def test_a_rank_that_was_leaving_with_exit_code_0_is_the_cause(run, message, seconds_later, first):
    failures = failed(run, (1, 10.0, message), (0, 10.0 + seconds_later, None), (-15, 11.0, None))

    assert failures[0].rank == first


@pytest.mark.parametrize(
    ("oom_kills", "hint"), [(1, "out-of-memory killer was at work"), (0, "somebody outside")]
)
def test_a_launcher_that_was_killed_is_told_with_what_killed_it(run, oom_kills, hint):
    ended = {"returncode": -9, "reason": None, "exits": [], "oom_kills": oom_kills}
    write_json(run.exit, ended)

    (failure,) = read_failures(run)

    assert failure.rank is None and hint in failure.hint
