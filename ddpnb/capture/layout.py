"""Lay the chosen statements out as a file: imports first, then the rest in the order it ran.

Called by ``script``. The statements' text is the user's own; only import statements of which some
names are not needed are written anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from ddpnb.capture.history import History
from ddpnb.capture.literals import WIDTH
from ddpnb.capture.selection import Selection
from ddpnb.capture.statements import Statement, first_line

__all__ = ["body_text", "cell_numbers", "import_lines"]


def import_lines(selection: Selection) -> list[str]:
    """Return the lines of the imports that can stand at the head of the script."""
    return _rendered([selection.chosen[index] for index in _hoisted(selection)[0]])


def body_text(history: History, selection: Selection) -> str:
    """Return all that does not stand at the head, as the user wrote it and in order."""
    hoisted, repeats = _hoisted(selection)
    left = sorted(set(selection.chosen) - set(hoisted) - repeats)
    rest = [selection.chosen[index] for index in left]
    text = ""
    before: Statement | None = None
    written: set[int] = set()
    for statement in rest:
        if id(statement.node) in written:
            continue
        written.add(id(statement.node))
        same = [one for one in rest if one.node is statement.node]
        piece = statement.text if statement.alias is None else "\n".join(_rendered(same))
        if before is not None:
            text += "\n" * (1 + _empty_lines(history, before, statement))
        text += piece
        before = statement
    return text


def cell_numbers(selection: Selection) -> str:
    """Return the numbers of the cells that the statements come from: ``3, 5-8``."""
    numbers = sorted({statement.cell for statement in selection.statements})
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(words)


def _hoisted(selection: Selection) -> tuple[list[int], set[int]]:
    """Return the imports for the head of the script, and those that then only repeat one.

    An import stays in its place when an earlier statement binds its name, or reads it as it runs
    and means something else.
    """
    hoisted: list[int] = []
    repeats: set[int] = set()
    meaning: dict[str, str] = {}
    taken: set[str] = set()
    for index in sorted(selection.chosen):
        statement = selection.chosen[index]
        names = statement.names.binds
        same = any(meaning.get(name) == statement.imported_path for name in names)
        if statement.alias is not None and (same or not names & taken):
            if same and not statement.is_dotted_import:
                repeats.add(index)
            else:
                hoisted.append(index)
            # `import a` and `from b import a`: each counts from where it stands.
            meaning.update(dict.fromkeys(names, statement.imported_path))
        else:
            for name in names:
                meaning.pop(name, None)
            taken |= names
        taken |= {use.name for use in statement.names.uses if not use.later}
    return hoisted, repeats


def _rendered(imports: Sequence[Statement]) -> list[str]:
    """Return import statements as lines, whole ones as the user wrote them."""
    lines = []
    written: set[int] = set()
    for statement in imports:
        node = statement.node
        if id(node) in written or not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        written.add(id(node))
        wanted = [one.alias for one in imports if one.node is node and one.alias is not None]
        if len(wanted) == len(node.names) and (
            isinstance(node, ast.ImportFrom) or len(wanted) == 1
        ):
            lines.append(statement.text)
        elif isinstance(node, ast.Import):
            lines += [f"import {_alias(alias)}" for alias in wanted]
        else:
            lines.append(_from_import(f"from {node.module} import ", map(_alias, wanted)))
    return list(dict.fromkeys(lines))


def _from_import(head: str, names: Iterable[str]) -> str:
    names = list(names)
    line = head + ", ".join(names)
    if len(line) <= WIDTH:
        return line
    rows = "".join(f"    {name},\n" for name in names)
    return f"{head}(\n{rows})"


def _alias(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def _empty_lines(history: History, before: Statement, after: Statement) -> int:
    """Return how many empty lines stand between two statements: two around definitions."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    if isinstance(before.node, definitions) or isinstance(after.node, definitions):
        return 2
    if before.cell != after.cell:
        return 1
    lines = history.text(before.cell).split("\n")
    between = lines[before.node.end_lineno or 0 : first_line(after.node) - 1]
    return int(any(not line.strip() for line in between))
