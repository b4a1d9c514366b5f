"""The direct stream on a broker: the tests of Spark's suite, except for restarts (``test_stream_restarts``)."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.streaming import StreamingContext
from pyspark.streaming.listener import StreamingListener
from tests.integration.topics import Admin
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies, OffsetRange, TopicPartition
from pyspark_kafka_direct.direct.stream_client import resolve_new_partition_offsets, resolve_starting_offsets
from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError, TopicNotFoundError
from pyspark_kafka_direct.offsets import LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.direct import DirectKafkaInputDStream, KafkaRDD

DEADLINE = 600  # seconds


class Batches:
    """The values and ranges of a stream's batches, collected in ``foreachRDD``."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.ranges: list[list[OffsetRange]] = []
        self.errors: list[str] = []
        self._changed = threading.Condition()

    def collect(self, rdd: KafkaRDD) -> None:
        ranges = rdd.offsetRanges()
        sizes = rdd.mapPartitions(lambda records: [sum(1 for _ in records)]).collect()
        values = rdd.map(lambda record: record.value.decode()).collect()
        with self._changed:
            if sizes != [each.count() for each in ranges]:
                self.errors.append(f"{sizes} records in {ranges}")
            self.values += values
            self.ranges.append(ranges)
            self._changed.notify_all()

    def wait(self, enough: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(enough, DEADLINE), (self.values[:50], self.ranges[-3:])

    def wait_for_batches(self, more: int) -> None:
        goal = len(self.ranges) + more
        self.wait(lambda: len(self.ranges) >= goal)


@pytest.fixture
def ssc(spark: SparkSession) -> Iterator[StreamingContext]:
    with pytest.warns(FutureWarning, match="DStream is deprecated"):
        context = StreamingContext(spark.sparkContext, 0.5)  # type: ignore[arg-type]
    yield context
    context.stop(stopSparkContext=False, stopGraceFully=False)


@pytest.fixture
def params(kafka: EmbeddedKafka) -> dict[str, object]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": f"direct-{uuid.uuid4().hex[:8]}",
        "auto.offset.reset": "earliest",
    }


def direct_stream(ssc: StreamingContext, strategy: Any, **more: Any) -> DirectKafkaInputDStream:
    return KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy, **more)


def texts(topic: str, first: int, last: int) -> list[str]:
    return [f"{topic}:{number}" for number in range(first, last)]


@pytest.mark.smoke
def test_several_topics_from_earliest_and_from_a_given_offset(
    ssc: StreamingContext, params: dict[str, object], make_topic: MakeTopic, put: Any
) -> None:
    topics = [make_topic(2), make_topic(), make_topic()]
    for topic in topics:
        put(topic, texts(topic, 0, 6), partition=0)
    put(topics[0], texts(topics[0], 6, 10), partition=1)
    given = {TopicPartition(topics[2], 0): 2}
    batches = Batches()
    direct_stream(ssc, ConsumerStrategies.Subscribe(topics, params, given)).foreachRDD(batches.collect)
    ssc.start()
    expected = texts(topics[0], 0, 10) + texts(topics[1], 0, 6) + texts(topics[2], 2, 6)
    batches.wait(lambda: len(batches.values) >= len(expected))
    batches.wait_for_batches(2)
    assert sorted(batches.values) == sorted(expected)
    assert batches.errors == []
    assert [str(each.topic_partition) for each in batches.ranges[0]] == sorted(
        f"{topic}-{partition}" for topic, partition in [(topics[0], 0), (topics[0], 1), (topics[1], 0), (topics[2], 0)]
    )
    assert all(each.count() == 0 for each in batches.ranges[-1]), "a batch without new records is still generated"


