"""An unclean network: a proxy before brokers that cuts frames in half, resets connections and loses answers.

It knows frames, and of a request its API key and correlation id, nothing more. A client is led through it by the system
of its pool, so that brokers need not advertise it::

    with Network(fate) as network:
        cluster = Cluster(settings, pool=network.pool())
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from enum import Enum, auto
from typing import TYPE_CHECKING, Self

from pyspark_kafka_direct.wire.pool import ConnectionPool
from pyspark_kafka_direct.wire.system import Address, RealSystem

if TYPE_CHECKING:
    from collections.abc import Callable

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 0, 22, 24, 26

_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


class Fate(Enum):
    """What becomes of a request and its answer."""

    PASS = auto()
    HALF_REQUEST = auto()
    """The broker gets half of it, then the connection is reset."""
    NO_ANSWER = auto()
    """The broker has done what was asked, but the connection is reset before its answer."""
    HALF_ANSWER = auto()
    """The client gets half of the answer, then the connection is reset."""


class Network:
    """Proxies before all brokers that a client dials.

    Args:
        fate: Decides by the API key of each request what becomes of it; called in threads of the proxies.

    Attributes:
        fates: How often each fate struck.
    """

    def __init__(self, fate: Callable[[int], Fate]) -> None:
        self.fates: Counter[Fate] = Counter()
        self._fate = fate
        self._proxies: dict[tuple[str, int], _Proxy] = {}
        self._lock = threading.Lock()
        self._pools: list[ConnectionPool] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools:
            pool.close()
        for proxy in self._proxies.values():
            proxy.close()

    def pool(self) -> ConnectionPool:
        """A pool whose connections go through the network, and end with it."""
        self._pools.append(ConnectionPool(_Detour(self)))
        return self._pools[-1]

    def port(self, host: str, port: int) -> int:
        """The port of the proxy, on this machine, before a broker."""
        with self._lock:
            proxy = self._proxies.get((host, port))
            if proxy is None:
                proxy = self._proxies[host, port] = _Proxy((host, port), self._decide)
        return proxy.port

    def _decide(self, api_key: int) -> Fate:
        with self._lock:
            fate = self._fate(api_key)
            self.fates[fate] += 1
        return fate


class _Detour(RealSystem):
    """The machine, but all connections lead through the network."""

    __slots__ = ("_network",)

    def __init__(self, network: Network) -> None:
        self._network = network

    def dial(self, address: Address, seconds: float, receive_buffer: int, send_buffer: int) -> socket.socket:
        port = self._network.port(*address.address[:2])
        proxy = Address(socket.AF_INET, address.kind, address.protocol, ("127.0.0.1", port))
        return super().dial(proxy, seconds, receive_buffer, send_buffer)


class _Proxy:
    """Listens for the connections to one broker."""

    def __init__(self, broker: tuple[str, int], decide: Callable[[int], Fate]) -> None:
        self._broker = broker
        self._decide = decide
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._run(self._accept)

    def close(self) -> None:
        # Closing alone would leave a thread in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self, run: Callable[[], None]) -> None:
        threading.Thread(target=run, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._broker, 10)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            line = _Line(client, broker, self._decide)
            self._run(line.carry_requests)
            self._run(line.carry_answers)


class _Line:
    """One connection of a client, and the one with the broker behind it."""

    def __init__(self, client: socket.socket, broker: socket.socket, decide: Callable[[int], Fate]) -> None:
        self._client = client
        self._broker = broker
        self._decide = decide
        self._fates: dict[int, Fate] = {}

    def carry_requests(self) -> None:
        with contextlib.suppress(OSError):
            while (frame := _read_frame(self._client)) is not None:
                api_key, _, correlation_id = _REQUEST.unpack_from(frame, _SIZE.size)
                fate = self._fates[correlation_id] = self._decide(api_key)
                if fate is Fate.HALF_REQUEST:
                    self._broker.sendall(frame[: len(frame) // 2])
                    break
                self._broker.sendall(frame)
        self._reset()

    def carry_answers(self) -> None:
        with contextlib.suppress(OSError):
            while (frame := _read_frame(self._broker)) is not None:
                fate = self._fates.pop(_SIZE.unpack_from(frame, _SIZE.size)[0])
                if fate is Fate.HALF_ANSWER:
                    self._client.sendall(frame[: len(frame) // 2])
                if fate is not Fate.PASS:
                    break
                self._client.sendall(frame)
        self._reset()

    def _reset(self) -> None:
        for each in (self._client, self._broker):
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _read_frame(sock: socket.socket) -> bytes | None:
    """A whole frame with its size; None at the connection's end."""
    prefix = _read(sock, _SIZE.size)
    if prefix is None:
        return None
    body = _read(sock, _SIZE.unpack(prefix)[0])
    return None if body is None else prefix + body


def _read(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        some = sock.recv(size - len(data))
        if not some:
            return None
        data += some
    return bytes(data)
