"""The first code in a rank: tie it to its parent, give it its files, run the script as __main__.

Started as `python -P -m ddpnb.worker.bootstrap` by whichever launcher, with DDPNB_RUN in the
environment. Imports only the standard library until the script runs: the script decides what is
loaded, and when.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib.machinery
import io
import linecache
import os
import runpy
import signal
import sys
import time
import tokenize
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpnb.json_files import append_json_lines, reserve, write_json
from ddpnb.process import ProcessId
from ddpnb.rank_dir import RankDir
from ddpnb.records import Event, Worker
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec
from ddpnb.worker.leave import run_and_leave

__all__ = ["Rank", "enter", "load_script", "main", "report_failures"]

STACKS_SIGNAL = signal.SIGRTMIN + 5 if hasattr(signal, "SIGRTMIN") else None
"""Makes an armed rank write its threads' stacks to stacks.log. SIGUSR1 and 2 are the user's."""

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class Rank:
    """Who this process is, and where it writes."""

    worker: Worker
    attempt: int
    files: RankDir
    spec: LaunchSpec
    snapshot: Path
    """The script as it was when the run was launched; a later edit does not reach this run."""


def main(before: Callable[[], Any] = lambda: None) -> None:
    """Be a rank from here to the end of the process; `before` is called when its streams are."""
    run = RunDir(Path(os.environ["DDPNB_RUN"]))
    rank = enter(run, Worker.from_env())
    before()
    run_and_leave(lambda: report_failures(rank, lambda: _run(rank)))


def enter(run: RunDir, worker: Worker) -> Rank:
    """Arm this process as a rank of the run, and say so in its events file.

    Everything that it writes from here on, also from C or from a child process, is in the rank's
    own files.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    port = os.environ.pop("DDPNB_MASTER_PORT", None)
    if port is not None and "RANK" in os.environ:
        os.environ["MASTER_PORT"] = port
    files = run.rank(worker.rank)
    files.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    offsets = _point_streams(files)
    faulthandler.enable(file=2)
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    with contextlib.suppress(OSError):  # full already
        reserve(files.error(attempt))  # what this rank dies of may be a full disk
    if STACKS_SIGNAL is not None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        stacks = os.open(files.stacks, flags, 0o600)  # stays open: the handler writes to it
        # What faulthandler puts back when Python ends: by default the signal would kill a rank that
        # is just leaving.
        signal.signal(STACKS_SIGNAL, signal.SIG_IGN)
        faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True)
    me = ProcessId.of(os.getpid())
    start = Event(
        rank=worker.rank,
        time=time.time(),
        kind="start",
        data={
            "pid": os.getpid(),
            "start_time": 0 if me is None else me.start_time,
            "attempt": attempt,
            "offsets": offsets,
            "signals": {} if STACKS_SIGNAL is None else {"stacks": int(STACKS_SIGNAL)},
            "local_rank": worker.local_rank,
            "node_rank": worker.node_rank,
            "world_size": worker.world_size,
        },
    )
    _tell(files, start)
    return Rank(
        worker=worker, attempt=attempt, files=files, spec=run.read_spec(), snapshot=run.script
    )


