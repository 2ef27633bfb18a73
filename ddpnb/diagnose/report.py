"""The answers of the doctor: one line a check, with what to do about it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from html import escape
from typing import Literal

from ddpnb.lines import plain_text

__all__ = ["Check", "Report", "Status"]

Status = Literal["ok", "note", "warn", "fail"]

_SIGNS: dict[Status, str] = {"ok": "✔", "note": "·", "warn": "!", "fail": "✖"}
_COLOURS: dict[Status, str] = {
    "ok": "var(--jp-success-color1, #2e9e4f)",
    "note": "var(--jp-ui-font-color2, #808080)",
    "warn": "var(--jp-warn-color1, #d9822b)",
    "fail": "var(--jp-error-color1, #e04040)",
}


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Status
    """ok; note: nothing is wrong, but it is good to know; warn: it will hurt some day; fail."""
    found: str
    """What is the case."""
    fix: str = ""
    """What to do about it."""


class Report(list[Check]):
    """All checks, in the order in which they were made; it shows itself as a table."""

    @property
    def failed(self) -> bool:
        """Whether a check has failed."""
        return any(check.status == "fail" for check in self)

    def to_json(self) -> str:
        """Return a JSON array with an object for each check."""
        return json.dumps([asdict(check) for check in self], ensure_ascii=False, indent=1)

    def __repr__(self) -> str:
        width = max((len(check.name) for check in self), default=0)
        lines = []
        for check in self:
            lines.append(f"{_SIGNS[check.status]} {check.name:<{width}}  {_one_line(check.found)}")
            if check.fix:
                lines.append(f"  {'':<{width}}  → {_one_line(check.fix)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = []
        for check in self:
            fix = f"<br>→ {escape(_one_line(check.fix))}" if check.fix else ""
            style = "text-align: left; vertical-align: top; padding: 1px 12px 1px 0"
            rows.append(
                f"<tr><td style='{style}; white-space: nowrap; color: {_COLOURS[check.status]}'>"
                f"{_SIGNS[check.status]} {check.status}</td>"
                f"<td style='{style}; white-space: nowrap'>{escape(check.name)}</td>"
                f"<td style='{style}'>{escape(_one_line(check.found))}{fix}</td></tr>"
            )
        return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _one_line(text: str) -> str:
    return plain_text(" ".join(text.split()))
