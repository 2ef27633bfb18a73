"""Make a process that was forked from a warm one look like a new interpreter, then be a rank."""

from __future__ import annotations

import ctypes
import importlib
import logging
import multiprocessing.process
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ddpnb.launchers.base import python
from ddpnb.worker.bootstrap import main

__all__ = ["be_rank", "default_signals"]

_OPENBLAS = (
    "openblas_set_num_threads openblas_set_num_threads64_"
    " scipy_openblas_set_num_threads scipy_openblas_set_num_threads64_".split()
)


def be_rank(environ: Mapping[str, str], said: bytes) -> None:
    """Be a rank from here to the end of the process; the working folder is the rank's already.

    Args:
        environ: all of its variables.
        said: what the imports printed: in a new interpreter they would print it now.
    """
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    default_signals()
    importlib.invalidate_caches()
    sys.orig_argv = list(python("ddpnb.worker.bootstrap"))
    _be_young()
    _set_threads(int(environ["OMP_NUM_THREADS"]))
    if "TORCH_DISTRIBUTED_DEBUG" in environ:
        sys.modules["torch.distributed"].set_debug_level_from_env()
    main(lambda: os.write(2, said))


def default_signals() -> None:
    """Have every signal do what it does in a new interpreter."""
    signal.set_wakeup_fd(-1)
    ignored = (signal.SIGPIPE, signal.SIGXFSZ)
    for signum in signal.valid_signals():
        if signum in (signal.SIGKILL, signal.SIGSTOP):
            continue
        action = signal.SIG_IGN if signum in ignored else signal.SIG_DFL
        if signum == signal.SIGINT:
            signal.signal(signum, signal.default_int_handler)
        elif signal.getsignal(signum) not in (action, None):
            signal.signal(signum, action)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _be_young() -> None:
    """Replace what an interpreter makes at its start: from the time, the folder, or chance."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    multiprocessing.process.current_process().authkey = os.urandom(32)
    # Where processes that are spawned begin.
    multiprocessing.process.ORIGINAL_DIR = str(Path.cwd())  # type: ignore[attr-defined]
    now = time.time_ns() if isinstance(logging._startTime, int) else time.time()  # type: ignore[attr-defined]
    logging._startTime = now  # type: ignore[attr-defined]


def _set_threads(threads: int) -> None:
    """Tell the libraries what they have read from OMP_NUM_THREADS when it was 1."""
    sys.modules["torch"].set_num_threads(threads)
    if threads == 1:
        return
    for path in _loaded("openblas"):
        library = ctypes.CDLL(path)
        for name in _OPENBLAS:
            if hasattr(library, name):
                getattr(library, name)(threads)


def _loaded(word: str) -> set[str]:
    """Return the libraries of this process that have the word in their file's name."""
    lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return {path for path in paths if word in Path(path).name}
