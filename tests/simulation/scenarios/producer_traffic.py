"""What producers send: the size, the number and the pauses of requests, and what these may have written."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.stored_batch import parse_batches
from tests.simulation.errors import ViolationError
from tests.simulation.wire import decode_request

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.simulation.environment import Environment

_WINDOW: Final = 1.0  # seconds in which a request is repeated only a few times, because the pauses grow
_MOST_IN_WINDOW: Final[Mapping[str, int]] = {"Produce": 11, "InitProducerId": 60, "Metadata": 60, "connect": 60}
OPEN_OUTCOMES: Final = frozenset((-1, 6, 7, 20, 56))  # error codes after which records may have been written
_ARRIVAL_SECONDS: Final = 0.02  # in which a response arrives, while the producer may send another request
_UNREAD_RESPONSES: Final = ("lose_response", "stall_response", "truncate_response", "garble_response")


class SentBatch:
    """A record batch in a Produce request, and the response."""

    __slots__ = ("at", "code", "data", "fault", "number", "partition")

    def __init__(self, number: int, at: float, partition: TopicPartition, data: bytes) -> None:
        self.number = number
        self.at = at
        self.partition = partition
        self.data = data
        self.code: int | None = None  # None: no response
        self.fault: str | None = None  # of the response

    @property
    def outcome_is_open(self) -> bool:
        """Whether no response excludes that the records were written."""
        return self.code is None or self.code in OPEN_OUTCOMES or self.fault in _UNREAD_RESPONSES

    def values(self) -> set[bytes | None]:
        return {value for batch in parse_batches(self.data) for value in batch.values}


class ProducerTraffic:
    """Follows the requests of a history, and checks what holds for all of them."""

    def __init__(self, environment: Environment) -> None:
        self.batches: list[SentBatch] = []
        self._environment = environment
        self._world = environment.world
        self._parameters = environment.plan.parameters
        self._by_number: dict[int, list[SentBatch]] = {}
        self._unanswered: dict[int, set[int]] = defaultdict(set)  # Produce requests, by connection
        self._connections: dict[int, int] = {}  # of Produce requests, by number
        self._muted: dict[int, tuple[float, float]] = {}  # by connection: when the broker throttles it
        self._counts: Counter[str] = Counter()  # of requests
        self._recent: dict[Any, deque[float]] = defaultdict(deque)
        self._violations: list[str] = []
        environment.network.on_send = self._sent
        environment.network.on_answer = self._answered
        environment.network.on_connect = lambda _: self._limit("connect", "connect")

    def counts(self) -> Counter[str]:
        """Return how many requests were sent."""
        return Counter(self._counts)

    def check(self, *, obeys_quotas: bool = False) -> None:
        """Raise the first violation; with ``obeys_quotas`` the producer was never replaced by another one."""
        for text in self._violations:
            if obeys_quotas or "throttled" not in text:
                raise ViolationError(text)

    def batches_with(self, partition: TopicPartition, value: bytes) -> list[SentBatch]:
        """Return the batches with a record."""
        return [each for each in self.batches if each.partition == partition and value in each.values()]

    def _sent(self, number: int, connection: int, _broker: int, api: str, frame: bytes) -> None:
        self._counts[api] += 1
        if api != "Produce":
            self._limit(api, api)
            return
        now = self._world.now
        request = decode_request(frame, self._world.codec).values
        batches = [
            SentBatch(number, now, TopicPartition(topic.name, each.index), bytes(each.records))
            for topic in request.topic_data
            for each in topic.partition_data
        ]
        self.batches += batches
        self._by_number[number] = batches
        sizes = [len(each.data) for each in batches]
        if sum(sizes) > max(self._parameters.get("max_request_bytes", 1 << 20), *sizes, 0):
            self._violations.append(f"a request of {sum(sizes)} bytes is larger than max.request.size")
        if len({each.partition for each in batches}) < len(batches):
            self._violations.append("a request has two batches of a partition")
        unanswered = self._unanswered[connection]
        unanswered.add(number)
        if len(unanswered) > self._parameters["max_in_flight"]:
            self._violations.append(f"{len(unanswered)} requests are in flight on a connection")
        self._connections[number] = connection
        since, until = self._muted.get(connection, (0.0, 0.0))
        if since + _ARRIVAL_SECONDS < now < until and len(unanswered) == 1:
            self._violations.append(f"a request is sent at {now:.3f} although the broker has throttled the connection")
        for each in batches:
            self._limit("Produce", (each.partition, each.data))

    def _answered(self, number: int, api: str, values: Mapping[str, Any], fault: str | None) -> None:
        if api != "Produce" or number not in self._by_number:
            return
        self._unanswered[self._connections[number]].discard(number)
        codes = {
            TopicPartition(topic["name"], each["index"]): each["error_code"]
            for topic in values["responses"]
            for each in topic["partition_responses"]
        }
        for batch in self._by_number[number]:
            batch.code, batch.fault = codes.get(batch.partition), fault
        throttle_ms = min(values.get("throttle_time_ms", 0), self._parameters["delivery_timeout_ms"])
        if throttle_ms > 0 and fault in (None, "throttle"):
            now = self._world.now
            self._muted[self._connections[number]] = (now, now + throttle_ms / 1000)

    def _limit(self, kind: str, key: Any) -> None:
        """Note a violation if the same was done too often within a second: it has to pause."""
        may_repeat = self._parameters.get("missing") or self._parameters.get("passing")  # for each such record
        if kind not in _MOST_IN_WINDOW or (kind == "Metadata" and may_repeat):
            return
        times, now = self._recent[key], self._world.now
        times.append(now)
        while times[0] < now - _WINDOW:
            times.popleft()
        if len(times) > _MOST_IN_WINDOW[kind]:
            self._violations.append(f"{kind} is repeated {len(times)} times in a second")


def writers_of(batches: Iterable[SentBatch]) -> set[int]:
    """Return the producer ids with which batches were sent."""
    return {int.from_bytes(each.data[43:51], "big", signed=True) for each in batches}
