"""Ports that nobody else is given."""

import socket

from ddpnb.launchers.ports import is_taken, reserve_port


def test_reserve_port_gives_a_port_that_a_server_can_have_and_bind_0_does_not():
    port = reserve_port()

    assert not is_taken(port)
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
        server.listen()
        assert is_taken(port)


def test_reserve_port_never_gives_the_same_port_twice():
    ports = [reserve_port() for _ in range(200)]

    assert len(set(ports)) == 200
