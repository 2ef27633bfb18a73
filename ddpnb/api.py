"""launch, dryrun, attach, runs: the one place where plan, run folder and supervisor are joined."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ddpnb.errors import LaunchError, SpecError
from ddpnb.job import Job
from ddpnb.launchers.base import Command, Launcher, clean_environment, python
from ddpnb.launchers.cold import Cold
from ddpnb.launchers.ports import is_taken
from ddpnb.launchers.python import Python
from ddpnb.launchers.spawn import Spawn
from ddpnb.launchers.torchrun import Torchrun
from ddpnb.launchers.warm import Auto, Warm
from ddpnb.machine_lock import machine_lock
from ddpnb.plan import Plan, plan
from ddpnb.process import ProcessId
from ddpnb.run_list import RunList, find, readable_runs
from ddpnb.rundir import RunDir, runs_folder
from ddpnb.warm import client as warm
from ddpnb.warm.client import NotWarmError
from ddpnb.warm.state import WarmFiles

__all__ = ["attach", "dryrun", "launch", "on_job", "rerun", "runs", "start"]

logger = logging.getLogger(__name__)

_LAUNCHERS: dict[str, Callable[..., Launcher]] = {
    "auto": Auto,
    "cold": Cold,
    "warm": Warm,
    "torchrun": Torchrun,
    "spawn": Spawn,
    "python": Python,
}
_SPEC_OPTIONS = (
    "module name nnodes nproc_per_node device threads env cwd timeout grace detach max_log_bytes"
).split()

_listeners: list[Callable[[Job], Any]] = []


def launch(
    target: str | Path | Callable[..., Any] | None = None, /, *args: Any, **options: Any
) -> Job:
    """Start a script, a module or a notebook's function on several ranks; return a Job at once.

        launch("train.py", "--lr", "0.1", nproc_per_node=2)
        launch(module="mypkg.train", nproc_per_node=2)
        launch(train, lr=0.1, nproc_per_node=2)

    Args:
        target: path of a script, or a function of the notebook. For a function, the cells that
            define it and all that it needs are written to `<function>_ddp.py`, a script of its own.
            What it returns stays on the rank; `ddpnb.worker.report` brings values back.
        args: the script's command line; for a function, its positional arguments (literals).
        module: run `python -m module` instead of a script.
        launcher: Torchrun() (the default), Spawn(function="train") or Python().
        name: short name of the run; by default that of the script.
        nnodes: machines; this version launches on one.
        nproc_per_node: ranks on this machine, or "gpu", "cpu", "auto" as in torchrun.
        device: "auto", "cpu" or "cuda".
        gpus: GPUs to use, by nvidia-smi's numbers, also when CUDA_VISIBLE_DEVICES is set.
        threads: intra-op threads of each rank; by default OMP_NUM_THREADS, else 1.
        env: variables for this run.
        cwd: working folder of the ranks; by default this process's.
        timeout: seconds after which the run is stopped and counts as failed.
        grace: seconds that ranks get to end themselves when the run is stopped.
        detach: True lets the run go on when this process ends.
        max_log_bytes: what all logs of the run may take on the disk (2 GiB), None: no limit. Beyond
            it the middle of the long ones is given up; first and last 64 MiB of a stream are kept.
        arguments: any other keyword is an argument of the function (literals only).

    Raises:
        SpecError: what is asked for cannot be run; nothing was started.
        LaunchError: the supervisor could not be started.
    """
    job = start(target, *args, **options)
    try:
        _tell(job)
    except BaseException:  # the stop button while its view is drawn: the caller gets no handle
        job.stop(wait=False)
        raise
    return job


def rerun(job: Job) -> Job:
    """Launch the same script or module again, with the same options; no listener is told."""
    spec = job.spec
    described = dict(job.run.read_run()["launcher"])
    launcher = _LAUNCHERS[described.pop("name")](**described)
    options = {name: getattr(spec, name) for name in _SPEC_OPTIONS}
    options["gpus"] = list(spec.gpus) or None
    return start(spec.script, *spec.args, launcher=launcher, **options)


def start(
    target: str | Path | Callable[..., Any] | None = None, /, *args: Any, **options: Any
) -> Job:
    """Launch without a word to the listeners of `on_job`: for what shows the run in its own way."""
    planned = plan(target, args, **options)
    _refuse_taken_port(planned.command)
    run = planned.run
    # Of two launches at one moment the second must see what the first takes.
    with machine_lock("gpus") if planned.gpus else contextlib.nullcontext():
        run.create(
            planned.spec,
            launcher=planned.launcher.to_json(),
            command=planned.command.to_json(),
            script=planned.source.text,
            owner=None if planned.spec.detach else ProcessId.of(os.getpid()),
            after=_holders(planned),
            gpus=[vars(gpu) for gpu in planned.gpus],
        )
    try:
        _write_script(planned)
        _start_supervisor(planned)
    except BaseException:  # also the stop button: no rank may run that nobody holds a handle of
        _break_off(run)
        raise
    return Job(run)


def dryrun(
    target: str | Path | Callable[..., Any] | None = None, /, *args: Any, **options: Any
) -> Command:
    """Return the exact command that `launch` would run; nothing is written or started."""
    return plan(target, args, **options).command


def _show_options(function: Callable[..., Any]) -> None:
    """Have help() and the notebook's `?` show the options, which are spelled once, in `plan`."""
    _, _, _, *options = inspect.signature(plan).parameters.values()
    target, args, _ = inspect.signature(function).parameters.values()
    returns = inspect.signature(function).return_annotation
    signature = inspect.Signature([target, args, *options], return_annotation=returns)
    function.__signature__ = signature  # type: ignore[attr-defined]


