"""`ddpnb doctor` on this very machine, with its real all-reduce."""

import json
import subprocess
import sys


def test_doctor_makes_a_real_all_reduce_and_leaves_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "ddpnb", "doctor", "--json"],
        capture_output=True,
        text=True,
        timeout=600,
    )

    found = {check["name"]: check for check in json.loads(done.stdout)}
    assert found["gloo"]["status"] == "ok", found["gloo"]
    assert "an all-reduce of 2 ranks through torchrun" in found["gloo"]["found"]
    assert found["torch"]["found"].startswith("2.")
    assert done.returncode == (1 if any(c["status"] == "fail" for c in found.values()) else 0)
    assert not (tmp_path / "runs").exists()
