"""The words of a launch: torchrun's grammar, and what is made of them."""

import pytest

from ddpnb.errors import SpecError
from ddpnb.launchers.python import Python
from ddpnb.launchers.spawn import Spawn
from ddpnb.launchers.torchrun import Torchrun
from ddpnb.options import OPTIONS, parse, read


def asked(line, *, in_notebook=True):
    return read(parse(line), name="%ddp", in_notebook=in_notebook)


@pytest.mark.parametrize(
    "line",
    [
        "-n 2 train.py",
        "-n2 train.py",
        "--nproc-per-node 2 train.py",
        "--nproc_per_node 2 train.py",
        "--nproc_per_node=2 train.py",
        "--standalone --nproc-per-node=2 train.py",
    ],
)
def test_width_is_spelled_as_torchrun_does(line):
    words = asked(line)

    assert (words.target, words.options["nproc_per_node"]) == ("train.py", "2")


def test_words_behind_the_target_are_the_scripts():
    words = asked("-n 2 train.py --nproc_per_node 7 -n 3 --timeout 5 -- --help")

    assert words.args == ("--nproc_per_node", "7", "-n", "3", "--timeout", "5", "--", "--help")
    assert words.options["nproc_per_node"] == "2"


def test_underscores_in_values_and_arguments_stay():
    words = asked("--env MY_NAME=a_b --name my_run my_train.py --batch_size 8")

    assert words.options["env"] == {"MY_NAME": "a_b"}
    assert words.options["name"] == "my_run"
    assert (words.target, words.args) == ("my_train.py", ("--batch_size", "8"))


def test_module_is_run_instead_of_a_file():
    words = asked("-n 2 -m pkg.train --lr 0.1")

    assert words.target is None
    assert words.options["module"] == "pkg.train"
    assert words.args == ("--lr", "0.1")


@pytest.mark.parametrize(
    ("line", "launcher"),
    [
        ("train.py", Torchrun()),
        ("--max-restarts 3 train.py", Torchrun(max_restarts=3)),
        ("--master-port 29500 train.py", Torchrun(master_port=29500)),
        ("--launcher spawn train.py", Spawn(function="main")),
        ("--launcher spawn --function go train.py", Spawn(function="go")),
        ("--launcher python train.py", Python()),
    ],
)
def test_launcher_is_chosen_with_its_own_options(line, launcher):
    assert asked(line).options["launcher"] == launcher


def test_option_of_another_launcher_is_refused():
    with pytest.raises(SpecError, match="--function goes with --launcher spawn, not with torchrun"):
        asked("--function go train.py")


def test_gpus_are_split_at_commas():
    assert asked("--gpus 2,3 train.py").options["gpus"] == ["2", "3"]


def test_env_may_be_repeated():
    assert asked("--env A=1 --env B=x=y train.py").options["env"] == {"A": "1", "B": "x=y"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "needs a script"),
        ("-n 2", "needs a script"),
        ("--nproc-per-nod 2 train.py", "--nproc-per-node"),
        ("--env A train.py", "NAME=VALUE"),
        ("--device tpu train.py", "tpu"),
        ("--timeout soon train.py", "soon"),
        ("train.py 'open", "quot"),
    ],
)
def test_what_is_not_understood_is_refused(line, message):
    with pytest.raises(SpecError, match=message):
        asked(line)


def test_job_name_belongs_to_the_notebook_alone():
    assert asked("--as other train.py").job_name == "other"
    with pytest.raises(SpecError):
        asked("--as other train.py", in_notebook=False)


def test_words_are_split_as_a_shell_does():
    assert parse("""-n 2 'my dir/t.py' --text "a b" c\\ d""") == [
        *("-n", "2", "my dir/t.py", "--text", "a b", "c d")
    ]


def test_every_option_says_what_it_is_for():
    assert [option.name for option in OPTIONS if not option.help] == []
