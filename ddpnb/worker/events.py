"""What a rank says on purpose: `log` numbers, show `progress`, `report` results.

    torchrun --standalone --nproc-per-node 2 -m ddpnb.worker.events     # "step 0  loss 1" ...
    python -m ddpnb.worker.events                                       # the same, from one rank

In a ddpnb run (DDPNB_RUN names its folder) they write to the rank's own files and the notebook
reads those. Anywhere else rank 0 prints. Called by training scripts; imports the standard library
only, so that a script that only reports starts in milliseconds. None of the three is a collective:
one rank may call them alone.
"""

from __future__ import annotations

import json
import math
import operator
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ddpnb.json_files import append_json_lines, read_json, write_json
from ddpnb.rank_dir import RankDir
from ddpnb.records import Event, EventKind, Worker
from ddpnb.rundir import RunDir

__all__ = ["log", "progress", "report"]

T = TypeVar("T")

PROGRESS_SECONDS = 0.2  # the dashboard redraws no faster
MAX_LIST = (
    1000  # a result is read whole at every look; what is larger belongs into a file of its own
)

# Column names of `job.metrics()`, which a metric would hide.
RESERVED = frozenset({"rank", "time"})

# Descriptors of the events files, by process: a forked DataLoader worker opens its own.
_descriptors: dict[tuple[int, Path], int] = {}
_report_lock = threading.Lock()


def log(step: int, **metrics: Any) -> None:
    """Record numbers for one step: `log(10, loss=0.5)`; 0-d tensors and NaN are welcome.

    Each rank records its own numbers. A number that describes the whole job needs `mean` first.
    """
    step = operator.index(step)
    values = {name: _as_float(name, value) for name, value in metrics.items()}
    files = _rank_dir()
    if files is not None:
        _write_event(files, "metric", step, values)
    elif Worker.from_env().is_main:
        print(
            "  ".join([f"step {step}", *(f"{k} {_short(v)}" for k, v in values.items())]),
            flush=True,
        )


def progress(iterable: Iterable[T], *, total: int | None = None, name: str = "") -> Iterator[T]:
    """Yield what `iterable` yields while the dashboard counts the items that are done.

    Args:
        total: number of items, where `len(iterable)` does not tell.
        name: what is counted, shown beside the bar.
    """
    files = _rank_dir()
    if files is None:
        yield from iterable
        return
    if total is None:
        total = _length(iterable)
    else:
        total = max(0, int(total)) if math.isfinite(total) else None
    n, last_n, last_time = 0, 0, time.monotonic()
    _write_event(files, "progress", None, {"n": 0, "total": total, "name": name})
    try:
        for item in iterable:
            yield item
            n += 1
            if time.monotonic() - last_time >= PROGRESS_SECONDS:
                last_n, last_time = n, time.monotonic()
                _write_event(files, "progress", None, {"n": n, "total": total, "name": name})
    finally:  # also after `break` or an exception: the bar stops at the true count
        if n != last_n:
            _write_event(files, "progress", None, {"n": n, "total": total, "name": name})


def report(**values: Any) -> None:
    """Record what this rank found, read in the notebook as `job.results[rank]`.

    Later calls add keys and replace equal ones. Values are what JSON can hold; scalars and short
    1-d tensors or arrays are converted. Call it from the rank's own process: forked DataLoader
    workers share its file.
    """
    plain = {key: _as_json(key, value) for key, value in values.items()}
    files = _rank_dir()
    if files is not None:
        # Read back rather than remembered: the file is the one truth, also after a fork.
        with _report_lock:
            path = files.result(_attempt())
            write_json(path, (read_json(path) or {}) | plain)
    elif Worker.from_env().is_main:
        print("  ".join(["report", *(f"{k} {_short(v)}" for k, v in plain.items())]), flush=True)


def _rank_dir() -> RankDir | None:
    run = os.environ.get("DDPNB_RUN")
    if not run:
        return None
    files = RunDir(Path(run)).rank(Worker.from_env().rank)
    files.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return files


def _attempt() -> int:
    # torchrun counts its restarts here; other launchers start a rank once.
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def _write_event(
    files: RankDir, kind: EventKind, step: int | None, data: Mapping[str, Any]
) -> None:
    event = Event(rank=Worker.from_env().rank, time=time.time(), kind=kind, step=step, data=data)
    append_json_lines(_descriptor(files.events), [event.to_json()])


def _descriptor(path: Path) -> int:
    """Return this process's O_APPEND descriptor of the file, which keeps whole lines apart."""
    key = (os.getpid(), path)
    found = _descriptors.get(key)
    if found is not None:
        return found
    new = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # setdefault, not a lock: a lock that another thread holds at a fork stays locked in the child
    # for ever.
    found = _descriptors.setdefault(key, new)
    if found is not new:
        os.close(new)
    return found


def _length(iterable: Iterable[Any]) -> int | None:
    try:
        return len(iterable)  # type: ignore[arg-type]
    except TypeError:  # a generator, or a DataLoader over an IterableDataset
        return None


def _as_float(name: str, value: Any) -> float:
    if name in RESERVED:
        raise TypeError(
            f"log() got a metric named {name!r}, a column that every row has; rename it"
        )
    if set(getattr(value, "shape", ())) == {1}:
        value = value.reshape(())  # a tensor of one element, whatever its dimensions
    value = _scalar(value)
    if isinstance(value, (int, float)):
        return float(value)
    raise TypeError(
        f"log() got {name}={_describe(value)}; a metric is a number or a tensor of one element"
    )


def _as_json(key: str, value: Any) -> Any:
    """Return `value` in JSON's own types, or raise TypeError with the key and the type."""
    value = _scalar(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_as_json(f"{key}[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _as_json(f"{key}[{name!r}]", item) for name, item in value.items()}
    if len(getattr(value, "shape", ())) == 1 and len(value) <= MAX_LIST:
        return _as_json(key, value.tolist())
    raise TypeError(
        f"report() got {key}={_describe(value)}, which JSON cannot hold; pass numbers,"
        " strings, lists and dicts with string keys, and save what is larger to a file"
    )


def _scalar(value: Any) -> Any:
    """Return the Python number in a 0-d tensor or numpy scalar, and anything else as it is."""
    # Duck typing: asking torch or numpy would import them. Both have `shape` and `item`; Python's
    # numbers do not.
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    return f"a {kind}" if shape is None else f"a {kind} of shape {tuple(shape)}"


def _short(value: Any) -> str:
    if not isinstance(value, float):
        return value if isinstance(value, str) else json.dumps(value)
    return f"{value:.4g}" if not math.isfinite(value) or abs(value) < 1e4 else f"{value:.0f}"


def _new_lock_in_child() -> None:
    global _report_lock
    _report_lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork either
    os.register_at_fork(after_in_child=_new_lock_in_child)


if __name__ == "__main__":
    for example_step in progress(range(3), name="steps"):
        log(example_step, loss=1 / (example_step + 1))
    report(last_step=example_step)
