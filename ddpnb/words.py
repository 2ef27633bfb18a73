"""How times, sizes and ends are said to people, the same in notebook, terminal and reports."""

from __future__ import annotations

import signal

__all__ = ["duration", "ending", "signal_name", "size"]


def duration(seconds: float) -> str:
    """Return seconds as a person says them: 8 s, 3 min 20 s, 2 h 05 min, 3 d 4 h."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def size(count: int) -> str:
    """Return bytes in few characters: 512 B, 3.4 KiB, 12 MiB."""
    value, units = float(count), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while value >= 1024 and unit != "TiB":
        value, unit = value / 1024, next(units)
    return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"


def signal_name(exitcode: int | None) -> str | None:
    """Return the name of the signal that a negative exit code stands for, else None."""
    if exitcode is None or exitcode >= 0:
        return None
    try:
        return signal.Signals(-exitcode).name
    except ValueError:  # a real-time signal
        return f"signal {-exitcode}"


def ending(exitcode: int) -> str:
    """Return how a process ended: exit code 1, killed by SIGTERM."""
    name = signal_name(exitcode)
    return f"exit code {exitcode}" if name is None else f"killed by {name}"
