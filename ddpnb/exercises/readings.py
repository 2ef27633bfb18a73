"""What the text of a learner's script says, without running it: which calls it makes, and how."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Reading", "argument", "keyword"]


@dataclass(frozen=True)
class Reading:
    """A script, parsed."""

    tree: ast.Module
    names: dict[str, str]
    """What each imported name stands for: `dist` for `torch.distributed`."""

    @classmethod
    def of(cls, text: str) -> Reading:
        """Parse the text; raise SyntaxError where it is no Python."""
        tree = ast.parse(text)
        return cls(tree, dict(_imported(tree)))

    def calls(self, name: str) -> list[ast.Call]:
        """Return the calls of a function or method whose own name is this, however imported."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        return [call for call in calls if self.full_name(call.func).rpartition(".")[2] == name]

    def full_name(self, node: ast.expr) -> str:
        """Return what a dotted expression stands for: `torch.distributed.barrier`."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.full_name(node.value)}.{node.attr}"
        return ""

    def is_guarded(self) -> bool:
        """Return whether a top-level `if` asks whether the file itself was started."""
        tests = [node.test for node in self.tree.body if isinstance(node, ast.If)]
        return any(_is_main_test(test) for test in tests)

    def has_text(self, text: str) -> bool:
        """Return whether the script has a string with this text in it."""
        constants = (node for node in ast.walk(self.tree) if isinstance(node, ast.Constant))
        return any(isinstance(c.value, str) and text in c.value for c in constants)

    def under_if(self, name: str) -> bool:
        """Return whether each call of this name stands under an `if` inside a function."""
        functions = [n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef)]
        conditions = [n for f in functions for n in ast.walk(f) if isinstance(n, ast.If)]
        below = {id(node) for condition in conditions for node in ast.walk(condition)}
        return all(id(call) in below for call in self.calls(name))


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of a keyword argument, or None."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    """Return the value of an argument given by place or by name, or None."""
    return call.args[place] if len(call.args) > place else keyword(call, name)


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _is_main_test(test: ast.expr) -> bool:
    match test:
        case ast.Compare(
            left=ast.Name(id="__name__"),
            ops=[ast.Eq()],
            comparators=[ast.Constant(value="__main__")],
        ):
            return True
        case ast.Compare(
            left=ast.Constant(value="__main__"),
            ops=[ast.Eq()],
            comparators=[ast.Name(id="__name__")],
        ):
            return True
    return False
