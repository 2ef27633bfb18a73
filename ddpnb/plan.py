"""Plan a launch: turn what was asked for into a spec and the exact command; write nothing."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ddpnb.errors import SpecError
from ddpnb.launchers.base import Command, Launcher, clean_environment
from ddpnb.launchers.devices import Gpu, resolve
from ddpnb.launchers.python import Python
from ddpnb.launchers.torchrun import Torchrun
from ddpnb.launchers.warm import Auto
from ddpnb.rundir import RunDir, runs_folder
from ddpnb.sources import Source, from_function, from_words
from ddpnb.spec import DEFAULT_LOG_BYTES, LaunchSpec

__all__ = ["Plan", "plan", "use_by_default"]


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
    text: bytes | None = None,
    /,
    *,
    module: str | None = None,
    launcher: Launcher | Literal["auto"] | None = None,
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
    max_log_bytes: int | None = DEFAULT_LOG_BYTES,
    **arguments: Any,
) -> Plan:
    """Resolve and check everything that was asked for; `launch` documents the parameters.

    `text` is what the script will hold, when it is not written yet.
    """
    given = locals()
    options = {key: given[key] != default for key, default in (plan.__kwdefaults__ or {}).items()}
    mechanism = _mechanism(launcher)
    if not callable(getattr(mechanism, "command", None)) or isinstance(mechanism, type):
        raise SpecError(
            f'launcher is {launcher!r}; give "auto", or Warm(), Cold(), Torchrun(),'
            " Spawn(function=...) or Python()"
        )
    folder = _working_folder(cwd)
    if callable(target):
        source, mechanism = from_function(target, args, arguments, mechanism, folder, options)
    else:
        _refuse_unknown(arguments, options)
        source = from_words(target, module, args, folder, text)
    env = _variables(env)
    environ = clean_environment(os.environ) | env
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
        env=env,
        cwd=folder,
        timeout=timeout,
        grace=grace,
        detach=detach,
        max_log_bytes=max_log_bytes,
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


def _mechanism(launcher: Launcher | Literal["auto"] | None) -> Launcher:
    if launcher is None:
        return _usual()
    return Auto() if launcher == "auto" else launcher


def use_by_default(launcher: Callable[[], Launcher]) -> None:
    """Have launches of this process that name no launcher use this one."""
    global _usual
    _usual = launcher


_usual: Callable[[], Launcher] = Torchrun


def _working_folder(cwd: str | Path | None) -> Path:
    try:
        folder = Path(cwd or Path.cwd()).expanduser().absolute()
    except FileNotFoundError:
        raise SpecError("the working folder is gone; os.chdir to another, or give cwd=") from None
    except (TypeError, RuntimeError) as error:  # the second: no such user's home
        raise SpecError(f"cwd is {cwd!r}, which names no folder: {error}") from error
    if not folder.is_dir():
        raise SpecError(f"cwd is {folder}, which is no folder")
    return folder


def _variables(env: Mapping[str, str] | None) -> dict[str, str]:
    if env is not None and not isinstance(env, Mapping):
        raise SpecError(f"env is {env!r}; give a dict of names and values")
    return dict(env or {})


def _refuse_unknown(arguments: Mapping[str, Any], options: Collection[str]) -> None:
    for name in arguments:
        near = [option for option in sorted(options) if option.startswith(name)]
        near += difflib.get_close_matches(name, sorted(options), 1)
        hint = (
            f"did you mean {near[0]}?" if near else f"the options are {', '.join(sorted(options))}"
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
