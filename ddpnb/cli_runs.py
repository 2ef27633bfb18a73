"""The commands of `ddpnb` for runs that are there already: ps, logs, attach, stop, clean."""

from __future__ import annotations

import itertools
import json
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from ddpnb.job import Job
from ddpnb.records import LogLine
from ddpnb.rundir import RunDir, runs_folder

__all__ = ["COMMANDS"]

_SHOWN = 20
_FOLLOW_SECONDS = 0.1
_STEP_BYTES = 1 << 20
"""Of one stream, what is held at a time."""
_AT_ONCE = 1_000
"""Lines in one write."""
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_LOGS_HELP = """Print what the ranks of a run have written.

RUN is a run's id, a part of it, or its folder; left out, the newest run. Lines of several ranks go
by time, each with its rank before it; with -r the lines of one rank stand alone.
"""
_ATTACH_HELP = """Watch a run, as `ddpnb run` does, until it has ended.

RUN is a run's id, a part of it, or its folder; left out, the newest run. Ctrl-C stops watching; the
run goes on. The exit code is that of the run, as `ddpnb run --help` lists them.
"""
_STOP_HELP = """Stop runs: SIGINT to the ranks, after the run's grace SIGTERM, then SIGKILL.

RUN is a run's id, a part of it, or its folder. The command returns when nothing of them is left.
"""
_CLEAN_HELP = """Remove the folders of old runs; never that of a live one.

Say what may go: --keep N leaves the newest N of the ended runs, --older-than 7d those of the last
seven days (s, m, h, d, w); both together remove only what neither keeps.
"""


def _open(name: str | None) -> Job:
    from ddpnb.run_list import find

    return Job(find(name, runs_folder()))


