"""What is said of a socket that nobody closes."""

from __future__ import annotations

import gc
import socket
import warnings
from typing import Any

import pytest


class Holder:
    """Something that only the collector ends."""

    def __init__(self, held: Any) -> None:
        self.held = held
        self.itself = self


def test_who_opened_it_is_told() -> None:
    Holder(socket.socket())
    with pytest.warns(
        ResourceWarning, match=r"unclosed .* opened in .*test_who_opened_it_is_told .*\n.*test_open_socke"
    ):
        gc.collect()


def test_one_that_is_closed_is_nobodys_trouble() -> None:
    with socket.socket() as sock, socket.create_server(("127.0.0.1", 0)) as server:
        Holder(sock)
        Holder(server)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gc.collect()
    assert [each for each in told if each.category is ResourceWarning] == []


def test_others_sockets_are_closed_silently() -> None:
    opened: dict[str, Any] = {}
    exec(compile("import socket; made, peer = socket.socketpair()", "/lib/site-packages/other/net.py", "exec"), opened)
    Holder(opened.pop("made"))
    with opened.pop("peer") as peer, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gc.collect()
        peer.settimeout(20)
        assert peer.recv(1) == b""
    assert [each for each in told if each.category is ResourceWarning] == []