def test_a_pattern_reads_matching_topics_from_the_given_offsets(
    ssc: StreamingContext, params: dict[str, object], make_topic: MakeTopic, put: Any
) -> None:
    prefix = f"pat{uuid.uuid4().hex[:6]}"
    topics = [make_topic(prefix=f"{prefix}-yes") for _ in range(3)]
    other = make_topic(prefix=f"{prefix}-no")
    for topic in [*topics, other]:
        put(topic, texts(topic, 0, 6))
    given = {TopicPartition(topics[1], 0): 3, TopicPartition(topics[2], 0): 4}
    batches = Batches()
    strategy = ConsumerStrategies.SubscribePattern(f"{prefix}-yes-[\\w-]+", params, given)
    direct_stream(ssc, strategy).foreachRDD(batches.collect)
    ssc.start()
    expected = texts(topics[0], 0, 6) + texts(topics[1], 3, 6) + texts(topics[2], 4, 6)
    batches.wait(lambda: len(batches.values) >= len(expected))
    late = make_topic(2, prefix=f"{prefix}-yes")  # a topic that is created while the stream runs
    put(late, texts(late, 0, 3), partition=1)
    expected += texts(late, 0, 3)
    batches.wait(lambda: len(batches.values) >= len(expected))
    assert sorted(batches.values) == sorted(expected)


def test_from_latest_and_partitions_that_are_added_later(
    ssc: StreamingContext, params: dict[str, object], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka
) -> None:
    topic = make_topic()
    put(topic, texts(topic, 0, 10))
    batches = Batches()
    strategy = ConsumerStrategies.Subscribe([topic], {**params, "auto.offset.reset": "latest"})
    direct_stream(ssc, strategy).foreachRDD(batches.collect)
    put(topic, texts(topic, 10, 20))
    Admin(kafka.bootstrap_servers).grow(topic, 2)
    put(topic, texts("later", 0, 3), partition=1)  # before the stream discovers the partition
    ssc.start()
    batches.wait(lambda: len(batches.values) >= 13)
    batches.wait_for_batches(2)
    assert sorted(batches.values) == sorted(texts(topic, 10, 20) + texts("later", 0, 3)), (
        "no record is skipped, and no older record is read"
    )


def test_assigned_partitions_from_a_given_offset(
    ssc: StreamingContext, params: dict[str, object], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka
) -> None:
    topic = make_topic()
    put(topic, texts(topic, 0, 11))
    partition = TopicPartition(topic, 0)
    batches = Batches()
    no_reset = {**params, "auto.offset.reset": "none"}
    stream = direct_stream(ssc, ConsumerStrategies.Assign([partition], no_reset, {partition: 11}))
    stream.foreachRDD(lambda _, rdd: batches.collect(rdd))
    assert stream.currentOffsets() == {partition: 11}
    put(topic, texts(topic, 11, 15))
    Admin(kafka.bootstrap_servers).grow(topic, 2)
    put(topic, ["not assigned"], partition=1)
    ssc.start()
    batches.wait(lambda: len(batches.values) >= 4)
    batches.wait_for_batches(2)
    assert batches.values == texts(topic, 11, 15)


def test_committed_offsets_take_precedence_over_the_reset(
    ssc: StreamingContext, params: dict[str, object], make_topic: MakeTopic, put: Any
) -> None:
    """commitAsync after each batch: its callback gets no error, and a new stream of the group starts there."""
    topic = make_topic()
    put(topic, texts(topic, 0, 10))
    batches, callbacks, called = Batches(), [], threading.Event()
    stream = direct_stream(ssc, ConsumerStrategies.Subscribe([topic], params))

    def on_commit(offsets: Any, error: Exception | None) -> None:
        callbacks.append((dict(offsets), error))
        called.set()

    def commit(rdd: KafkaRDD) -> None:
        batches.collect(rdd)
        stream.commitAsync(rdd.offsetRanges(), on_commit)

    stream.foreachRDD(commit)
    ssc.start()
    assert called.wait(DEADLINE)
    put(topic, texts(topic, 10, 15))
    batches.wait(lambda: len(batches.values) >= 15)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)  # which sends the commits of the last batches
    assert all(error is None for _, error in callbacks)
    assert callbacks[-1] == ({TopicPartition(topic, 0): 15}, None)
    with pytest.warns(FutureWarning, match="DStream is deprecated"):
        later = StreamingContext(ssc.sparkContext, 1)
    again = direct_stream(later, ConsumerStrategies.Subscribe([topic], params))
    assert again.currentOffsets() == {TopicPartition(topic, 0): 15}
    again.commitSync([OffsetRange(topic, 0, 0, 3)])
    after_sync = direct_stream(later, ConsumerStrategies.Subscribe([topic], {**params, "auto.offset.reset": "none"}))
    assert after_sync.currentOffsets() == {TopicPartition(topic, 0): 3}
    later.stop(stopSparkContext=False)


