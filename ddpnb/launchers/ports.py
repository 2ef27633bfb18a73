"""Ports of this machine: hold one that nobody else can get, and see whether one is taken."""

from __future__ import annotations

import socket

__all__ = ["hold_port", "is_taken"]

LOOPBACK = "127.0.0.1"


def hold_port() -> socket.socket:
    """Return a socket that holds a free port until it is closed; rank 0 can listen on it meanwhile.

    Closing a freshly bound socket would free the port at once for the next one who asks, long
    before rank 0 has imported torch. A bound one that does not listen keeps it: bind(0) and
    connections pass it over, while a server that asks for it by number and sets SO_REUSEADDR
    (torch's TCPStore does) gets it.
    """
    holder = socket.socket()
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((LOOPBACK, 0))
    except BaseException:
        holder.close()
        raise
    return holder


def is_taken(port: int) -> bool:
    """Return whether somebody listens on the port, on any address of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False
