"""Names that are needed, and the words in which one is refused.

Called by ``selection``. Every refusal says who reads the name, where it comes from and what to do.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ddpnb.capture.changes import Change
from ddpnb.capture.history import History
from ddpnb.capture.statements import Statement
from ddpnb.errors import CaptureError

__all__ = [
    "NOTEBOOK_NAMES",
    "Need",
    "refused_change",
    "refused_deletion",
    "refused_live",
    "refused_relative",
    "refused_unknown",
]

NOTEBOOK_NAMES = re.compile(
    r"get_ipython|display|In|Out|exit|quit|_{1,3}|_i{1,3}|_i?\d+|_[iod]h|__IPYTHON__"
)
BLOCKS = {
    ast.If: "an `if` block that does more than import and define",
    ast.Try: "a `try` block that does more than import and define",
    ast.TryStar: "a `try` block that does more than import and define",
    ast.For: "a `for` loop",
    ast.AsyncFor: "a `for` loop",
    ast.While: "a `while` loop",
    ast.With: "a `with` block",
    ast.AsyncWith: "a `with` block",
}


@dataclass(frozen=True, kw_only=True)
class Need:
    """A name that some statement reads, and the point of the history at which it counts."""

    name: str
    before: int
    reader: Statement | None = None
    """None for the launched function itself."""
    line: int = 0
    """Line in the reader's cell."""
    required: bool = True
    called_at: int | None = None
    """Set when the name may be called while the script is read: the point of that call."""

    def __str__(self) -> str:
        if self.reader is None:
            return f"launch was given {self.name}"
        names = sorted(self.reader.names.binds)
        reader = getattr(self.reader.node, "name", "") or ", ".join(names)
        line = self.line or self.reader.line
        return f"{reader} ({self.reader.where(line)}) uses {self.name}"


def refused_live(
    history: History, launched: str, need: Need, statement: Statement, part: ast.AST
) -> CaptureError:
    """Return the error for a name whose value only the running notebook has."""
    line = getattr(part, "lineno", statement.line)
    bound = BLOCKS.get(type(statement.node), "a statement that makes a live object")
    if need.reader is None:
        advice = f"Define {need.name} by a plain `def` at the top level of a cell."
    elif isinstance(statement.node, ast.If | ast.Try | ast.TryStar):
        advice = "Write the imports and definitions on lines of their own."
    else:
        advice = f"Build it inside {launched}, or pass a literal as an argument."
    return CaptureError(
        f"{need}, which only this notebook has: it is bound by {bound}, {statement.where(line)}: "
        f"{history.line(statement.cell, line)}\nA script cannot take it over. {advice}"
    )


def refused_change(
    history: History, need: Need, statement: Statement, changed: tuple[Statement, Change]
) -> CaptureError:
    """Return the error for an object that a later statement changed in place."""
    changer, change = changed
    is_value = history.origin(need.name, need.before).kind == "value"
    advice = (
        f"Write {need.name} as one literal with its final value, or pass it as an argument."
        if is_value
        else f"Write the change into the definition of {need.name}."
    )
    return CaptureError(
        f"{need}, which is changed after it was made ({statement.where()}): "
        f"{changer.where(change.line)}: {history.line(changer.cell, change.line)}\n"
        f"A script cut from where it was made would not have the change. {advice}"
    )


def refused_deletion(need: Need, statement: Statement) -> CaptureError:
    """Return the error for a name that the notebook deleted."""
    return CaptureError(
        f"{need}, which {statement.where()} deletes. Run the cell that defines it again."
    )


def refused_relative(need: Need, statement: Statement) -> CaptureError:
    """Return the error for ``from . import x``."""
    return CaptureError(
        f"{need}, which comes from a relative import, {statement.where()}: "
        f"{statement.text.strip()}\nA script is in no package: import it by the module's full name."
    )


def refused_unknown(history: History, need: Need) -> CaptureError:
    """Return the error for a name that nothing binds."""
    if need.name == "get_ipython" and need.reader is not None:
        return CaptureError(
            f"{need}, by way of a notebook magic or shell line: "
            f"{history.line(need.reader.cell, need.line)}\n"
            "A script has none of these. Take it out, or use the subprocess module."
        )
    if NOTEBOOK_NAMES.fullmatch(need.name):
        return CaptureError(
            f"{need}, which exists only in a notebook. Use print or a variable of your own."
        )
    hints = [
        f" Cell [{cell.number}] mentions it, but gave no definitions: {cell.trouble}."
        for cell in history.cells
        if cell.tree is None and cell.mentions(need.name)
    ]
    outer = _enclosing_function(history, need.name) if need.reader is None else None
    if outer is not None:
        return CaptureError(
            f"{need}, which is defined inside {outer.name}: it may hold values of that call, which "
            "no script has. Define it at the top level of a cell."
        )
    advice = "Run the cell that defines it" + (", or pass it as an argument." * bool(need.reader))
    return CaptureError(
        f"{need}, which no executed cell defines at its top level and which is no builtin."
        f"{''.join(hints)} {advice.rstrip('.')}."
    )


def _enclosing_function(history: History, name: str) -> ast.FunctionDef | None:
    outer = [
        node
        for statement in history.statements
        for node in ast.walk(statement.node)
        if isinstance(node, ast.FunctionDef)
    ]
    inner = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in outer:
        names = {part.name for part in ast.walk(node) if isinstance(part, inner)}
        if name in names - {node.name}:
            return node
    return None
