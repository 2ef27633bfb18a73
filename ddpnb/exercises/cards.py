"""One look for all that a lesson shows: a card with a mark, a title and labelled rows.

Colours are Okabe and Ito's, told apart by colour-blind eyes, and never alone: the mark and the
title say the same. JupyterLab's own variables make the card fit light and dark themes; elsewhere
(VS Code, nbconvert, GitHub) it takes over the page's colours.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

__all__ = ["Card", "Shown", "plain"]

Tone = Literal["ask", "right", "open", "fact"]

_COLOURS: dict[Tone, str] = {
    "ask": "#56B4E9",  # sky blue
    "right": "#009E73",  # bluish green
    "open": "#E69F00",  # orange
    "fact": "#CC79A7",  # reddish purple
}

_BOX = (
    "border-left:0.3em solid {colour};padding:0.5em 1em;margin:0.3em 0;max-width:60em;"
    "color:var(--jp-ui-font-color1,inherit);background:var(--jp-layout-color2,transparent);"
    "font-family:var(--jp-ui-font-family,inherit)"
)
_BOLD = "font-weight:600"
# No <table>: notebooks style tables of their own accord, with stripes and another size of text.
_GRID = "display:grid;grid-template-columns:max-content 1fr;gap:0.2em 1em;margin-top:0.3em"
_WIDE = "grid-column:1/-1"
_LINK = "color:var(--jp-content-link-color,inherit)"


@dataclass(frozen=True, kw_only=True)
class Card:
    """A mark, a title and rows; knows nothing of what it says."""

    tone: Tone
    mark: str
    """One character that says the same as the colour."""
    title: str
    rows: tuple[tuple[str, str], ...] = ()
    """Label and text; a row without a text is left out. `code` in backticks is set as code."""

    def text(self) -> str:
        """Return the card for a terminal."""
        lines = [f"{label}: {text}" if label else text for label, text in self._filled()]
        return "\n  ".join([f"{self.mark} {self.title}", *lines])

    def html(self) -> str:
        """Return the card for a page, everything in it escaped."""
        title = f'<div style="{_BOLD}">{escape(self.mark)} {_html_text(self.title)}</div>'
        rows = "".join(_html_row(label, text) for label, text in self._filled())
        body = f'<div style="{_GRID}">{rows}</div>' if rows else ""
        return f'<div style="{_BOX.format(colour=_COLOURS[self.tone])}">{title}{body}</div>'

    def _filled(self) -> Iterable[tuple[str, str]]:
        return ((label, text) for label, text in self.rows if text)


class Shown:
    """What is shown as a card: on a page where there is one, as text elsewhere."""

    @abstractmethod
    def card(self) -> Card:
        """Return what to show."""

    def __repr__(self) -> str:
        return self.card().text()

    def _repr_html_(self) -> str:
        return self.card().html()


def plain(value: Any) -> str:
    """Return a value as a learner would write it down: no quotes around words."""
    return value if isinstance(value, str) else repr(value)


def _html_row(label: str, text: str) -> str:
    if not label:
        return f'<div style="{_WIDE}">{_html_text(text)}</div>'
    return f'<div style="{_BOLD}">{escape(label)}</div><div>{_html_text(text)}</div>'


def _html_text(text: str) -> str:
    safe = escape(text)
    if text.startswith("https://") and " " not in text:
        return f'<a href="{safe}" target="_blank" rel="noopener" style="{_LINK}">{safe}</a>'
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
