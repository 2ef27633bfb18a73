"""Ports of this machine: find one that nobody else will be given, and see whether one is taken."""

from __future__ import annotations

import socket

__all__ = ["is_taken", "reserve_port"]

LOOPBACK = "127.0.0.1"


def reserve_port() -> int:
    """Return a port that nobody else is given for about a minute, yet a rank can listen on.

    Closing a freshly bound socket would free the port at once for the next one who asks, long
    before rank 0 has imported torch. A finished connection leaves it in TIME_WAIT instead: bind(0)
    passes it over, while a server that asks for it by number and sets SO_REUSEADDR (torch's
    TCPStore does) gets it.
    """
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((LOOPBACK, 0))
        server.listen(1)
        port = int(server.getsockname()[1])
        with socket.create_connection((LOOPBACK, port)) as client:
            accepted, _ = server.accept()
            # The side that closes first keeps the TIME_WAIT, and it must be the port's.
            accepted.close()
            client.recv(1)
    return port


def is_taken(port: int) -> bool:
    """Return whether somebody listens on the port, on any address of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False
