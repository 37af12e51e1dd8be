"""A free port that stays free for the program that is told it."""

import socket


def reserve_port() -> socket.socket:
    """Returns a socket with a free loopback port, which nobody else gets by chance while the socket is open. Another
    one that allows it (SO_REUSEADDR) can bind the port and listen there, because this socket does not listen."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder
