"""Connections between simulated processes: listeners, and sockets that carry bytes in order with a latency."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.network import Network
    from tests.simulation.process import SimulatedProcess

_FIRST_PORT = 40_000
_PARTIAL_SENDS = 0.02  # the share of calls of ``send`` that take a part of the data


class PeerNetwork:
    """All listeners of a network, and the connections to them."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.world = network.world
        self.sockets: list[PeerSocket] = []  # both ends of all connections
        self.rng = network.world.rng("peers")
        self.on_listen: Callable[[PeerListener], None] = lambda _: None
        self._listeners: dict[tuple[str, int], PeerListener] = {}
        self._ports = 0

    def listen(self, process: SimulatedProcess, host: str, port: int) -> PeerListener:
        if port == 0:
            self._ports += 1
            port = _FIRST_PORT + self._ports
        if (host, port) in self._listeners:
            raise OSError(98, "Address already in use")
        listener = self._listeners[host, port] = PeerListener(self, process, host, port)
        self.on_listen(listener)
        return listener

    def find_listener(self, address: tuple[str, int]) -> PeerListener | None:
        return self._listeners.get(address)

    def connect(self, process: SimulatedProcess, listener: PeerListener, latency: float) -> PeerSocket:
        """Connect to a listener; the operating system of a paused process accepts connections, too."""
        self.world.block("a connect", latency)
        if listener.closed:
            raise ConnectionRefusedError(111, "Connection refused")
        client, server = PeerSocket(self, process), PeerSocket(self, listener.process)
        client.peer, server.peer = server, client
        self.sockets += [client, server]
        listener.pending.append(server)
        self.network.wake_waiting(listener.descriptor)
        self.world.trace("connected", process.name, listener.process.name)
        return client

    def open_sockets(self, process: SimulatedProcess) -> list[str]:
        """Describe the listeners and connections that a process has not closed."""
        listeners = [f"listener {each.port}" for each in self._listeners.values() if each.process is process]
        connections = sum(each.process is process and not each.closed for each in self.sockets)
        return [*listeners, *([f"{connections} connections"] if connections else [])]

    def reset_process(self, process: SimulatedProcess) -> None:
        """Close everything that a dead process had open."""
        for listener in [each for each in self._listeners.values() if each.process is process]:
            self.remove(listener)
        for each in self.sockets:
            if each.process is process:
                each.end()

    def remove(self, listener: PeerListener) -> None:
        listener.closed = True
        self._listeners.pop((listener.host, listener.port), None)
        for each in listener.pending:
            each.end()
        listener.pending.clear()


class PeerListener:
    """A non-blocking socket that listens, with the methods of ``socket.socket`` that the package calls."""

    def __init__(self, peers: PeerNetwork, process: SimulatedProcess, host: str, port: int) -> None:
        self.process = process
        self.host = host
        self.port = port
        self.closed = False
        self.pending: deque[PeerSocket] = deque()
        self.descriptor = peers.network.add_descriptor(lambda: bool(self.pending))
        self._peers = peers

    def fileno(self) -> int:
        return -1 if self.closed else self.descriptor

    def getsockname(self) -> tuple[str, int]:
        return (self.host, self.port)

    def accept(self) -> tuple[PeerSocket, tuple[str, int]]:
        self._peers.world.checkpoint()
        if not self.pending:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        accepted = self.pending.popleft()
        assert accepted.peer is not None
        return accepted, (accepted.peer.process.address, 50_000)

    def close(self) -> None:
        if not self.closed and not self.process.dead:
            self._peers.remove(self)
            self._peers.network.remove_descriptor(self.descriptor)


class PeerSocket:
    """One end of a connection between two processes; never blocks."""

    def __init__(self, peers: PeerNetwork, process: SimulatedProcess) -> None:
        self.process = process
        self.peer: PeerSocket | None = None
        self.closed = False
        self.sent_all = False  # by shutdown()
        self._peers = peers
        self._received = bytearray()
        self._ended = False  # the other end was closed
        self._last_arrival = 0.0
        self._descriptor = peers.network.add_descriptor(lambda: bool(self._received) or self._ended)

    def fileno(self) -> int:
        return -1 if self.closed else self._descriptor

    def setblocking(self, blocking: bool) -> None:
        assert not blocking

    def setsockopt(self, *_: Any) -> None:
        pass

    def recv(self, size: int) -> bytes:
        self._peers.world.checkpoint()
        if self.closed:
            raise OSError(9, "Bad file descriptor")
        if self._received:
            data = bytes(self._received[:size])
            del self._received[:size]
            return data
        if self._ended:
            return b""
        raise BlockingIOError(11, "Resource temporarily unavailable")

    def send(self, data: bytes | bytearray) -> int:
        self._peers.world.checkpoint()
        if self.closed:
            raise OSError(9, "Bad file descriptor")
        peer = self.peer
        if peer is None or peer.closed or self.sent_all:
            raise BrokenPipeError(32, "Broken pipe")
        rng = self._peers.rng
        size = rng.randrange(1, len(data)) if len(data) > 1 and rng.random() < _PARTIAL_SENDS else len(data)
        self._peers.world.at(self._arrival(), peer.receive, bytes(data[:size]))
        return size

    def shutdown(self, _: int) -> None:
        """Send nothing any more; the other end notices it, and this one still receives."""
        if not self.closed and not self.sent_all:
            self.sent_all = True
            if self.peer is not None:
                self._peers.world.at(self._arrival(), self.peer.receive, b"")

    def close(self) -> None:
        if not self.closed and not self.process.dead:
            self.end()
            self._peers.network.remove_descriptor(self._descriptor)

    def end(self) -> None:
        """Close this end; the other one notices it after everything that was sent before."""
        if not self.closed:
            self.closed = True
            if self.peer is not None:
                self._peers.world.at(self._arrival(), self.peer.receive, b"")

    def cut(self) -> None:
        """Lose the connection: both ends notice it."""
        for each in (self, self.peer):
            if each is not None:
                each.receive(b"")

    def receive(self, data: bytes) -> None:
        if not self.closed and not self._ended:
            self._received += data
            self._ended = not data
            self._peers.network.wake_waiting(self._descriptor)

    def _arrival(self) -> float:
        self._last_arrival = max(self._last_arrival, self._peers.world.now + self._peers.network.latency())
        return self._last_arrival