def _tell(files: RankDir, event: Event) -> None:
    events = os.open(files.events, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    append_json_lines(events, [event.to_json()])
    os.close(events)


def _point_streams(files: RankDir) -> dict[str, int]:
    """Point fds 0, 1 and 2 at /dev/null and the rank's files; return their sizes, in bytes."""
    os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
    offsets = {}
    for fd, name, path in ((1, "stdout", files.stdout), (2, "stderr", files.stderr)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        offsets[name] = os.fstat(opened).st_size
        os.dup2(opened, fd)
        os.close(opened)
    for stream in (sys.stdout, sys.stderr):
        # Line by line: at once in the file, and one write a line where `python -u` makes two.
        # UTF-8 whatever the locale says; an encoding that the user chose is kept.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, write_through=False)
            if "PYTHONIOENCODING" not in os.environ:
                # What UTF-8 has no letter for, e.g. a file name of other bytes, ends no rank.
                errors = "backslashreplace" if stream is sys.stderr else "surrogateescape"
                stream.reconfigure(encoding="utf-8", errors=errors)
    libc = ctypes.CDLL(None)
    if sys.platform == "linux":
        # _IOLBF: the same for printf in C
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 1, 0)
    return offsets


def report_failures(rank: Rank, body: Callable[[], Any]) -> None:
    """Run the rank's code; print what it raises as plain Python would, and record it."""
    pid = os.getpid()
    try:
        body()
        _tell_end(rank, pid)
    except SystemExit as error:
        if error.code in (None, 0):
            _tell_end(rank, pid)
        elif os.getpid() == pid:
            _record(rank, error, f"SystemExit: {_message(error)}\n")
        raise
    except BaseException as error:
        if os.getpid() != pid:
            raise  # a process that the script forked fails for itself
        error.__traceback__ = _without_our_frames(error.__traceback__)
        hint = _shadowed_module(rank.spec)
        if not isinstance(error, KeyboardInterrupt):
            # First of all: what is printed next may fail, e.g. in the script's own excepthook.
            _record(rank, error, "".join(traceback.format_exception(error)), hint)
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exception(error)
        else:
            sys.excepthook(type(error), error, error.__traceback__)
        if hint:
            print(f"ddpnb: {hint}", file=sys.stderr)
        sys.excepthook = lambda *_: None  # it is printed; let Python end as it always does
        raise


def _tell_end(rank: Rank, pid: int) -> None:
    """Say that the script is through: its launcher may end the process before Python has left."""
    data = {"attempt": rank.attempt}
    end = Event(rank=rank.worker.rank, time=time.time(), kind="end", data=data)
    with contextlib.suppress(OSError):  # on a full disk nothing is to be said
        if os.getpid() == pid:
            _tell(rank.files, end)


def _record(rank: Rank, error: BaseException, text: str, hint: str = "") -> None:
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    exitcode = 1
    if isinstance(error, SystemExit):
        exitcode = error.code & 0xFF if isinstance(error.code, int) else 1
    # Inside `with ddp()` the group goes down before the error arrives here, and the other ranks'
    # lost connections would look like the earlier failure.
    now = getattr(error, "_ddpnb_time", time.time())
    data = {
        "rank": rank.worker.rank,
        "attempt": rank.attempt,
        "time": now,
        "type": name,
        "message": _message(error),
        "traceback": text,
        "exitcode": exitcode,
        "hint": hint,
    }
    try:
        write_json(rank.files.error(rank.attempt), data)
        _tell_torchrun(data)
    except OSError as problem:
        print(f"ddpnb: cannot record this failure: {problem}", file=sys.stderr)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:  # the script's own __str__: its failure must not hide the first
        return f"<no message: str() raised {type(problem).__name__}>"


def _tell_torchrun(data: dict[str, Any]) -> None:
    """Give torchrun's own report the error too, unless the script's @record has done so."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and not Path(path).exists():
        extra = {"py_callstack": data["traceback"], "timestamp": str(int(data["time"]))}
        message = {"message": f"{data['type']}: {data['message']}", "extraInfo": extra}
        # By rename: the agent may end this rank in the middle of it, and dies of half a file.
        write_json(Path(path), {"message": message})


def _run(rank: Rank) -> None:
    """Run the script or module as __main__, so that nothing in it can tell the difference."""
    spec = rank.spec
    ours = sys.modules["__main__"]  # held: a module that is dropped has its globals emptied
    if spec.module is not None:
        sys.path.insert(0, str(spec.cwd))
        sys.argv = [spec.module, *spec.args]  # run_module replaces the first by the module's file
        runpy.run_module(spec.module, run_name="__main__", alter_sys=True)
        return
    load_script(rank, "__main__")
    del ours


def load_script(rank: Rank, name: str) -> types.ModuleType:
    """Run the script as Python runs a file, in a fresh module that takes the place of __main__.

    What runs is the snapshot, under the script's own path: an edit made after the launch does not
    reach this run.
    """
    assert rank.spec.script is not None
    path = str(rank.spec.script)
    source = rank.snapshot.read_bytes()
    sys.argv = [path, *rank.spec.args]
    sys.path.insert(0, str(rank.spec.script.resolve().parent))  # symlinks followed, as Python does
    module = types.ModuleType(name)
    module.__dict__.update(
        __file__=path,
        __builtins__=__builtins__,
        __loader__=importlib.machinery.SourceFileLoader(name, path),
        __spec__=None,
        __cached__=None,
    )
    sys.modules["__main__"] = sys.modules[name] = module
    _remember_lines(path, source)
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    return module


def _remember_lines(path: str, source: bytes) -> None:
    """Have tracebacks show the lines that run here, also when the file is edited meanwhile."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    except SyntaxError:
        encoding = "utf-8"
    # Lines as Python counts them: str.splitlines() also splits at form feeds and their like.
    lines = io.StringIO(source.decode(encoding, "replace"), newline=None).readlines()
    linecache.cache[path] = (len(source), None, lines, path)


def _without_our_frames(tb: types.TracebackType | None) -> types.TracebackType | None:
    ours = (str(Path(__file__).parent), runpy.__file__, "<frozen runpy", "<frozen importlib")
    here = tb
    while here is not None and here.tb_frame.f_code.co_filename.startswith(ours):
        here = here.tb_next
    return here


def _shadowed_module(spec: LaunchSpec) -> str:
    """Say so when a file beside the script has taken the place of one of Python's own modules."""
    folder = spec.cwd if spec.script is None else spec.script.parent
    for name in sys.stdlib_module_names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(file, str) and Path(file).parent in (folder, folder / name):
            return (
                f"{file} has the name of Python's own module {name!r} and is imported in its"
                " place, also by libraries; rename it"
            )
    return ""


if __name__ == "__main__":
    main()
