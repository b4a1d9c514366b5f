"""Reads without an end: a ``PartitionConsumer`` that moves and is replaced returns each record once, in order.

A model of what was returned has the rows between two offsets of each partition. When a truncation is reported, the rows
from there on are removed, and read again. At the end the rows must be those of the log. Topics may be recreated, and
some partitions are assigned later than others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.environment import Environment
from tests.simulation.errors import ViolationError
from tests.simulation.oracle import READ_COMMITTED, READ_UNCOMMITTED
from tests.simulation.scenarios.endless_read_checks import (
    ErrorsInReason,
    PartitionModel,
    RepeatedRequests,
    check_epochs,
    check_promptness,
    check_rows,
)
from tests.simulation.scenarios.endless_read_draw import TOPICS, draw
from tests.simulation.scenarios.range_read_checks import check_batch
from tests.simulation.scenarios.several_topics import all_places, create_topics, partition_at

from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    CorruptRecordError,
    DataLossError,
    KafkaDirectError,
    TopicNotFoundError,
    TopicRecreatedError,
    TruncatedError,
)
from pyspark_kafka_direct.offsets import EARLIEST, TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from tests.simulation.history import Plan
    from tests.simulation.scheduler import World

    from pyspark_kafka_direct.consumer.partition_consumer import PolledBatch

__all__ = ["NAME", "SHRINKABLE", "draw", "run"]

NAME: Final = "endless_reads"
SHRINKABLE: Final = {"topics": 1, "log": (), "append_list": (), "steps": ()}
_LAST_SECONDS: Final = 300.0  # within which everything is read after the faults
_LAST_POLL_SECONDS: Final = 1.0
_POLLS_UNTIL_A_CHECK: Final = 70
_SHORT_POLL_SECONDS: Final = 0.1
_SECONDS_AFTER_WAKEUP: Final = 3.0  # for which a poll would continue without its descriptor
_PAUSE_SECONDS: Final = 0.1  # between two polls, if the caller polls all the time
_POLL_SLACK: Final = 0.01  # the consumer's thread waits for no broker
_ROUNDING: Final = 1e-6
_LAST_CONNECT_SECONDS: Final = 100.0  # within which connects end that are in flight when a consumer is closed


def run(world: World, plan: Plan) -> None:
    environment = Environment(world, plan)
    parameters = plan.parameters
    counts = create_topics(environment, TOPICS)
    for broker in environment.cluster.brokers.values():
        broker.apply_image(environment.cluster.image)  # a broker that lacked a topic would say that it does not exist
    for number, batch in enumerate(parameters["append_list"], len(parameters["log"])):
        topic = TOPICS[number % len(counts)]
        world.at(environment.started_at + batch["at"], _append, environment, topic, counts[topic], batch, number)
    requests = RepeatedRequests(environment)
    reader = _Reader(environment, [partition_at(counts, place) for place in all_places(counts)], requests)
    world.run([reader.process.spawn("reader", reader.run)])
    environment.raise_errors()
    environment.check_released([reader.process])


def _append(environment: Environment, topic: str, partitions: int, batch: Mapping[str, Any], number: int) -> None:
    environment.write_log(topic, partitions, [batch], first_number=number)


class _Reader:
    """One process, whose consumer follows the steps of the plan."""

    def __init__(self, environment: Environment, partitions: list[TopicPartition], requests: RepeatedRequests) -> None:
        self.process = environment.process("reader")
        self._environment = environment
        self._parameters = environment.plan.parameters
        self._partitions = partitions
        self._requests = requests
        self._models = {tp: PartitionModel() for tp in partitions}
        self._assigned = partitions[: max(1, len(partitions) - self._parameters.get("assigned_later", 0))]
        self._errors = ErrorsInReason(environment, self._models)

    def run(self) -> None:
        self._known_ids: dict[tuple[str, int], UUID] = {}  # by topic and generation
        self._polled_at = 0.0
        self._client = self._environment.client(
            self.process,
            default_api_timeout_ms=self._parameters["api_timeout_ms"],
            request_timeout_ms=self._parameters["request_timeout_ms"],
            metadata_max_age_ms=self._parameters["metadata_max_age_ms"],
        )
        self._consumer = self._open({})
        for step in self._parameters["steps"]:
            self._take(step)
        self._assign_all()
        self._read_everything()
        check_epochs(self._consumer, self._models, self._environment)
        self._check_requests()
        self._consumer.close()
        self.process.sleep(_LAST_CONNECT_SECONDS)
        committed = self._parameters["committed"]
        for tp in self._partitions:
            check_rows(self._environment, tp, self._models[tp], self._isolation, committed=committed)
        self._environment.check_threads([self.process])

    def _open(self, last_epochs: Mapping[TopicPartition, int]) -> PartitionConsumer:
        parameters = self._parameters
        fetch = FetchSettings(
            "read_committed" if parameters["committed"] else "read_uncommitted",
            fetch_max_wait_ms=parameters["fetch_wait_ms"],
            max_partition_fetch_bytes=parameters["fetch_bytes"],
            fetch_max_bytes=parameters.get("fetch_max_bytes", 52_428_800),
        )
        starts = {tp: self._models[tp].position for tp in self._assigned}
        self._moved_at = self._environment.world.now
        return PartitionConsumer(
            self._client,
            fetch,
            starts,
            columns=parameters.get("columns", ("offset", "value")),
            max_rows=parameters["max_rows"],
            max_bytes=parameters["max_bytes"],
            topic_ids=self._topic_ids(self._assigned),
            last_epochs=last_epochs,
        )

    def _topic_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, UUID] | None:
        """Return the ids of the topics that the positions belong to; the caller knows them if topics are recreated."""
        if not self._parameters.get("has_topic_ids"):
            return None
        cluster = self._environment.cluster
        by_generation = {
            (topic.name, topic.generation): topic_id
            for topic_id, topic in ((each.topic_id, each) for each in cluster.topics.values())
        }
        ids = {}
        for tp, model in self._models.items():  # also of those that are assigned later, perhaps after a recreation
            key = tp.topic, model.generation
            if key not in self._known_ids and key in by_generation:
                self._known_ids[key] = by_generation[key]
            if tp in partitions:
                ids[tp] = self._known_ids[key]
        return ids

    def _assign_all(self) -> None:
        """Assign the partitions that are not read yet."""
        later = [tp for tp in self._partitions if tp not in self._assigned]
        if later:
            self._consumer.assign({tp: self._models[tp].position for tp in later}, self._topic_ids(later))
            self._assigned = self._partitions
            self._moved_at = self._environment.world.now

    def _check_requests(self) -> None:
        """Check that a history without events has a request of metadata for each reason only."""
        parameters = self._parameters
        if self._environment.plan.events:
            return
        reopens = sum(step["kind"] == "reopen" for step in parameters["steps"])
        passed = self._environment.world.now - self._environment.started_at
        most = (2 + reopens) * (1 + len(self._partitions)) + passed / (parameters["metadata_max_age_ms"] / 1000)
        losses = sum(model.losses for model in self._models.values())
        if self._requests.counts["Metadata"] > most + 10 * (losses + parameters["brokers"]):
            raise ViolationError(f"{self._requests.counts['Metadata']} requests for metadata are sent, {most} expected")

    def _take(self, step: Mapping[str, Any]) -> None:
        tp = self._assigned[step["place"] % len(self._assigned)]
        match step["kind"]:
            case "poll":
                for _ in range(step["count"]):
                    self._poll(step["seconds"])
            case "sleep":  # the caller is slower than the broker
                self.process.sleep(step["seconds"])
            case "seek":
                if step["first_fraction"] is not None:
                    self._seek(tp, self._offset_at(tp, step["first_fraction"]))
                    self._reach_check(tp)
                self._seek(tp, self._offset_at(tp, step["fraction"]))
            case "wake":
                self._poll_until_woken(step["seconds"])
            case "assign":
                self._assign_all()
            case "reopen":
                self._models[tp].seeks += 1
                self._consumer.close()
                self._consumer = self._open(self._consumer.last_epochs)

    def _offset_at(self, tp: TopicPartition, fraction: float) -> int:
        return int(self._environment.oracle.truth(tp).end_offset(READ_UNCOMMITTED) * fraction)

    def _reach_check(self, tp: TopicPartition) -> None:
        """Poll until requests in the background check what an error of a partition means, for some seconds at most."""
        for _ in range(_POLLS_UNTIL_A_CHECK):
            if self._consumer._partitions[tp].check_in_flight:
                return
            self._poll(_SHORT_POLL_SECONDS)

    def _seek(self, tp: TopicPartition, offset: int) -> None:
        self._consumer.seek(tp, offset)
        self._models[tp].seek(offset)
        self._models[tp].seeks += 1
        self._moved_at = self._environment.world.now

    def _poll_until_woken(self, seconds: float) -> None:
        """Poll with a descriptor that is readable after some seconds, when the poll has to return."""
        signal = self.process.wakeup_signal()
        self._environment.world.after(seconds, signal.set)
        self._poll(seconds + _SECONDS_AFTER_WAKEUP, wakes=(seconds, signal.fileno()))
        signal.close()

    def _poll(self, seconds: float, wakes: tuple[float, int] | None = None) -> None:
        world = self._environment.world
        before, asked_at = self._consumer.positions, world.now
        polls_all_the_time = asked_at - self._polled_at < _PAUSE_SECONDS
        try:
            with world.operation():
                polled = self._consumer.poll(seconds, () if wakes is None else wakes[1:])
        except DataLossError as error:
            self._check_location(error)
            self._resume_after(error)
            return
        except TopicNotFoundError as error:
            self._resume_after_deletion(error)
            return
        except (AuthorizationError, CorruptRecordError) as error:
            self._errors.check_denied(error)
            return
        finally:
            self._polled_at = world.now
        passed = world.now - asked_at
        if wakes is not None:
            seconds = wakes[0]
        if passed > seconds + _POLL_SLACK:
            raise ViolationError(f"a poll of {seconds:g} s takes {passed:.3f} s")
        if not polled and passed < seconds - _ROUNDING and self._consumer.positions == before:
            raise ViolationError(f"a poll of {seconds:g} s returns nothing after {passed:.3f} s")
        sizes = [batch.rows.get_total_buffer_size() for batch in polled]
        if sum(sizes[:-1]) >= self._parameters["max_bytes"] and len(sizes) > 1:
            raise ViolationError(f"a poll returns batches of {sizes} bytes: {dict(self._parameters)}")
        for batch in polled:
            self._add(batch)
        for tp, position in self._consumer.positions.items():
            model = self._models[tp]
            if position < model.position:
                raise ViolationError(f"the position of {tp} goes back from {model.position} to {position}")
            model.position = position
        self._errors.check_shown(self._consumer, self._isolation, polls_all_the_time=polls_all_the_time)
        if polled:
            check_epochs(self._consumer, self._models, self._environment)
        elif self._consumer.positions == before:
            for tp, position in before.items():
                check_promptness(self._environment, tp, position, self._isolation, passed, self._moved_at)

    def _check_location(self, error: DataLossError) -> None:
        """Check that an error names an assigned partition, and an offset that was not returned yet."""
        tp = TopicPartition(error.topic or "", -1 if error.partition is None else error.partition)
        if tp not in self._assigned or error.offset is None or error.offset < self._models[tp].position:
            raise ViolationError(f"an error names no offset that is to be read next: {error!r}") from error

    def _add(self, batch: PolledBatch) -> None:
        tp, rows = batch
        model = self._models[tp]
        check_batch(rows, self._parameters, tp, self._environment.oracle)
        offsets, values = rows.column("offset").to_pylist(), rows.column("value").to_pylist()
        if offsets != sorted(set(offsets)) or offsets[0] < model.position:
            raise ViolationError(f"rows of {tp} from offset {model.position} on have the offsets {offsets}")
        model.rows.update(zip(offsets, values, strict=True))
        model.position = offsets[-1] + 1
        self._check_epoch(tp, offsets[-1], values[-1])

    def _check_epoch(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """Check the leader epoch that a consumer gets that continues after the last row."""
        if self._consumer.positions[tp] != offset + 1 or not self._environment.cluster.settings.leader_epochs:
            return
        batches = self._environment.oracle.truth(tp, self._models[tp].generation).batches
        epochs = {epoch for epoch, written in batches.items() for batch, _ in written if value in batch.values}
        if self._consumer.last_epochs[tp] not in epochs:
            raise ViolationError(
                f"the record at {tp}@{offset} is of the leader epoch {epochs}, not {self._consumer.last_epochs[tp]}"
            )

    def _resume_after(self, error: DataLossError) -> None:
        """Seek to where the log continues, if it has lost records."""
        assert error.topic is not None
        assert error.partition is not None
        tp = TopicPartition(error.topic, error.partition)
        model, truth = self._models[tp], self._environment.oracle.truth(tp)
        self._errors.check_loss(tp, error)
        if self._environment.oracle.generations[tp.topic] != model.generation:  # the broker knows that already
            self._seek(tp, 0)
            return
        if isinstance(error, TruncatedError):
            if not truth.truncations():
                raise ViolationError(f"nothing was truncated: {error!r}") from error
            truncated_to = self._log_start(tp) if error.truncated_to is None else error.truncated_to
            if truncated_to > model.position:  # it is not known which rows are still in the log
                model.start = truncated_to = model.position
                model.rows.clear()
            self._seek(tp, truncated_to)
            return
        has_epochs = self._environment.cluster.settings.leader_epochs
        if not has_epochs and self._environment.oracle.was_deposed(tp.topic, 0.0, self._environment.world.now):
            self._seek(tp, self._log_start(tp))  # without epochs, nothing refutes a deposed leader whose log is shorter
            return
        if truth.log_start() <= model.position and not truth.truncations():
            raise ViolationError(f"nothing was lost at offset {model.position}: {error!r}") from error
        self._seek(tp, self._log_start(tp))

    def _resume_after_deletion(self, error: TopicNotFoundError) -> None:
        """Read the new topic from its start, if there is one; else the partition is tried again."""
        tp = TopicPartition(error.topic or "", -1 if error.partition is None else error.partition)
        if tp not in self._assigned:
            raise ViolationError(f"the error names no partition that is read: {error!r}") from error
        self._errors.check_missing(tp, error)
        if isinstance(error, TopicRecreatedError):
            assert error.topic_id is not None
            generation = self._environment.cluster.generations_by_id[error.topic_id]
            self._known_ids[tp.topic, generation] = error.topic_id
            self._seek(tp, 0)
            self._models[tp].restart(generation, 0)

    def _log_start(self, tp: TopicPartition) -> int:
        while True:
            try:
                return self._client.offsets({tp: EARLIEST})[tp]
            except KafkaDirectError:
                self.process.sleep(1.0)

    def _read_everything(self) -> None:
        """Read until the ends of the logs, after the faults have stopped."""
        world, oracle = self._environment.world, self._environment.oracle
        isolation = self._isolation
        while not self._environment.is_quiet:
            self._poll(_LAST_POLL_SECONDS)
        until = world.now + _LAST_SECONDS
        while True:
            self._poll(_LAST_POLL_SECONDS)
            if all(
                model.generation == oracle.generations[tp.topic]
                and model.position >= oracle.truth(tp).end_offset(isolation)
                for tp, model in self._models.items()
            ):
                break
            if world.now > until:
                positions = {tp: model.position for tp, model in self._models.items()}
                raise ViolationError(f"after {_LAST_SECONDS:g} s without faults, the positions are {positions}")
        for _ in range(10):  # a truncation that is known by now is reported
            self._poll(_LAST_POLL_SECONDS)
        until = world.now + self._parameters["request_timeout_ms"] / 1000  # a fetch may have been sent before the end
        while self._consumer.transient_errors and world.now < until:
            self._poll(_LAST_POLL_SECONDS)
        if self._consumer.transient_errors:
            raise ViolationError(f"errors are retried without a fault: {dict(self._consumer.transient_errors)}")

    @property
    def _isolation(self) -> int:
        return READ_COMMITTED if self._parameters["committed"] else READ_UNCOMMITTED
