"""Bugs that treat each topic but the first differently, or lose what belongs to a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import BugsOf, Patch
from tests.simulation.scenarios.sink_commits import STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tests.simulation.planting import PlantedBug

_of_the_sink: Final = BugsOf("exactly_once")
_of_producers: Final = BugsOf("producers")


def _other_topics_outside() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer
    from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

    first_topics: dict[int, str] = {}

    def send(original: Any) -> Any:
        def changed(self: Any, topic: str, batch: Any, *, more_follows: bool = False) -> None:
            if topic in (first_topics.setdefault(id(self), topic), STATE_TOPIC):
                original(self, topic, batch, more_follows=more_follows)
                return
            outside = BatchProducer(self._cluster, self._settings)
            outside.send(topic, batch)
            outside.flush()
            outside.close()

        return changed

    return [Patch(TransactionalProducer, "send", send)]


def _report_of_one_topic() -> Sequence[Patch]:
    from pyspark_kafka_direct.datasource.exactly_once_committer import ExactlyOnceCommitter

    def commit(original: Any) -> Any:
        def changed(self: Any, *args: Any) -> Any:
            return _of_first_topic(original(self, *args))

        return changed

    return [Patch(ExactlyOnceCommitter, "commit", commit)]


def _partitions_of_one_topic() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient

    def add_partitions(original: Any) -> Any:
        def changed(self: Any, producer: Any, partitions: Collection[Any]) -> None:
            original(self, producer, list(_of_first_topic(dict.fromkeys(partitions)) or ()))

        return changed

    return [Patch(TransactionCoordinatorClient, "add_partitions", add_partitions)]


def _one_encoder() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.row_writer import RowWriter

    def encoder(original: Any) -> Any:
        def changed(self: Any, topic: str) -> Any:
            return original(self, next(iter(self._encoders), topic))

        return changed

    return [Patch(RowWriter, "_encoder", encoder)]


def _offsets_of_one_topic() -> Sequence[Patch]:
    from pyspark_kafka_direct.client import consumer_group

    def offsets_to_commit(original: Any) -> Any:
        return lambda offsets: original(_of_first_topic(offsets))

    return [
        Patch(consumer_group, "_offsets_to_commit", offsets_to_commit),
        Patch(consumer_group, "_check_all_partitions", lambda _: lambda *_args: None),
    ]


def _queue_of_another_topic() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.accumulator import RecordAccumulator

    def choose(original: Any) -> Any:
        def changed(self: Any, record: Any, topic: Any) -> Any:
            chosen = original(self, record, topic)
            number = chosen.partition.partition
            return next(each for each in self._queues if each.partition.partition == number)

        return changed

    return [Patch(RecordAccumulator, "_choose_queue", choose)]


def _changed_records(change: Callable[[Sequence[Any]], None]) -> Callable[[], Sequence[Patch]]:
    def patches() -> Sequence[Patch]:
        from pyspark_kafka_direct.producer.accumulator import RecordAccumulator

        def encode(original: Any) -> Any:
            def changed(self: Any, records: Sequence[Any]) -> Any:
                change(records)
                return original(self, records)

            return changed

        return [Patch(RecordAccumulator, "_encode", encode)]

    return patches


def _lose_keys(records: Sequence[Any]) -> None:
    for record in records[1:]:
        record.key = None


def _lose_headers(records: Sequence[Any]) -> None:
    if not all(record.headers for record in records):
        for record in records:
            record.headers = ()


def _share_timestamp(records: Sequence[Any]) -> None:
    for record in records:
        record.timestamp = records[0].timestamp


def _range_of_last_batch() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.produce_channel import WrittenRange

    return [Patch(WrittenRange, "including", lambda _: lambda _self, other: other)]


def _later_epoch() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer import accumulator

    def init(original: Any) -> Any:
        def changed(self: Any, *args: Any) -> None:
            original(self, *args)
            self._leader_epoch += self._leader_epoch >= 0

        return changed

    return [Patch(accumulator._BatchCallback, "__init__", init)]


def _connections_stay_open() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

    def disconnect(original: Any) -> Any:
        def changed(self: Any) -> None:
            for node in list(self._channels)[1:]:
                del self._channels[node]
            original(self)

        return changed

    return [Patch(BatchProducer, "_disconnect", disconnect)]


def _planned_offsets_of_one_topic() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient

    def offsets(original: Any) -> Any:
        def changed(self: Any, positions: Mapping[Any, int], **named: Any) -> Any:
            found = original(self, positions, **named)
            first = min(positions)
            return {tp: found[tp if tp.topic == first.topic else first] for tp in positions}

        return changed

    return [Patch(ClusterClient, "offsets", offsets)]


def _of_first_topic(values: Mapping[Any, Any] | None) -> Any:
    return values and {tp: value for tp, value in values.items() if tp.topic == next(iter(values)).topic}


BUGS: Final[tuple[PlantedBug, ...]] = (
    _of_the_sink(
        "other-topics-outside",
        "Each topic but the first of a batch is written outside the transaction.",
        _other_topics_outside,
    ),
    _of_the_sink("report-of-one-topic", "The report of a write has one topic only.", _report_of_one_topic),
    _of_the_sink(
        "partitions-of-one-topic", "Only partitions of one topic are added to a transaction.", _partitions_of_one_topic
    ),
    _of_the_sink("one-encoder", "The rows of all topics are sent to the first one.", _one_encoder),
    _of_producers("offsets-of-one-topic", "Only the offsets of one topic are committed.", _offsets_of_one_topic),
    BugsOf("connections")(
        "group-offsets-of-one-topic", "A group's offsets of one topic only are committed.", _offsets_of_one_topic
    ),
    _of_producers(
        "queue-of-another-topic", "Records are queued for another topic's partition.", _queue_of_another_topic
    ),
    _of_producers("keys-lost", "Only the first record of a batch keeps its key.", _changed_records(_lose_keys)),
    _of_producers("headers-lost", "Headers are lost if another record has none.", _changed_records(_lose_headers)),
    _of_producers("one-timestamp", "A batch has one timestamp.", _changed_records(_share_timestamp)),
    _of_producers(
        "range-of-last-batch", "What was written to a partition is that of the last batch.", _range_of_last_batch
    ),
    _of_producers("later-epoch", "A record's metadata has the epoch of the next leader.", _later_epoch),
    _of_producers("connections-stay-open", "A producer closes one of its connections.", _connections_stay_open),
    BugsOf("range_reads")(
        "offsets-of-one-topic-planned",
        "Other topics get the offsets of the first one.",
        _planned_offsets_of_one_topic,
    ),
)
