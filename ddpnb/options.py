"""A launch as words on a command line: one grammar, torchrun's, for %%ddp, %ddp and `ddpnb run`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from ddpnb.errors import SpecError
from ddpnb.launchers.base import Launcher
from ddpnb.launchers.cold import Cold
from ddpnb.launchers.python import Python
from ddpnb.launchers.spawn import Spawn
from ddpnb.launchers.torchrun import Torchrun

__all__ = ["OPTIONS", "LaunchWords", "parse", "read"]


@dataclass(frozen=True, kw_only=True)
class LaunchWords:
    """What a command line asked for, in the terms of `ddpnb.launch`."""

    target: str | None
    """The script; None when `options` has a module."""
    args: tuple[str, ...] = ()
    """The words behind it, for the script."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of `ddpnb.launch`."""
    job_name: str = "job"
    """The notebook's variable that is to hold the job."""


OPTIONS: list[click.Parameter] = [
    click.Option(
        ["-n", "--nproc-per-node"],
        metavar="N",
        default="1",
        show_default=True,
        help="Ranks: a number, or gpu (one a GPU), cpu (one a core), auto.",
    ),
    click.Option(["--nnodes"], type=int, default=1, show_default=True, help="Machines."),
    click.Option(
        ["--device"],
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="What the ranks compute on; cpu hides every GPU from them.",
    ),
    click.Option(
        ["--gpus"], metavar="LIST", help="GPUs to use, by nvidia-smi's numbers, e.g. 2,3."
    ),
    click.Option(
        ["--launcher"],
        type=click.Choice(["torchrun", "cold", "spawn", "python"]),
        default="torchrun",
        show_default=True,
        help="What starts the ranks.",
    ),
    click.Option(
        ["--function"], metavar="NAME", help="With --launcher spawn: the function to call (main)."
    ),
    click.Option(
        ["--max-restarts"],
        type=int,
        metavar="N",
        help="With torchrun: how often all ranks are started again after a failure (0).",
    ),
    click.Option(
        ["--master-port"],
        type=int,
        metavar="PORT",
        help="MASTER_PORT of the ranks; by default a free one.",
    ),
    click.Option(["--threads"], type=int, metavar="N", help="Threads of each rank (1)."),
    click.Option(
        ["--env"],
        multiple=True,
        metavar="NAME=VALUE",
        help="A variable for this run; may be repeated.",
    ),
    click.Option(["--cwd"], metavar="DIR", help="Working folder of the ranks."),
    click.Option(["--name"], metavar="NAME", help="Short name of the run."),
    click.Option(
        ["--timeout"],
        type=float,
        metavar="SECONDS",
        help="Stop the run after that long; it then counts as failed.",
    ),
    click.Option(
        ["--grace"],
        type=float,
        default=5.0,
        show_default=True,
        metavar="SECONDS",
        help="How long ranks may take to end themselves when the run is stopped.",
    ),
    click.Option(
        ["--max-log-bytes"],
        metavar="BYTES",
        help="What all logs may take on the disk, e.g. 500M (2G); none: no limit.",
    ),
    click.Option(["--detach"], is_flag=True, help="Let the run go on when its owner ends."),
    click.Option(
        ["-m", "--module"], is_flag=True, help="TARGET is a module, run as python -m does it."
    ),
]
"""What `ddpnb run` and the magics share; click makes the help text of it."""

_STANDALONE = click.Option(
    ["--standalone"], is_flag=True, hidden=True
)  # torchrun's word for what is always so here


def _refuse(_: click.Context, option: click.Parameter, value: object) -> None:
    if value is not None:
        raise click.UsageError(
            f"{option.opts[0]} is for several machines, and this version of ddpnb launches on one:"
            " leave it out, the ranks find each other on a free port"
        )


_OF_SEVERAL_MACHINES = [
    click.Option([name], hidden=True, expose_value=False, callback=_refuse)
    for name in ("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--node-rank")
]
_JOB_NAME = click.Option(
    ["--as", "job_name"],
    default="job",
    metavar="NAME",
    help="The variable that holds the job (job).",
)
_WORDS = [click.Argument(["target"]), click.Argument(["args"], nargs=-1, type=click.UNPROCESSED)]


def command(name: str, *, in_notebook: bool) -> click.Command:
    """Return the grammar: options, TARGET, and everything behind it untouched for the script."""
    extra: list[click.Parameter] = [_JOB_NAME] if in_notebook else []
    return click.Command(
        name,
        params=[*OPTIONS, *extra, _STANDALONE, *_OF_SEVERAL_MACHINES, *_WORDS],
        # Options end at TARGET: `train.py --lr 0.1` is the script's, also where we have an option
        # of that name.
        context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
        options_metavar="[OPTIONS]",
    )


def parse(line: str) -> list[str]:
    """Split a line as a shell does."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise SpecError(f"cannot split {line!r} into words: {error}") from error


def read(words: Sequence[str], *, name: str, in_notebook: bool) -> LaunchWords:
    """Return what the words ask for; raise SpecError for what is not understood."""
    grammar = command(name, in_notebook=in_notebook)
    try:
        given = grammar.make_context(name, with_dashes(words, grammar)).params
    except click.MissingParameter as error:
        raise SpecError(f"{name} needs a script: {name} [options] FILE [its arguments]") from error
    except click.UsageError as error:
        raise SpecError(f"{name}: {error.format_message()}") from error
    return to_launch(given)


def to_launch(given: dict[str, Any]) -> LaunchWords:
    """Turn click's parameters into arguments of `ddpnb.launch`."""
    module, target = given["module"], given["target"]
    options = {
        key: given[key]
        for key in (
            "nproc_per_node",
            "nnodes",
            "device",
            "threads",
            "cwd",
            "name",
            "timeout",
            "grace",
            "detach",
        )
        if given[key] is not None
    }
    options["launcher"] = _launcher(given)
    if given["max_log_bytes"] is not None:
        options["max_log_bytes"] = _bytes(given["max_log_bytes"])
    if given["gpus"] is not None:
        options["gpus"] = [part.strip() for part in given["gpus"].split(",") if part.strip()]
    if given["env"]:
        options["env"] = dict(_assignment(text) for text in given["env"])
    if module:
        options["module"] = target
    return LaunchWords(
        target=None if module else target,
        args=tuple(given["args"]),
        options=options,
        job_name=given.get("job_name", "job"),
    )


def with_dashes(words: Sequence[str], grammar: click.Command) -> list[str]:
    """Spell our own options with dashes, as torchrun does; what follows TARGET is not touched."""
    flags = {
        name for p in grammar.params if isinstance(p, click.Option) and p.is_flag for name in p.opts
    }
    result: list[str] = []
    expects_value = False
    for position, word in enumerate(words):
        if not expects_value and (word == "--" or not word.startswith("-")):
            return result + list(words[position:])
        if not expects_value and word.startswith("--"):
            option, equals, value = word.partition("=")
            word = option.replace("_", "-") + equals + value
        expects_value = (
            not expects_value
            and "=" not in word
            and word not in flags
            and not (word[:2] in ("-n",) and len(word) > 2)
            and word not in ("-h", "--help")
        )
        result.append(word)
    return result


def _launcher(given: dict[str, Any]) -> Launcher:
    kind = given["launcher"]
    for option, kinds in (
        ("function", ("spawn",)),
        ("max_restarts", ("torchrun",)),
        ("master_port", ("torchrun", "cold", "spawn")),
    ):
        if given[option] is not None and kind not in kinds:
            raise SpecError(
                f"--{option.replace('_', '-')} goes with --launcher {' or '.join(kinds)},"
                f" not with {kind}"
            )
    if kind == "python":
        return Python()
    if kind == "cold":
        return Cold(master_port=given["master_port"])
    if kind == "spawn":
        return Spawn(function=given["function"] or "main", master_port=given["master_port"])
    return Torchrun(max_restarts=given["max_restarts"] or 0, master_port=given["master_port"])


def _bytes(text: str) -> int | None:
    if text.lower() == "none":
        return None
    found = re.fullmatch(r"(\d+)([kmgt]?)(i?b)?", text.lower())
    if found is None:
        raise SpecError(f"--max-log-bytes {text!r} is no size; write 500M, 2G, or none")
    return int(found[1]) << 10 * " kmgt".index(found[2] or " ")


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SpecError(f"--env {text!r} is no assignment; write --env NAME=VALUE")
    return name, value
