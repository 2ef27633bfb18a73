"""Logs that grow beyond max_log_bytes give their middle back to the disk."""

import errno

import pytest

from ddpnb import json_files
from ddpnb.json_files import free_reserves, read_json, reserve, write_json
from ddpnb.launchers import log_cap
from ddpnb.launchers.log_cap import LogCap
from ddpnb.rundir import RunDir
from ddpnb.tail import read_lines

MIB = 1 << 20


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path)
    for rank in (0, 1):
        run.rank(rank).path.mkdir(parents=True)
        run.rank(rank).stdout.write_bytes(b"")
    return run


def grown(run, rank, lines):
    """Append numbered lines of 64 bytes; return the sizes of all streams."""
    with run.rank(rank).stdout.open("ab") as file:
        for i in lines:
            file.write(b"%063d\n" % i)
    return {f.name: f.path.stat().st_size for f in run.streams() if f.path.exists()}


def on_disk(path):
    return path.stat().st_blocks * 512


def test_below_the_limit_nothing_happens(run):
    cap = LogCap(run, MIB)

    assert cap.keep(grown(run, 0, range(1000))) is None
    assert not run.hole_file.exists()


def test_the_middle_goes_and_first_and_last_lines_stay(run):
    cap, count = LogCap(run, MIB), 5 * MIB // 64
    grown(run, 1, range(10))

    said = cap.keep(grown(run, 0, range(count)))

    assert "larger than max_log_bytes (1,048,576)" in said
    path = run.rank(0).stdout
    assert path.stat().st_size == 5 * MIB
    assert on_disk(path) <= MIB
    lines = read_lines(run, [0])
    numbers = [int(line.text) for line in lines if line.text.isdecimal()]
    kept = (MIB // 8) // 64
    assert numbers[:kept] == list(range(kept))
    assert numbers[kept:] == list(range(numbers[kept], count))
    assert len(numbers) >= 2 * kept - 2
    assert sum("bytes are gone here" in line.text for line in lines) == 1
    assert [int(line.text) for line in read_lines(run, [1])] == list(range(10))


def test_the_hole_grows_with_the_log_and_is_told_once(run):
    cap, count = LogCap(run, MIB), 2 * MIB // 64
    assert cap.keep(grown(run, 0, range(count))) is not None

    for part in range(1, 4):
        assert cap.keep(grown(run, 0, range(part * count, (part + 1) * count))) is None

    begin, end = run.holes()["0/stdout"]
    assert begin == MIB // 8
    assert end == 8 * MIB - MIB // 8
    assert on_disk(run.rank(0).stdout) <= MIB


def test_a_file_system_that_takes_nothing_back_is_told_and_the_run_goes_on(run, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(log_cap, "punch", refuse)
    cap = LogCap(run, MIB)
    sizes = grown(run, 0, range(2 * MIB // 64))

    assert "cannot be given back to the disk (Operation not supported)" in cap.keep(sizes)
    assert cap.keep(sizes) is None


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_was_reserved_can_be_said_on_a_full_disk(tmp_path, monkeypatch):
    reserve(tmp_path / "exit.json")
    monkeypatch.setattr(json_files, "write_private", full)

    write_json(tmp_path / "exit.json", {"returncode": 1})

    assert read_json(tmp_path / "exit.json") == {"returncode": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["exit.json"]


def test_what_was_not_reserved_cannot(tmp_path, monkeypatch):
    monkeypatch.setattr(json_files, "write_private", full)

    with pytest.raises(OSError, match="No space left"):
        write_json(tmp_path / "exit.json", {"returncode": 1})


def test_what_cannot_be_reserved_is_told_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(json_files.os, "posix_fallocate", full)

    with pytest.raises(OSError, match="No space left"):
        reserve(tmp_path / "exit.json")

    assert list(tmp_path.iterdir()) == []


def test_reserves_hold_blocks_and_give_them_back(tmp_path):
    reserve(tmp_path / "exit.json")
    (held,) = tmp_path.iterdir()
    assert on_disk(held) >= 16 << 10

    free_reserves(tmp_path)

    assert list(tmp_path.iterdir()) == []
