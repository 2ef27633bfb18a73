"""Plan a launch: turn what was asked for into a spec and the exact command; write nothing."""

from __future__ import annotations

import ast
import difflib
import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddpnb.call import FILLED
from ddpnb.errors import SpecError
from ddpnb.launchers.base import Command, Launcher, clean_environment
from ddpnb.launchers.devices import Gpu, resolve
from ddpnb.launchers.python import Python
from ddpnb.launchers.spawn import Spawn
from ddpnb.launchers.torchrun import Torchrun
from ddpnb.rundir import RunDir, runs_folder
from ddpnb.spec import LaunchSpec

__all__ = ["Plan", "Source", "plan"]


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


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything about a launch that can be known before it happens."""

    source: Source
    spec: LaunchSpec
    launcher: Launcher
    run: RunDir
    command: Command
    gpus: tuple[Gpu, ...]


def plan(
    target: str | Path | Callable[..., Any] | None,
    args: Sequence[Any],
    *,
    module: str | None = None,
    launcher: Launcher | None = None,
    name: str | None = None,
    nnodes: int = 1,
    nproc_per_node: int | str = 1,
    device: str = "auto",
    gpus: Sequence[int | str] | None = None,
    threads: int | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
    grace: float = 5.0,
    detach: bool = False,
    text: bytes | None = None,
    **arguments: Any,
) -> Plan:
    """Resolve and check everything that was asked for; `launch` documents the parameters.

    `text` is what the script will hold, when it is not written yet.
    """
    given = locals()
    chosen = [key for key, default in (plan.__kwdefaults__ or {}).items() if given[key] != default]
    mechanism: Launcher = Torchrun() if launcher is None else launcher
    if not callable(getattr(mechanism, "command", None)) or isinstance(mechanism, type):
        raise SpecError(
            f"launcher is {launcher!r}; give Torchrun(), Spawn(function=...) or Python()"
        )
    folder = _working_folder(cwd)
    if callable(target):
        source, mechanism = _from_function(target, args, arguments, mechanism, folder, chosen)
    else:
        _refuse_unknown(arguments)
        source = _from_words(target, module, args, folder, text)
    environ = clean_environment(os.environ) | dict(env or {})
    devices = resolve(
        nproc_per_node, device, gpus, environ, ranks_own_gpus=not isinstance(mechanism, Python)
    )
    spec = LaunchSpec(
        name=name or source.name,
        script=source.path,
        module=source.module,
        args=source.args,
        nnodes=nnodes,
        nproc_per_node=devices.nproc_per_node,
        device=devices.device,
        gpus=tuple(gpu.key for gpu in devices.gpus),
        threads=_threads(environ) if threads is None else threads,
        env=dict(env or {}),
        cwd=folder,
        timeout=timeout,
        grace=grace,
        detach=detach,
    )
    spec.check_machine()
    mechanism.check(spec, source.text)
    run = RunDir.propose(runs_folder(), spec.name)
    command = mechanism.command(spec, run, environ, source.text)
    return Plan(
        source=source,
        spec=spec,
        launcher=mechanism,
        run=run,
        command=replace(command, files=_files(source, run)),
        gpus=devices.gpus,
    )


def _working_folder(cwd: str | Path | None) -> Path:
    try:
        folder = Path(cwd or Path.cwd()).expanduser().absolute()
    except FileNotFoundError:
        raise SpecError("the working folder is gone; os.chdir to another, or give cwd=") from None
    if not folder.is_dir():
        raise SpecError(f"cwd is {folder}, which is no folder")
    return folder


def option_names() -> set[str]:
    """Return the options of `launch`, to which a function's own arguments must not be equal."""
    parameters = inspect.signature(plan).parameters.values()
    return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - {"text"}


def _from_words(
    target: object, module: str | None, args: Sequence[Any], folder: Path, text: bytes | None
) -> Source:
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


def _from_function(
    function: Callable[..., Any],
    args: Sequence[Any],
    arguments: Mapping[str, Any],
    launcher: Launcher,
    folder: Path,
    chosen: Collection[str],
) -> tuple[Source, Launcher]:
    from ddpnb.capture import HEADER_PREFIX, cells_of, name_of, script_from_cells

    name = name_of(function)
    _refuse_ambiguous(function, name, len(args), chosen)
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
    function: Callable[..., Any], name: str, given: int, chosen: Collection[str]
) -> None:
    """Refuse a keyword that could be the function's or an option of launch()."""
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        taken = parameter.name in option_names()
        required = parameter.default is parameter.empty and position >= given
        if taken and (required or parameter.name in chosen):
            raise SpecError(
                f"{parameter.name!r} is a parameter of {name}() and an option of launch();"
                " rename the parameter, or pass it by position"
            )


def _refuse_unknown(arguments: Mapping[str, Any]) -> None:
    for name in arguments:
        near = [option for option in sorted(option_names()) if option.startswith(name)]
        near += difflib.get_close_matches(name, sorted(option_names()), 1)
        hint = (
            f"did you mean {near[0]}?"
            if near
            else f"the options are {', '.join(sorted(option_names()))}"
        )
        raise SpecError(f"launch() has no option {name!r}; {hint}")


def _threads(environ: Mapping[str, str]) -> int:
    """Return the threads of a rank when the user does not say: as OMP_NUM_THREADS is set, else 1.

    torchrun does the same for more than one rank; for a single rank it leaves all cores, which
    makes every comparison of 1 against N ranks unfair.
    """
    value = environ.get("OMP_NUM_THREADS", "1").partition(",")[0]
    return int(value) if value.isdigit() and int(value) > 0 else 1


def _files(source: Source, run: RunDir) -> dict[str, str]:
    files = {str(source.path): (source.text or b"").decode()} if source.generated else {}
    return files | {str(path): "" for path in (run.run, run.command, run.script)}
