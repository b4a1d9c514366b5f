"""Warnings about unclosed sockets."""

from __future__ import annotations

import gc
import socket
import warnings
from typing import Any

import pytest


class Holder:
    """An object in a reference cycle, which only the garbage collector ends."""

    def __init__(self, held: Any) -> None:
        self.held = held
        self.itself = self


def test_warning_names_the_opener() -> None:
    Holder(socket.socket())
    with pytest.warns(
        ResourceWarning, match=r"unclosed .* opened in .*test_warning_names_the_opener .*\n.*test_open_socke"
    ):
        gc.collect()


def test_closed_sockets_are_not_reported() -> None:
    with socket.socket() as sock, socket.create_server(("127.0.0.1", 0)) as server:
        Holder(sock)
        Holder(server)
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        gc.collect()
    assert [each for each in recorded if each.category is ResourceWarning] == []


def test_sockets_of_libraries_are_closed_silently() -> None:
    opened: dict[str, Any] = {}
    exec(compile("import socket; made, peer = socket.socketpair()", "/lib/site-packages/other/net.py", "exec"), opened)
    Holder(opened.pop("made"))
    with opened.pop("peer") as peer, warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        gc.collect()
        peer.settimeout(120)
        assert peer.recv(1) == b""
    assert [each for each in recorded if each.category is ResourceWarning] == []
