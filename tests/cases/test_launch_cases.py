"""Problems that people reported of launching ranks by other means, and what happens here instead.

Each test names the public reports it is about.
"""

import socket

import pytest

import ddpnb
from ddpnb.errors import LaunchError
from tests.conftest import wait_until
from tests.launch.scripts import ALL_REDUCE, script

DEADLINE = 240


def texts(job, rank=None):
    return [str(line) for line in job.logs(rank)]


def failed(*args, **options):
    job = ddpnb.launch(*args, **options)
    with pytest.raises(ddpnb.WorkerFailedError) as caught:
        job.wait(DEADLINE)
    return job, str(caught.value), caught.value.result


def in_a_notebook(*cells):
    """Run cells as a kernel does and return its namespace, inputs included."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    for cell in cells:
        shell.run_cell(cell, store_history=True).raise_error()
    return shell.user_ns


# 01: a function of the notebook cannot be started with mp.spawn
# jupyter/notebook#6258, pytorch/pytorch#20375, Lightning-AI/pytorch-lightning#61

CELL_WITH_TRAIN = """
import os
import torch.distributed as dist

def train(rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    print("hello from rank", rank)
    dist.destroy_process_group()
"""


def test_a_function_of_the_notebook_runs_on_all_ranks():
    train = in_a_notebook(CELL_WITH_TRAIN)["train"]

    job = ddpnb.launch(train, nproc_per_node=2, launcher=ddpnb.Spawn())
    result = job.wait(DEADLINE)

    assert {line for line in texts(job) if "hello" in line} == {
        "hello from rank 0",
        "hello from rank 1",
    }
    assert result.state is ddpnb.JobState.SUCCEEDED
    assert {exit_.rank: exit_.exitcode for exit_ in result.exits} == {0: 0, 1: 0}


def test_a_parameter_that_nobody_fills_is_refused_before_anything_starts(tmp_path):
    train = in_a_notebook(CELL_WITH_TRAIN)["train"]

    with pytest.raises(ddpnb.DdpnbError, match=r"train.*rank"):
        ddpnb.launch(train, nproc_per_node=2)

    assert not (tmp_path / "runs").exists()


# 03: a script that calls mp.spawn at its top level, without a main guard
# facebookresearch/mmf#1182, pytorch/pytorch#73726

NO_GUARD = """import torch.multiprocessing as mp

def train(rank, world):
    print("rank", rank)

print("launching")
mp.spawn(train, args=(2,), nprocs=2)
"""


def test_a_missing_main_guard_is_named_with_its_line():
    _, text, result = failed(script(NO_GUARD), launcher=ddpnb.Python())

    first = result.failures[0]
    assert result.state is ddpnb.JobState.FAILED
    assert first.type == "RuntimeError"
    assert "bootstrapping phase" in first.message
    cause, advice = text.splitlines()[-2:]
    assert "RuntimeError: An attempt has been made to start a new process before" in cause
    assert "train.py, line 7" in advice
    assert "if __name__ == '__main__':" in advice


# 05: a script with argparse, pasted into a cell, gets the kernel's own arguments
# pytorch/examples#369, kubeflow/katib#414

ARGPARSE = """
import argparse, sys
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()
print("lr", args.lr, "batch", args.batch_size, sys.argv)
"""


@pytest.mark.parametrize(("args", "lr"), [(["--lr", "0.5"], "0.5"), ([], "0.1")])
def test_a_script_gets_exactly_the_arguments_of_the_launch(tmp_path, args, lr):
    job = ddpnb.launch(script(ARGPARSE), *args, nproc_per_node=2)
    job.wait(DEADLINE)

    expected = f"lr {lr} batch 32 {[str(tmp_path / 'train.py'), *args]}"
    assert (texts(job, 0), texts(job, 1)) == ([expected], [expected])


def test_a_wrong_argument_shows_the_usage():
    _, text, result = failed(script(ARGPARSE), "--learning", "1", nproc_per_node=2)

    assert result.failures[0].exitcode == 2
    assert "usage: train.py [-h] [--lr LR]" in text
    assert "unrecognized arguments: --learning 1" in text


# 06: the rendezvous port is in use
# pytorch/pytorch#126510, TorchDR/TorchDR#249


def test_two_launches_succeed_while_a_stranger_holds_torchruns_port():
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            stranger.bind(("0.0.0.0", 29500))
        except OSError:
            pytest.skip("port 29500 is held by somebody else, who does as well")
        stranger.listen()

        jobs = [ddpnb.launch(script(ALL_REDUCE), nproc_per_node=2) for _ in range(2)]
        for job in jobs:
            job.wait(DEADLINE)

    lines = [line for job in jobs for line in texts(job) if "sum 2.0" in line]
    assert len(lines) == 4
    assert len({line.partition("port ")[2] for line in lines}) == 2


def test_a_port_of_ones_own_is_refused_while_it_is_held_and_works_afterwards():
    with socket.socket() as stranger:
        stranger.bind(("0.0.0.0", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        launcher = ddpnb.Torchrun(master_port=port)
        with pytest.raises(LaunchError, match=f"port {port} is already in use.*leave the port out"):
            ddpnb.launch(script(ALL_REDUCE), nproc_per_node=2, launcher=launcher)

    job = ddpnb.launch(script(ALL_REDUCE), nproc_per_node=2, launcher=launcher)
    job.wait(DEADLINE)

    assert sorted(texts(job)) == [f"rank {rank} sum 2.0 port {port}" for rank in (0, 1)]


# 07: a package started with `python -m pkg.train` uses relative imports
# Arthur151/ROMP#234, airbert-vln/bnb-dataset#6


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "mypkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "model.py").write_text("NAME = 'model'\n")
    (folder / "train.py").write_text(
        "import os, sys\nfrom .model import NAME\n"
        "print('rank', os.environ['RANK'], NAME, sys.argv[1:], __name__)\n"
    )
    return folder


def test_a_module_is_run_as_a_module(package):
    job = ddpnb.launch("--x", "1", module="mypkg.train", nproc_per_node=2)
    job.wait(DEADLINE)

    assert [texts(job, rank) for rank in (0, 1)] == [
        [f"rank {rank} model ['--x', '1'] __main__"] for rank in (0, 1)
    ]


def test_a_relative_import_in_a_script_is_explained(package, tmp_path):
    _, text, result = failed("mypkg/train.py", nproc_per_node=2)

    assert result.failures[0].type == "ImportError"
    assert f"`-m mypkg.train` from the folder {tmp_path}" in text.splitlines()[-1]


# 22: text that is not ASCII, under the C locale
# wandb/wandb#2203, mozilla/DeepSpeech#1137

UNICODE = "import os\nprint(f\"rank {os.environ['RANK']} перплексия 12.3 ✅ 训练完成 🚀\")\n"


@pytest.mark.parametrize("utf8", [None, "0"])
def test_text_is_utf8_whatever_the_locale(monkeypatch, utf8):
    for name in ("LC_ALL", "LANG"):
        monkeypatch.setenv(name, "C")
    if utf8 is not None:
        monkeypatch.setenv("PYTHONUTF8", utf8)
        monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")

    job = ddpnb.launch(script(UNICODE), nproc_per_node=2)
    job.wait(DEADLINE)

    for rank in (0, 1):
        line = f"rank {rank} перплексия 12.3 ✅ 训练完成 🚀"
        assert texts(job, rank) == [line]
        assert job.run.rank(rank).stdout.read_bytes() == line.encode() + b"\n"


def test_an_encoding_that_the_user_chose_is_kept_and_explained():
    _, text, result = failed(script(UNICODE), env={"PYTHONIOENCODING": "ascii"})

    assert result.failures[0].type == "UnicodeEncodeError"
    assert "PYTHONIOENCODING" in text.splitlines()[-1]


# 25: two ranks print at once, and their lines are spliced
# tqdm/tqdm#1294, Lightning-AI/litData#76


def test_no_line_is_spliced_or_lost_when_two_ranks_print_at_once():
    code = """
import os
rank = os.environ["RANK"]
for i in range(2000):
    print(f"r{rank}", i, "loss", "0.123456789" * 4, f"end{rank}")
"""

    job = ddpnb.launch(script(code), nproc_per_node=2)
    job.wait(DEADLINE)

    for rank in (0, 1):
        number = "0.123456789" * 4
        assert texts(job, rank) == [f"r{rank} {i} loss {number} end{rank}" for i in range(2000)]
    assert len(job.logs()) == 4000


# 26: what was printed without a flush is seen late, or lost
# NVIDIA/Megatron-LM#5072, pytorch/pytorch#7226


def test_a_line_is_there_while_the_rank_still_runs_and_after_it_dies_hard(tmp_path):
    code = """
import os, pathlib, time
rank = os.environ["RANK"]
print(f"rank {rank} step 0")
while not pathlib.Path("go").exists():
    time.sleep(0.05)
if rank == "1":
    print("rank 1: about to die")
    os._exit(7)
time.sleep(600)
"""

    job = ddpnb.launch(script(code), nproc_per_node=2)
    wait_until(lambda: len(texts(job)) == 2, what="both lines are there")
    assert not job.done
    (tmp_path / "go").touch()
    with pytest.raises(ddpnb.WorkerFailedError) as caught:
        job.wait(DEADLINE)

    assert texts(job, 1) == ["rank 1 step 0", "rank 1: about to die"]
    first, *others = caught.value.result.failures
    assert (first.rank, first.exitcode) == (1, 7)
    assert [(other.rank, other.consequence_of) for other in others] == [(0, 1)]


# 58: a script written for mp.spawn sets MASTER_PORT itself
# pytorch/pytorch#191957, pytorch/pytorch#191989


def test_a_script_that_sets_its_own_port_works_under_torchrun():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = f"""
import datetime, os, torch, torch.distributed as dist

def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "{port}"
    limit = datetime.timedelta(seconds=120)
    dist.init_process_group("gloo", rank=rank, world_size=world_size, timeout=limit)

setup(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank {{dist.get_rank()}} sum {{total.item()}}")
dist.destroy_process_group()
"""

    job = ddpnb.launch(script(code), nproc_per_node=2)
    result = job.wait(DEADLINE)

    assert sorted(texts(job)) == ["rank 0 sum 2.0", "rank 1 sum 2.0"]
    assert [exit_.exitcode for exit_ in result.exits] == [0, 0]
