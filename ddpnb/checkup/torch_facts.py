"""Print what torch says of itself, as JSON on the last line.

    python -P -m ddpnb.checkup.torch_facts

Run by the checks in a process of its own; nothing else imports this module. An exception ends it,
and its last words are then what is told.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["facts"]


def facts() -> dict[str, Any]:
    """Return versions, back ends, and what torch can do with the GPUs that it sees."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    there = dist.is_available()
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "cudnn": _cudnn_version() if torch.version.cuda else None,
        "distributed": there,
        "gloo": there and dist.is_gloo_available(),
        "nccl": _nccl_version() if there and dist.is_nccl_available() else None,
        "cuda_available": available,
        # Of a driver that is too old, is_available only warns.
        "cuda_words": [str(warning.message) for warning in caught],
        "archs": torch.cuda.get_arch_list() if available else [],
        "gpus": [_gpu(index) for index in range(torch.cuda.device_count() if available else 0)],
    }


def _cudnn_version() -> int | None:
    version: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return version


def _nccl_version() -> str:
    version: Any = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)


def _gpu(index: int) -> dict[str, Any]:
    major, minor = torch.cuda.get_device_capability(index)
    return {"name": torch.cuda.get_device_name(index), "capability": [major, minor]}


if __name__ == "__main__":
    print(json.dumps(facts()))
