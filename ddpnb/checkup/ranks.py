"""Do ranks start here, find each other and add? Checks that launch some."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ddpnb.checkup.check import Check
from ddpnb.checkup.here import Here, ask
from ddpnb.launchers.base import python
from ddpnb.run_list import readable_runs
from ddpnb.words import duration

__all__ = ["gloo", "judge_trial", "nccl"]

LAUNCH_SECONDS = 180.0
"""What a launch may take: two cold imports of torch, one after the other, on a slow disk."""
_LEAVE_SECONDS = 30.0
# What to try, by words of the error.
_ADVICE = (
    (
        "Unable to find address for",
        "unset GLOO_SOCKET_IFNAME: it names no interface of this machine",
    ),
    ("out of memory", "a GPU is full: wait, or choose others with CUDA_VISIBLE_DEVICES"),
    (
        "unhandled system error",
        "/dev/shm may be too small, or a container may keep GPUs apart; whether it works with"
        " NCCL_SHM_DISABLE=1 or NCCL_P2P_DISABLE=1 tells which",
    ),
    (
        "time limit",
        "a firewall or sandbox may swallow what the ranks send, or the disk is very slow",
    ),
)
_AGAIN = "torchrun --standalone --nproc-per-node {} -m ddpnb.checkup.reduce"


def gloo(here: Here) -> Check:
    """Check that two ranks on the CPU add a tensor."""
    if isinstance(here.torch, str):
        return Check("gloo", "skip", "needs torch")
    if not here.torch["gloo"]:
        found = "this torch was built without gloo"
        return Check("gloo", "fail", found, "install a build of torch from PyTorch's own pages")
    return judge_trial("gloo", 2, _launch(here, "cpu", 2))


def nccl(here: Here) -> Check:
    """Check that two ranks on two GPUs add a tensor; on a single GPU, one rank."""
    if isinstance(here.torch, str):
        return Check("nccl", "skip", "needs torch")
    gpus = here.torch["gpus"]
    if not here.visible or not gpus:
        return Check("nccl", "skip", "no GPU that torch can use; ranks talk through gloo")
    if not here.torch["nccl"]:
        found = "this torch was built without nccl, which ranks on GPUs talk through"
        fix = "install PyTorch's CUDA build for Linux; meanwhile use --device cpu"
        return Check("nccl", "fail", found, fix)
    ranks = min(2, len(gpus), len(here.visible))
    return judge_trial("nccl", ranks, _launch(here, "cuda", ranks))


def judge_trial(backend: str, ranks: int, told: dict[str, Any]) -> Check:
    """Return what a launch of this many ranks came to.

    Args:
        told: what `trial` printed.
    """
    many = f"{ranks} rank{'' if ranks == 1 else 's'}"
    if "error" in told:
        again = _AGAIN.format(ranks)
        if backend == "nccl":
            again = f"NCCL_DEBUG=INFO {again}"
        known = (advice for words, advice in _ADVICE if words in told["error"])
        hint = told["hint"] or next(known, "")
        fix = f"{hint}{'; ' if hint else ''}this shows all of it: {again}"
        return Check(backend, "fail", f"all_reduce on {many} failed: {told['error']}", fix)
    found = (
        f"{many} on {told['device'].partition(':')[0]} added 4 MiB in"
        f" {told['reduce_seconds'] * 1000:.1f} ms; the whole launch took"
        f" {told['seconds']:.1f} s"
    )
    if told["backend"] != backend:
        return Check(backend, "warn", f"{found}, but through {told['backend']}")
    if backend == "nccl" and ranks == 1:
        return Check(backend, "ok", f"{found} (one GPU: nothing went between GPUs)")
    return Check(backend, "ok", found)


def _launch(here: Here, device: str, ranks: int) -> dict[str, Any]:
    with _own_runs_folder() as runs:
        argv = [*python("ddpnb.checkup.trial"), device, str(ranks), f"{LAUNCH_SECONDS:g}"]
        begin = time.monotonic()
        environ = here.environ | {"DDPNB_RUNS": str(runs)}
        answer = ask(argv, LAUNCH_SECONDS + _LEAVE_SECONDS, environ)
        after = f"after {duration(time.monotonic() - begin)}"
    if answer.code != 0:
        return {"error": f"{answer.words} ({after})", "hint": ""}
    told: dict[str, Any] = json.loads(answer.out.splitlines()[-1])
    return told


@contextmanager
def _own_runs_folder() -> Iterator[Path]:
    """Give a folder for runs, and take it away when nothing of them lives any more."""
    with tempfile.TemporaryDirectory(prefix="ddpnb-doctor-", ignore_cleanup_errors=True) as place:
        runs = Path(place) / "runs"
        try:
            yield runs
        finally:
            deadline = time.monotonic() + _LEAVE_SECONDS
            while time.monotonic() < deadline and not _all_over(runs):
                time.sleep(0.1)


def _all_over(runs: Path) -> bool:
    return all(run.is_over() for run in readable_runs(runs))
