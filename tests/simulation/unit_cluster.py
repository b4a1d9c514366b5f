"""A simulated cluster for unit tests: the test itself is the client, and calls the package without ``World.run``."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tests.simulation.cluster.events import apply_event, heal
from tests.simulation.environment import Environment
from tests.simulation.faults import RequestFault
from tests.simulation.history import Plan
from tests.simulation.scheduler import World

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from tests.simulation.cluster.partition_log import ReplicaLog
    from tests.simulation.cluster.topics import SimulatedPartition
    from tests.simulation.wire import ReceivedRequest

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.protocol.messages import ApiMessageType

_FOREVER = 1e9  # in seconds
_LONGEST_REQUEST = 120.0  # in seconds
_MAX_CALLS = 100_000  # of the client's system in a test; more of them are a busy loop


class Arrival(NamedTuple):
    """A request that a broker has handled."""

    at: float  # in seconds since the start
    broker: int
    values: Any


class UnitCluster:
    """Brokers whose topics exist from the start; broker 1 leads all partitions.

    The calling test is a task of ``process``, so that its calls of the package may wait in simulated time. When the
    test ends, no connection may be left.
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        *,
        brokers: int = 1,
        connection: Mapping[str, Any] | None = None,
        **cluster: Any,
    ) -> None:
        self.world = World("unit test", max_calls=_MAX_CALLS)
        plan = Plan("unit test", {"brokers": brokers, "cluster": cluster}, quiet_after=_FOREVER)
        self.environment = Environment(self.world, plan)
        self.cluster = self.environment.cluster
        self.network = self.environment.network
        self.process = self.environment.process("client")
        self.world.adopt_caller(self.process)
        self.requests: list[ReceivedRequest] = []  # that brokers have handled
        self.connect_limits: list[float] = []  # seconds that each connect might take
        self.network.on_connect = self.connect_limits.append
        self.network.on_request = self._on_request
        self.network.on_response = self._on_response
        self._actions: defaultdict[str, list[Callable[[], object]]] = defaultdict(list)
        self._changes: dict[str, Callable[[int, dict[str, Any]], Mapping[str, Any]] | None] = {}
        self._connection = dict(connection or {})
        self._sequences: dict[tuple[TopicPartition, int], int] = {}
        for name, partitions in topics.items():
            self.cluster.create_topic(name, partitions)
        for target in self.cluster.all_partitions():
            if target.leader != 1:
                self.cluster.elect(target, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if error is None:
                self.sleep(_LONGEST_REQUEST)  # background tasks end
                self.environment.check_released([self.process])
                self.environment.raise_errors()
        finally:
            self.world.close()

    @property
    def now(self) -> float:
        return self.world.now

    @property
    def pool(self) -> ConnectionPool:
        """The only connection pool of the test's process."""
        return self.environment.pool(self.process)

    def client(self, **settings: Any) -> ClusterClient:
        """Return a client; ``first_broker`` and ``retries`` are no settings."""
        return self.environment.client(self.process, **{**self._connection, **settings})

    def sleep(self, seconds: float) -> None:
        self.process.sleep(seconds)

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Run an action beside the test."""
        self.world.after(seconds, action)

    # The logs.

    def partition(self, tp: TopicPartition) -> SimulatedPartition:
        found = self.cluster.partition(tp)
        assert found is not None
        return found

    def log(self, tp: TopicPartition) -> ReplicaLog:
        """Return the leader's log."""
        found = self.partition(tp).leader_log
        assert found is not None
        return found

    def topic_id(self, topic: str) -> UUID:
        return self.cluster.topics[topic].topic_id

    def topic_name(self, topic_id: UUID) -> str:
        return next(name for name, topic in self.cluster.topics.items() if topic.topic_id == topic_id)

    def append(self, tp: TopicPartition, count: int, *, producer_id: int = -1, size: int = 0) -> None:
        """Append a batch, of a transaction if it has a producer id; values name the leader epoch and the offset."""
        target, end = self.partition(tp), self.log(tp).end
        values = [b"%d-%d" % (target.epoch, offset) + b"." * size for offset in range(end, end + count)]
        if producer_id < 0:
            self.cluster.append(tp, values)
            return
        sequence = self._sequences.get((tp, producer_id), 0)
        self._sequences[tp, producer_id] = sequence + count
        self.cluster.append(tp, values, producer=(producer_id, 0, sequence), transactional=True)

    def append_each(self, tp: TopicPartition, count: int, *, size: int = 0) -> None:
        """Append batches of one record, so that the log can be truncated between any two."""
        for _ in range(count):
            self.append(tp, 1, size=size)

    def end_transaction(self, tp: TopicPartition, producer_id: int, *, commit: bool) -> None:
        self.cluster.append_marker(tp, producer_id, 0, commit=commit)

    def delete_records(self, tp: TopicPartition, offset: int) -> None:
        """Delete the records before an offset."""
        self.cluster.advance_log_start(self.partition(tp), offset, "DeleteRecords")

    def append_gap(self, tp: TopicPartition, count: int) -> None:
        """Leave out offsets at the end, as compaction does in the middle of a log."""
        self.append(tp, count)
        for replica in self.partition(tp).replicas.values():
            replica.replace_batches(replica.batches[:-1])

    def truncate(self, tp: TopicPartition, offset: int, *, leader: int | None = None) -> None:
        """Truncate the log as an unclean election does, of a replica that lacks the records from an offset on."""
        target = self.partition(tp)
        for replica in target.replicas.values():
            replica.truncate_to(offset)
        self.cluster.elect(target, target.leader if leader is None else leader, unclean=True)

    # Faults.

    def event(self, kind: str, **arguments: Any) -> None:
        """Apply an event of the simulated cluster now."""
        apply_event(self.cluster, kind, arguments)

    def elect(self, tp: TopicPartition, leader: int) -> None:
        assert self.cluster.elect(self.partition(tp), leader)

    def heal(self) -> None:
        """End all faults of the cluster."""
        heal(self.cluster)

    def fault(self, api: str, kind: str, *, number: int = 0, repeats: int = 1, **arguments: Any) -> None:
        """Let something happen to requests of a kind; number 0 is the next one."""
        for each in range(number, number + repeats):
            self.network.aim_at_next(api, each, RequestFault(kind, arguments))

    def before(self, api: str, *actions: Callable[[], object]) -> None:
        """Run one of these actions before brokers handle each of the next requests of a kind."""
        self._actions[api] += actions

    def every(self, api: str, kind: str | None, **arguments: Any) -> None:
        """Let something happen to all requests of a kind from the test's process, until it is None."""
        self.network.lasting_faults.pop((self.process, api), None)
        if kind is not None:
            self.network.lasting_faults[self.process, api] = RequestFault(kind, arguments)

    def change(self, api: str, change: Callable[[int, dict[str, Any]], Mapping[str, Any]] | None) -> None:
        """Let a function of the broker's id and a response return what the broker responds instead, until it is None.

        It is for responses that a broker sends at rare moments, and for which there is no event.
        """
        self._changes[api] = change

    def offer(self, *apis: ApiMessageType) -> None:
        """Let brokers offer requests for which they have no handler; ``change`` defines the responses."""
        ranges = [
            {"api_key": each.key, "min_version": each.versions.lowest, "max_version": each.versions.highest}
            for each in apis
        ]
        self.change("ApiVersions", lambda _, values: {**values, "api_keys": [*values["api_keys"], *ranges]})

    def connect_fault(self, kind: str, *, repeats: int = 1) -> None:
        """Let something happen to the next connects."""
        first = self.network.connect_count
        self.network.connect_faults |= dict.fromkeys(range(first, first + repeats), RequestFault(kind))

    def break_connections(self, broker: int | None = None) -> None:
        for each in self.cluster.brokers.values():
            if broker in (None, each.id):
                self.network.reset_broker(each)

    # What the client did.

    @property
    def open_connections(self) -> int:
        return self.network.open_connections(self.process).total()

    def sent(self, api: str) -> int:
        """Return how many requests of a kind were sent."""
        return sum(name == api for _, name in self.network.sent_requests)

    def received(self, api: str) -> list[Any]:
        """Return the values of the requests of a kind that brokers have handled."""
        return [request.values for request in self.requests if request.api == api]

    def fetched(self) -> list[tuple[TopicPartition, int]]:
        """Return partitions and offsets of all Fetch requests that brokers have handled, in their order."""
        return [
            (TopicPartition(topic.topic or self.topic_name(topic.topic_id), each.partition), each.fetch_offset)
            for request in self.received("Fetch")
            for topic in request.topics
            for each in topic.partitions
        ]

    def arrivals(self, api: str) -> list[Arrival]:
        """Return the requests of a kind that brokers have handled."""
        lines = [line for line in self.world.trace_lines if line[1] in ("request", "late request")]
        found = zip(lines, self.requests, strict=True)
        return [Arrival(line[0], line[4], request.values) for line, request in found if request.api == api]

    def received_by(self, api: str) -> list[int]:
        """Return how many requests of a kind each broker has handled."""
        counts = Counter(arrival.broker for arrival in self.arrivals(api))
        return [counts[broker] for broker in self.cluster.brokers]

    def _on_response(self, broker: int, api: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        change = self._changes.get(api)
        return values if change is None else change(broker, dict(values))

    def _on_request(self, request: ReceivedRequest) -> None:
        self.requests.append(request)
        if actions := self._actions[request.api]:
            actions.pop(0)()
