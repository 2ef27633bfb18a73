"""Ports that nobody else is given."""

import contextlib
import socket

from ddpnb.launchers.ports import hold_port, is_taken


def test_a_held_port_is_free_for_a_server_that_asks_for_it_by_number():
    with hold_port() as holder, socket.socket() as server:
        port = holder.getsockname()[1]
        assert not is_taken(port)

        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
        server.listen()

        assert is_taken(port)


def test_held_ports_are_not_given_to_anybody_else():
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(hold_port()).getsockname()[1] for _ in range(200)]
        asked = [stack.enter_context(socket.socket()) for _ in range(200)]
        for number, one in enumerate(asked):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, number % 2)
            one.bind(("", 0))

        assert len(set(held)) == 200
        assert not set(held) & {one.getsockname()[1] for one in asked}


def test_a_port_is_held_over_the_end_of_a_server():
    """Rank 0's store may come and go in one run."""
    with hold_port() as holder:
        port = holder.getsockname()[1]
        for _ in range(2):
            with socket.create_server(("127.0.0.1", port)):
                pass

        assert not is_taken(port)
