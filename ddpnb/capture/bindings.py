"""Collect the names that a piece of code binds in its own scope.

Called by ``names``. Works on syntax trees only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TypeAlias

__all__ = [
    "Bindings",
    "Comprehension",
    "Function",
    "always_binds",
    "defaults_of",
    "import_name",
    "parameters_of",
]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def import_name(alias: ast.alias) -> str:
    """Return the name that an import binds: ``a`` for ``import a.b``, ``c`` for ``... as c``."""
    return alias.asname or alias.name.split(".")[0]


def parameters_of(arguments: ast.arguments) -> list[ast.arg]:
    """Return all parameters of a function, those with stars included."""
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return plain + [star for star in (arguments.vararg, arguments.kwarg) if star is not None]


def defaults_of(arguments: ast.arguments) -> list[ast.expr]:
    """Return the default values of a function's parameters, which run with its ``def``."""
    return arguments.defaults + [value for value in arguments.kw_defaults if value is not None]


def always_binds(body: Iterable[ast.stmt], name: str) -> bool:
    """Whether `body` binds `name` whichever way its ``if`` and ``try`` blocks go."""
    return any(_always_binds(node, name) for node in body)


class Bindings(ast.NodeVisitor):
    """Collect the names that `body` binds in its own scope, without those of inner scopes."""

    def __init__(self, body: Iterable[ast.AST]) -> None:
        self.names: set[str] = set()
        self.deleted: set[str] = set()
        self.outer: set[str] = set()
        """Names declared ``global``."""
        self.enclosing: set[str] = set()
        """Names declared ``nonlocal``."""
        self.declared: set[str] = set()
        """Names annotated without a value: local to a function, but not bound."""
        for node in body:
            self.visit(node)

    @property
    def local(self) -> set[str]:
        """Names that are local when the body is a function's."""
        return (self.names | self.deleted | self.declared) - self.outer - self.enclosing

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.names.add(node.id)
        elif isinstance(node.ctx, ast.Del):
            self.deleted.add(node.id)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None and isinstance(node.target, ast.Name):
            self.declared |= {node.target.id} if node.simple else set()
        else:
            self.generic_visit(node)

    def _visit_function(self, node: Function) -> None:
        self.names.add(node.name)
        for part in (*node.decorator_list, *defaults_of(node.args)):
            self.visit(part)

    visit_FunctionDef = _visit_function
    visit_AsyncFunctionDef = _visit_function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.names.add(node.name)
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in defaults_of(node.args):
            self.visit(part)

    def _visit_comprehension(self, node: Comprehension) -> None:
        # Only `:=` reaches out of a comprehension (PEP 572).
        for part in ast.walk(node):
            if isinstance(part, ast.NamedExpr):
                self.visit(part.target)

    visit_ListComp = _visit_comprehension
    visit_SetComp = _visit_comprehension
    visit_DictComp = _visit_comprehension
    visit_GeneratorExp = _visit_comprehension

    def visit_alias(self, node: ast.alias) -> None:
        if node.name != "*":
            self.names.add(import_name(node))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.names.add(node.name)
        self.generic_visit(node)

    def _visit_pattern(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.names.add(node.name)
        self.generic_visit(node)

    visit_MatchAs = _visit_pattern
    visit_MatchStar = _visit_pattern

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.names.add(node.rest)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.outer.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.enclosing.update(node.names)


def _always_binds(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.If):
        ways = [node.body, node.orelse]
    elif isinstance(node, ast.Try | ast.TryStar):
        ways = [[*node.body, *node.orelse], *(handler.body for handler in node.handlers)]
        if always_binds(node.finalbody, name):
            return True
    else:
        return name in Bindings([node]).names
    return all(
        always_binds(way, name) or any(isinstance(line, ast.Raise) for line in way) for way in ways
    )
