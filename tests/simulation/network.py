"""Connections between simulated processes and brokers: latency, order, and faults of single requests.

A broker handles the requests of a connection one after the other, as Kafka does: the next one is read when the response
to the last one was sent. Requests of different connections overtake each other, because each has its own latency.
"""

from __future__ import annotations

import math
import struct
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.replies import Delayed
from tests.simulation.errors import ProcessKilled
from tests.simulation.faults import (
    CHANGES,
    PARTITION_ERRORS,
    RequestFault,
    error_response,
    lacking_topics,
    partition_error_response,
    without_leaders,
    without_topics,
)
from tests.simulation.peer_sockets import PeerNetwork
from tests.simulation.storms import is_in_vain
from tests.simulation.wire import api_of_frame, decode_request, encode_response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.cluster.broker import SimulatedBroker
    from tests.simulation.peer_sockets import PeerSocket
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scheduler import Task, World
    from tests.simulation.wire import ReceivedRequest

_SIZE = struct.Struct(">i")
_MIN_LATENCY = 0.0002  # seconds, one way
_MAX_LATENCY = 0.003
_UNRECORDED = frozenset(CHANGES)  # the change of the cluster is recorded itself
_TIMEOUT_SECONDS = 0.9  # without a response, after which a client closes a connection because of a timeout
_REUSE_SECONDS = 0.1
_CONTAINERS = frozenset((dict, list, tuple))  # of values by name, or of elements of one type
_PARALLEL_APIS = frozenset(("ApiVersions", "Metadata", "ListOffsets", "Fetch", "Produce"))  # may be given up earlier
_OF_SENDER = ("crash_before_request", "pause_before_request")


class Network:
    """All connections of a world, and their descriptors."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.brokers: dict[tuple[str, int], SimulatedBroker] = {}  # by host and port; the cluster fills it
        self.request_faults: dict[int, RequestFault] = {}  # by the number of the request in the history
        self.aimed_faults: dict[tuple[str, int], RequestFault] = {}  # by API, or role of processes and API, and number
        self.lasting_faults: dict[tuple[SimulatedProcess, str], RequestFault] = {}  # of a process's requests of an API
        self.following_faults: dict[SimulatedProcess, list[RequestFault]] = {}  # of the next requests of a process
        self.faults_end = math.inf  # quotas end then
        self.connect_faults: dict[int, RequestFault] = {}  # by the number of the connect
        self.sent_requests: list[tuple[str, str]] = []  # process and API of each request
        self.on_change: Callable[[Mapping[str, Any]], None] = _ignore  # applies a change of the cluster
        self.on_pause: Callable[[SimulatedProcess], None] = _ignore  # before a fault pauses a process
        self.mixed_client_ids: list[str] = []  # connections that were used with the settings of two users
        self.late_reuses: list[str] = []  # of connections that were idle when another one to the broker timed out
        self.longest_idle = 0.0  # seconds for which a connection was not used before its next request
        self.sent_codes: set[int] = set()  # of errors that brokers have responded with
        self.abandoned_requests: list[str] = []  # APIs of requests whose connection was closed before a response
        self.on_request: Callable[[ReceivedRequest], None] = _ignore  # what a scenario checks of each request
        self.on_response: Callable[[int, str, Mapping[str, Any]], Mapping[str, Any]] = _same  # may change a response
        self.on_send: Callable[[int, int, int, str, bytes], None] = _ignore_all  # number, connection, broker, API
        self.on_answer: Callable[[int, str, Mapping[str, Any], str | None], None] = _ignore_all  # to a request's number
        self.on_connect: Callable[[float], None] = _ignore  # is called with the time that a connect may take
        self.silent_addresses: set[str] = set()  # of hosts with several addresses: nothing responds there
        self.on_resolve: Callable[[str, int], list[str]] = _only_address  # returns the addresses of a host
        self.connect_count = 0
        self.peers = PeerNetwork(self)
        self._rng = world.rng("network")
        self._timed_out_at: dict[tuple[SimulatedProcess, int], float] = {}  # by broker
        self._counts: Counter[str] = Counter()  # of requests, by API
        self._next_descriptor = 3
        self._readable: dict[int, Callable[[], bool]] = {}
        self._waiting: dict[int, list[Task]] = {}
        self._connections: list[_Connection] = []
        self._delayed: list[_DelayedResponse] = []
        self._late_frames: dict[
            int | tuple[str, int], list[Callable[[], None]]
        ] = {}  # by the request that they precede

    # Descriptors.

    def add_descriptor(self, is_readable: Callable[[], bool]) -> int:
        self._next_descriptor += 1
        self._readable[self._next_descriptor] = is_readable
        self._waiting[self._next_descriptor] = []
        return self._next_descriptor

    def remove_descriptor(self, descriptor: int) -> None:
        self._readable.pop(descriptor, None)
        self.wake_waiting(descriptor)

    def is_readable(self, descriptor: int) -> bool:
        is_readable = self._readable.get(descriptor)
        return True if is_readable is None else is_readable()  # a closed descriptor is ready at once

    def waiting_tasks(self, descriptor: int) -> list[Task]:
        return self._waiting.setdefault(descriptor, [])

    def wake_waiting(self, descriptor: int) -> None:
        for task in tuple(self._waiting.get(descriptor, ())):
            self.world.wake(task)

    # Connections.

    def connect(
        self, process: SimulatedProcess, address: tuple[str, int], seconds: float
    ) -> SimulatedSocket | PeerSocket:
        """Connect within some seconds, or raise the error of the operating system."""
        world = self.world
        listener = self.peers.find_listener(address)
        if listener is not None:
            return self.peers.connect(process, listener, 2 * self.latency())
        self.on_connect(seconds)
        number = self.connect_count
        self.connect_count += 1
        fault = self.connect_faults.get(number)
        broker = self.brokers.get(address)
        if fault is not None:
            world.record_fault(fault.kind, "connect", process)
        if broker is not None and broker.paused and fault is None:
            # The operating system of a stopped process still accepts connections.
            world.block("a connect", self.latency())
        elif address[0] in self.silent_addresses or (fault is not None and fault.kind == "stall_connect"):
            world.block("a connect that gets no response", seconds)
            raise TimeoutError("timed out")
        else:
            world.block("a connect", 2 * self.latency())
        if broker is None or not broker.accepts_connections or (fault is not None and fault.kind == "refuse_connect"):
            world.trace("refused", process.name, address[0])
            world.storms.note(process.name, address[0], "a connect", world.now)
            raise ConnectionRefusedError(111, "Connection refused")
        connection = _Connection(self, process, broker, number)
        self._connections.append(connection)
        world.trace("connected", process.name, broker.id, number)
        return connection.socket

    def open_connections(self, process: SimulatedProcess) -> Counter[tuple[str, int]]:
        """Return how many connections of a process are open on its side, by client id and broker."""
        return Counter(
            (each.client_id, each.broker.id)
            for each in self._connections
            if each.process is process and not each.socket.closed
        )

    def reset_process(self, process: SimulatedProcess) -> None:
        for connection in self._connections:
            if connection.process is process:
                connection.socket.closed = True
                connection.broker_closed = True
        self.peers.reset_process(process)

    def reset_broker(self, broker: SimulatedBroker) -> None:
        """Reset all connections to a broker that goes down."""
        for connection in self._connections:
            if connection.broker is broker:
                connection.reset("broker down")

    def resume_broker(self, broker: SimulatedBroker) -> None:
        """Handle the requests that arrived while a broker was paused."""
        for connection in tuple(self._connections):
            if connection.broker is broker:
                connection.process_next()
        self.cluster_changed()

    def cluster_changed(self) -> None:
        """Poll all delayed responses."""
        for delayed in tuple(self._delayed):
            delayed.poll()

    def next_fault(self, number: int, api: str, process: SimulatedProcess) -> RequestFault | None:
        """Return the fault of a request that a process sends now."""
        fault = self.request_faults.get(number)
        for name in (api, f"{process.name.partition('-')[0]}:{api}"):
            fault = fault or self.aimed_faults.get((name, self._counts[name]))
            self._counts[name] += 1
        following = self.following_faults.get(process)
        if fault is None and following:
            return following.pop()
        fault = fault or self.lasting_faults.get((process, api))
        if fault is not None and "following" in fault.arguments:
            kind, count = fault.arguments["following"]
            self.following_faults[process] = [RequestFault(kind)] * count
        return fault

    def place_of(self, late: RequestFault) -> int | tuple[str, int]:
        """Return the request that a late one precedes: its number in the history, or its API and number."""
        if "before_next" not in late.arguments:
            number: int = late.arguments["before_request"]
            return number
        api, number = late.arguments["before_next"]
        return api, self._counts[api] + number

    def aim_at_next(self, api: str, number: int, fault: RequestFault) -> None:
        """Let a fault happen to a later request of a kind; 0 is the next one."""
        self.aimed_faults[api, self._counts[api] + number] = fault

    def latency(self) -> float:
        return _MIN_LATENCY + (_MAX_LATENCY - _MIN_LATENCY) * self._rng.random() ** 3


class SimulatedSocket:
    """The client's side of a connection, with the methods of ``socket.socket`` that the package calls."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._timeout: float | None = None
        self._descriptor = connection.network.add_descriptor(self._is_readable)
        self.received = bytearray()
        self.ended = False  # the broker closed the connection in order
        self.was_reset = False
        self.closed = False

    def fileno(self) -> int:
        return -1 if self.closed else self._descriptor

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def getpeername(self) -> tuple[str, int]:
        return (f"broker-{self._connection.broker.id}", 9092)

    def sendall(self, data: bytes | bytearray) -> None:
        self._connection.process.world.checkpoint()
        if self.closed:
            raise OSError(9, "Bad file descriptor")
        if self.was_reset:
            raise ConnectionResetError(104, "Connection reset by peer")
        self._connection.send(bytes(data))

    def recv_into(self, view: memoryview) -> int:
        world = self._connection.process.world
        world.checkpoint()
        if self.closed:
            raise OSError(9, "Bad file descriptor")
        if not self._is_readable() and self._timeout != 0.0:
            self._connection.process.wait_ready((self._descriptor,), (), self._timeout or 1e9)
            if not self._is_readable():
                raise TimeoutError("timed out")
        if self.received:
            count = min(len(view), len(self.received))
            view[:count] = self.received[:count]
            del self.received[:count]
            self._connection.note_read()
            return count
        if self.was_reset:
            raise ConnectionResetError(104, "Connection reset by peer")
        if self.ended:
            return 0
        raise BlockingIOError(11, "Resource temporarily unavailable")

    def close(self) -> None:
        if not self.closed and not self._connection.process.dead:
            self.closed = True
            self._connection.network.remove_descriptor(self._descriptor)
            self._connection.closed_by_client()

    def wake(self) -> None:
        self._connection.network.wake_waiting(self._descriptor)

    def _is_readable(self) -> bool:
        return bool(self.received) or self.ended or self.was_reset


