"""Our side of the terminal: who watches, Ctrl-C, and output that nobody may be reading any more."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, Self, TextIO

__all__ = ["Interrupts", "Output", "is_interactive"]


def is_interactive(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether somebody watches this stream on a screen whose cursor can be moved."""
    # `!ddpnb run` in a notebook gets a pseudo-terminal, but its output cell moves no cursor; the
    # kernel's variable JPY_PARENT_PID tells (ipykernel 6 and 7).
    in_notebook = "JPY_PARENT_PID" in environ
    return stream.isatty() and not in_notebook and environ.get("TERM", "dumb") != "dumb"


class Interrupts:
    """Ctrl-C and SIGTERM in place of KeyboardInterrupt: counted, and passed on at once."""

    def __init__(self) -> None:
        self.count = 0
        self.signum: int | None = None
        """The first signal that came."""
        self.act: Callable[[], object] = lambda: None
        """What a signal does; also while we are blocked, say by a pager that does not read on."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, _: FrameType | None) -> None:
        self.count += 1
        self.signum = self.signum or signum
        self.act()


class Output:
    """One of our own streams. When nobody reads it any more, what is written goes nowhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, lines: Sequence[str]) -> None:
        """Write lines, at once."""
        if not lines:
            return
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except BrokenPipeError:
            self._give_up()
        except OSError as error:
            self._give_up()
            problem = f"[ddpnb] cannot write the log any further: {error.strerror}; the run goes on"
            if self._stream is not sys.stderr:
                Output(sys.stderr).write([problem])

    def _give_up(self) -> None:
        # Not close(): Python would try to flush what is left in the buffer, and complain at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
