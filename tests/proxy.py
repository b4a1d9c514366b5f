"""A faulty network: a proxy before brokers that truncates frames, resets connections and loses responses.

It parses frame sizes, API keys and correlation ids. The system of a client's pool redirects connections to the proxy,
so brokers need not advertise it::

    with Network(fault) as network:
        cluster = ClusterClient(settings, pool=network.pool())
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from enum import Enum, auto
from typing import TYPE_CHECKING, Self

from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.client.system import Address, RealSystem

if TYPE_CHECKING:
    from collections.abc import Callable

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 0, 22, 24, 26

_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


class Fault(Enum):
    """What happens to a request and its response."""

    PASS = auto()
    HALF_REQUEST = auto()
    """The broker receives half of it, then the connection is reset."""
    NO_RESPONSE = auto()
    """The broker handles the request, but the connection is reset before its response."""
    HALF_RESPONSE = auto()
    """The client receives half of the response, then the connection is reset."""
    LATE_REQUEST = auto()
    """The broker receives it, and the client no response, after ``Network.deliver_late_requests``."""


class Network:
    """Proxies before all brokers to which a client connects.

    Args:
        fault: Returns the fault for a request by its API key; called in threads of the proxies.

    Attributes:
        faults: How often each fault occurred.
        late_responses: To how many late requests brokers have responded.
    """

    def __init__(self, fault: Callable[[int], Fault]) -> None:
        self.faults: Counter[Fault] = Counter()
        self.late_responses = 0
        self._late_requests_due = threading.Event()
        self._fault = fault
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
        self._late_requests_due.set()

    def deliver_late_requests(self) -> None:
        self._late_requests_due.set()

    def pool(self) -> ConnectionPool:
        """Return a pool whose connections go through the network, and end with it."""
        self._pools.append(ConnectionPool(_ProxiedSystem(self)))
        return self._pools[-1]

    def port(self, host: str, port: int) -> int:
        """Return the port of the local proxy before a broker."""
        with self._lock:
            proxy = self._proxies.get((host, port))
            if proxy is None:
                proxy = self._proxies[host, port] = _Proxy((host, port), self)
        return proxy.port

    def decide(self, api_key: int) -> Fault:
        """Return the fault for a request."""
        with self._lock:
            fault = self._fault(api_key)
            self.faults[fault] += 1
        return fault

    def wait_for_late_requests(self) -> None:
        """Wait until late requests are due."""
        self._late_requests_due.wait()


class _ProxiedSystem(RealSystem):
    """The machine, but all connections go through the proxies."""

    __slots__ = ("_network",)

    def __init__(self, network: Network) -> None:
        self._network = network

    def connect_tcp(self, address: Address, seconds: float, receive_buffer: int, send_buffer: int) -> socket.socket:
        port = self._network.port(*address.address[:2])
        proxy = Address(socket.AF_INET, address.kind, address.protocol, ("127.0.0.1", port))
        return super().connect_tcp(proxy, seconds, receive_buffer, send_buffer)


class _Proxy:
    """Accepts the connections to one broker."""

    def __init__(self, broker: tuple[str, int], network: Network) -> None:
        self._broker = broker
        self._network = network
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._run(self._accept)

    def close(self) -> None:
        # Closing the socket does not wake a thread in accept().
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
                broker = socket.create_connection(self._broker, 120)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            connection = _ProxiedConnection(client, broker, self._network)
            self._run(connection.forward_requests)
            self._run(connection.forward_responses)


class _ProxiedConnection:
    """A client's connection, and its counterpart to the broker."""

    def __init__(self, client: socket.socket, broker: socket.socket, network: Network) -> None:
        self._client = client
        self._broker = broker
        self._network = network
        self._faults: dict[int, Fault] = {}

    def forward_requests(self) -> None:
        with contextlib.suppress(OSError):
            while (frame := _read_frame(self._client)) is not None:
                api_key, _, correlation_id = _REQUEST.unpack_from(frame, _SIZE.size)
                fault = self._faults[correlation_id] = self._network.decide(api_key)
                if fault is Fault.HALF_REQUEST:
                    self._broker.sendall(frame[: len(frame) // 2])
                    break
                if fault is Fault.LATE_REQUEST:
                    self._network.wait_for_late_requests()
                    self._broker.sendall(frame)
                    return  # the response ends the connection
                self._broker.sendall(frame)
        self._reset()

    def forward_responses(self) -> None:
        with contextlib.suppress(OSError):
            while (frame := _read_frame(self._broker)) is not None:
                fault = self._faults.pop(_SIZE.unpack_from(frame, _SIZE.size)[0])
                if fault is Fault.HALF_RESPONSE:
                    self._client.sendall(frame[: len(frame) // 2])
                self._network.late_responses += fault is Fault.LATE_REQUEST
                if fault is not Fault.PASS:
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
    """Return a complete frame with its size; None at the connection's end."""
    prefix = _read(sock, _SIZE.size)
    if prefix is None:
        return None
    body = _read(sock, _SIZE.unpack(prefix)[0])
    return None if body is None else prefix + body


def _read(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        received = sock.recv(size - len(data))
        if not received:
            return None
        data += received
    return bytes(data)
