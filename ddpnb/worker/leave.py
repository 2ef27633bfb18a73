"""End a rank's process as Python does, up to the point where torch's threads could abort it.

While Python takes itself down, a thread of gloo that still lets go of a tensor wants the
interpreter's lock, is ended in the middle of C++ code, and takes the process with it: "terminate
called without an active exception", or a segmentation fault, in one of ten runs of four ranks
(torch 2.13, Python 3.11, plain torchrun too). So everything that a script can rely on at its end is
done here, and the rest is left to the system.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import os
import sys
import threading
from collections.abc import Callable

__all__ = ["leave", "run_and_leave"]

_FILES = (io.TextIOBase, io.BufferedIOBase)


def run_and_leave(body: Callable[[], object]) -> None:
    """Run what a rank is for, and end its process with the exit code that Python would give it."""
    pid = os.getpid()
    try:
        body()
    except SystemExit as error:
        # Words in place of a number are printed by Python.
        if os.getpid() == pid and (error.code is None or type(error.code) is int):
            leave((error.code or 0) & 0xFF)
        raise
    except Exception:
        if os.getpid() == pid:
            leave(1)
        raise
    if os.getpid() == pid:  # not in a process that the script forked
        leave(0)


def leave(exitcode: int) -> None:
    """End this process, if it has torch in it; without torch, return: Python may end as ever."""
    if "torch" not in sys.modules:
        return
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python does
        atexit._run_exitfuncs()
        if threading.active_count() == 1:  # a daemon thread might still use them
            # The script's own objects go while all of Python is there for them.
            vars(sys.modules["__main__"]).clear()
            gc.collect()
        _flush()
    finally:
        os._exit(exitcode)


def _flush() -> None:
    """Write out every open file, of Python and of C."""
    files = (one for one in gc.get_objects() if issubclass(type(one), _FILES))
    for file in (*files, sys.stdout, sys.stderr):  # a script may have put others in their place
        with contextlib.suppress(Exception):  # closed, or a full disk: as at Python's own end
            file.flush()
    ctypes.CDLL(None).fflush(None)
