"""Find the names that a top-level statement binds and uses, by Python's scoping rules.

Called by ``statements``. Works on syntax trees only: it imports nothing and runs nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from ddpnb.capture.bindings import (
    Bindings,
    Comprehension,
    Function,
    defaults_of,
    import_name,
    parameters_of,
)

__all__ = ["Names", "Use", "names_of", "root_name"]


@dataclass(frozen=True, kw_only=True)
class Use:
    """One read of a name that lives at the top level of the notebook."""

    name: str
    line: int
    """Line in the cell."""
    later: bool
    """Read when a function runs; otherwise read as soon as the statement runs."""
    required: bool
    """False for annotations that are never evaluated: nice to have, no reason to refuse."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """What one top-level statement binds, deletes and reads."""

    binds: frozenset[str]
    deletes: frozenset[str]
    uses: tuple[Use, ...]
    writes: frozenset[str]
    """Names that a function of the statement binds through ``global``."""
    calls: frozenset[str]
    """Names called, or used as decorators, as soon as the statement runs."""


def names_of(statement: ast.stmt, *, lazy_annotations: bool = False) -> Names:
    """Return what `statement`, at the top level of a cell, binds and reads."""
    walk = _Walk(lazy_annotations=lazy_annotations)
    walk.visit(statement)
    bound = Bindings([statement])
    return Names(
        binds=frozenset(bound.names),
        deletes=frozenset(bound.deleted - bound.names),
        uses=tuple(walk.uses),
        writes=frozenset(walk.writes),
        calls=frozenset(walk.calls),
    )


def root_name(node: ast.expr) -> ast.Name | None:
    """Return the name at the left end of ``name.a[0].b()``, if there is one."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return None
    return node


@dataclass
class _Scope:
    kind: str
    """module, class, function (also lambdas), comprehension, or types (of ``def f[T]``)."""
    local: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    """In a module or class: names bound by the lines visited so far."""


