"""Where a batch starts and ends, with Spark and a real broker: the cases of Spark's own batch source."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.topics import wait_until_stable

from pyspark_kafka_direct import DataLossError, error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

START = 1_700_000_000_000  # the timestamp of the first record of each partition, in ms
STEP = 100  # from one record to the next
COUNT = 5  # records of each partition

Offsets: TypeAlias = dict[int, list[int]]
Read: TypeAlias = "Callable[..., DataFrame]"


def write(kafka: EmbeddedKafka, topic: str, partition: int, count: int, first: int = 0) -> None:
    """Write records numbered from ``first``; the number is the value and determines the timestamp."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=partition, timestamp=START + STEP * number)
    assert producer.flush(300) == 0


def delete_records(kafka: EmbeddedKafka, topic: str, partition: int, before: int) -> None:
    """Make ``before`` the log start offset, as retention would."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for deleted in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        assert deleted.result(600).low_watermark == before


@pytest.fixture(scope="module")
def read(spark: SparkSession, kafka: EmbeddedKafka) -> Read:
    def read(topic: str | None = None, **options: object) -> DataFrame:
        reader = spark.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        if topic is not None:
            reader = reader.option("subscribe", topic)
        return reader.options(**{name: _text(option) for name, option in options.items()}).load()

    return read


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    """Three partitions; the second has its records one step later, the third is empty."""
    name = make_topic(partitions=3)
    write(kafka, name, 0, COUNT)
    write(kafka, name, 1, COUNT, first=1)
    return name


def _text(option: object) -> str:
    return option if isinstance(option, str) else json.dumps(option)


def offsets(frame: DataFrame) -> Offsets:
    """The offsets read of each partition, in the order of reading, without empty partitions."""
    found: Offsets = {}
    for partition, offset in frame.select("partition", "offset").collect():
        found.setdefault(partition, []).append(offset)
    return found


def expected(*ranges: tuple[int, int]) -> Offsets:
    """Offsets from and until, for partitions 0, 1 and so on."""
    return {partition: list(range(*each)) for partition, each in enumerate(ranges) if range(*each)}


def at(number: float) -> int:
    """The timestamp of the record with that number."""
    return int(START + STEP * number)


def assert_rejected(frame: Callable[[], DataFrame], *messages: str) -> None:
    with pytest.raises(Exception, match=r"errors\.InvalidOffsetsError") as caught:
        frame().collect()
    for each in messages:
        assert each in str(caught.value)


def test_everything_by_default_and_by_name(read: Read, topic: str) -> None:
    everything = expected((0, COUNT), (0, COUNT))
    assert offsets(read(topic)) == everything
    assert offsets(read(topic, startingOffsets="earliest", endingOffsets="latest")) == everything
    assert offsets(read(topic, StartingOFFSETS="Earliest", endingoffsets="LATEST")) == everything


def test_explicit_offsets(read: Read, topic: str) -> None:
    start, end = {topic: {"0": -2, "1": 3, "2": 0}}, {topic: {"0": 2, "1": -1, "2": 0}}
    assert offsets(read(topic, startingOffsets=start, endingOffsets=end)) == expected((0, 2), (3, COUNT))
    assert offsets(read(topic, startingOffsets=start)) == expected((0, COUNT), (3, COUNT))
    assert offsets(read(topic, endingOffsets=end)) == expected((0, 2), (0, COUNT))
    whole_topics = read(topic, startingOffsets={topic: "earliest"}, endingOffsets={topic: "latest"})
    assert offsets(whole_topics) == expected((0, COUNT), (0, COUNT))


def test_times_before_now_and_the_last_offsets(read: Read, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    flights, delays = make_topic(partitions=2, prefix="flights"), make_topic(prefix="delays")
    now = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for name, partition, ages in ((flights, 0, (180, 60, 90, 10)), (flights, 1, (180,)), (delays, 0, (100, 5))):
        for minutes in ages:
            producer.produce(name, b"value", partition=partition, timestamp=now - 60_000 * minutes)
    assert producer.flush(300) == 0

    def records(**options: object) -> dict[tuple[str, int], list[int]]:
        found: dict[tuple[str, int], list[int]] = {}
        for row in read(f"{flights},{delays}", **options).select("topic", "partition", "offset").collect():
            found.setdefault((row.topic, row.partition), []).append(row.offset)
        return found

    noon = datetime.fromtimestamp((now - 60_000 * 70) / 1000, UTC).isoformat()
    last_hours = {(flights, 0): [1, 2, 3], (delays, 0): [1]}
    assert records(startingOffsets="-70m", endingOffsets="now") == last_hours
    assert records(startingOffsets=noon) == last_hours
    assert records(startingTimestamp="-70m", endingTimestamp="-20m") == {(flights, 0): [1, 2]}
    last = {(flights, 0): [2, 3], (flights, 1): [0], (delays, 0): [0, 1]}
    assert records(startingOffsets="last 2") == last
    partial = {flights: {"0": 3, "*": "earliest"}, "*": "-70m"}
    assert records(startingOffsets=partial) == {(flights, 0): [3], (flights, 1): [0], (delays, 0): [1]}
    with pytest.raises(Exception, match=r"start -1h \(startingOffsets\) is greater than the end -2h \(endingOffsets\)"):
        read(flights, startingOffsets="-1h", endingOffsets="-2h")


def test_which_partitions(read: Read, topic: str) -> None:
    assert offsets(read(assign={topic: [1]})) == expected((0, 0), (0, COUNT))
    both = read(assign={topic: [0, 1]}, startingOffsets={topic: {"0": 4, "1": 4}})
    assert offsets(both) == expected((4, COUNT), (4, COUNT))


def test_several_topics(read: Read, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    topics = [make_topic(prefix=prefix) for prefix in ("arrivals", "early.arrivals", "departures")]
    for count, name in enumerate(topics, start=1):
        write(kafka, name, 0, count)

    def records(frame: DataFrame) -> dict[str, int]:
        return {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}

    run = topics[0].removeprefix("arrivals-").split("-")[0]
    assert records(read(", ".join(topics))) == {topics[0]: 1, topics[1]: 2, topics[2]: 3}
    # Matching a part of the name is enough, as for Spark's own source.
    assert records(read(subscribePattern=rf"arrivals-{run}-\d")) == {topics[0]: 1, topics[1]: 2}
    assert records(read(subscribePattern=rf"^arrivals-{run}-\d+$")) == {topics[0]: 1}
    assert records(read(subscribePattern=rf"(.*arrivals|dep\p{{Lower}}+)-{run}-\d+")) == {
        topics[0]: 1,
        topics[1]: 2,
        topics[2]: 3,
    }
    assert records(read(subscribePattern="no topic")) == {}


def test_patterns_exclude_internal_topics(read: Read, kafka: EmbeddedKafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "internal"})
    producer.init_transactions(600)  # the broker creates the topic and writes to it
    assert read(subscribePattern="__transaction_state").count() == 0
    assert read("__transaction_state").count() > 0


def test_timestamps_of_partitions(read: Read, topic: str) -> None:
    start = {topic: {"0": at(1), "1": at(2.5), "2": at(0)}}
    end = {topic: {"0": at(3), "1": at(4.01), "2": at(9)}}
    latest = {"startingOffsetsByTimestampStrategy": "latest"}  # for the empty partition
    both = read(topic, startingOffsetsByTimestamp=start, endingOffsetsByTimestamp=end, **latest)
    assert offsets(both) == expected((1, 3), (2, 4))
    offset_end = {topic: {"0": 4, "1": -1, "2": -1}}
    assert offsets(read(topic, startingOffsetsByTimestamp=start, endingOffsets=offset_end, **latest)) == expected(
        (1, 4), (2, COUNT)
    )
    offset_start = {topic: {"0": -2, "1": 1, "2": -2}}
    assert offsets(read(topic, startingOffsets=offset_start, endingOffsetsByTimestamp=end)) == expected((0, 3), (1, 4))
    assert offsets(read(topic, startingOffsetsByTimestamp=start, **latest)) == expected((1, COUNT), (2, COUNT))
    assert offsets(read(topic, endingOffsetsByTimestamp=end)) == expected((0, 3), (0, 4))


def test_one_timestamp_for_all(read: Read, topic: str) -> None:
    latest = {"startingOffsetsByTimestampStrategy": "LATEST"}
    assert offsets(read(topic, startingTimestamp=at(3), **latest)) == expected((3, COUNT), (2, COUNT))
    assert offsets(read(topic, endingTimestamp=at(3))) == expected((0, 3), (0, 2))
    both = read(topic, startingTimestamp=at(1), endingTimestamp=at(4), **latest)
    assert offsets(both) == expected((1, 4), (0, 3))
    assert offsets(read(topic, startingTimestamp=0, endingTimestamp=0, **latest)) == {}


def test_a_starting_timestamp_without_a_record(read: Read, topic: str) -> None:
    late = {topic: {"0": at(1), "1": at(COUNT + 1), "2": at(0)}}
    advice = "startingOffsetsByTimestampStrategy=latest"
    assert_rejected(
        lambda: read(topic, startingOffsetsByTimestamp=late), "startingOffsetsByTimestamp", f"{topic}-1", advice
    )
    assert_rejected(lambda: read(topic, startingTimestamp=at(COUNT)), "startingTimestamp", f"{topic}-0", advice)
    found = read(topic, startingOffsetsByTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert offsets(found) == expected((1, COUNT))
    found = read(topic, startingTimestamp=at(COUNT), startingOffsetsByTimestampStrategy="latest")
    assert offsets(found) == expected((0, 0), (4, COUNT))


def test_an_ending_timestamp_without_a_record_reads_to_the_end(read: Read, topic: str) -> None:
    late = {topic: {"0": at(2), "1": at(COUNT + 1), "2": at(0)}}
    # The strategy applies to starts only.
    found = read(topic, endingOffsetsByTimestamp=late, startingOffsetsByTimestampStrategy="error")
    assert offsets(found) == expected((0, 2), (0, COUNT))
    assert offsets(read(topic, endingTimestamp=at(1000))) == expected((0, COUNT), (0, COUNT))


def test_which_option_comes_first(read: Read, topic: str) -> None:
    starts: dict[str, Any] = {
        "startingTimestamp": at(3),
        "startingOffsetsByTimestamp": {topic: {"0": at(2), "1": at(2), "2": at(2)}},
        "startingOffsets": {topic: {"0": 1, "1": 1, "2": 0}},
        "startingOffsetsByTimestampStrategy": "latest",
    }
    ends: dict[str, Any] = {
        "endingTimestamp": at(4),
        "endingOffsetsByTimestamp": {topic: {"0": at(4.5), "1": at(4.5), "2": at(4.5)}},
        "endingOffsets": {topic: {"0": 3, "1": 3, "2": 0}},
    }
    assert offsets(read(topic, **starts, **ends)) == expected((3, 4), (2, 3))
    del starts["startingTimestamp"], ends["endingTimestamp"]
    assert offsets(read(topic, **starts, **ends)) == expected((2, COUNT), (1, 4))
    del starts["startingOffsetsByTimestamp"], ends["endingOffsetsByTimestamp"]
    assert offsets(read(topic, **starts, **ends)) == expected((1, 3), (1, 3))


def test_a_frame_is_planned_once(read: Read, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    """A deviation from Spark's connector, where a second action sees records written in between."""
    name = make_topic()
    write(kafka, name, 0, 3)
    frame = read(name)
    assert offsets(frame) == expected((0, 3))
    write(kafka, name, 0, 2, first=3)
    assert offsets(frame) == expected((0, 3))
    assert offsets(frame.where("offset > 0")) == {0: [1, 2]}
    assert offsets(read(name)) == expected((0, 5))


