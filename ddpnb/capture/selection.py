"""Choose the statements that a function needs, or say which name stands in the way.

Called by ``script``. Names that a statement reads as it runs are looked up at that point of the
history, names inside functions at its end: kept in order, the chosen statements then give the same
values as the notebook has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ddpnb.capture.bindings import always_binds
from ddpnb.capture.changes import Change
from ddpnb.capture.history import BUILTINS, MODULE_NAMES, History
from ddpnb.capture.needs import (
    NOTEBOOK_NAMES,
    Need,
    refused_change,
    refused_deletion,
    refused_live,
    refused_relative,
    refused_unknown,
)
from ddpnb.capture.statements import Statement
from ddpnb.capture.values import live_statement
from ddpnb.errors import CaptureError

__all__ = ["Selection", "select"]

# What numpy, torch, math and os offer under the name of a builtin: with a star import around,
# only the import itself can tell which one is meant.
SHADOWED_BUILTINS = frozenset("abs all any bool divmod max min open pow round sum".split())


@dataclass
class Selection:
    """The statements chosen so far. Owns nothing but its lists; `select` gives the finished one."""

    history: History
    launched: str
    chosen: dict[int, Statement] = field(default_factory=dict)
    """By index in the history; of a statement that ran several times the newest text."""
    _done: set[tuple[int, int | None]] = field(default_factory=set)
    _unknown: list[Need] = field(default_factory=list)
    _optional: list[Need] = field(default_factory=list)

    @property
    def statements(self) -> list[Statement]:
        """The chosen statements in the order in which they ran."""
        return [self.chosen[index] for index in sorted(self.chosen)]

    def take(self, needs: Iterable[Need]) -> None:
        """Choose what these needs, and the needs of what is chosen, call for."""
        waiting = list(needs)
        while waiting or (waiting := self._take_callers()):
            waiting.extend(self._take_one(waiting.pop(0)))
        self._check_callers()
        written = {name for one in self.chosen.values() for name in one.names.writes}
        for need in self._unknown:
            if need.name not in written:
                raise refused_unknown(self.history, need)
        self._unknown.clear()

    def take_optional(self) -> None:
        """Choose what is nice to have and can be had: names of annotations nobody evaluates."""
        while self._optional:
            need = self._optional.pop(0)
            trial = Selection(self.history, self.launched, dict(self.chosen), set(self._done))
            try:
                trial.take([need])
            except CaptureError:
                # A value for the annotation of a name is no reason to refuse the function.
                continue
            self.chosen, self._done = trial.chosen, trial._done
            self._optional.extend(trial._optional)

    def _take_one(self, need: Need) -> list[Need]:
        statement = self.history.binder(need.name, need.before)
        if statement is None:
            self._take_unbound(need)
            return []
        self._check(statement, need)
        found = []
        for part in self.history.family(statement, need.name):
            found += self._add(part, need)
        before = self.history.binder(need.name, statement.index)
        if before is not None and not always_binds([statement.node], need.name):
            found.append(replace(need, before=statement.index, called_at=None))
        required = [one for one in found if one.required]
        self._optional += [one for one in found if not one.required]
        return required

    def _callers(self) -> Iterator[tuple[Statement, str, Statement, Statement]]:
        """Yield chosen statement, name, and who reaches into the name by calling what."""
        for index in sorted(self.chosen):
            made = self.chosen[index]
            if made.alias is None:
                for name in sorted(made.names.binds):
                    for caller, called in self.history.callers(made, name):
                        yield made, name, caller, called

    def _take_callers(self) -> list[Need]:
        """Choose the definitions that enter themselves into something chosen, by a decorator."""
        found = []
        for _, name, caller, _ in list(self._callers()):
            first = self.history.first(caller)
            if getattr(caller.node, "decorator_list", ()) and first.index not in self.chosen:
                need = Need(name=name, before=self.history.end, reader=caller, line=caller.line)
                found += self._add(caller, need)
        self._optional += [one for one in found if not one.required]
        return [one for one in found if one.required]

    def _check_callers(self) -> None:
        """Refuse a value that was changed by a call the script does not have."""
        chosen = set(self.chosen)
        for made, name, caller, called in self._callers():
            entered = self.history.first(caller).index in chosen
            # What the script calls by itself changes the value there too, as in a trial run.
            if not entered and self.history.first(called).index not in chosen:
                need = Need(name=name, before=self.history.end, reader=self._reader(made, name))
                change = Change(name=name, line=caller.line, certain=True)
                raise refused_change(self.history, need, made, (caller, change))

    def _reader(self, made: Statement, name: str) -> Statement | None:
        readers = [
            one
            for one in self.statements
            if one is not made and any(use.name == name for use in one.names.uses)
        ]
        return readers[-1] if readers else None

    def _take_unbound(self, need: Need) -> None:
        stars = self.history.stars(need.before)
        if need.name in MODULE_NAMES or (need.name in BUILTINS and not stars):
            return
        if need.name in BUILTINS and need.name not in SHADOWED_BUILTINS:
            return
        if NOTEBOOK_NAMES.fullmatch(need.name) or not stars:
            self._unknown.append(need)
        for star in stars:
            _check_import(star, need)
            self.chosen.setdefault(star.index, star)

    def _add(self, statement: Statement, need: Need) -> list[Need]:
        """Choose one statement and return what it reads in turn."""
        first = self.history.first(statement)
        newest = self.chosen.get(first.index, statement)
        self.chosen[first.index] = max(newest, statement, key=lambda one: one.index)
        if (first.index, need.called_at) in self._done:
            return []
        self._done.add((first.index, need.called_at))
        found = []
        for use in statement.names.uses:
            point = self.history.end if use.later else first.index
            one = Need(
                name=use.name,
                before=point,
                reader=statement,
                line=use.line,
                required=use.required,
                called_at=point if use.name in statement.names.calls and not use.later else None,
            )
            found.append(one)
            if use.later and need.called_at is not None:
                # Called while the script is read: its names must be there by then.
                at = need.called_at
                found.append(replace(one, before=at, called_at=at, required=False))
        for name in statement.names.writes:
            found.append(Need(name=name, before=self.history.end, required=False))
        return found

    def _check(self, statement: Statement, need: Need) -> None:
        """Refuse a statement that a script cannot repeat, or whose value changed afterwards."""
        if need.name in statement.names.deletes:
            raise refused_deletion(need, statement)
        _check_import(statement, need)
        part = live_statement(statement.node, self.history.lookup(statement.index))
        if part is not None:
            raise refused_live(self.history, self.launched, need, statement, part)
        changed = self.history.change(need.name, statement.index, need.before)
        if changed is not None:
            raise refused_change(self.history, need, statement, changed)


def select(history: History, launched: str) -> Selection:
    """Return what the function `launched` needs, itself included; raise CaptureError."""
    selection = Selection(history, launched)
    selection.take([Need(name=launched, before=history.end)])
    selection.take_optional()
    return selection


def _check_import(statement: Statement, need: Need) -> None:
    if isinstance(statement.node, ast.ImportFrom) and statement.node.level:
        raise refused_relative(need, statement)
