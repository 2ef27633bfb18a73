"""Start, find, ask and stop the warm process of this kernel: the host's side."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace

from ddpnb.errors import LaunchError, RunDirError
from ddpnb.launchers.base import clean_environment, python, utf8
from ddpnb.launchers.memory import available_memory
from ddpnb.machine_lock import machine_lock
from ddpnb.process import ProcessId, ancestors
from ddpnb.rundir import RunDir
from ddpnb.warm.circumstances import circumstances
from ddpnb.warm.match import different, fingerprint
from ddpnb.warm.state import WarmFiles, WarmState, tidy, warm_folder

__all__ = ["NotWarmError", "find", "launch", "prepare", "start", "stop"]

NEEDED_BYTES = 1 << 30
"""Memory that must be free for a warm process to be started; it takes about a quarter of that."""
WARMING_SECONDS = 300.0
"""How long an explicit Warm() waits until torch is imported; two to five seconds are usual."""
ANSWER_SECONDS = 5.0
"""How long a warm process may take to fork."""
_POLL_SECONDS = 0.02


class NotWarmError(LaunchError):
    """A run cannot be started by a warm process; the message says why, in a few words."""


def find() -> tuple[WarmFiles, WarmState] | None:
    """Return the warm process of this process, or of the nearest one that it descends from."""
    folder = warm_folder()
    for owner in ancestors(os.getpid()):
        files = WarmFiles(folder, owner)
        state = files.read()
        if state is None or state.python != sys.executable:
            continue
        if state.stage == "failed" or state.process.is_alive():
            return files, state
        files.remove()  # it was killed
    return None


def start(owner: ProcessId | None = None) -> None:
    """Start a warm process that ends with its owner; return at once, while it imports torch.

    Args:
        owner: by default this process.

    Raises:
        NotWarmError: it cannot be started.
    """
    _refuse_where_there_is_none()
    available = available_memory()
    if available is not None and available < NEEDED_BYTES:
        raise NotWarmError(f"only {available >> 20} MiB of memory are free")
    owner = owner or ProcessId.of(os.getpid())
    assert owner is not None  # we run
    try:
        folder = warm_folder()
        tidy(folder)
        files = WarmFiles(folder, owner)
        with machine_lock(f"warm-{owner.pid}"):
            state = files.read()
            if state is None or not state.process.is_alive():
                _run_starter(files, owner)
    except (OSError, RunDirError) as error:
        raise NotWarmError(f"the warm process cannot be started: {error}") from error


def _run_starter(files: WarmFiles, owner: ProcessId) -> None:
    files.remove()
    warm_folder()
    usual = clean_environment(os.environ)
    # One thread: libraries that make their pool when they are loaded must not make any.
    # NVML: torch.cuda.is_available() would otherwise initialise CUDA, in whatever import calls it.
    chosen = {"OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    with files.log.open("wb") as log:
        done = subprocess.run(
            [*python("ddpnb.warm.process"), str(files.folder), json.dumps(owner.to_json())],
            env=usual | utf8(usual) | chosen,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=False,
        )
    if done.returncode != 0:
        said = files.log.read_text(errors="replace").strip().splitlines()[-1:]
        files.remove()
        raise NotWarmError(f"the warm process could not start: {' '.join(said)}")


def stop(files: WarmFiles, state: WarmState, *, why: str = "") -> None:
    """End a warm process; the runs that it has forked go on.

    Args:
        why: what whoever wants to launch is told from now on, instead of starting another.
    """
    until = time.monotonic() + ANSWER_SECONDS
    state.process.send(signal.SIGTERM)
    while state.process.is_alive():
        if time.monotonic() > until:
            state.process.send(signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    files.remove()
    if why:
        warm_folder()
        files.write(replace(state, stage="failed", why=why))


def prepare(environ: Mapping[str, str], job_env: Mapping[str, str], *, wait: bool) -> WarmFiles:
    """Return a warm process that can fork ranks with these variables; start one where none is.

    Args:
        environ: all variables of the ranks.
        job_env: those among them that were set for this run alone.
        wait: wait until it is ready.

    Raises:
        NotWarmError: there is none, or its ranks would differ from new interpreters.
    """
    _refuse_where_there_is_none()
    until = time.monotonic() + (WARMING_SECONDS if wait else 0.0)
    while True:
        try:
            found = find()
        except (OSError, RunDirError) as error:
            raise NotWarmError(str(error)) from error
        why = "it has just been started" if found is None else _why_not(*found, environ, job_env)
        if found is not None and why is None:
            return found[0]
        if found is None:
            start()
        elif found[1].stage == "failed":
            raise NotWarmError(str(why))
        if time.monotonic() > until:
            raise NotWarmError(f"the warm process is not ready: {why}")
        time.sleep(_POLL_SECONDS)


def _why_not(
    files: WarmFiles, state: WarmState, environ: Mapping[str, str], job_env: Mapping[str, str]
) -> str | None:
    if state.stage == "failed" and state.packages == fingerprint():
        return f"there is no warm process: {state.why}"
    if state.stage == "warming":
        return "it is importing torch"
    if state.packages != fingerprint():
        stop(files, state)
        start()
        return "installed packages have changed, and it is importing them again"
    names = different(state, environ)
    if not names:
        return None
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    verb = "is" if len(names) == 1 else "are"
    why = f"{listed} {verb} read when libraries are loaded, and {verb} set differently now"
    if not job_env.keys() & set(names):  # set in the kernel: so it will be for the next run too
        stop(files, state)
        start()
        return f"{why}; it is importing torch again"
    raise NotWarmError(why)


def launch(files: WarmFiles, run: RunDir, log: int) -> bool:
    """Have the warm process fork the keeper of the run; return whether the supervisor is there.

    Args:
        log: descriptor of launcher.log.

    Raises:
        NotWarmError: nothing has been started.
    """
    asked = circumstances(clean_environment(os.environ)) | {"run": str(run.path)}
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(files.connect(ANSWER_SECONDS))
            request = os.memfd_create("ddpnb-request")
            stack.callback(os.close, request)
            with os.fdopen(os.dup(request), "w") as file:
                json.dump(asked, file)
            os.lseek(request, 0, os.SEEK_SET)
            socket.send_fds(connection, [b"L"], [log, request])
            answer = connection.recv(1)
        except OSError as error:  # a time-out is one
            state = files.read()
            if state is not None:
                stop(files, state)  # the next launch starts another
            raise NotWarmError(f"the warm process does not answer: {error}") from error
        if answer != b"F":
            state = files.read()
            why = state.why if state is not None else ""
            raise NotWarmError(f"the warm process could not fork{': ' + why if why else ''}")
        connection.settimeout(None)
        connection.sendall(b"G")
        return connection.recv(1) == b"1"


def _refuse_where_there_is_none() -> None:
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        raise NotWarmError("a warm process needs Linux")
    if os.environ.get("DDPNB_WARM") == "0":
        raise NotWarmError("DDPNB_WARM=0 switches the warm process off")
