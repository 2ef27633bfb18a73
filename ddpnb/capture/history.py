"""Answer who binds a name, and what it is, at any point of a notebook's execution.

Called by ``selection``. A point is the index of a statement: `before` 7 means once the statements
0 to 6 have run. What runs later, a function's body, sees the end of the history.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

from ddpnb.capture.cells import read_cells
from ddpnb.capture.changes import Change, aliases, changes_by, changes_in
from ddpnb.capture.names import root_name
from ddpnb.capture.statements import Statement, future_features, statements_of
from ddpnb.capture.values import HARMLESS_CALLS, HARMLESS_MODULES, Lookup, Origin, is_record_class

__all__ = ["History"]

# IPython adds names of its own to the kernel's builtins.
BUILTINS = frozenset(dir(builtins)) - {"display", "get_ipython", "__IPYTHON__", "exit", "quit"}
MODULE_NAMES = frozenset({"__name__", "__file__", "__doc__", "__builtins__", "__spec__"})


class History:
    """The top-level statements of the executed cells, in the order in which they ran."""

    def __init__(self, sources: Sequence[str], *, before_line: int | None = None) -> None:
        self.cells = read_cells(sources)
        self.futures = future_features(self.cells)
        self.statements = statements_of(self.cells, before_line=before_line)
        self.end = len(self.statements)
        self._stars = [one for one in self.statements if one.is_star]
        self._binders: dict[str, list[Statement]] = {}
        for statement in self.statements:
            for name in statement.names.binds | statement.names.deletes:
                self._binders.setdefault(name, []).append(statement)
        # In order of execution, because a class may be a record by its base.
        self._records: set[int] = set()
        for statement in self.statements:
            if is_record_class(statement.node, self.lookup(statement.index)):
                self._records.add(statement.index)
        self._changes: dict[str, list[tuple[Statement, Change]]] = {}
        for statement in self.statements:
            for change in changes_in(statement.node) if statement.alias is None else ():
                self._note(statement, change, change.name, set())
        self._reaches: dict[str, list[tuple[Statement, Statement]]] = {}
        for statement in self.statements:
            self._note_calls(statement)
        self._first: dict[int, Statement] = {}
        for statement in self.statements:
            self._first[statement.index] = self._find_first(statement)

    def binder(self, name: str, before: int) -> Statement | None:
        """Return the last statement before a point that binds or deletes `name`."""
        found = self._binders.get(name, ())
        return next((one for one in reversed(found) if one.index < before), None)

    def first(self, statement: Statement) -> Statement:
        """Return the first of several runs of one and the same statement.

        A cell that was run again, unchanged and with unchanged names around it, made nothing new,
        and a script needs it once.
        """
        return self._first[statement.index]

    def family(self, statement: Statement, name: str) -> list[Statement]:
        """Return `statement`, and for ``import a.b`` the imports that added more to ``a``."""
        if not statement.is_dotted_import:
            return [statement]
        found: dict[str, Statement] = {}
        for other in reversed(self._binders[name]):
            if other.index <= statement.index:
                if not other.is_dotted_import:
                    break
                found[other.code] = other
        return sorted(found.values(), key=lambda one: one.index)

    def stars(self, before: int) -> list[Statement]:
        """Return the star imports that ran before a point, each once."""
        stars = [one for one in self._stars if one.index < before]
        return list({one.code: one for one in reversed(stars)}.values())[::-1]

    def origin(self, name: str, before: int) -> Origin:
        """Return what `name` is at a point."""
        statement = self.binder(name, before)
        if statement is None:
            return self._unbound_origin(name, before)
        if statement.alias is not None:
            return Origin(kind="import", path=statement.imported_path)
        node = statement.node
        if statement.index in self._records:
            return Origin(kind="record")
        code = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        return Origin(kind="code" if code else "value")

    def lookup(self, before: int) -> Lookup:
        """Return `origin` at a fixed point."""
        return lambda name: self.origin(name, before)

    def change(self, name: str, after: int, before: int) -> tuple[Statement, Change] | None:
        """Return the first statement between two points that changes `name` in place.

        A call of an unknown method counts where the name is a value, not a function or class.
        Nothing counts for an imported module: its settings are not part of any cell.
        """
        kind = self.origin(name, before).kind
        if kind == "import":
            return None
        for statement, change in self._changes.get(name, ()):
            if after < statement.index < before and (change.certain or kind == "value"):
                return statement, change
        return None

    def callers(self, made: Statement, name: str) -> list[tuple[Statement, Statement]]:
        """Return the statements that reach into `name` by a call, each with what they call.

        These are calls of, and decorations by, a function that changes the object of `made`, and
        definitions decorated by one of its methods, as ``@name.register``.
        """
        return [
            (statement, function)
            for statement, function in self._reaches.get(name, ())
            if statement.index > made.index and self.binder(name, statement.index) is made
        ]

    def text(self, cell: int) -> str:
        """Return the text of a cell."""
        return next(one.text for one in self.cells if one.number == cell)

    def line(self, cell: int, number: int) -> str:
        """Return one line of a cell as the user wrote it, short enough for a message."""
        line = self.text(cell).split("\n")[number - 1].strip()
        return line if len(line) <= 70 else f"{line[:67]}..."

    def _unbound_origin(self, name: str, before: int) -> Origin:
        for star in reversed(self.stars(before)):
            module = getattr(star.node, "module", None)
            if f"{module}.{name}" in HARMLESS_CALLS or module in HARMLESS_MODULES:
                return Origin(kind="import", path=f"{module}.{name}")
        if name in BUILTINS:
            return Origin(kind="builtin", path=f"builtins.{name}")
        return Origin(kind="unknown")

    def _find_first(self, statement: Statement) -> Statement:
        names = statement.names
        earlier = {self.binder(name, statement.index) for name in names.binds}
        before = earlier.pop() if len(earlier) == 1 else None
        if before is None or before.code != statement.code or names.deletes:
            return statement
        # The same text is the same thing only if the names it reads at once are the same too.
        read = [use.name for use in names.uses if not use.later]
        if all(self._is_same(name, before, statement) for name in read):
            return self._first[before.index]
        return statement

    def _is_same(self, name: str, before: Statement, after: Statement) -> bool:
        """Whether two statements, the second run after the first, read the same under `name`."""
        first, second = (self.binder(name, one.index) for one in (before, after))
        if first is None or second is None:
            return first is second
        untouched = self.change(name, before.index, after.index) is None
        return untouched and self._first[first.index] is self._first[second.index]

    def _note_calls(self, statement: Statement) -> None:
        """Note the names whose objects a statement reaches into by what it calls."""
        for called in sorted(statement.names.calls):
            function = self.binder(called, statement.index)
            if function is None or function.alias is not None:
                continue
            names = {called} & _method_decorators(statement.node)
            if isinstance(function.node, ast.FunctionDef):
                read = {use.name for use in function.names.uses}
                names |= changes_by(function.node) & read
            for name in names:
                self._reaches.setdefault(name, []).append((statement, function))

    def _note(self, statement: Statement, change: Change, name: str, seen: set[str]) -> None:
        """Note a change under `name` and under the names that share the object."""
        seen.add(name)
        self._changes.setdefault(name, []).append((statement, change))
        binder = self.binder(name, statement.index + 1)
        if binder is None:
            return
        node = binder.node
        shared: set[str] = set()
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            shared = aliases(node.value) | (binder.names.binds if _is_chain(node) else set())
        elif isinstance(node, ast.For):
            shared = {part.id for part in ast.walk(node.iter) if isinstance(part, ast.Name)}
        for other in shared - seen:
            self._note(statement, change, other, seen)


def _is_chain(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and len(node.targets) > 1


def _method_decorators(node: ast.stmt) -> set[str]:
    """Return the names whose methods decorate a definition."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    calls = [part.func if isinstance(part, ast.Call) else part for part in decorators]
    roots = [root_name(part) for part in calls if isinstance(part, ast.Attribute)]
    return {root.id for root in roots if root is not None}
