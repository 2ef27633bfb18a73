"""The checks that every test relies on, tried on tests that deserve to fail."""

import socket
import subprocess
from pathlib import Path

import pytest

from tests.conftest import nothing_left, require, wait_until

FAILED = pytest.fail.Exception
SKIPPED = pytest.skip.Exception


@pytest.mark.parametrize(
    "command",
    [
        ["sleep", "600"],
        ["setsid", "--fork", "sleep", "600"],
        ["sh", "-c", "sleep 600 & sleep 600"],
    ],
    ids=["child", "daemon", "grandchild"],
)
def test_nothing_left_finds_and_ends_a_process(tmp_path: Path, command: list[str]):
    with pytest.raises(FAILED, match="sleep 600"), nothing_left(tmp_path, timeout=0.5):
        started = subprocess.Popen(command)
        wait_until(lambda: started.poll() is not None or "setsid" not in command)

    started.wait()


def test_nothing_left_finds_a_listening_port(tmp_path: Path):
    with pytest.raises(FAILED, match="port"), nothing_left(tmp_path, timeout=0.1):
        server = socket.create_server(("127.0.0.1", 0))

    server.close()


def test_nothing_left_is_content_when_all_has_ended(tmp_path: Path):
    with nothing_left(tmp_path):
        subprocess.run(["true"], check=True)


def test_require_skips_where_something_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DDPNB_REQUIRE", "browser")

    with pytest.raises(SKIPPED, match="no GPU"):
        require("gpu", False, "no GPU")


def test_require_fails_where_it_was_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DDPNB_REQUIRE", "slurm, browser")

    with pytest.raises(FAILED, match="no Chromium"):
        require("browser", None, "no Chromium")


def test_wait_until_returns_the_value_or_fails():
    assert wait_until(lambda: 3) == 3
    with pytest.raises(FAILED, match="the sky fell"):
        wait_until(lambda: False, timeout=0.0, what="the sky fell")