class _Walk(ast.NodeVisitor):
    """Visit one statement in the order in which it runs and note reads of top-level names."""

    def __init__(self, *, lazy_annotations: bool) -> None:
        self.uses: dict[Use, None] = {}
        self.writes: set[str] = set()
        self.calls: set[str] = set()
        self._lazy = lazy_annotations
        self._required = True
        self._line = 1
        self._scopes = [_Scope("module")]

    @property
    def _later(self) -> bool:
        return any(scope.kind == "function" for scope in self._scopes)

    @contextmanager
    def _inside(self, scope: _Scope) -> Iterator[None]:
        self._scopes.append(scope)
        yield
        self._scopes.pop()

    def _visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit(self, node: ast.AST) -> None:
        self._line = getattr(node, "lineno", self._line)
        super().visit(node)

    def _read(self, name: str) -> None:
        innermost = next(scope for scope in reversed(self._scopes) if scope.kind != "types")
        for scope in reversed(self._scopes):
            if name in scope.outer:
                break
            if scope.kind not in ("module", "class") and name in scope.local:
                return
            # A class's names are seen by its own lines only, never by its methods.
            if scope.kind == "class" and scope is innermost:
                if name in scope.seen:
                    return
                if name in scope.local:
                    break
        if not self._later and name in self._scopes[0].seen:
            return
        if name == "__class__" and any(scope.kind == "class" for scope in self._scopes):
            return  # every method has it, for `super()`
        use = Use(name=name, line=self._line, later=self._later, required=self._required)
        self.uses.setdefault(use)

    def _bind(self, name: str) -> None:
        self._scopes[-1].seen.add(name)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read(node.id)
        elif isinstance(node.ctx, ast.Store):
            self._bind(node.id)

    def _visit_assignment(self, node: ast.Assign | ast.NamedExpr) -> None:
        self.visit(node.value)
        self._visit_all(node.targets if isinstance(node, ast.Assign) else [node.target])

    visit_Assign = _visit_assignment
    visit_NamedExpr = _visit_assignment

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._read(node.target.id)
        self._visit_all([node.value, node.target])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        # Annotations of a function's local variables are never evaluated.
        self._visit_annotation(node.annotation, required=not self._later)
        if node.value is not None:
            self._visit_all([node.value, node.target])
        elif not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def _visit_annotation(self, node: ast.expr | None, *, required: bool = True) -> None:
        if node is None:
            return
        before, self._required = self._required, required and not self._lazy and self._required
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._required = False
            with suppress(SyntaxError, ValueError):
                self.visit(ast.parse(node.value.strip(), mode="eval").body)
        else:
            self.visit(node)
        self._required = before

    def _visit_loop(self, node: ast.For | ast.AsyncFor) -> None:
        self._visit_all([node.iter, node.target, *node.body, *node.orelse])

    visit_For = _visit_loop
    visit_AsyncFor = _visit_loop

    def visit_Call(self, node: ast.Call) -> None:
        self._note_call(node.func)
        self.generic_visit(node)

    def _note_call(self, function: ast.expr) -> None:
        root = root_name(function)
        if root is not None and not self._later:
            self.calls.add(root.id)

    def visit_TypeAlias(self, node: ast.AST) -> None:
        # `type X = ...` (Python 3.12) is evaluated when asked, mostly never.
        before, self._required = self._required, False
        with self._inside(_type_scope(node)):
            self.visit(getattr(node, "value", ast.Pass()))
        self._required = before

    def visit_alias(self, node: ast.alias) -> None:
        self._bind(import_name(node))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._visit_all([node.type])
        if node.name:
            self._bind(node.name)
        self._visit_all(node.body)

    def _visit_function(self, node: Function) -> None:
        for decorator in node.decorator_list:
            self._note_call(decorator)  # `@mark(1)` is noted as the call that it is
        self._visit_all([*node.decorator_list, *defaults_of(node.args)])
        with self._inside(_type_scope(node)):
            self._visit_all(getattr(node, "type_params", ()))
            for argument in parameters_of(node.args):
                self._visit_annotation(argument.annotation)
            self._visit_annotation(node.returns)
            self._visit_body(node.args, node.body)
        self._bind(node.name)

    visit_FunctionDef = _visit_function
    visit_AsyncFunctionDef = _visit_function

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_all(defaults_of(node.args))
        self._visit_body(node.args, [node.body])

    def _visit_body(self, arguments: ast.arguments, body: list[ast.stmt] | list[ast.expr]) -> None:
        bound = Bindings(body)
        self.writes |= bound.names & bound.outer
        parameters = {argument.arg for argument in parameters_of(arguments)}
        with self._inside(_Scope("function", bound.local | parameters, bound.outer)):
            self._visit_all(body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self._note_call(decorator)
        self._visit_all(node.decorator_list)
        bound = Bindings(node.body)
        with self._inside(_type_scope(node)):
            self._visit_all([*getattr(node, "type_params", ()), *node.bases, *node.keywords])
            with self._inside(_Scope("class", bound.local, bound.outer)):
                self._visit_all(node.body)
        self._bind(node.name)

    def _visit_comprehension(self, node: Comprehension) -> None:
        # The first iterable is evaluated outside: in a class it sees the class's names.
        self.visit(node.generators[0].iter)
        targets = Bindings(generator.target for generator in node.generators)
        with self._inside(_Scope("comprehension", targets.names)):
            for position, generator in enumerate(node.generators):
                self._visit_all([generator.iter] if position else [])
                self._visit_all([generator.target, *generator.ifs])
            elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            self._visit_all(elements)

    visit_ListComp = _visit_comprehension
    visit_SetComp = _visit_comprehension
    visit_DictComp = _visit_comprehension
    visit_GeneratorExp = _visit_comprehension


def _type_scope(node: ast.AST) -> _Scope:
    """Return the scope of ``def f[T]`` (Python 3.12); empty elsewhere."""
    names = {parameter.name for parameter in getattr(node, "type_params", ())}
    return _Scope("types", names)
