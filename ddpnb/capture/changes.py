"""Find the top-level statements that change an object in place, after the line that made it.

Called by ``history``. ``CONFIG["lr"] = 3`` leaves CONFIG's own line as it was, so a script cut from
that line would have the old value.
"""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddpnb.capture.names import root_name

__all__ = ["Change", "aliases", "changes_by", "changes_in"]

MUTATORS = frozenset(
    """
    add add_argument append appendleft clear difference_update discard extend extendleft insert
    intersection_update move_to_end pop popitem popleft register remove reverse rotate setdefault
    sort subtract symmetric_difference_update update __setattr__ __setitem__ __delitem__
    """.split()
)
# Methods of the types that plain values have; what is left after MUTATORS only reads the object
# (a logger's level and a folder on disk are no part of the value).
READERS = (
    frozenset(
        name
        for kind in (str, bytes, int, float, complex, tuple, list, dict, set, frozenset)
        for name in dir(kind)
    )
    | frozenset(dir(Path))
    | frozenset(dir(logging.Logger))
    | frozenset(dir(re.Pattern))
    | frozenset({"most_common", "elements", "total", "_asdict", "_replace"})
) - MUTATORS
CHANGING_CALLS = frozenset({"setattr", "delattr", "shuffle", "heapify", "heappush", "heappop"})
CHANGING_CALLS |= {"insort", "insort_left", "insort_right"}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One place that changes, or may change, the object behind a name."""

    name: str
    line: int
    certain: bool
    """False for a call of a method that is not known: ``cfg.validate()``."""


def changes_in(statement: ast.stmt) -> list[Change]:
    """Return what a top-level statement changes in place as it runs."""
    found = []
    for node in _running(statement):
        target = _changed(node)
        if target is not None:
            root, certain = target
            line = getattr(node, "lineno", statement.lineno)
            found.append(Change(name=root.id, line=line, certain=certain))
    return found


def changes_by(function: ast.AST) -> frozenset[str]:
    """Return the names whose objects a function changes when it is called, its own included."""
    targets = [_changed(node) for node in ast.walk(function)]
    return frozenset(root.id for root, certain in filter(None, targets) if certain)


def aliases(node: ast.expr) -> set[str]:
    """Return names whose objects `node` may hand on, so that a change of it changes them too."""
    match node:
        case ast.Name(id=name):
            return {name}
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.BoolOp(values=parts):
            return set().union(*map(aliases, parts))
        case ast.Dict(keys=keys, values=parts):
            # `{**other}` is a copy.
            named = [part for key, part in zip(keys, parts, strict=True) if key is not None]
            return set().union(*map(aliases, named))
        case ast.IfExp(body=body, orelse=orelse):
            return aliases(body) | aliases(orelse)
        case ast.Attribute(value=value) | ast.Subscript(value=value):
            return aliases(value)
        case _:
            return set()


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run with the statement itself: not those inside functions."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    for child in ast.iter_child_nodes(node):
        yield from _running(child)


def _changed(node: ast.AST) -> tuple[ast.Name, bool] | None:
    """Return the root name that one node changes, and whether it surely does."""
    match node:
        case (
            ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del())
        ):
            return _rooted(node.value, certain=True)
        case ast.Call(func=ast.Attribute(attr=method, value=owner)) if method in MUTATORS:
            return _rooted(owner, certain=True)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]) if (
            name in CHANGING_CALLS
        ):
            return _rooted(first, certain=True)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=method, value=owner))) if (
            method not in READERS
        ):
            return _rooted(owner, certain=False)
        case _:
            return None


def _rooted(node: ast.expr, *, certain: bool) -> tuple[ast.Name, bool] | None:
    root = root_name(node)
    return None if root is None else (root, certain)
