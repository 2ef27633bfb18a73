"""What a check found, and all of them as a report: text for terminals, HTML for notebooks, JSON.

Much of what is found are the words of other programs and names that other people chose. So a
`Check` keeps one line of plain text of whatever it is given, and the HTML is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal

from ddpnb.lines import plain_text

__all__ = ["Check", "Report", "Status", "one_line", "summary"]

Status = Literal["ok", "note", "warn", "fail", "skip"]

STATUS_WIDTH = 4
_MOST_CHARACTERS = 600

# Each state has a word and a mark: colour alone tells one reader in twelve nothing.
MARKS: dict[Status, str] = {"ok": "✔", "note": "•", "warn": "▲", "fail": "✖", "skip": "–"}
_COLOURS: dict[Status, str] = {
    "ok": "var(--jp-success-color1, #2e9e4f)",
    "note": "var(--jp-brand-color1, #2b7de1)",
    "warn": "var(--jp-warn-color1, #d9822b)",
    "fail": "var(--jp-error-color1, #e04040)",
    "skip": "var(--jp-ui-font-color2, #808080)",
}
_CELL = "text-align: left; vertical-align: top; padding: 1px 12px 1px 0"
_MUTED = "color: var(--jp-ui-font-color2, #808080)"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Status
    """ok; note: good to know; warn: something will be slow or break; fail: runs will not work."""
    found: str
    """What is the case."""
    fix: str = ""
    """What to do about it; empty where nothing needs doing."""

    def __post_init__(self) -> None:
        for name in ("name", "found", "fix"):
            object.__setattr__(self, name, one_line(getattr(self, name)))

    def lines(self, name_width: int) -> list[str]:
        """Return the check for a terminal: what was found, and below it the fix."""
        indent = " " * (STATUS_WIDTH + name_width + 4)
        first = f"{self.status:<{STATUS_WIDTH}}  {self.name:<{name_width}}  {self.found}"
        return [first, f"{indent}fix: {self.fix}"] if self.fix else [first]


@dataclass(frozen=True, repr=False)
class Report:
    """What this machine can do; it shows itself as a table."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """True when no check failed."""
        return all(check.status != "fail" for check in self.checks)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"ok": self.ok, "checks": [asdict(check) for check in self.checks]}

    def __repr__(self) -> str:
        width = max((len(check.name) for check in self.checks), default=0)
        lines = [line for check in self.checks for line in check.lines(width)]
        return "\n".join([*lines, "", summary(self.checks)])

    def _repr_html_(self) -> str:
        rows = "".join(_row(check) for check in self.checks)
        return (
            f"<table><tbody>{rows}</tbody></table>"
            f"<div style='font-weight: 600'>{escape(summary(self.checks))}</div>"
        )


def summary(checks: tuple[Check, ...]) -> str:
    """Return how it went in one sentence."""
    failed, warned = (
        [check.name for check in checks if check.status == status] for status in ("fail", "warn")
    )
    if failed:
        more = f"; warnings: {', '.join(warned)}" if warned else ""
        return f"Mend first: {', '.join(failed)}{more}"
    if warned:
        return f"Runs will work here; worth mending: {', '.join(warned)}"
    return "Runs will work here."


def one_line(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Return text that does nothing but appear, on one line and not too long."""
    words = plain_text(text.encode("utf-8", "backslashreplace").decode()).split()
    line = " ".join(words)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _row(check: Check) -> str:
    mark = f"{MARKS[check.status]}&nbsp;{check.status}"
    fix = f"<div style='{_MUTED}'>fix: {escape(check.fix)}</div>" if check.fix else ""
    return (
        f"<tr><td style='{_CELL}; color: {_COLOURS[check.status]}'>{mark}</td>"
        f"<td style='{_CELL}; white-space: nowrap'>{escape(check.name)}</td>"
        f"<td style='{_CELL}'>{escape(check.found)}{fix}</td></tr>"
    )
