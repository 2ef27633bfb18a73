"""Cut the executed cells into their top-level statements, with the text the user wrote.

Called by ``selection``. An import statement gives one ``Statement`` for each name it binds, because
each may be needed or not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ddpnb.capture.cells import Cell
from ddpnb.capture.names import Names, names_of
from ddpnb.errors import CaptureError

__all__ = ["Statement", "future_features", "statements_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Statement:
    """One top-level statement, or one name of an import statement."""

    index: int
    """Place in the order of execution."""
    cell: int
    node: ast.stmt
    alias: ast.alias | None
    """For imports: the name that this is about."""
    text: str
    """Source with the comments that belong to it."""
    names: Names

    @property
    def is_star(self) -> bool:
        """Whether this is ``from m import *``."""
        return self.alias is not None and self.alias.name == "*"

    @property
    def line(self) -> int:
        """First line in the cell."""
        return first_line(self.node)

    @cached_property
    def code(self) -> str:
        """Give what tells two statements apart: the syntax tree without places and comments."""
        if self.alias is None:
            return ast.dump(self.node)
        module, level = getattr(self.node, "module", ""), getattr(self.node, "level", 0)
        return f"{type(self.node).__name__} {module} {level} {ast.dump(self.alias)}"

    @property
    def imported_path(self) -> str:
        """For imports: the dotted path that the name stands for; of ``import a.b`` it is ``a``."""
        if self.alias is None:
            return ""
        if isinstance(self.node, ast.ImportFrom):
            return f"{'.' * self.node.level}{self.node.module or ''}.{self.alias.name}"
        return self.alias.name if self.alias.asname else self.alias.name.split(".")[0]

    @property
    def is_dotted_import(self) -> bool:
        """Whether this is ``import a`` or ``import a.b``: several of them add up to one ``a``."""
        return isinstance(self.node, ast.Import) and not (self.alias and self.alias.asname)

    def where(self, line: int | None = None) -> str:
        """Return the place in words: the cell and the line in it."""
        return place(self.cell, self.line if line is None else line)


def place(cell: int, line: int) -> str:
    """Return a line of a cell in words; number 0 is a file's text, which has no cells."""
    return f"cell [{cell}], line {line}" if cell else f"line {line}"


def first_line(node: ast.stmt) -> int:
    """Return the line on which a statement begins, its decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def future_features(cells: Sequence[Cell]) -> list[str]:
    """Return what the cells import from ``__future__``; in a kernel it holds for later cells."""
    found = {
        alias.name
        for cell in cells
        if cell.tree is not None
        for node in cell.tree.body
        if _is_future(node) and isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return sorted(found)


def statements_of(cells: Sequence[Cell], *, before_line: int | None = None) -> list[Statement]:
    """Return all top-level statements in order; of the last cell, those before `before_line`."""
    lazy = "annotations" in future_features(cells)
    statements: list[Statement] = []
    for cell in cells:
        for node, text in _pieces(cell):
            last = cell is cells[-1] and before_line is not None
            if _is_future(node) or (last and node.lineno >= (before_line or 0)):
                continue
            for part, alias in _split(node):
                statement = Statement(
                    index=len(statements),
                    cell=cell.number,
                    node=node,
                    alias=alias,
                    text=text,
                    names=_names(part, place(cell.number, node.lineno), lazy=lazy),
                )
                statements.append(statement)
    return statements


def _names(node: ast.stmt, where: str, *, lazy: bool) -> Names:
    try:
        return names_of(node, lazy_annotations=lazy)
    except RecursionError as error:
        raise CaptureError(
            f"The statement at {where} nests too deeply to be read. Write it in several steps, or "
            "restart the kernel without that cell."
        ) from error


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _split(node: ast.stmt) -> Iterator[tuple[ast.stmt, ast.alias | None]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield ast.Import([alias], **_position(node)), alias
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield ast.ImportFrom(node.module, [alias], node.level, **_position(node)), alias
    else:
        yield node, None


def _position(node: ast.stmt) -> dict[str, int]:
    return {"lineno": node.lineno, "col_offset": node.col_offset}


def _pieces(cell: Cell) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each statement with its text, cut from the cell as the user wrote it."""
    if cell.tree is None:
        return
    lines = cell.text.split("\n")
    body = cell.tree.body
    for position, node in enumerate(body):
        before = body[position - 1].end_lineno or 0 if position else 0
        after = first_line(body[position + 1]) if position + 1 < len(body) else len(lines) + 1
        end = node.end_lineno or node.lineno
        if first_line(node) <= before or end >= after:
            # Statements joined by ";" share their comments, which would be nobody's.
            yield node, ast.get_source_segment(cell.text, node) or ""
        else:
            yield node, _whole_lines(lines, node, before=before, after=after)


def _whole_lines(lines: list[str], node: ast.stmt, *, before: int, after: int) -> str:
    start, end = first_line(node) - 1, node.end_lineno or node.lineno
    tail = lines[end - 1].encode()[node.end_col_offset :].decode()
    if tail.lstrip().startswith(";"):
        # The notebook's way to hide a value.
        kept = lines[end - 1][: len(lines[end - 1]) - len(tail)] + tail.lstrip()[1:]
        lines = [*lines[: end - 1], kept.rstrip(), *lines[end:]]
    while start > before and _is_comment(lines[start - 1]):
        start -= 1
    if before == 0:
        start = _with_opening_comment(lines, start)
    while end < after - 1 and lines[end][:1].isspace() and _is_comment(lines[end]):
        end += 1
    return "\n".join(lines[start:end])


def _with_opening_comment(lines: list[str], start: int) -> int:
    """Return where the comment begins that opens a cell, one empty line above the first code."""
    top = start - 1
    if top < 1 or lines[top].strip():
        return start
    while top > 0 and _is_comment(lines[top - 1]):
        top -= 1
    return top if top < start - 1 else start


def _is_comment(line: str) -> bool:
    code = line.lstrip()
    # "# %%" and "#|" are marks of other tools for cells, not words for a reader.
    return code.startswith("#") and not code.startswith(("# %%", "#%%", "#|", "# In["))
