"""Show ddpnb's own errors as their message. IPython's forty lines of frames would hide it.

The cell still fails and "Run All" still stops: only what is shown of the error changes.
"""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from IPython.core.getipython import get_ipython

from ddpnb.errors import DdpnbError
from ddpnb.lines import plain_text

__all__ = ["show_short_tracebacks"]

_OURS = str(Path(__file__).parents[1])
_LIBRARIES = tuple(
    {_OURS, *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))}
)


def show_short_tracebacks() -> None:
    """Have IPython show each DdpnbError by its message."""
    # The name that IPython looks for on an error; errors.py itself knows nothing of notebooks.
    setattr(DdpnbError, "_render_traceback_", _render)  # noqa: B010 - mypy knows no such attribute


def _render(error: DdpnbError) -> list[str]:
    lines = [f"\x1b[31m{type(error).__name__}\x1b[0m: {plain_text(str(error))}"]
    places = _places(error)
    # One place is the cell itself, which the reader has before them.
    return [*places, "", *lines] if len(places) > 1 else lines


def _places(error: DdpnbError) -> list[str]:
    """Return where in the user's own code the error came from, the outermost place first."""
    shell = get_ipython()
    places = []
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith((*_LIBRARIES, "<frozen", "<string>")):
            continue
        # A cell's code has the name of a file that does not exist; IPython knows which cell it is.
        label = None if shell is None else shell.compile.format_code_name(frame.filename)
        name = f"File {frame.filename}" if label is None else " ".join(label)
        places.append(
            f"{name}, line {frame.lineno}, in {frame.name}\n    {frame.line or ''}".rstrip()
        )
    return places
