"""What a reader without an end may return, report and request, as the history justifies it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

from tests.simulation.errors import ViolationError
from tests.simulation.oracle import READ_COMMITTED

from pyspark_kafka_direct.errors import AuthorizationError, TopicNotFoundError, TopicRecreatedError, TruncatedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.environment import Environment
    from tests.simulation.history import Plan
    from tests.simulation.oracle import Entry, PartitionTruth
    from tests.simulation.wire import ReceivedRequest

    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition

CALM: Final = frozenset(("delete_records", "expire_records", "recreate_topic"))
"""Events that no broker or leader suffers from: each request has a response within milliseconds."""
_CALM_SECONDS: Final = 0.09  # less than a backoff; within which a record is returned that a poll waits for
_WINDOW_SECONDS: Final = 10.0
_MOST_REPEATED: Final = {"Fetch": 45, "ListOffsets": 80, "Metadata": 400}  # equal requests in that time
_MOST_DENIED: Final = 70  # errors of a partition while its topic is denied, with a backoff between them
_DELETED: Final = re.compile(r"offsets \[(\d+), (\d+)\) were deleted")
_BOUNDS: Final = re.compile(r"the log now contains \[(\d+), (\d+)\)")
_TRUNCATED: Final = re.compile(r"truncated the log to offset (\d+)")


class PartitionModel:
    """The rows that were returned of a partition: all records from ``start`` to ``position``."""

    def __init__(self) -> None:
        self.start = self.position = 0
        self.generation = 1  # of the topic that is read
        self.rows: dict[int, bytes] = {}
        self.seeks = 0  # after which a loss may be reported again
        self.losses = 0  # that were reported

    def seek(self, offset: int) -> None:
        """Remove the rows from an offset on; rows that are not followed by it are not compared any more."""
        if not self.start <= offset <= self.position:
            self.start = offset
            self.rows.clear()
        self.position = offset
        self.rows = {each: value for each, value in self.rows.items() if each < offset}

    def restart(self, generation: int, offset: int) -> None:
        """Read a topic that was recreated."""
        self.generation = generation
        self.rows.clear()
        self.start = self.position = offset


class RepeatedRequests:
    """Counts equal requests: none is repeated again and again without a pause."""

    def __init__(self, environment: Environment) -> None:
        self._world = environment.world
        self._times: defaultdict[tuple[str, object], deque[float]] = defaultdict(deque)
        self.counts: defaultdict[str, int] = defaultdict(int)
        events = environment.plan.events
        # A client sends a request after each throttle time, which may be short.
        self._is_throttled = any(event.kind.startswith("throttle") for event in events)
        # Each check repeats its request to a broker without metadata, also after a seek.
        self._is_without_metadata = any(event.kind == "require_rebootstrap" for event in events)
        environment.network.on_request = self._count

    def _count(self, request: ReceivedRequest) -> None:
        self.counts[request.api] += 1
        if self._is_throttled or request.api not in _MOST_REPEATED:
            return
        if self._is_without_metadata and request.api == "Metadata":
            return
        now = self._world.now
        times = self._times[request.api, _key(request)]
        times.append(now)
        while times[0] < now - _WINDOW_SECONDS:
            times.popleft()
        if len(times) > _MOST_REPEATED[request.api]:
            raise ViolationError(f"{len(times)} equal {request.api} requests are sent within {_WINDOW_SECONDS:g} s")


class ErrorsInReason:
    """Checks which errors a consumer shows and raises."""

    def __init__(self, environment: Environment, models: Mapping[TopicPartition, PartitionModel]) -> None:
        self._environment = environment
        self._models = models
        self._unread_since: dict[TopicPartition, tuple[int, float]] = {}  # positions, and since when
        parameters = environment.plan.parameters
        connect_seconds = 100.0 if _may_stall_connects(environment.plan) else 0.0
        self._denied = 0
        timeouts = parameters["request_timeout_ms"] + parameters["api_timeout_ms"]
        self._longest_silence = 2 * timeouts / 1000 + connect_seconds + 10.0

    def check_shown(self, consumer: PartitionConsumer, isolation: int, *, polls_all_the_time: bool) -> None:
        """Check that errors are shown only for a reason, and that a partition that is not read has one."""
        shown = consumer.transient_errors
        if shown and not self._environment.plan.events:
            raise ViolationError(f"nothing happens in this history, but errors are shown: {dict(shown)}")
        for tp, error in shown.items():
            if error.topic not in (None, tp.topic) or (error.topic and error.partition not in (None, tp.partition)):
                raise ViolationError(f"{tp} shows the error of another partition: {error!r}")
        now, oracle = self._environment.world.now, self._environment.oracle
        for tp, position in consumer.positions.items():
            known, since = self._unread_since.get(tp, (-1, now))
            if tp in shown or position != known or not polls_all_the_time:
                self._unread_since[tp] = (position, now)
            elif now - since > self._longest_silence:
                self._unread_since[tp] = (position, now)
                if oracle.truth(tp).end_offset(isolation, since) > position:
                    raise ViolationError(
                        f"{tp} is not read from {position} on for {now - since:.1f} s, without an error"
                    )

    def check_loss(self, tp: TopicPartition, error: KafkaDirectError) -> None:
        """Check the numbers of an error about lost records, and how often it is raised."""
        model, truth = self._models[tp], self._environment.oracle.truth(tp, self._models[tp].generation)
        model.losses += 1
        most = len(truth.starts) + 2 * len(truth.epochs) + 2 * model.seeks + 2
        if model.losses > most:
            raise ViolationError(f"{model.losses} losses of {tp} are reported, and at most {most} happened: {error!r}")
        if self._environment.oracle.generations[tp.topic] != model.generation:
            return  # the bounds may be those of the new topic
        if found := _DELETED.search(error.message):
            first, until = map(int, found.groups())
            starts = {each.offset for each in truth.starts}
            if first != error.offset or until not in starts or until <= first:
                raise ViolationError(f"the log of {tp} never started at {until}, but at {starts}: {error!r}")
        if found := _BOUNDS.search(error.message):
            start, end = map(int, found.groups())
            longest = max(truth.path_end(each.epoch) for each in truth.epochs)
            if not start <= end <= longest or start not in {0, *(each.offset for each in truth.starts)}:
                raise ViolationError(f"the log of {tp} ends at {longest} at most: {error!r}")
        if isinstance(error, TruncatedError):
            found = _TRUNCATED.search(error.message)
            if (None if found is None else int(found[1])) != error.truncated_to:
                raise ViolationError(f"the message names another offset than {error.truncated_to}: {error!r}")

    def check_denied(self, error: KafkaDirectError) -> None:
        """Check an error that no retry resolves: the brokers must have returned its code."""
        events = self._environment.plan.events
        codes = {event.args.get("code") for event in events if event.kind == "error"}
        is_denied = any(event.kind == "deny_topic" and event.args["topic"] == error.topic for event in events)
        is_justified = is_denied or 29 in codes if isinstance(error, AuthorizationError) else 2 in codes
        if not is_justified:
            raise ViolationError(f"nothing is denied or corrupt: {error!r}") from error
        self._denied += 1
        most = _MOST_DENIED * (1 + len(events)) * len(self._models)
        if self._denied > most:
            raise ViolationError(f"more than {most} errors are raised, the last one is {error!r}") from error

    def check_missing(self, tp: TopicPartition, error: TopicNotFoundError) -> None:
        """Check an error about a topic that is deleted or recreated."""
        environment, model = self._environment, self._models[tp]
        if (tp.topic, model.generation) not in environment.oracle.deleted_at:
            raise ViolationError(f"the topic exists, but poll raises: {error!r}") from error
        if not isinstance(error, TopicRecreatedError):
            return
        generation = environment.cluster.generations_by_id.get(error.topic_id) if error.topic_id else None
        if generation is None or generation <= model.generation:
            raise ViolationError(f"generation {generation} follows {model.generation} of {tp}: {error!r}") from error


def check_promptness(
    environment: Environment, tp: TopicPartition, position: int, isolation: int, passed: float, moved_at: float
) -> None:
    """Check that a poll of some seconds does not wait for a record that is there, if no broker suffers from anything.

    After a seek at ``moved_at``, the last request has to end first.
    """
    now, seconds = environment.world.now, _CALM_SECONDS
    wait_seconds = environment.plan.parameters["fetch_wait_ms"] / 1000
    if now - moved_at < wait_seconds + seconds:
        seconds += wait_seconds
    if passed < seconds or not is_calm(environment):
        return
    truth, at = environment.oracle.truth(tp), now - seconds
    if truth.log_start(at) <= position < truth.end_offset(isolation, at):
        raise ViolationError(f"{tp} has records from {position} on, but a poll waits for {passed:.3f} s")


def is_calm(environment: Environment) -> bool:
    """Return whether each request has a response within milliseconds."""
    return {event.kind for event in environment.plan.events} <= CALM - {"recreate_topic"}


def check_epochs(
    consumer: PartitionConsumer, models: Mapping[TopicPartition, PartitionModel], environment: Environment
) -> None:
    """Check that the logs of the leader epochs that a consumer names have the last rows."""
    if not environment.cluster.settings.leader_epochs:
        return
    for name in ("last_epochs", "confirmed_epochs"):
        for tp, epoch in getattr(consumer, name).items():
            model = models[tp]
            if epoch < 0 or not model.rows or consumer.positions[tp] != model.position:
                continue
            offset = max(model.rows)
            truth = environment.oracle.truth(tp, model.generation)
            if _value_at(truth, epoch, offset) != model.rows[offset]:
                raise ViolationError(f"{name} has {epoch} for {tp}, whose log has another record at {offset}")


def check_rows(
    environment: Environment, tp: TopicPartition, model: PartitionModel, isolation: int, *, committed: bool
) -> None:
    """Compare the rows with the log: also those that expired after they were read, but not compacted ones."""
    truth = environment.oracle.truth(tp, model.generation)
    has_epochs = environment.cluster.settings.leader_epochs
    if truth.truncations() and (committed or not has_epochs):
        return  # transactions are decided again, or nothing shows where the logs differ
    present = _records(truth, model.start, model.position, isolation)
    missing = {offset: value for offset, value in present.items() if model.rows.get(offset) != value}
    if missing:
        raise ViolationError(f"records of {tp} are not returned: {missing}, but {model.rows}")
    compacted = {entry.offset for entry in truth.compacted}
    surplus = {
        offset: value
        for offset, value in model.rows.items()
        if offset not in present and offset >= truth.log_start() and offset not in compacted
    }
    if surplus:
        raise ViolationError(f"rows of {tp} are not in its log: {surplus}")


def _key(request: ReceivedRequest) -> object:
    if request.api != "Fetch":
        return repr(request.values)
    return tuple((each.partition, each.fetch_offset) for topic in request.values.topics for each in topic.partitions)


def _records(truth: PartitionTruth, start: int, end: int, isolation: int) -> dict[int, bytes]:
    """Return the records of a part of the log, also those that expired."""
    epoch = truth.epoch()
    outcomes = truth.outcomes(epoch) if isolation == READ_COMMITTED else {}
    return {
        entry.offset: entry.value
        for entry in truth.path(epoch)
        if start <= entry.offset < end
        and entry.value is not None
        and entry not in truth.compacted
        and (isolation != READ_COMMITTED or not entry.is_transactional or outcomes.get(entry.offset))
    }


def _value_at(truth: PartitionTruth, epoch: int, offset: int) -> bytes | None:
    path = truth.path(epoch)
    index = bisect_left(path, offset, key=_offset)
    return path[index].value if index < len(path) and path[index].offset == offset else None


def _may_stall_connects(plan: Plan) -> bool:
    return any(event.kind in ("stall_connect", "pause_broker", "stop_broker") for event in plan.events)


def _offset(entry: Entry) -> int:
    return entry.offset
