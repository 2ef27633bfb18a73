"""`ddpnb doctor` on a terminal: each check as it is done, and which one is under way."""

from __future__ import annotations

import sys

from rich.table import Table
from rich.text import Text

from ddpnb.checkup import CHECKS, examine
from ddpnb.checkup.check import MARKS, STATUS_WIDTH, Check, Report, Status, summary
from ddpnb.terminal.pane import console
from ddpnb.terminal.streams import Output, is_interactive

__all__ = ["show_checks"]

_STYLES: dict[Status, str] = {
    "ok": "green",
    "note": "cyan",
    "warn": "yellow",
    "fail": "bold red",
    "skip": "dim",
}
_NAME_WIDTH = max(map(len, CHECKS))


def show_checks(*, quick: bool) -> Report:
    """Do the checks and print them, for a terminal or for a file; return all of them."""
    return _on_terminal(quick) if is_interactive(sys.stdout) else _in_lines(quick)


def _in_lines(quick: bool) -> Report:
    out, checks = Output(sys.stdout), []
    for check in examine(quick=quick):
        out.write(check.lines(_NAME_WIDTH))
        checks.append(check)
    out.write(["", summary(tuple(checks))])
    return Report(tuple(checks))


def _on_terminal(quick: bool) -> Report:
    screen, checks = console(), []
    with screen.status(Text("looking")) as status:
        for check in examine(
            quick=quick, about_to=lambda name: status.update(Text(f"looking: {name}"))
        ):
            screen.print(_row(check))
            checks.append(check)
    screen.print()
    report = Report(tuple(checks))
    screen.print(Text(summary(report.checks), style="bold" if report.ok else "bold red"))
    return report


def _row(check: Check) -> Table:
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=STATUS_WIDTH + 2, no_wrap=True)
    row.add_column(width=_NAME_WIDTH, no_wrap=True)
    row.add_column(overflow="fold")
    said = Text(check.found, style="dim" if check.status == "skip" else "")
    if check.fix:
        said.append("\nfix: ", style=_STYLES[check.status]).append(check.fix)
    mark = Text(f"{MARKS[check.status]} {check.status}", style=_STYLES[check.status])
    row.add_row(mark, Text(check.name), said)
    return row
