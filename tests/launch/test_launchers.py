"""All launchers give the same streams, the same contract and the same run folder."""

import json
import os
import uuid

import pytest

import ddpnb
from ddpnb.json_files import read_json
from tests.launch.scripts import ALL_REDUCE, SAY_RANK, script

DEADLINE = 180

CONTRACT = """
import json, os, sys
def main():
    names = ["RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"]
    names += ["OMP_NUM_THREADS", "TORCHELASTIC_USE_AGENT_STORE", "SLURM_PROCID"]
    names += ["TORCHELASTIC_RESTART_COUNT", "ROLE_RANK"]
    names += ["DDPNB_MASTER_PORT"]
    print(json.dumps({n: os.environ.get(n) for n in names} | {
        "port": int(os.environ.get("MASTER_PORT", 0)) > 0,
        "run": os.path.isdir(os.environ["DDPNB_RUN"]),
        "stdin": sys.stdin.read(), "argv": sys.argv, "file": __file__, "cwd": os.getcwd(),
        "encoding": sys.stdout.encoding, "path": sys.path[0],
    }))
    print("to stderr", file=sys.stderr)
    os.system("echo from a child")
if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    "launcher",
    [ddpnb.Torchrun(), ddpnb.Cold(), ddpnb.Spawn(), ddpnb.Python()],
    ids=lambda value: value.name,
)
def test_ranks_get_the_contract_of_torchrun(launcher, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv("SLURM_PROCID", "3")
    nproc = 1 if launcher.name == "python" else 2
    args = () if launcher.name == "spawn" else ("--lr", "$local_rank $$ 0.1")

    job = ddpnb.launch(script(CONTRACT), *args, launcher=launcher, nproc_per_node=nproc)
    result = job.wait(DEADLINE)

    assert {exit_.rank: exit_.exitcode for exit_ in result.exits} == dict.fromkeys(range(nproc), 0)
    for rank in range(nproc):
        lines = job.logs(rank)
        seen = json.loads(str(next(line for line in lines if str(line).startswith("{"))))
        assert [str(line) for line in lines if line.stream == "stderr"] == ["to stderr"]
        assert "from a child" in [str(line) for line in lines]
        assert seen["argv"] == [str(tmp_path / "train.py"), *args]
        assert seen["file"] == str(tmp_path / "train.py")
        assert (seen["cwd"], seen["path"]) == (str(tmp_path), str(tmp_path))
        assert (seen["stdin"], seen["encoding"], seen["run"]) == ("", "utf-8", True)
        assert seen["OMP_NUM_THREADS"] == os.environ.get("OMP_NUM_THREADS", "1")
        assert (seen["SLURM_PROCID"], seen["DDPNB_MASTER_PORT"]) == (None, None)
        if launcher.name == "python":
            assert (seen["RANK"], seen["WORLD_SIZE"], seen["port"]) == (None, None, False)
        else:
            assert (seen["RANK"], seen["LOCAL_RANK"]) == (str(rank), str(rank))
            assert (seen["WORLD_SIZE"], seen["LOCAL_WORLD_SIZE"]) == ("2", "2")
            assert (seen["GROUP_RANK"], seen["MASTER_ADDR"]) == ("0", "127.0.0.1")
            assert seen["port"]
            assert seen["TORCHELASTIC_USE_AGENT_STORE"] == "False"
            assert (seen["TORCHELASTIC_RESTART_COUNT"], seen["ROLE_RANK"]) == ("0", str(rank))


def test_torchrun_restarts_and_the_log_goes_on(tmp_path):
    code = (
        "import os, sys\n"
        "attempt = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "print('attempt', attempt)\n"
        "if attempt == '0': raise ValueError('first time')\n"
    )

    job = ddpnb.launch(script(code), launcher=ddpnb.Torchrun(max_restarts=1))
    result = job.wait(DEADLINE)

    assert result.state is ddpnb.JobState.SUCCEEDED
    assert result.exits[0].attempt == 1
    assert [str(one) for one in job.logs(0) if one.stream == "stdout"] == ["attempt 0", "attempt 1"]
    assert read_json(job.run.rank(0).error(0))["message"] == "first time"
    starts = job.run.rank(0).starts()
    assert [start.data["attempt"] for start in starts] == [0, 1]
    assert starts[1].data["offsets"]["stdout"] == len("attempt 0\n")


def test_two_jobs_at_once_do_not_meet():
    script(ALL_REDUCE + "print('rendezvous', os.environ['TORCHELASTIC_RUN_ID'])\n")
    launchers = (ddpnb.Torchrun(), ddpnb.Torchrun())

    jobs = [ddpnb.launch("train.py", nproc_per_node=2, launcher=one) for one in launchers]
    for job in jobs:
        job.wait(DEADLINE)

    lines = [str(line) for job in jobs for line in job.logs()]
    assert len([line for line in lines if "sum 2.0" in line]) == 4
    assert len({line.split("port ")[1] for line in lines if "port" in line}) == 2
    # What nobody can guess, nobody can join.
    rendezvous = {line.split()[1] for line in lines if line.startswith("rendezvous")}
    assert len({uuid.UUID(name) for name in rendezvous}) == 2


def test_launch_returns_a_running_job_whose_folder_tells_all(tmp_path):
    job = ddpnb.launch(script(SAY_RANK), launcher=ddpnb.Python(), name="my run")
    job.wait(DEADLINE)

    files = {str(path.relative_to(job.folder)) for path in job.folder.rglob("*") if path.is_file()}
    assert files >= {
        "run.json",
        "script.py",
        "command.json",
        "processes.json",
        "launcher.log",
        "exit.json",
        "timeline.jsonl",
        "ranks/0/stdout.log",
        "ranks/0/stderr.log",
        "ranks/0/events.jsonl",
    }
    assert "-my-run-" in job.run_id
    assert repr(job) == f"<Job {job.run_id}: succeeded, 1 rank of train.py>"
    assert ddpnb.attach(job.run_id).run_id == ddpnb.attach().run_id == job.run_id
    assert [one.run_id for one in ddpnb.runs()] == [job.run_id]


def test_the_kernels_variables_are_not_written_to_disk(monkeypatch):
    monkeypatch.setenv("MY_SECRET", "hunter2")

    job = ddpnb.launch(script(SAY_RANK), launcher=ddpnb.Python(), env={"MINE": "yes"})
    job.wait(DEADLINE)

    written = b"".join(path.read_bytes() for path in job.folder.rglob("*") if path.is_file())
    assert b"hunter2" not in written
    assert read_json(job.run.command)["env"]["MINE"] == "yes"


def test_what_runs_is_the_script_as_it_was_at_the_launch():
    name = script("print('old')")

    job = ddpnb.launch(name, launcher=ddpnb.Python())
    script("print('new')")
    job.wait(DEADLINE)

    assert [str(line) for line in job.logs(0)] == ["old"]


def test_dryrun_writes_nothing_and_shows_the_plain_line(tmp_path):
    script(SAY_RANK)

    command = ddpnb.dryrun("train.py", "--lr", 0.1, nproc_per_node=2)

    assert f"torchrun --standalone --nproc-per-node 2 {tmp_path}/train.py --lr 0.1" in repr(command)
    assert "ddpnb.worker.agent" in repr(command)
    assert "run.json" in repr(command)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_function_reaches_the_ranks_through_a_script_of_its_own(tmp_path):
    from tests.launch import cell_functions

    job = ddpnb.launch(cell_functions.hello, "you", times=2, nproc_per_node=2)
    job.wait(DEADLINE)

    written = (tmp_path / "hello_ddp.py").read_text()
    assert 'if __name__ == "__main__":' in written
    assert [str(line) for line in job.logs(1)] == ["rank 1 hello you"] * 2


def test_a_function_reaches_spawned_ranks_too():
    from tests.launch import cell_functions

    job = ddpnb.launch(
        cell_functions.greet, word="hi there", nproc_per_node=2, launcher=ddpnb.Spawn()
    )
    job.wait(DEADLINE)

    assert [str(line) for line in job.logs(1)] == ["hi there from 1 of 2"]


def test_a_run_that_floods_its_log_keeps_to_its_limit_and_goes_on():
    code = "for i in range(200_000):\n    print(f'line {i:057}')\n"

    job = ddpnb.launch(script(code), launcher=ddpnb.Python(), max_log_bytes=1 << 20)
    result = job.wait(DEADLINE)

    texts = [str(line) for line in job.logs(0)]
    assert result.state is ddpnb.JobState.SUCCEEDED
    assert texts[0] == f"line {0:057}"
    assert texts[-1] == f"line {199_999:057}"
    assert any("bytes are gone here" in text for text in texts)
    assert job.run.rank(0).stdout.stat().st_blocks * 512 <= 1 << 20
    assert "given back to the disk" in "".join(map(str, job.logs("launcher")))
