"""Find the notebook behind a live function: the cells that ran, and the function's name in them.

Called by ``api``. Nothing of the function but its name and its kernel's inputs is read: the script
is cut from the cells' text.
"""

from __future__ import annotations

import functools
import inspect
import tokenize
from pathlib import Path
from types import FunctionType

from ddpnb.errors import CaptureError

__all__ = ["cells_of", "name_of"]


def cells_of(function: object) -> list[str]:
    """Return the executed cells of the notebook that defines `function`, in order.

    For a function from a file it is the file's text, as one cell.
    """
    plain = _plain(function)
    inputs = plain.__globals__.get("In")
    if isinstance(inputs, list) and inputs and all(isinstance(cell, str) for cell in inputs):
        return list(inputs)
    path = Path(plain.__code__.co_filename)
    if not path.is_file():
        raise CaptureError(
            f"{plain.__qualname__} comes from neither a notebook nor a file "
            f"({plain.__code__.co_filename}), so there is no text to make a script of. "
            "Define it in a cell, or in a file of its own."
        )
    with tokenize.open(path) as file:
        return [file.read()]


def name_of(function: object) -> str:
    """Return the name under which the notebook has `function` at its top level."""
    plain = _plain(function)
    names = plain.__globals__
    # A decorator without functools.wraps, or a lambda, knows its own name only; the notebook knows
    # under which one the object can be found. `_` and the like are the kernel's names for it.
    bound = [
        name for name, value in names.items() if value is function and not name.startswith("_")
    ]
    name = plain.__qualname__
    if name in bound or (name.isidentifier() and _plain_or_none(names.get(name)) is plain):
        return name
    if bound:
        return bound[0]
    if "<lambda>" in name:
        raise CaptureError(
            "launch was given a lambda that has no name at the top level of the notebook. "
            "Write it as a function: def train(): ..."
        )
    if "<locals>" in name:
        outer = name.split(".<locals>")[0]
        raise CaptureError(
            f"launch was given {plain.__name__}, which is defined inside {outer}: it may hold "
            "values of that call, which no script has. Define it at the top level of a cell."
        )
    if not name.isidentifier():
        raise CaptureError(
            f"launch was given {name}, a method. Write a function at the top level of a cell that "
            "calls it."
        )
    raise CaptureError(
        f"launch was given {name}, but the notebook's {name} is another object by now (or none). "
        f"Pass {name} itself, after running the cell that defines it."
    )


def _plain(function: object) -> FunctionType:
    """Return the function beneath decorators; refuse what is none."""
    plain = _plain_or_none(function)
    if plain is not None:
        return plain
    kind = type(function).__name__
    if isinstance(function, functools.partial):
        words = "a functools.partial: pass its function, and the arguments by name"
    elif inspect.ismethod(function):
        words = f"{function.__qualname__}, a method: write a function that makes the object itself"
    elif isinstance(function, type):
        words = f"the class {kind and function.__name__}: write a function that uses it"
    elif inspect.isbuiltin(function):
        words = f"{function.__name__}, which is built into Python: write a function that calls it"
    else:
        words = f"an object of type {kind}: pass a function that is defined by `def` in a cell"
    raise CaptureError(f"launch was given {words}.")


def _plain_or_none(function: object) -> FunctionType | None:
    if inspect.ismethod(function) or isinstance(function, type) or not callable(function):
        return None
    plain = inspect.unwrap(function)
    return plain if isinstance(plain, FunctionType) else None
