"""Rank side: what a training script may import, under torchrun, plain python or ddpnb.

Names are loaded when they are first used: the bootstrap lives in this package too, and must start
without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpnb.records import Worker
    from ddpnb.worker.collectives import mean
    from ddpnb.worker.context import ddp, print0
    from ddpnb.worker.data import digits, exact_shard
    from ddpnb.worker.events import log, progress, report

__all__ = ["Worker", "ddp", "digits", "exact_shard", "log", "mean", "print0", "progress", "report"]

_HOMES = {
    "Worker": "ddpnb.records",
    "ddp": "ddpnb.worker.context",
    "print0": "ddpnb.worker.context",
    "digits": "ddpnb.worker.data",
    "exact_shard": "ddpnb.worker.data",
    "log": "ddpnb.worker.events",
    "progress": "ddpnb.worker.events",
    "report": "ddpnb.worker.events",
    "mean": "ddpnb.worker.collectives",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ddpnb.worker' has no attribute {name!r}")