def test_an_expired_committed_offset_is_reset(
    ssc: StreamingContext,
    params: dict[str, object],
    make_topic: MakeTopic,
    put: Any,
    kafka: EmbeddedKafka,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark's stream fails its first batch here, and its next batch skips the records of the first."""
    topic = make_topic(2)
    put(topic, texts(topic, 0, 20), partition=0)
    put(topic, texts(topic, 20, 30), partition=1)
    expired, beyond = TopicPartition(topic, 0), TopicPartition(topic, 1)
    cluster = ClusterClient(parse_client_params({"bootstrap.servers": kafka.bootstrap_servers}).connection)
    group = ConsumerGroup(cluster, str(params["group.id"]))
    group.commit({expired: 5, beyond: 500})
    Admin(kafka.bootstrap_servers).delete_records(topic, 12)
    with pytest.raises(InvalidOffsetsError, match=r"retention deleted .* auto\.offset\.reset is none"):
        direct_stream(ssc, ConsumerStrategies.Assign([expired], {**params, "auto.offset.reset": "none"}))
    batches = Batches()
    stream = direct_stream(ssc, ConsumerStrategies.Subscribe([topic], params))
    assert stream.currentOffsets() == {expired: 12, beyond: 0}
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [
        f"the committed offset {offset} " in warning for offset, warning in zip((5, 500), warnings, strict=True)
    ] == [
        True,
        True,
    ]
    stream.foreachRDD(batches.collect)
    ssc.start()
    batches.wait(lambda: len(batches.values) >= 18)
    batches.wait_for_batches(2)
    assert sorted(batches.values) == texts(topic, 12, 30)


def test_an_offset_after_an_open_transaction_is_in_the_log(
    params: dict[str, object], make_topic: MakeTopic, put: Any, kafka: EmbeddedKafka
) -> None:
    """The group has read it without read_committed. A reset would read everything again."""
    topic = make_topic()
    put(topic, range(3))
    partition = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(600)
    producer.begin_transaction()
    producer.produce(topic, b"pending")
    producer.flush(300)
    cluster = ClusterClient(parse_client_params({"bootstrap.servers": kafka.bootstrap_servers}).connection)
    assert cluster.offsets({partition: LATEST}, isolation_level="read_committed") == {partition: 3}
    group = ConsumerGroup(cluster, str(params["group.id"]))
    group.commit({partition: 4})
    assert resolve_starting_offsets({partition: None}, cluster, "read_committed", group, "earliest") == {partition: 4}
    assert resolve_new_partition_offsets([partition], cluster, "read_committed", group, "earliest") == {partition: 4}
    producer.abort_transaction(600)


def test_invalid_strategies_are_rejected_immediately(
    ssc: StreamingContext, params: dict[str, object], make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic()
    put(topic, range(5))
    partition = TopicPartition(topic, 0)
    no_reset = {**params, "auto.offset.reset": "none"}
    for strategy, error, text in [
        (
            ConsumerStrategies.Subscribe([topic], no_reset),
            InvalidOffsetsError,
            "auto.offset.reset is none; pass offsets",
        ),
        (ConsumerStrategies.Subscribe([topic], params, {partition: 6}), InvalidOffsetsError, "holds 0 to 5"),
        (
            ConsumerStrategies.Subscribe([topic], params, {TopicPartition("other", 0): 1}),
            InvalidOffsetsError,
            "partitions that are not read: other-0",
        ),
        (ConsumerStrategies.Subscribe([topic + "x"], params), TopicNotFoundError, f"did you mean '{topic}'"),
        (ConsumerStrategies.Assign([TopicPartition(topic, 7)], params), TopicNotFoundError, f"{topic}-7"),
        (ConsumerStrategies.Subscribe([topic], {**params, "fetch.min.bytes": "many"}), OptionError, "fetch.min.bytes"),
    ]:
        with pytest.raises(error, match=text):
            direct_stream(ssc, strategy)
    with pytest.raises(OptionError, match="location strategy"):
        KafkaUtils.createDirectStream(ssc, "anywhere", ConsumerStrategies.Subscribe([topic], params))  # type: ignore[arg-type]


def test_a_custom_strategy(ssc: StreamingContext, params: dict[str, object], make_topic: MakeTopic, put: Any) -> None:
    topic = make_topic(3)
    put(topic, texts("a", 0, 5), partition=0)
    put(topic, texts("b", 0, 5), partition=2)

    class EvenPartitions:
        executor_params = params

        def on_start(self, cluster: Any, current_offsets: Any) -> dict[TopicPartition, int | None]:
            partitions = cluster.topics([topic])[topic].partitions
            return {TopicPartition(topic, number): 3 if number else None for number in partitions if number % 2 == 0}

    batches = Batches()
    direct_stream(ssc, EvenPartitions()).foreachRDD(batches.collect)
    ssc.start()
    batches.wait(lambda: len(batches.values) >= 7)
    assert batches.values == texts("a", 0, 5) + texts("b", 3, 5)


def test_spark_listeners_get_the_records_of_each_batch(
    ssc: StreamingContext, params: dict[str, object], make_topic: MakeTopic, put: Any
) -> None:
    topic = make_topic(2)
    put(topic, range(7), partition=0)
    put(topic, range(9), partition=1)
    events = BatchEvents()
    ssc.addStreamingListener(events)
    batches = Batches()
    direct_stream(ssc, ConsumerStrategies.Subscribe([topic], params)).foreachRDD(batches.collect)
    ssc.start()
    batches.wait_for_batches(2)
    put(topic, range(4), partition=0)
    batches.wait(lambda: len(batches.values) >= 20)
    events.wait(lambda: all(events.totals[kind] == 20 for kind in ("submitted", "started", "completed")))
    assert events.descriptions[0] == (
        f"topic: {topic}\tpartition: 1\toffsets: 0 to 9\tcount: 9\n"
        f"topic: {topic}\tpartition: 0\toffsets: 0 to 7\tcount: 7"
    )
    assert "" in events.descriptions, "a batch without new records"
    assert events.offsets[0] == [
        {"topic": topic, "partition": 0, "fromOffset": 0, "untilOffset": 7},
        {"topic": topic, "partition": 1, "fromOffset": 0, "untilOffset": 9},
    ]
    assert [
        {"topic": topic, "partition": 0, "fromOffset": 7, "untilOffset": 7},
        {"topic": topic, "partition": 1, "fromOffset": 9, "untilOffset": 9},
    ] in events.offsets, "empty ranges are reported as well, as in Spark's stream"


class BatchEvents(StreamingListener):
    """Collects the batch events of Spark."""

    def __init__(self) -> None:
        super().__init__()
        self.totals = {"submitted": 0, "started": 0, "completed": 0}
        self.descriptions: list[str] = []
        self.offsets: list[list[dict[str, Any]]] = []
        self._changed = threading.Condition()

    def wait(self, enough: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(enough, DEADLINE), (self.totals, self.descriptions)

    def _add(self, kind: str, event: Any) -> Any:
        infos = event.batchInfo().streamIdToInputInfo()
        (stream,) = list(infos)
        with self._changed:
            self.totals[kind] += infos[stream].numRecords()
            self._changed.notify_all()
        return infos[stream]

    def onBatchSubmitted(self, batchSubmitted: Any) -> None:  # noqa: N803 (Spark names the argument)
        info = self._add("submitted", batchSubmitted)
        ranges = info.metadata()["offsets"]
        self.offsets.append([dict(ranges.apply(number)) for number in range(ranges.size())])
        self.descriptions.append(info.metadataDescription())

    def onBatchStarted(self, batchStarted: Any) -> None:  # noqa: N803 (Spark names the argument)
        self._add("started", batchStarted)

    def onBatchCompleted(self, batchCompleted: Any) -> None:  # noqa: N803 (Spark names the argument)
        self._add("completed", batchCompleted)
