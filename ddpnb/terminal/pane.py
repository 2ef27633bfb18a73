"""The lower part of a terminal, drawn again and again, while text goes by above it."""

from __future__ import annotations

import sys
import termios
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

__all__ = ["Pane", "console"]


def console() -> Console:
    """Return our stdout for rich, which takes nothing for markup there."""
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


class Pane:
    """Owns the foot of the screen, and the keyboard's echo, while it is entered."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._live = Live(
            console=screen, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._keyboard: list[Any] | None = None

    def __enter__(self) -> Self:
        self._keyboard = _silence_keyboard()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        keyboard, self._keyboard = self._keyboard, None
        if keyboard is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, keyboard)

    def draw(self, picture: RenderableType) -> None:
        """Put the picture in the place of the last one."""
        self._live.update(picture, refresh=True)

    def print(self, text: Text, *, whole: bool = True) -> None:
        """Print above the picture.

        Args:
            whole: let the terminal wrap long lines, which it then copies whole; else cut them.
        """
        if whole:
            self._screen.print(text, soft_wrap=True)
        else:
            self._screen.print(text, no_wrap=True, overflow="ellipsis")


def _silence_keyboard() -> list[Any] | None:
    """Turn off the echo, and return how it was: a ^C, or an Enter, would move our picture."""
    try:
        before = termios.tcgetattr(sys.stdin)
    except (termios.error, ValueError, OSError):  # no terminal, or none of ours
        return None
    quiet = list(before)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)
    return before
