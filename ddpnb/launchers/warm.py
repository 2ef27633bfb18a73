"""Warm and Auto: each rank is forked from a process that has torch imported already."""

from __future__ import annotations

from dataclasses import dataclass

from ddpnb.launchers.cold import Cold

__all__ = ["Auto", "Warm"]


@dataclass(frozen=True, kw_only=True)
class Warm(Cold):
    """Fork the ranks from a process that has torch imported: they run in a tenth of a second.

    The command is that of Cold, and so is what the script sees. A launch waits until that process
    is ready, and is refused where a forked rank would differ from a new interpreter.
    """

    @property
    def name(self) -> str:
        """The word for it on a command line."""
        return "warm"


@dataclass(frozen=True, kw_only=True)
class Auto(Cold):
    """Like Warm where that is possible at once, and else like Cold; the launcher's log says why."""

    @property
    def name(self) -> str:
        """The word for it on a command line."""
        return "auto"
