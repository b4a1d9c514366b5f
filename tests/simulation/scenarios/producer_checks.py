"""What the scenarios of producers share."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Self

from tests.simulation.cluster.stored_batch import BASE_TIMESTAMP
from tests.simulation.errors import ViolationError
from tests.simulation.record_attributes import RecordAttributes, attributes_of
from tests.simulation.scenarios.several_topics import partition_counts

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ProducerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.environment import Environment

TOPICS: Final = ("flights", "trains", "ships")
PASSING_TOPIC: Final = "strikes"  # with two partitions; it may be deleted, recreated or forbidden
LARGE_BYTES: Final = 600  # of values that no topic with a limit accepts
QUIET_SECONDS: Final = 3.0  # within which a record or a transaction is acknowledged when no fault is left
NO_ATTRIBUTES: Final = RecordAttributes(None, BASE_TIMESTAMP, ())


def settings(parameters: Mapping[str, Any]) -> ProducerSettings:
    return ProducerSettings(
        batch_bytes=parameters["batch_bytes"],
        max_in_flight=parameters["max_in_flight"],
        delivery_timeout_ms=parameters["delivery_timeout_ms"],
        buffer_bytes=parameters.get("buffer_bytes", 32 << 20),
        codec=parameters.get("codec", "none"),
        max_request_bytes=parameters.get("max_request_bytes", 1 << 20),
    )


class LoggedWarnings(logging.Handler):
    """The warnings and errors that the package logs; use it in a ``with`` statement."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def __enter__(self) -> Self:
        logging.getLogger("pyspark_kafka_direct").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("pyspark_kafka_direct").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def topic_configs(parameters: Mapping[str, Any]) -> dict[str, str]:
    configs = {}
    if parameters.get("max_message_bytes"):
        configs["max.message.bytes"] = str(parameters["max_message_bytes"])
    if parameters.get("append_time"):
        configs["message.timestamp.type"] = "LogAppendTime"
    return configs


def visible_records(environment: Environment, isolation: int) -> dict[TopicPartition, list[tuple[int, bytes | None]]]:
    """Return offsets and values of the records in each partition at the end."""
    topics = environment.cluster.topics
    partitions = [
        TopicPartition(topic, index)
        for topic in partition_counts(TOPICS, environment.plan.parameters)
        for index in range(len(topics[topic].partitions))
    ]
    return {tp: environment.oracle.records(tp, 0, 1 << 60, isolation) for tp in partitions}


def check_attributes(environment: Environment, partition: TopicPartition, value: bytes) -> None:
    """Check that a record has its key, timestamp and headers."""
    if environment.plan.parameters["attributes"]:
        found, expected = environment.oracle.attributes[*partition, value], attributes_of(value)
        if environment.plan.parameters.get("append_time"):
            expected = expected._replace(timestamp=found.timestamp)
        if found != expected:
            raise ViolationError(f"the record {value!r} in {partition} has {found}, not {expected}")


def java_partition(key: bytes, partitions: int) -> int:
    """Return the partition that Java's client chooses for a key (``Utils.murmur2``), without the package's code."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    value = 0x9747B28C ^ len(key)
    for start in range(0, len(key) - 3, 4):
        word = int.from_bytes(key[start : start + 4], "little") * multiplier & mask
        value = (value * multiplier & mask) ^ ((word ^ word >> 24) * multiplier & mask)
    if rest := key[len(key) & ~3 :]:
        value = (value ^ int.from_bytes(rest, "little")) * multiplier & mask
    value = (value ^ value >> 13) * multiplier & mask
    return ((value ^ value >> 15) & 0x7FFFFFFF) % partitions
