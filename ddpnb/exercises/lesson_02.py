"""Checks of lesson 02: the guide's script and its eight faults, the rank table, a command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddpnb import options
from ddpnb.errors import SpecError
from ddpnb.exercises.checks import Verdict, exercise
from ddpnb.exercises.repairs import FAULTS, Fault
from ddpnb.exercises.script_runs import DEADLINE, ScriptRun, run_script

__all__: list[str] = []

_AS_READ = "The run did not get so far: this is judged by reading the script."
# One word a line, `--name=value` or `--name` and its value.
_C10D = re.compile(r"^--rdzv[-_]backend[=\n]c10d\n", re.MULTILINE)
_FREE_PORT = re.compile(
    r"^--rdzv[-_]endpoint[=\n](?:localhost|127\.0\.0\.1)(?::0)?\n", re.MULTILINE
)
_TABLE = [[(0, 0), (1, 1)], [(0, 2), (1, 3)]]


def _register(fault: Fault) -> None:
    @exercise(f"02-{fault.name}")
    def check_fault(script: Any, *, deadline: float = DEADLINE) -> Verdict:
        """Run the script and look for one fault in it."""
        run = _ran(script, deadline)
        return run if isinstance(run, Verdict) else _judge(fault, run)


for _fault in FAULTS:
    _register(_fault)


@exercise("02-repair")
def check_repair(script: Any, *, deadline: float = DEADLINE) -> Verdict:
    """All eight faults are gone, and the script comes to its end."""
    run = _ran(script, deadline)
    if isinstance(run, Verdict):
        return run
    left = [fault.name for fault in FAULTS if not _judge(fault, run).passed]
    if left:
        return _not_yet(f"Still open: {', '.join(left)}. Their own checks have hints.", run.told())
    if not run.ended_well:
        hint = "Not one of the eight: read what it failed of. The line is that of your script."
        return _not_yet(hint, run.told())
    return Verdict(passed=True, detail=run.told())


@exercise("02-table")
def check_table(machines: Any) -> Verdict:
    """Two machines with two ranks each: (local_rank, rank) of every process."""
    try:
        given = [[tuple(process) for process in machine] for machine in machines]
    except TypeError:
        given = []
    if [[len(process) for process in machine] for machine in given] != [[2, 2], [2, 2]]:
        return _not_yet("Give two lists of two pairs each: `[machine_1, machine_2]`.")
    if any(number is None for machine in given for process in machine for number in process):
        return _not_yet("Put a number in place of each `None`.")
    hint = _table_hint(given)
    if hint:
        return _not_yet(hint, f"you gave {given}")
    return Verdict(
        passed=True,
        detail="rank = node_rank x 2 + local_rank. Rank 3 computes on GPU 1 of its machine:"
        " `device_ids=[rank]` would ask for GPU 3, which is not there.",
    )


@exercise("02-command")
def check_command(line: Any) -> Verdict:
    """One machine, four ranks, a port that nobody else has."""
    words = _words_after_launcher(line)
    if words is None:
        return _not_yet("Begin with `torchrun`, or with the `python -m` that does the same.")
    words = _own_meeting_place(words)
    try:
        asked = options.read(words, name="torchrun", in_notebook=False)
    except SpecError as error:
        return _not_yet("Options stand between `torchrun` and the script.", str(error))
    behind = list(asked.args)
    if any(word.startswith(("--nproc", "--standalone", "--master")) for word in behind):
        hint = "What stands behind the script is the script's own. Put torchrun's words before it."
        return _not_yet(hint, f"the script would be given {behind}")
    if asked.target != "experiment.py" or behind != ["hyperparams.yaml"]:
        hint = "The script is experiment.py, and it takes hyperparams.yaml as its only argument."
        return _not_yet(hint, f"script {asked.target}, arguments {behind}")
    if str(asked.options["nproc_per_node"]) != "4":
        hint = "How many processes does the machine need? Which option says so?"
        return _not_yet(hint, f"{asked.options['nproc_per_node']} process(es)")
    if "--standalone" not in words[: words.index("experiment.py")]:
        hint = "Which option makes a meeting place on this machine alone, with a port of its own?"
        return _not_yet(hint)
    return Verdict(passed=True, detail="Four processes, and two such jobs do not collide.")


def _ran(script: Any, deadline: float) -> ScriptRun | Verdict:
    """Return the run of the script, or what kept it from being run."""
    if not isinstance(script, (str, Path)):
        return _not_yet("Give the name of the script, for example `guide.py`.")
    path = Path(script)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return _not_yet("Run the cell that writes the script first.", f"{path}: {why}")
    try:
        run = run_script(path, text, deadline=deadline)
    except SyntaxError as error:
        return _not_yet(f"Line {error.lineno} is no Python: {error.msg}.", "Nothing was run.")
    if run.was_ended:
        hint = (
            "It hangs or waits: does each rank reach every step that all ranks take together? On a"
            " machine that is very busy, try again, or give the check a longer `deadline=`."
        )
        return _not_yet(hint, run.told())
    return run


def _judge(fault: Fault, run: ScriptRun) -> Verdict:
    hint = fault.read(run.reading)
    if hint:
        return _not_yet(hint, run.told())
    seen = fault.see(run)
    if seen.hint:
        return _not_yet(seen.hint, f"{run.told()} {seen.fact}".strip())
    return Verdict(passed=True, detail=f"{run.told()} {seen.fact or _AS_READ}")


def _table_hint(given: Sequence[Sequence[tuple[Any, ...]]]) -> str:
    """Return what to look at next in a wrong table, or ""."""
    if [list(machine) for machine in given] == _TABLE:
        return ""
    local = [[process[0] for process in machine] for machine in given]
    ranks = [process[1] for machine in given for process in machine]
    if local != [[0, 1], [0, 1]]:
        return "`local_rank` counts the processes of one machine, from 0. On each it starts again."
    if len(set(ranks)) < len(ranks):
        return "Two processes have the same rank. `rank` counts over all machines."
    if sorted(ranks) != [0, 1, 2, 3]:
        return "Four processes: their ranks are 0 to 3."
    return "The first machine has the first ranks, in the order of its local ranks."


def _words_after_launcher(line: Any) -> list[str] | None:
    try:
        words = shlex.split(line) if isinstance(line, str) else []
    except ValueError:
        return None
    if words[:1] == ["torchrun"]:
        return words[1:]
    if words[:1] in (["python"], ["python3"]) and words[1:3] == ["-m", "torch.distributed.run"]:
        return words[3:]
    return None


def _own_meeting_place(words: Sequence[str]) -> list[str]:
    """Write the longer form of --standalone, which torchrun's own page shows, as --standalone."""
    line = "\n".join(words)
    for pattern in (_C10D, _FREE_PORT):
        line, found = pattern.subn("", line, count=1)
        if not found:
            return list(words)
    return ["--standalone", *line.split("\n")]


def _not_yet(hint: str, detail: str = "") -> Verdict:
    return Verdict(passed=False, hint=hint, detail=detail)
