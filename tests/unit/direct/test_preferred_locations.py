"""The preferred executor of a topic-partition, by the rules and numbers of Spark's KafkaRDD."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct import TopicPartition
from pyspark_kafka_direct.direct.location_strategies import (
    Executor,
    java_hash_code,
    parse_executors,
    preferred_location,
)

BLOCK_MANAGER_IDS = (
    "BlockManagerId(3, a, 1001, None); BlockManagerId(4, a, 1002, None); "
    "BlockManagerId(1, b, 1003, Some(/rack)); BlockManagerId(2, b, 1004, None)"
)
EXECUTORS = [Executor("b", "2"), Executor("b", "1"), Executor("a", "4"), Executor("a", "3")]
PARTITIONS = [TopicPartition("flights", number) for number in range(100)]


def test_executor_sorting() -> None:
    """KafkaRDDSuite "executor sorting": by host, then by id, both descending."""
    assert parse_executors(BLOCK_MANAGER_IDS) == EXECUTORS
    assert [executor.id for executor in parse_executors(BLOCK_MANAGER_IDS.replace("(4, a", "(10, a"))] == [
        "2",
        "1",
        "3",
        "10",
    ]


@pytest.mark.parametrize(
    "host",
    [
        "ip-10-0-0-1.ec2.internal",
        "Worker-7.Example.COM.",
        "xn--bcher-kva.example",
        "spark_worker_1",
        "10.0.0.1",
        "[2001:db8::1]",  # Spark puts an IPv6 address in brackets
    ],
)
def test_executors_are_found_on_hosts_of_all_legal_names(host: str) -> None:
    executors = parse_executors(
        f"BlockManagerId(3, {host}, 1001, None); BlockManagerId(4-S0, {host}, 1002, Some(/rack-1)); "
        f"BlockManagerId(5, {host}0, 1003, None)"
    )
    assert executors == [Executor(f"{host}0", "5"), Executor(host, "4-S0"), Executor(host, "3")]
    chosen = {preferred_location(each, executors, {}) for each in PARTITIONS}
    assert chosen == {f"executor_{host}0_5", f"executor_{host}_4-S0", f"executor_{host}_3"}
    chosen = {preferred_location(each, executors, dict.fromkeys(PARTITIONS, host)) for each in PARTITIONS}
    assert chosen == {f"executor_{host}_4-S0", f"executor_{host}_3"}


def test_without_executors_there_is_no_preference() -> None:
    assert parse_executors("") == []
    assert preferred_location(PARTITIONS[0], [], {PARTITIONS[0]: "a"}) is None


@pytest.mark.parametrize(
    ("topic", "partition", "expected"),
    [
        ("", 0, 961),
        ("hello", 0, 99162322 + 961),
        ("hello", 7, 99162322 + 961 + 7 * 31),
        ("polygenelubricants", 0, -(1 << 31) + 961),  # its string hash is the minimum of an int
        ("\U0001f6eb", 0, 55357 * 31 + 57067 + 961),  # Java hashes UTF-16
    ],
)
def test_the_hash_code_equals_javas(topic: str, partition: int, expected: int) -> None:
    assert java_hash_code(TopicPartition(topic, partition)) == expected


def test_the_same_partition_goes_to_the_same_executor() -> None:
    first = [preferred_location(partition, EXECUTORS, {}) for partition in PARTITIONS]
    assert [preferred_location(partition, EXECUTORS, {}) for partition in PARTITIONS] == first
    assert first[0] == f"executor_{EXECUTORS[java_hash_code(PARTITIONS[0]) % 4].host}_" + (
        EXECUTORS[java_hash_code(PARTITIONS[0]) % 4].id
    )
    assert {first.count(executor.location) for executor in EXECUTORS} == {25}  # evenly


def test_a_preferred_host_limits_the_choice() -> None:
    chosen = {preferred_location(partition, EXECUTORS, dict.fromkeys(PARTITIONS, "a")) for partition in PARTITIONS}
    assert chosen == {"executor_a_3", "executor_a_4"}
    longer = [Executor("ab", "5"), *EXECUTORS]
    assert {preferred_location(each, longer, dict.fromkeys(PARTITIONS, "a")) for each in PARTITIONS} == chosen


def test_a_host_without_executors_is_ignored() -> None:
    partition = PARTITIONS[5]
    assert preferred_location(partition, EXECUTORS, {partition: "c"}) == preferred_location(partition, EXECUTORS, {})