@click.command(short_help="List the runs.")
@click.option("-a", "--all", "everything", is_flag=True, help=f"Not only the newest {_SHOWN}.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def ps(everything: bool, as_json: bool) -> None:
    """List the runs of the runs folder: state, script, ranks, age, size."""
    from ddpnb.run_list import COLUMNS, RunList, readable_runs

    runs = readable_runs(runs_folder())
    shown = runs if everything else _newest(runs)
    table = RunList(Job(run) for run in shown)
    if as_json:
        for job, row in zip(table, table.rows(), strict=True):
            told = dict(zip(COLUMNS, row, strict=True))
            click.echo(json.dumps(told | {"folder": str(job.folder)}))
        return
    click.echo(repr(table))
    if len(shown) < len(runs):
        click.echo(f"and {len(runs) - len(shown)} older ones: ddpnb ps --all")


def _newest(runs: Sequence[RunDir]) -> list[RunDir]:
    """Return the newest runs, and all that live."""
    return [run for at, run in enumerate(runs) if at >= len(runs) - _SHOWN or not run.is_over()]


@click.command(help=_LOGS_HELP, short_help="Print what the ranks of a run have written.")
@click.argument("run", required=False)
@click.option("-r", "--rank", metavar="RANK", help="Only this rank; `launcher`: torchrun's own.")
@click.option("-n", "--lines", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
def logs(run: str | None, rank: str | None, lines: int | None, follow: bool) -> None:
    """Print what the ranks of a run have written."""
    from ddpnb.lines import plain_text
    from ddpnb.tail import iter_lines
    from ddpnb.terminal.streams import Output

    job = _open(run)
    wanted = _rank(rank, job)
    out = Output(sys.stdout)

    def text(line: LogLine) -> str:
        return plain_text(line.text) if rank else f"[rank {line.rank}] {plain_text(line.text)}"

    try:
        if follow:
            for new in _followed(job, lines):
                out.write([text(line) for line in new if _is_wanted(line, wanted)])
        elif lines is not None:
            out.write([text(line) for line in job.logs(wanted, last=lines)])
        else:
            found = iter_lines(job.run, [wanted] if isinstance(wanted, int) else wanted)
            while some := list(itertools.islice(found, _AT_ONCE)):
                out.write([text(line) for line in some])
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _followed(job: Job, last: int | None) -> Iterator[list[LogLine]]:
    """Yield what there is and what comes, until the run has ended."""
    from ddpnb.tail import Tail

    tail = Tail(job.run, last=last, step=_STEP_BYTES)
    while True:
        done = job.done
        yield [record for record in tail.poll() if isinstance(record, LogLine)]
        if tail.behind:
            continue
        if done:
            yield tail.unfinished()
            return
        time.sleep(_FOLLOW_SECONDS)


def _rank(text: str | None, job: Job) -> Any:
    if text is None or text == "launcher":
        return text
    ranks = job.spec.world_size
    if not text.isdecimal() or int(text) >= ranks:
        there = f"{job.run_id} has ranks 0 to {ranks - 1}, and `launcher`"
        raise click.BadParameter(f"there is no rank {text!r}: {there}", param_hint="-r")
    return int(text)


def _is_wanted(line: LogLine, wanted: Any) -> bool:
    if wanted == "launcher":
        return line.rank is None
    return line.rank is not None and wanted in (None, line.rank)


@click.command(help=_ATTACH_HELP, short_help="Watch a run until it has ended.")
@click.argument("run", required=False)
def attach(run: str | None) -> None:
    """Watch a run until it has ended."""
    from ddpnb.terminal.follower import exit_code
    from ddpnb.terminal.streams import Interrupts
    from ddpnb.terminal.views import result_of, view_of, watch

    job = _open(run)
    with Interrupts() as interrupts:
        with view_of(job, stops=False) as view:
            ended = watch(job, view, interrupts, stops=False)
        if not ended:
            click.echo(f"{job.run_id} goes on; to stop it: ddpnb stop {job.run_id}")
            sys.exit(128 + (interrupts.signum or 0))
        result = result_of(job)
    sys.exit(exit_code(result))


@click.command(help=_STOP_HELP, short_help="Stop runs.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--now", is_flag=True, help="With SIGKILL at once.")
def stop(runs: Sequence[str], now: bool) -> None:
    """Stop runs."""
    jobs = [_open(run) for run in runs]
    for job in jobs:
        if job.done:
            continue
        if not now:
            click.echo(f"{job.run_id}: its ranks may take {job.spec.grace:g} s to end themselves")
            job.stop(wait=False)
    for job in jobs:
        state = job.kill() if now else job.stop()
        click.echo(f"{job.run_id}: {state.value}")


@click.command(help=_CLEAN_HELP, short_help="Remove old runs.")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="The newest N stay.")
@click.option("--older-than", metavar="AGE", help="Only what is older: 12h, 7d, 2w.")
@click.option("--dryrun", is_flag=True, help="Only say what would go.")
def clean(keep: int | None, older_than: str | None, dryrun: bool) -> None:
    """Remove the folders of old runs."""
    from ddpnb.run_list import old_runs, readable_runs, remove, size_on_disk
    from ddpnb.words import size

    if keep is None and older_than is None:
        raise click.UsageError("say what may go: --keep N, or --older-than 7d")
    runs = readable_runs(runs_folder())
    old = old_runs(runs, keep=keep, older_than=_seconds(older_than))
    if dryrun:
        for run in old:
            click.echo(f"would remove {run.run_id}  {size(size_on_disk(run.path))}")
        return
    count, freed = remove(old)
    click.echo(f"removed {count} of {len(runs)} runs, {size(freed)}")
    if count < len(old):
        raise click.exceptions.Exit(1)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    found = _AGE.fullmatch(text)
    if found is None:
        raise click.BadParameter(
            f"{text!r} is no age; write 30m, 12h, 7d or 2w", param_hint="--older-than"
        )
    return float(found[1]) * _UNITS[found[2]]


COMMANDS: list[click.Command] = [ps, logs, attach, stop, clean]
"""In the order in which they are listed."""
