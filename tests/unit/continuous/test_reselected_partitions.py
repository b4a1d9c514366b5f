"""The error about partitions that are not selected any more names where the query would read them later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.continuous.test_checkpoint_logs import FakeFileManager, open_logs_on

from pyspark_kafka_direct.continuous.continuous_sink import custom_writer_factory
from pyspark_kafka_direct.continuous.continuous_start_planner import ContinuousStartPlanner
from pyspark_kafka_direct.continuous.kafka_writer import KafkaWriterFactory
from pyspark_kafka_direct.continuous.sink_delivery import AtLeastOnceDelivery, ExactlyOnceDelivery, SinkDelivery
from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.sink_options import parse_sink_options
from pyspark_kafka_direct.options.subscription import AssignStrategy

if TYPE_CHECKING:
    from tests.unit.planning.planner_cluster import NewCluster

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
EXACTLY_ONCE = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "alerts"}


class OwnSink:
    def write(self, batch: Any) -> None: ...

    def flush(self, positions: Any) -> None: ...

    def close(self) -> None: ...


def create_delivery(output: str) -> SinkDelivery:
    logs = open_logs_on(FakeFileManager())
    if output == "own sink":
        return AtLeastOnceDelivery(custom_writer_factory(OwnSink()), logs)
    options = {"kafka.bootstrap.servers": "b:1", "topic": "out", **(EXACTLY_ONCE if output == "exactly-once" else {})}
    parsed = parse_sink_options(options, streaming=True)
    if output == "exactly-once":
        return ExactlyOnceDelivery(parsed, None, logs, max_transaction_seconds=10)
    return AtLeastOnceDelivery(KafkaWriterFactory.of(parsed), logs)


@pytest.mark.parametrize(
    ("output", "start"),
    [
        ("at-least-once", r"they are read from their start \(KAFKA"),
        ("own sink", r"they are read from their start, or from the positions that the sink has stored \(KAFKA"),
        (
            "exactly-once",
            r"they are read from their offsets in the group 'alerts.cont', or from their start if brokers have deleted "
            r"these offsets \(KAFKA",
        ),
    ],
    ids=["at-least-once", "own-sink", "exactly-once"],
)
def test_the_error_names_where_the_partitions_would_be_read(cluster: NewCluster, output: str, start: str) -> None:
    brokers = cluster(9, 4, topic="a")
    brokers.selection = AssignStrategy((A0,))
    planner = ContinuousStartPlanner(brokers.settings(), brokers.reader(), create_delivery(output).reselected_start)
    with pytest.raises(DataLossError, match=rf"a-1 are not selected any more.*included later, {start}"):
        planner.resume_offsets({A0: 5, A1: 2})