def test_records_may_age_out_after_the_first_action(read: Read, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    name = make_topic()
    write(kafka, name, 0, 10)
    earliest = read(name)
    by_number = read(name, startingOffsets={name: {"0": 0}})
    by_number_if_there = read(name, startingOffsets={name: {"0": 0}}, failOnDataLoss="false")
    for frame in (earliest, by_number, by_number_if_there):
        assert offsets(frame) == expected((0, 10))
    delete_records(kafka, name, 0, before=4)
    # `earliest` is the log start when it is read; a number is an explicit request.
    assert offsets(earliest) == expected((4, 10))
    assert offsets(by_number_if_there) == expected((4, 10))
    with pytest.raises(Exception, match=r"errors\.DataLossError.*offsets \[0, 4\).*removed by retention"):
        by_number.collect()


def test_records_that_expire_in_a_later_split_are_lost(read: Read, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    name = make_topic()
    write(kafka, name, 0, 10)
    frame = read(name, maxRecordsPerPartition=5)
    skipping = read(name, maxRecordsPerPartition=5, failOnDataLoss="false")
    for each in (frame, skipping):
        assert offsets(each) == expected((0, 10))
    delete_records(kafka, name, 0, before=4)
    assert offsets(frame) == expected((4, 10))
    delete_records(kafka, name, 0, before=7)
    with pytest.raises(Exception, match=r"errors\.DataLossError.*offsets \[5, 7\).*removed by retention") as caught:
        frame.collect()
    error = error_of(caught.value)
    assert isinstance(error, DataLossError)
    assert (error.topic, error.partition, error.offset) == (name, 0, 5)
    assert offsets(skipping) == expected((7, 10))


def test_offsets_that_are_not_in_the_log(read: Read, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    name = make_topic()
    write(kafka, name, 0, 10)
    delete_records(kafka, name, 0, before=4)
    for options, existing, message in (
        ({"startingOffsets": {name: {"0": 2}}}, (4, 10), r"offsets \[2, 4\)"),
        ({"endingOffsets": {name: {"0": 12}}}, (4, 10), r"offsets \[10, 12\)"),
        ({"startingOffsets": {name: {"0": 11}}}, (0, 0), r"offsets \[10, 11\)"),
    ):
        with pytest.raises(Exception, match=rf"errors\.DataLossError.*{message}.*failOnDataLoss=false"):
            read(name, **options).collect()
        assert offsets(read(name, failOnDataLoss="false", **options)) == expected(existing)


def test_transactions(read: Read, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    name = make_topic()
    # By default Kafka aborts transactions that are open for a minute, which may happen on a busy machine.
    patient = {"transactional.id": name, "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **patient})
    producer.init_transactions(600)

    def transaction(values: Sequence[bytes]) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value, partition=0)
        assert producer.flush(300) == 0

    transaction([b"committed", b"too"])
    producer.commit_transaction(600)
    transaction([b"aborted"])
    producer.abort_transaction(600)
    transaction([b"open"])
    uncommitted = {0: [0, 1, 3, 5]}  # 2 and 4 are transaction markers
    wait_until_stable(kafka.bootstrap_servers, name, 5)
    assert offsets(read(name)) == uncommitted
    assert offsets(read(name, **{"kafka.isolation.level": "read_uncommitted"})) == uncommitted
    assert offsets(read(name, **{"kafka.isolation.level": "read_committed"})) == {0: [0, 1]}
    producer.commit_transaction(600)
    wait_until_stable(kafka.bootstrap_servers, name, 7)
    assert offsets(read(name, **{"kafka.isolation.level": "read_committed"})) == {0: [0, 1, 5]}


def test_the_number_of_tasks(read: Read, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    name = make_topic(partitions=3)
    write(kafka, name, 0, 11)
    write(kafka, name, 1, 2)

    def tasks(**options: object) -> int:
        frame = read(name, **options)
        found = offsets(frame)
        assert {partition: sorted(numbers) for partition, numbers in found.items()} == expected((0, 11), (0, 2))
        return frame.rdd.getNumPartitions()

    assert tasks() == 2  # an empty range has no task
    assert tasks(minPartitions=2) == 2
    assert tasks(minPartitions=6) == 6
    assert tasks(minPartitions=50) == 13
    assert tasks(maxRecordsPerPartition=4) == 3 + 1
    assert tasks(maxRecordsPerPartition=4, minPartitions=6) == 6


def test_explicit_ranges(read: Read, topic: str) -> None:
    ranges = [
        {"topic": topic, "partition": 1, "fromOffset": 3, "untilOffset": 5},
        {"topic": topic, "partition": 0, "fromOffset": 0, "untilOffset": 2},
        {"topic": topic, "partition": 1, "fromOffset": 0, "untilOffset": 1},
    ]
    frame = read(offsetRanges=ranges)
    assert offsets(frame) == {0: [0, 1], 1: [3, 4, 0]}
    assert frame.rdd.getNumPartitions() == 3
    overlapping = [{**ranges[1]}, {**ranges[1], "fromOffset": 1, "untilOffset": 3}]
    assert offsets(read(offsetRanges=overlapping)) == {0: [0, 1, 1, 2]}
    assert offsets(read(offsetRanges=[])) == {}


def test_start_and_end_must_name_the_same_partitions(read: Read, topic: str) -> None:
    three, two = {topic: {"0": 1, "1": 1, "2": 0}}, {topic: {"0": 3, "1": 3}}
    assert_rejected(
        lambda: read(topic, startingOffsets=three, endingOffsets=two), "same topic-partitions", f"{topic}-2"
    )
    assert_rejected(
        lambda: read(topic, startingOffsets=two, endingOffsets=three), "same topic-partitions", f"{topic}-2"
    )
    assert_rejected(
        lambda: read(topic, startingOffsetsByTimestamp=three, endingOffsetsByTimestamp=two),
        "same topic-partitions",
        f"{topic}-2",
    )


def test_offsets_must_name_exactly_the_assigned_partitions(read: Read, topic: str) -> None:
    two, four = {topic: {"0": 1, "1": 1}}, {topic: {"0": 1, "1": 1, "2": 0, "3": 0}}
    for name in ("startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"):
        assert_rejected(lambda name=name: read(topic, **{name: two}), name, f"missing: {topic}-2")  # type: ignore[misc]
        assert_rejected(lambda name=name: read(topic, **{name: four}), name, f"not assigned: {topic}-3")  # type: ignore[misc]


def test_a_start_after_its_end(read: Read, topic: str) -> None:
    def numbers(*values: int) -> dict[str, dict[str, int]]:
        return {topic: dict(zip("012", values, strict=True))}

    # Detected in the options.
    assert_rejected(
        lambda: read(topic, startingOffsets=numbers(1, 4, 0), endingOffsets=numbers(3, 2, 0)),
        "start offset 4 (startingOffsets) is greater than the end offset 2 (endingOffsets)",
        f"{topic}, partition 1",
    )
    assert_rejected(
        lambda: read(
            topic,
            startingOffsetsByTimestamp=numbers(at(1), at(4), 0),
            endingOffsetsByTimestamp=numbers(at(3), at(2), 0),
        ),
        "start timestamp",
        "greater than the end timestamp",
    )
    assert_rejected(
        lambda: read(
            topic, startingTimestamp=at(4), endingTimestamp=at(2), startingOffsetsByTimestampStrategy="latest"
        ),
        f"start timestamp {at(4)} (startingTimestamp) is greater than the end timestamp {at(2)} (endingTimestamp)",
    )
    # Detected after the lookups.
    assert_rejected(
        lambda: read(topic, startingOffsets=numbers(4, 0, 0), endingTimestamp=at(2)),
        "resolved start offset 4 (given) is greater than the resolved end offset 2 (timestamp)",
    )


def test_pushed_filters_need_sparks_setting(read: Read, topic: str) -> None:
    assert offsets(read(topic).where("partition = 1 and offset > 2")) == {1: [3, 4]}
    with pytest.raises(Exception, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        read(topic, pushDownFilters="true").where("partition = 1").collect()
