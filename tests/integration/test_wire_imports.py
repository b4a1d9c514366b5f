"""A worker that only fetches records does without the protocol library, whose import takes a tenth of a second."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.reading.request import RangeRequest
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.settings import connection_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.broker import EmbeddedKafka

READ = """
import pickle, sys
from pyspark_kafka_direct.reading.range_reader import read_range
settings, request = pickle.loads(bytes.fromhex(sys.stdin.read()))
print(sum(batch.num_rows for batch in read_range(settings, request)), "kafka" in sys.modules)
"""


def test_a_planned_range_is_read_without_the_protocol_library(
    kafka: EmbeddedKafka, make_topic: Callable[..., str]
) -> None:

    topic = make_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(5):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0
    settings = connection_settings({"bootstrap.servers": kafka.bootstrap_servers})
    cluster = Cluster(settings)
    request = RangeRequest(
        offsets=OffsetRange(topic, 0, 1, 5),
        columns=("value",),
        topic_id=cluster.topics([topic])[topic].topic_id,
        leader=cluster.known_leaders([TopicPartition(topic, 0)])[TopicPartition(topic, 0)],
    )
    work = pickle.dumps((settings, request)).hex()
    run = subprocess.run([sys.executable, "-c", READ], input=work, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["4", "False"]
