"""Connections that groups have left open are ended, and no others."""

from __future__ import annotations

import socket

from saturn.rank.connections import Connections


def test_what_was_opened_within_is_ended_and_what_listens_is_left() -> None:
    connections = Connections()
    with socket.create_server(("127.0.0.1", 0)) as before:
        theirs = socket.create_connection(before.getsockname())
        ours, _ = before.accept()
        with connections.noted():
            listener = socket.create_server(("127.0.0.1", 0))
            opened = socket.create_connection(listener.getsockname())
            peer, _ = listener.accept()
            gone = socket.create_connection(listener.getsockname())
        gone.close()
        connections.shut_down()
        assert peer.recv(1) == b"", "the peer sees that the connection has ended"
        theirs.sendall(b"x")
        assert ours.recv(1) == b"x", "another connection goes on"
        with listener, socket.create_connection(listener.getsockname()):
            pass
        for one in (theirs, ours, opened, peer):
            one.close()
