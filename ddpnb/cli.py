"""The command `ddpnb`: run a script and watch it, open the lessons, look at the machine.

The commands for runs that are there already stand in `cli_runs`.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ddpnb import __version__, options
from ddpnb.cli_runs import COMMANDS
from ddpnb.errors import DdpnbError
from ddpnb.job import Job

__all__ = ["main"]

REFUSED = 2

_RUN_HELP = """Run a script on several ranks, as torchrun would, and watch it.

TARGET is a script, or with -m a module; what follows it is the script's own. The options are
torchrun's; `torchrun --nproc-per-node 2 train.py --lr 0.1` works with `ddpnb run` in its place.

On a terminal the log of all ranks scrolls by above a panel that shows where each rank is. Into a
pipe or a file every line goes with its rank before it, "[rank 1] text": what ranks write to stdout
to stdout, what they write to stderr, and the launcher's own output, to stderr. What rank 0 gives to
ddpnb.worker.log is a line too. Everything is kept in the run folder, which the last line names.

Ctrl-C, or SIGTERM, stops the ranks politely; a second one kills them. When this command itself is
killed, the ranks end too, unless --detach was given: then it returns as soon as the run has
started.

\b
Exit code:
  0      every rank left with 0
  N      that of the rank that failed first; 128 + N when signal N ended it
  124    the time limit (--timeout) passed
  130    stopped by Ctrl-C
  143    stopped by SIGTERM, or from elsewhere
  2      nothing was started: the message says why
  1      failed, and nobody knows the code

\b
Examples:
  ddpnb run -n 2 train.py --lr 0.1
  ddpnb run -n 4 --device cpu -m mypackage.train
  ddpnb run -n 2 --dryrun train.py
"""

_LAB_HELP = """Copy the lessons to DIR (default: ddpnb-lessons) and open them in JupyterLab.

A lesson that you have changed, or just run and saved, is never overwritten. Every other option
goes to JupyterLab, and all that follows `--`: ddpnb lab --no-browser --port=8890
"""

_DEMO_HELP = """Run the first lesson from end to end and show what its ranks do.

The work happens in a new folder in DIR (default: ddpnb-demo): the notebook as it ran, also as a web
page, and the folder of each run. The exit code is 0 when every cell did what it should.
"""

_DOCTOR_HELP = """Say what this machine can do, a line a check, with what to do about it.

\b
ok     as it should be
note   good to know
warn   something will be slow, or break in some runs
fail   runs will not work: mend this first
skip   there was nothing to look at

Two real ranks are launched, which takes some seconds; --quick leaves that out. The exit code is 1
when a check failed, else 0.
"""


class _Group(click.Group):
    """Prints what ddpnb refuses as a message, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was chosen."""
        try:
            return super().invoke(ctx)
        except DdpnbError as error:
            from ddpnb.terminal.panel import safe_text

            click.echo(f"ddpnb: {safe_text(str(error))}", err=True)
            ctx.exit(REFUSED)


class _RunCommand(click.Command):
    """Takes torchrun's spelling of the options too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line."""
        return super().parse_args(ctx, options.with_dashes(args, self))


class _LabCommand(click.Command):
    """Leaves to JupyterLab what follows `--`, and every option that is none of ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line."""
        at = args.index("--") if "--" in args else len(args)
        ours, theirs = args[:at], args[at + 1 :]
        known = {name for option in self.get_params(ctx) for name in option.opts}
        others = [word for word in ours if word.startswith("-") and word not in known]
        ours = [word for word in ours if word not in others]
        theirs = [*others, *theirs]
        rest = super().parse_args(ctx, ours)
        ctx.params["jupyter_args"] = theirs
        return rest


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ddpnb")
def main() -> None:
    """Multi-GPU PyTorch training, taught and driven from Jupyter and from the command line."""
    for stream in (sys.stdout, sys.stderr):
        # Whatever the locale: a letter that it lacks must not end the watching of a run.
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _run(*, dryrun: bool, **given: Any) -> None:
    from ddpnb.api import dryrun as command

    words = options.to_launch(given)
    if dryrun:
        click.echo(repr(command(words.target, *words.args, **words.options)))
        return
    sys.exit(_launch_and_watch(words))


_grammar = options.command("run", in_notebook=False)
_DRYRUN = click.Option(["--dryrun"], is_flag=True, help="Print the exact command; start nothing.")
main.add_command(
    _RunCommand(
        "run",
        params=[_DRYRUN, *_grammar.params],
        callback=_run,
        help=_RUN_HELP,
        short_help="Run a script on several ranks and watch it.",
        context_settings=_grammar.context_settings,
    )
)


@main.command(cls=_LabCommand, help=_LAB_HELP, short_help="Open the lessons in JupyterLab.")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
def lab(folder: Path | None, jupyter_args: Sequence[str]) -> None:
    """Open the lessons in JupyterLab."""
    from ddpnb.lab import copy_lessons, open_lab

    folder = folder or Path("ddpnb-lessons")
    click.echo(copy_lessons(folder))
    open_lab(folder, jupyter_args)


@main.command(help=_DEMO_HELP, short_help="Run the first lesson and show what its ranks do.")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--notebook",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Another notebook than the first lesson.",
)
def demo(folder: Path | None, notebook: Path | None) -> None:
    """Run the first lesson and show what its ranks do."""
    from ddpnb.demo import run_demo

    sys.exit(run_demo(folder, notebook))


@main.command(help=_DOCTOR_HELP, short_help="Say what this machine can do, and what to mend.")
@click.option("--quick", is_flag=True, help="Launch no ranks.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def doctor(quick: bool, as_json: bool) -> None:
    """Say what this machine can do, and what to mend."""
    from ddpnb.checkup import doctor as examine
    from ddpnb.terminal.doctor_view import show_checks

    try:
        report = examine(quick=quick) if as_json else show_checks(quick=quick)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1))
    sys.exit(not report.ok)


for _command in COMMANDS:
    main.add_command(_command)


def _launch_and_watch(words: options.LaunchWords) -> int:
    from ddpnb.api import launch
    from ddpnb.terminal.follower import exit_code
    from ddpnb.terminal.streams import Interrupts
    from ddpnb.terminal.views import result_of, view_of, watch

    with Interrupts() as interrupts:
        job = launch(words.target, *words.args, **words.options)
        if job.spec.detach:
            _say_how_to_attach(job)
            return 0
        with view_of(job) as view:
            watch(job, view, interrupts)
        result = result_of(job)
    return exit_code(result, interrupts.signum)


def _say_how_to_attach(job: Job) -> None:
    click.echo(f"started, detached: {job.run_id}\nrun folder: {job.folder}")
    click.echo(f"to watch it: ddpnb attach {job.run_id}\nto stop it: ddpnb stop {job.run_id}")
