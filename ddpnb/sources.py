"""Where a launch takes its code from: a script, a module, or a function of the notebook."""

from __future__ import annotations

import ast
import difflib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddpnb.call import FILLED
from ddpnb.errors import SpecError
from ddpnb.launchers.base import Launcher
from ddpnb.launchers.spawn import Spawn

__all__ = ["Source", "from_function", "from_words"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """What the ranks will run, and with which words behind it."""

    name: str
    path: Path | None = None
    module: str | None = None
    args: tuple[str, ...] = ()
    text: bytes | None = None
    """The script as it is now."""
    generated: bool = False
    """True when the text was put together from a notebook's cells, to be written to `path`."""


def from_words(
    target: object, module: str | None, args: Sequence[Any], folder: Path, text: bytes | None
) -> Source:
    """Return the source for a script or module; `text` if the script is not written yet."""
    words = tuple(_word(arg) for arg in args)
    if module is not None:
        if target is not None:
            words = (
                _word(target),
                *words,
            )  # launch("--x", "1", module="pkg.train"): all words are arguments
        return Source(name=module.rpartition(".")[2], module=module, args=words)
    if target is None:
        raise SpecError("nothing to launch; give a script, a module or a function")
    path = (folder / Path(_word(target)).expanduser()).absolute()
    return Source(name=path.stem, path=path, args=words, text=_read(path) if text is None else text)


def _read(path: Path) -> bytes:
    try:
        if path.is_fifo() or path.is_socket():
            raise SpecError(f"{path} is no file; name a script")
        text = path.read_bytes()
    except FileNotFoundError:
        near = difflib.get_close_matches(
            path.name, [p.name for p in path.parent.glob("*.py")], 1, 0.7
        )
        there = (
            f"; did you mean {near[0]}?"
            if near
            else "; `%%ddp_script FILE` writes a cell to a file"
        )
        raise SpecError(f"there is no script {path}{there}") from None
    except IsADirectoryError:
        raise SpecError(
            f"{path} is a folder; name the script in it, or use -m for a package"
        ) from None
    except OSError as error:
        raise SpecError(f"the script {path} cannot be read: {error.strerror}") from error
    if path.suffix == ".ipynb":
        raise SpecError(
            f"{path.name} is a notebook, not a script; write a cell of it with %%ddp_script FILE"
        )
    return text


def _word(value: Any) -> str:
    """Return one word of a command line; numbers and paths are spelled as a person would."""
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    raise SpecError(
        f"{value!r} ({type(value).__name__}) is no word of a command line;"
        " give strings, numbers or paths"
    )


def from_function(
    function: Callable[..., Any],
    args: Sequence[Any],
    arguments: Mapping[str, Any],
    launcher: Launcher,
    folder: Path,
    options: Mapping[str, bool],
) -> tuple[Source, Launcher]:
    """Return the script that holds a notebook's function, and the launcher that calls it.

    Args:
        options: names of launch()'s own options: whether each was given.
    """
    from ddpnb.capture import HEADER_PREFIX, cells_of, name_of, script_from_cells

    name = name_of(function)
    _refuse_ambiguous(function, name, len(args), options)
    # Not <function>.py: that may be a file of the user, or the name of one of Python's own modules.
    path = folder / f"{name}_ddp.py"
    spawned = isinstance(launcher, Spawn)
    text = script_from_cells(
        cells_of(function),
        name,
        arguments,
        positional=args,
        filled=FILLED if spawned else (),
        guard=not spawned,
        before_line=_line_of_the_call(function),
        file_name=path.name,
    ).encode()
    if path.is_dir() or (path.exists() and not _read(path).startswith(HEADER_PREFIX.encode())):
        raise SpecError(
            f"{path} is in the way: ddpnb did not write it; rename it, or rename {name}()"
        )
    words: tuple[str, ...] = ()
    if isinstance(launcher, Spawn):
        launcher = replace(launcher, function=name)
        words = tuple(_as_literal(name, value) for value in args)
        words += tuple(f"{key}={_as_literal(name, value)}" for key, value in arguments.items())
    return Source(name=name, path=path, args=words, text=text, generated=True), launcher


def _as_literal(function: str, value: Any) -> str:
    """Return a value as the word from which a spawned rank reads the very same value."""
    word = repr(value)
    try:
        same = type(ast.literal_eval(word)) is type(value) and ast.literal_eval(word) == value
    except (ValueError, SyntaxError, TypeError):
        same = False
    if not same:
        raise SpecError(
            f"{function}() is given {word[:80]}, which Spawn cannot hand over; pass plain numbers,"
            " texts and containers of them, or use Torchrun()"
        )
    return word


def _line_of_the_call(function: Callable[..., Any]) -> int | None:
    """Return the line of the cell that is calling; the lines below it have not run yet."""
    frame = inspect.currentframe()
    namespace = getattr(inspect.unwrap(function), "__globals__", None)
    while frame is not None and frame.f_globals is not namespace:
        frame = frame.f_back
    if frame is None or not frame.f_code.co_name.startswith("<"):
        return None  # called from a function, or from another module
    return frame.f_lineno


def _refuse_ambiguous(
    function: Callable[..., Any], name: str, given: int, options: Mapping[str, bool]
) -> None:
    """Refuse a keyword that could be the function's or an option of launch()."""
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        taken = parameter.name in options
        required = parameter.default is parameter.empty and position >= given
        if taken and (required or options[parameter.name]):
            raise SpecError(
                f"{parameter.name!r} is a parameter of {name}() and an option of launch();"
                " rename the parameter, or pass it by position"
            )
