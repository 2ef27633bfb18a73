"""Write a notebook's function, and all that it needs, as a script that plain Python runs.

Called by ``api`` for ``launch(train, lr=0.1)``. Pure: from the cells' text to the script's text.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence

from ddpnb.capture.calls import call_text, check_arguments
from ddpnb.capture.history import History
from ddpnb.capture.layout import body_text, cell_numbers, import_lines
from ddpnb.capture.names import root_name
from ddpnb.capture.selection import Selection, select
from ddpnb.capture.statements import Statement
from ddpnb.capture.values import called_path
from ddpnb.errors import CaptureError

__all__ = ["HEADER_PREFIX", "script_from_cells"]

HEADER_PREFIX = "# Written by ddpnb"
"""The first words of every generated script: a file that begins so may be written over."""

# Decorators that leave a function's parameters as they are. Behind any other, only the call tells.
KEEP_PARAMETERS = frozenset(
    """
    functools.cache functools.lru_cache torch.compile torch.enable_grad torch.inference_mode
    torch.no_grad torch.distributed.elastic.multiprocessing.errors.record typing.no_type_check
    """.split()
)
SETTINGS = re.compile(r"(manual_)?seed(_all|_everything)?|set_\w+|use_\w+|\w*filter(warnings)?")


def script_from_cells(
    cells: Sequence[str],
    name: str,
    arguments: Mapping[str, object],
    *,
    positional: Sequence[object] = (),
    filled: Collection[str] = (),
    guard: bool = True,
    before_line: int | None = None,
    file_name: str = "",
) -> str:
    """Return a script with the function `name` of a notebook and all that it needs.

    Args:
        cells: sources of the executed cells; the index is the execution count.
        name: a function at the top level of a cell; its newest definition counts.
        arguments: values to call it with, plain data only.
        positional: values without names, before `arguments`.
        filled: parameters that the launcher gives by itself.
        guard: whether to end with the call under ``if __name__ == "__main__":``.
        before_line: the line of the last cell that launches; later lines have not run.
        file_name: what the script will be called, for the command in its first line.

    Raises:
        CaptureError: the function, a name that it needs or an argument cannot stand in a script.
    """
    history = History(cells, before_line=before_line)
    statement = history.binder(name, history.end)
    parameters = None if statement is None else _parameters(history, statement, name)
    selection = select(history, name)
    if parameters is not None:
        check_arguments(name, parameters, positional, arguments, filled)
    path_name, path_import = _path(history, selection)
    call, has_path = call_text(name, positional, arguments, indent=4, path_name=path_name)
    imports = import_lines(selection)
    if guard and has_path and path_import not in imports:
        imports += [path_import] * bool(path_import)
    run = f" Run it: torchrun --nproc-per-node 2 {file_name or f'{name}.py'}" if guard else ""
    parts = [
        "\n".join(_head(history, selection, name, run=run)),
        "\n".join(imports),
        body_text(history, selection),
        f'if __name__ == "__main__":\n    {call}' if guard else "",
    ]
    text = _joined(parts)
    _check_syntax(text, name)
    return text


def _parameters(history: History, statement: Statement, name: str) -> ast.arguments | None:
    """Return what the launched function takes, None if only a call can tell; refuse no function."""
    node: ast.AST = statement.node
    if isinstance(node, ast.If | ast.Try | ast.TryStar):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        found = [one for one in ast.walk(node) if isinstance(one, kinds) and one.name == name]
        node = found[0] if len(found) == 1 else node
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        return node.value.args
    trouble = _trouble(node)
    if trouble:
        raise CaptureError(f"launch was given {name} ({statement.where()}), {trouble}")
    if not isinstance(node, ast.FunctionDef):
        return None
    lookup = history.lookup(statement.index)
    makers = [part.func if isinstance(part, ast.Call) else part for part in node.decorator_list]
    kept = all(called_path(part, lookup) in KEEP_PARAMETERS for part in makers)
    return node.args if kept else None


def _trouble(node: ast.AST) -> str:
    if isinstance(node, ast.AsyncFunctionDef):
        return "an `async def`: calling it runs nothing. Wrap it: def train(): asyncio.run(...)."
    if isinstance(node, ast.ClassDef):
        return "a class. Pass a function that makes the object and uses it."
    if isinstance(node, ast.FunctionDef) and any(_yields(node)):
        return (
            "a generator (it has a `yield`): calling it runs nothing. Loop over it in a function."
        )
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return "which is bound to a value. Pass a function that is defined by `def` in a cell."
    return ""


def _yields(node: ast.AST) -> Iterator[bool]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Yield | ast.YieldFrom):
            yield True
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _yields(child)


def _path(history: History, selection: Selection) -> tuple[str, str]:
    """Return how the script can call ``pathlib.Path``, and the import for it if it lacks one."""
    bound = {name for one in selection.statements for name in one.names.binds}
    if "Path" not in bound:
        return "Path", "from pathlib import Path"
    if history.origin("Path", history.end).path == "pathlib.Path":
        return "Path", ""
    return "pathlib.Path", "import pathlib"


def _head(history: History, selection: Selection, name: str, *, run: str) -> list[str]:
    numbers = cell_numbers(selection)
    source = f" from the notebook's cells {numbers}" if numbers != "0" else ""
    if numbers.isdecimal():
        source = source.replace("cells", "cell")
    lines = [f"{HEADER_PREFIX}{source}.{run}"]
    settings = list(dict.fromkeys(_settings(history, selection)))
    if settings:
        lines.append(f"# Settings left out; put those that the ranks need into {name}():")
        lines += [f"#     {setting}" for setting in settings]
    futures = [f"from __future__ import {feature}" for feature in history.futures]
    return [*lines, "", *futures] if futures else lines


def _settings(history: History, selection: Selection) -> Iterator[str]:
    """Yield the lines that set something in a module, as ``torch.manual_seed(0)`` does.

    They define no name, so nothing needs them; the reader should know that they are not there.
    """
    lookup = history.lookup(history.end)
    names = {name for one in selection.statements if one.alias for name in one.names.binds}
    modules = {lookup(name).path.split(".")[0] for name in names} - {""} | {"sys"}
    for statement in history.statements:
        node = statement.node
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            path = called_path(node.value.func, lookup)
            is_setting = path.startswith("sys.path.") or SETTINGS.fullmatch(path.split(".")[-1])
            target = node.value.func if is_setting else None
        root = root_name(target) if target is not None else None
        if root is None or (root is target and isinstance(node, ast.Assign)):
            continue
        if lookup(root.id).path.split(".")[0] in modules:
            yield f"{history.line(statement.cell, node.lineno)}  ({statement.where()})"


def _joined(parts: Sequence[str]) -> str:
    """Join the parts of a script: two empty lines around code, one between head and imports."""
    head, imports, body, guard = parts
    text = head
    if imports:
        text += f"\n\n{imports}"
    is_definition = re.match(r"(#.*\n)*(@|def |class |async def )", body)
    if body:
        text += ("\n\n\n" if is_definition else "\n\n") + body
    if guard:
        text += f"\n\n\n{guard}"
    return text.rstrip("\n") + "\n"


def _check_syntax(text: str, name: str) -> None:
    """Compile the script, without running it: it must not be the ranks that find it broken."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text, f"{name}.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 1
            raise CaptureError(
                f"The script for {name} would be no valid Python, line {line}: {error}\n"
                f"    {text.splitlines()[line - 1].strip()}\n"
                "Write the file yourself, with %%ddp at the head of a cell."
            ) from error
