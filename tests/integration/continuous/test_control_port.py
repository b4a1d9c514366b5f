"""A continuous query whose control port strangers connect to."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self

from tests.integration.topics import Admin
from tests.integration.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import MakeTopic
    from tests.integration.continuous.continuous_queries import Queries

    from pyspark_kafka_direct.continuous import ContinuousQuery

LOCALHOST = "127.0.0.1"
MANY = 500  # more connections than may wait for their handshake


class Strangers:
    """Opens connections as soon as the port is open; some are silent, the others send garbage."""

    def __init__(self, port: int) -> None:
        self.opened = 0
        self._port = port
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing.set()
        self._thread.join(600)

    def _run(self) -> None:
        with ExitStack() as sockets:
            while self.opened < MANY and not self._is_closing.is_set():
                time.sleep(0.001)
                with suppress(OSError):  # the port is not open yet
                    sock = sockets.enter_context(socket.create_connection((LOCALHOST, self._port), 20))
                    self.opened += 1
                    if self.opened % 3 == 0:
                        sock.sendall(b'{"type":"TaskHandshake","\n\x1b[31m":' + b"9" * 100)
            self._is_closing.wait()


def test_strangers_do_not_stop_a_query(queries: Queries, make_topic: MakeTopic) -> None:
    """The tasks connect, the port is closed, and the next run opens it again."""
    with socket.create_server((LOCALHOST, 0)) as free:
        port = free.getsockname()[1]
    source, output = make_topic(2), make_topic()
    queries.put(source, range(20))
    with Strangers(port) as strangers:
        query = queries.copy(source, output, controlPort=port, tasksMax=2)
        queries.expect(output, range(20), query)
        assert strangers.opened  # fewer than MANY if the tasks were faster
    _expect_closed(port)
    Admin(queries.bench.bootstrap_servers).grow(source, 3)
    with Strangers(port):
        queries.put(source, range(20, 40))
        queries.expect(output, range(40), query)
        wait_until(lambda: _partitions(query, source) == {"0", "1", "2"}, "a run with the new partition")
    _expect_closed(port)
    query.stop()
    assert query.exception() is None


def _partitions(query: ContinuousQuery, topic: str) -> set[str]:
    """Return the partitions of the last epoch."""
    assert (error := query.exception()) is None, error
    progress = query.lastProgress
    return set() if progress is None else set(progress["sources"][0]["endOffset"].get(topic, {}))


def _expect_closed(port: int) -> None:
    """Wait until the port is closed: the driver closes it soon after the last handshake."""

    def is_closed() -> bool:
        try:
            socket.create_connection((LOCALHOST, port), 20).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_until(is_closed, "the end of the control port")
