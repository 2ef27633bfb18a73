"""A lock among the processes of one machine, for what takes moments.

Held by a bound socket in Linux's abstract namespace: it leaves no file, the end of a process
releases it, and it works where a home on a network file system has no file locks. Nobody can
connect to it, for it does not listen.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator

__all__ = ["machine_lock"]

_POLL_SECONDS = 0.01

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def machine_lock(name: str, timeout: float = 10.0) -> Iterator[None]:
    """Hold a lock of this user, or go on without it after `timeout` seconds.

    Args:
        name: of what is locked.
    """
    if sys.platform != "linux":
        yield
        return
    address = f"\0ddpnb-{os.getuid()}-{name}"
    until = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as holder:
        while True:
            try:
                holder.bind(address)
                break
            except OSError as error:
                if time.monotonic() > until:
                    logger.warning("going on without the lock for %s: %s", name, error)
                    break
                time.sleep(_POLL_SECONDS)
        yield