for _function in (launch, dryrun):
    _show_options(_function)


def attach(run: str | Path | None = None) -> Job:
    """Return the Job of a run, live or ended, from any process; a notebook shows its view.

    Args:
        run: its id, a part of an id that only one run has, or its folder; None: the newest run.
    """
    job = Job(find(run, runs_folder()))
    _tell(job)
    return job


def runs() -> RunList:
    """Return the Jobs of all runs in the runs folder, oldest first; it shows itself as a table."""
    return RunList(Job(run) for run in readable_runs(runs_folder()))


def on_job(tell: Callable[[Job], Any]) -> None:
    """Have `tell(job)` called after each launch or attach of this process, e.g. to show it."""
    if tell not in _listeners:
        _listeners.append(tell)


def _tell(job: Job) -> None:
    for tell in _listeners:
        try:
            tell(job)
        except Exception:  # the job runs; without its handle nobody could stop it
            logger.exception("a listener of on_job failed")


def _refuse_taken_port(command: Command) -> None:
    if isinstance(command.port, int) and is_taken(command.port):
        raise LaunchError(
            f"port {command.port} is already in use on this machine;"
            " leave the port out, and a free one is taken"
        )


def _write_script(planned: Plan) -> None:
    source = planned.source
    if source.generated and source.path is not None and source.text is not None:
        try:
            source.path.write_bytes(source.text)
        except OSError as error:
            raise SpecError(f"cannot write the script {source.path}: {error.strerror}") from error


def _holders(planned: Plan) -> list[str]:
    """Return the live runs of this runs folder that hold a GPU which the new run will use."""
    wanted = _held(planned.spec.to_json(), planned.launcher.name)
    holders = []
    for run in readable_runs(planned.run.path.parent) if wanted else ():
        described = run.read_run()
        here = (described.get("launched_by") or {}).get("host") == socket.gethostname()
        held = _held(described["spec"], described["launcher"]["name"])
        if here and wanted & held and not run.is_over():
            holders.append(run.run_id)
    return holders


def _held(spec: Mapping[str, Any], launcher: str) -> set[str]:
    """Return the GPUs that a run computes on: one a rank, or all in a single plain process."""
    return set(spec["gpus"] if launcher == "python" else spec["gpus"][: spec["nproc_per_node"]])


def _break_off(run: RunDir) -> None:
    """End what a launch has begun; keep its folder only where there is something to read in it."""
    if run.processes.exists():
        Job(run).kill()
    else:
        shutil.rmtree(run.path, ignore_errors=True)


def _start_supervisor(planned: Plan) -> None:
    """Start the keeper of the run and return when it has written down who it is."""
    run, why = planned.run, ""
    files: WarmFiles | None = None
    if isinstance(planned.launcher, Auto | Warm):
        try:
            files = _warm_process(planned)
        except NotWarmError as error:
            if isinstance(planned.launcher, Warm):
                raise
            why = str(error)
    log = os.open(run.launcher_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    # The stop button waits for these moments: it finds no supervisor, or one that can be told.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        came_up = None
        if files is not None:
            try:
                came_up = warm.launch(files, run, log)
            except NotWarmError as error:
                if isinstance(planned.launcher, Warm):
                    raise
                why = str(error)
        if came_up is None:
            came_up = _run_starter(run, log, why)
    finally:
        os.close(log)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if not came_up:
        said = run.launcher_log.read_text(errors="replace").strip()
        said = said or f"it left no word; is the disk of {run.path} full?"
        raise LaunchError(f"the supervisor could not start:\n{said}")


def _warm_process(planned: Plan) -> WarmFiles:
    env = clean_environment(os.environ) | dict(planned.command.env)
    wait = isinstance(planned.launcher, Warm)
    return warm.prepare(env, planned.spec.env, wait=wait)


def _run_starter(run: RunDir, log: int, why: str) -> bool:
    done = subprocess.run(
        [*python("ddpnb.launchers.supervise"), str(run.path), why],
        env=clean_environment(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        check=False,
    )
    return done.returncode == 0
