"""Each launcher's command, compared whole with a golden file (DDPNB_UPDATE_GOLDEN=1 rewrites)."""

import json
import os
import sys
from pathlib import Path

import pytest

from ddpnb.errors import SpecError
from ddpnb.launchers.base import clean_environment
from ddpnb.launchers.cold import Cold
from ddpnb.launchers.python import Python
from ddpnb.launchers.spawn import Spawn
from ddpnb.launchers.torchrun import Torchrun
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec

GOLDEN = Path(__file__).parent / "golden"
RUN = RunDir(Path("/home/a b/.ddpnb/runs/20260102-030405-train-0a1b"))
TEXT = b"def train(rank, world_size, lr=0.1): ...\n"


def spec(**changes):
    given = {
        "name": "train",
        "script": Path("/home/a b/it's/train.py"),
        "args": ("--lr", "0.1", "$local_rank $$", "x; echo"),
        "nproc_per_node": 2,
        "cwd": Path("/home/a b"),
    }
    return LaunchSpec(**(given | changes))


@pytest.mark.parametrize(
    ("name", "launcher", "changes"),
    [
        ("torchrun", Torchrun(), {}),
        ("torchrun_module", Torchrun(), {"script": None, "module": "mypkg.train"}),
        ("torchrun_restarts_port", Torchrun(max_restarts=2, master_port=29500), {"grace": 2.5}),
        ("torchrun_gpus", Torchrun(), {"device": "cuda", "gpus": ("2", "3"), "env": {"A": "b c"}}),
        ("cold", Cold(), {}),
        ("spawn", Spawn(function="train"), {"args": ("0.5",)}),
        ("python", Python(), {"nproc_per_node": 1, "threads": 4}),
    ],
)
def test_command_is_the_golden_one(name, launcher, changes):
    launcher.check(spec(**changes), TEXT)
    command = launcher.command(spec(**changes), RUN, {}, TEXT).to_json()

    text = json.dumps(command, indent=1).replace(sys.executable, "PYTHON") + "\n"

    golden = GOLDEN / f"{name}.json"
    if os.environ.get("DDPNB_UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_command_respects_what_the_user_has_set():
    environ = {"GLOO_SOCKET_IFNAME": "eth0", "PYTHONUTF8": "0"}

    env = Torchrun().command(spec(env={"OMP_NUM_THREADS": "3"}), RUN, environ, TEXT).env

    assert "GLOO_SOCKET_IFNAME" not in env
    assert "PYTHONUTF8" not in env
    assert env["OMP_NUM_THREADS"] == "3"


def test_clean_environment_drops_other_ranks_and_the_kernels_own():
    environ = {
        "RANK": "3",
        "MASTER_ADDR": "x",
        "SLURM_PROCID": "1",
        "TORCHELASTIC_RUN_ID": "a",
        "JPY_PARENT_PID": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PATH": "/bin",
        "OMP_NUM_THREADS": "2",
    }

    assert clean_environment(environ) == {"PATH": "/bin", "OMP_NUM_THREADS": "2"}
    assert clean_environment({"MPLBACKEND": "agg"}) == {"MPLBACKEND": "agg"}


@pytest.mark.parametrize(
    ("launcher", "changes", "message"),
    [
        (Python(), {"nproc_per_node": 2}, "starts one process"),
        (Spawn(function="main"), {}, "no function 'main' at its top level.*it has: train"),
        (Spawn(function="train"), {"args": ("1", "2")}, "no parameter for 2"),
        (Spawn(function="train"), {"script": None, "module": "a.b"}, "give a script"),
    ],
)
def test_check_refuses_what_the_launcher_cannot_run(launcher, changes, message):
    with pytest.raises(SpecError, match=message):
        launcher.check(spec(**changes), TEXT)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Torchrun(max_restarts=-1), "max_restarts is -1"),
        (lambda: Torchrun(master_port=0), "master_port is 0"),
        (lambda: Spawn(function="a b"), "no name of a function"),
    ],
)
def test_a_launcher_refuses_impossible_options(build, message):
    with pytest.raises(SpecError, match=message):
        build()


def test_the_plain_line_names_the_users_variables_and_not_their_values():
    command = Torchrun().command(spec(env={"API_TOKEN": "s3cret"}), RUN, {}, TEXT)

    assert 'API_TOKEN="$API_TOKEN"' in command.plain
    assert "s3cret" not in command.plain
    assert command.env["API_TOKEN"] == "s3cret"
