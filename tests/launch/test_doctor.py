"""`ddpnb doctor` with its real launch: two ranks add, nothing is left, the caller has no torch."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from ddpnb.checkup import CHECKS
from ddpnb.cli import main
from tests.conftest import wait_until

DEADLINE = 600.0


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""} | variables,
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE,
    )


def test_two_real_ranks_add_and_leave_nothing(tmp_path: Path):
    place = tmp_path / "a b"
    place.mkdir()
    code = """
import sys, ddpnb
report = ddpnb.doctor()
print(report["gloo"])
assert report["gloo"].status == "ok"
assert "torch" not in sys.modules
"""

    found = run("-c", code, TMPDIR=str(place))

    assert found.returncode == 0, found.stdout + found.stderr
    assert "2 ranks on cpu added 4 MiB" in found.stdout
    assert list(place.iterdir()) == []
    assert not Path(os.environ["DDPNB_RUNS"]).exists()


def test_a_launch_that_fails_is_told_with_the_fix_and_the_exit_code_is_1(tmp_path: Path):
    found = run("-m", "ddpnb", "doctor", GLOO_SOCKET_IFNAME="nope0", TMPDIR=str(tmp_path))

    assert found.returncode == 1, found.stderr
    lines = found.stdout.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("fail  gloo"))
    assert "Unable to find address for: nope0" in lines[at]
    assert lines[at + 1].strip().startswith("fix: unset GLOO_SOCKET_IFNAME")
    assert lines[-1].startswith("Mend first: gloo")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_the_ranks_and_leaves_nothing(tmp_path: Path):
    place = tmp_path / "place"
    place.mkdir()
    with Path("out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "ddpnb", "doctor"],
            env=os.environ | {"TMPDIR": str(place)},
            stdout=out,
            stderr=out,
        )
    try:
        wait_until(lambda: list(place.glob("*/runs/*/ranks/0/stdout.log")))
        process.send_signal(signal.SIGINT)
        code = process.wait(DEADLINE)
    finally:
        process.kill()
        process.wait(DEADLINE)

    assert code == 128 + signal.SIGINT
    assert list(place.iterdir()) == []
    assert "Traceback" not in Path("out").read_text()


def test_the_command_prints_json_of_every_check_and_the_exit_code_tells():
    found = CliRunner().invoke(main, ["doctor", "--quick", "--json"])

    told = json.loads(found.stdout)
    assert [check["name"] for check in told["checks"]] == list(CHECKS)
    assert all(set(check) == {"name", "status", "found", "fix"} for check in told["checks"])
    assert found.exit_code == (0 if told["ok"] else 1)