class _Connection:
    """One connection: its requests on the way, and the one that the broker handles."""

    def __init__(self, network: Network, process: SimulatedProcess, broker: SimulatedBroker, number: int) -> None:
        self.network = network
        self.process = process
        self.broker = broker
        self.number = number
        self.client_id = ""  # of its requests; empty before the first one
        self.socket = SimulatedSocket(self)
        self.broker_closed = False  # the broker handles no more requests of this connection
        self._stalled = False  # nothing passes any more, and neither side notices
        self._lost = False  # a part of what the broker sent; the connection is reset soon, and nothing more arrives
        self._unsent = bytearray()  # of an incomplete frame
        self._arrived: deque[tuple[int, bytes, RequestFault | None]] = deque()
        self._busy = False
        self._last_arrival = 0.0
        self._last_delivery = 0.0
        self._muted_until = 0.0  # by a quota (KIP-219)
        self._is_answered = True  # at least in part
        self._last_api = ""
        self._used_at = 0.0  # when a request was sent, or a part of a response arrived or was read

    def send(self, data: bytes) -> None:
        """Send bytes; a complete frame is a request, which may have a fault."""
        self._unsent += data
        while len(self._unsent) >= 4:
            size = 4 + _SIZE.unpack_from(self._unsent)[0]
            if len(self._unsent) < size:
                return
            frame = bytes(self._unsent[:size])
            del self._unsent[:size]
            self._send_frame(frame)

    def reset(self, reason: str) -> None:
        """Reset the connection from the broker's side or the network."""
        if not self.socket.was_reset:
            self.network.world.trace("reset", self.process.name, self.broker.id, self.number, reason)
            self.broker_closed = True
            self.socket.was_reset = True
            self.socket.wake()

    def closed_by_client(self) -> None:
        # Requests that have arrived, or are on their way, are still handled: the broker notices the end afterwards.
        now = self.network.world.now
        self.network.world.trace("closed", self.process.name, self.broker.id, self.number)
        if not self._is_answered and not self.socket.was_reset:
            self.network.abandoned_requests.append(self._last_api)
        is_late = not self._is_answered and now >= self._used_at + _TIMEOUT_SECONDS
        if is_late and self._last_api not in _PARALLEL_APIS and not self.socket.was_reset:
            self.network._timed_out_at[self.process, self.broker.id] = now

    def process_next(self) -> None:
        """Let the broker handle the next request, if it is idle."""
        world = self.network.world
        if self._busy or not self._arrived or self.broker.paused:
            return
        if self.broker_closed or not self.broker.accepts_connections:
            self._arrived.clear()
            return
        if world.now < self._muted_until:
            self._busy = True
            world.at(self._muted_until, self._resume)
            return
        self._busy = True
        number, frame, fault = self._arrived.popleft()
        self.handle(number, frame, fault)

    def handle(self, number: int, frame: bytes, fault: RequestFault | None) -> None:
        world = self.network.world
        request = decode_request(frame, world.codec)
        self._check_client_id(request.client_id)
        self.network.on_request(request)
        world.trace("request", number, self.process.name, self.broker.id, request.api, request.version)
        if fault is not None and fault.kind == "error":
            is_handled = bool(fault.arguments.get("is_handled"))
            values = self._error_response(request, fault.arguments)
            if values is not None:
                world.record_fault("error", request.api, self.process)
                if is_handled:
                    self.broker.handle(request.api, request.version, request.values, request.client_id)
                self._respond(number, request, values, fault)
                return
        reply = self.broker.handle(request.api, request.version, request.values, request.client_id)
        if reply is None:
            self._finish()
        elif isinstance(reply, Delayed):
            _DelayedResponse(self, number, request, fault, reply)
        else:
            self._respond(number, request, reply, fault)

    def _error_response(self, request: ReceivedRequest, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if request.api == "Metadata":
            metadata = self.broker.handle("Metadata", request.version, request.values, request.client_id)
            if not isinstance(metadata, dict):
                return None
            if arguments.get("lacks_topics"):
                return lacking_topics(metadata)
            return without_topics(metadata) if arguments.get("of_topics") else without_leaders(metadata)
        response = None
        if "partition" in arguments and request.api in PARTITION_ERRORS and self.network.world.codec == "tables":

            def handle(values: Any) -> Any:
                return self.broker.handle(request.api, request.version, values, request.client_id)

            response = partition_error_response(request.api, request.values, arguments, handle)
        return response or error_response(request.api, request.version, request.values, arguments)

    def _send_frame(self, frame: bytes) -> None:
        network, world = self.network, self.network.world
        number = world.request_count
        world.request_count += 1
        api = api_of_frame(frame)
        network.sent_requests.append((self.process.name, api))
        network.on_send(number, self.number, self.broker.id, api, frame)
        timed_out_at = network._timed_out_at.get((self.process, self.broker.id), -1.0)
        if self._used_at < timed_out_at < world.now - _REUSE_SECONDS and self._is_answered and self._used_at:
            network.late_reuses.append(
                f"connection {self.number} to broker {self.broker.id} was idle since {self._used_at:.3f}, is used at "
                f"{world.now:.3f}, and another one timed out at {timed_out_at:.3f}"
            )
        if self._is_answered and self._used_at:
            network.longest_idle = max(network.longest_idle, world.now - self._used_at)
        self._is_answered = False
        self._last_api = api
        self._used_at = world.now
        fault = network.next_fault(number, api, self.process)
        occurrence = (api, network._counts[api] - 1)
        for handle in (*network._late_frames.pop(number, ()), *network._late_frames.pop(occurrence, ())):
            handle()
        if fault is not None:
            world.trace("fault", number, fault.kind, api)
            # What happens to a request that never arrives has no effect, except on its process. The broker has an error
            # only for some requests, and may not respond, so that the process does not crash.
            is_recorded = fault.kind not in _UNRECORDED
            if fault.kind in _OF_SENDER or (
                is_recorded and not (self._stalled or fault.kind in ("error", "crash_after_request"))
            ):
                world.record_fault(fault.kind, api, self.process)
        if fault is not None and fault.kind in CHANGES:
            network.on_change(fault.arguments)
        if fault is not None and fault.kind == "pause_before_request":
            network.on_pause(self.process)
            world.block("the end of a pause", fault.arguments["seconds"])
        if fault is not None and fault.kind == "crash_before_request":
            self.process.kill()
            raise ProcessKilled
        if self._stalled:
            return
        arrival = self._last_arrival = max(self._last_arrival, world.now + network.latency())
        match None if fault is None else fault.kind:
            case "lose_request":
                world.at(arrival, self.reset, "request lost")
            case "stall_request":
                self._stalled = True
            case "late_request" | "late_stalled_request" if fault is not None:
                self._stalled = True
                if fault.kind == "late_request":
                    world.at(arrival, self.reset, "request late")
                if "before_request" in fault.arguments or "before_next" in fault.arguments:
                    late_frames = network._late_frames.setdefault(network.place_of(fault), [])
                    late_frames.append(lambda: self._handle_late(number, frame))
                else:
                    world.after(fault.arguments["seconds"], self._handle_late, number, frame)
            case _:
                world.at(arrival, self._arrive, number, frame, fault)

    def _check_client_id(self, client_id: str) -> None:
        if self.client_id not in ("", client_id):
            self.network.mixed_client_ids.append(f"connection {self.number} of {self.client_id} is used by {client_id}")
        self.client_id = client_id

    def _arrive(self, number: int, frame: bytes, fault: RequestFault | None) -> None:
        if not self.broker_closed:
            self._arrived.append((number, frame, fault))
            self.process_next()

    def _handle_late(self, number: int, frame: bytes) -> None:
        if not self.broker.accepts_connections or self.broker.paused:
            return
        request = decode_request(frame, self.network.world.codec)
        self.network.on_request(request)
        self.network.world.trace("late request", number, self.process.name, self.broker.id, request.api)
        self.broker.handle(request.api, request.version, request.values, request.client_id)

    def _resume(self) -> None:
        self._busy = False
        self.process_next()

    def _respond(
        self, number: int, request: ReceivedRequest, values: Mapping[str, Any], fault: RequestFault | None
    ) -> None:
        world = self.network.world
        values = self.network.on_response(self.broker.id, request.api, values)
        kind = None if fault is None else fault.kind
        if fault is not None and kind == "throttle":
            values = {**values, "throttle_time_ms": fault.arguments["ms"]}
        throttle_ms = values.get("throttle_time_ms", 0)
        if throttle_ms > 0:
            self._muted_until = min(world.now + throttle_ms / 1000, max(world.now, self.network.faults_end))
        codes = error_codes(values)
        self.network.sent_codes.update(codes)
        if is_in_vain(request.api, values, codes):
            world.storms.note(self.process.name, f"broker {self.broker.id}", request.api, world.now)
        for code in codes:
            world.record_fault(f"error {code}", request.api, self.process)
        world.trace("response", number, self.process.name, self.broker.id, request.api, kind, codes)
        self.network.on_answer(number, request.api, values, kind)
        frame = encode_response(request, values, world.codec)
        if kind == "crash_after_request":
            world.record_fault(kind, request.api, self.process)
            self.process.kill()
        elif kind == "lose_response":
            self._lost = True
            world.after(self.network.latency(), self.reset, "response lost")
        elif kind == "stall_response":
            self._stalled = True
        elif fault is not None and kind == "truncate_response":
            size = min(int(len(frame) * fault.arguments["fraction"]), len(frame) - 1)
            arrival = self._deliver(frame[:size], 0.0)
            self._lost = True
            world.at(arrival, self.reset, "response truncated")
        elif fault is not None and kind == "split_response":
            size = max(1, len(frame) // fault.arguments["pieces"])
            for index, start in enumerate(range(0, len(frame), size)):
                self._deliver(frame[start : start + size], index * fault.arguments["seconds"])
        elif kind == "garble_response":
            self._deliver(frame[:8] + b"\xff" * (len(frame) - 8), 0.0)
        else:
            self._deliver(frame, fault.arguments["seconds"] if fault is not None and kind == "delay_response" else 0.0)
        self._finish()

    def _deliver(self, data: bytes, delay: float) -> float:
        world = self.network.world
        arrival = self._last_delivery = max(self._last_delivery, world.now + self.network.latency() + delay)
        if not self._lost:
            world.at(arrival, self._receive, data)
        return arrival

    def _receive(self, data: bytes) -> None:
        if not self.socket.closed and not self.socket.was_reset and not self._stalled:
            self._is_answered = True
            self._used_at = self.network.world.now
            self.socket.received += data
            self.socket.wake()

    def note_read(self) -> None:
        """Note when the client reads a part of a response: before that, it cannot know that the broker works."""
        self._used_at = self.network.world.now

    def _finish(self) -> None:
        self._busy = False
        self.process_next()


class _DelayedResponse:
    """A response that waits for a change of the cluster."""

    def __init__(
        self, connection: _Connection, number: int, request: ReceivedRequest, fault: RequestFault | None, reply: Delayed
    ) -> None:
        self._connection = connection
        self._number = number
        self._request = request
        self._fault = fault
        self._reply = reply
        connection.network._delayed.append(self)
        connection.network.world.at(reply.until, self.poll)

    def poll(self) -> None:
        network, broker = self._connection.network, self._connection.broker
        if self not in network._delayed:
            return
        if not broker.is_up:
            network._delayed.remove(self)
            return
        if broker.paused:
            return  # it is polled again when the broker resumes
        values = self._reply.poll()
        if values is not None:
            network._delayed.remove(self)
            self._connection._respond(self._number, self._request, values, self._fault)
        else:
            assert network.world.now < self._reply.until, "a delayed response must be ready when its time is up"


def _ignore(_: object) -> None:
    """Do nothing."""


def _ignore_all(*_: object) -> None:
    """Do nothing."""


def _only_address(host: str, _flags: int) -> list[str]:
    return [host]


def _same(_broker: int, _api: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    return values


def error_codes(values: Any) -> tuple[int, ...]:
    """Return the distinct error codes of a response, but for 0, in ascending order."""
    found: set[int] = set()
    _collect_error_codes(values, found)
    return tuple(sorted(found))


def _collect_error_codes(values: Any, found: set[int]) -> None:
    if isinstance(values, dict):
        for name, value in values.items():
            if name == "error_code":
                if value:
                    found.add(value)
            elif type(value) in _CONTAINERS:
                _collect_error_codes(value, found)
    elif values and type(values[0]) is dict:
        for value in values:
            _collect_error_codes(value, found)
