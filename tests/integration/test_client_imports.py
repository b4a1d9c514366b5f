"""Planning and reading in a new interpreter: what is imported, and that ``python -O`` changes nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.consumer.range_task import RangeTask
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.broker import EmbeddedKafka

READ = """
import pickle, sys
from pyspark_kafka_direct.offsets import LATEST
from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.client.cluster_client import ClusterClient
connection, fetch, task = pickle.loads(bytes.fromhex(sys.stdin.read()))
end = ClusterClient(connection).offsets({task.offsets.topic_partition: LATEST})
foreign = {"kafka", "confluent_kafka", "google", "cryptography", "pyspark"} & set(sys.modules)
print(sum(batch.num_rows for batch in read_range(connection, fetch, task, ("value",))), *end.values(), sorted(foreign))
"""


@pytest.mark.parametrize("flags", [[], ["-O"]])
def test_a_range_is_planned_and_read_with_nothing_but_arrow(
    kafka: EmbeddedKafka, make_topic: Callable[..., str], flags: list[str]
) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(5):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(300) == 0
    settings = parse_client_params({"bootstrap.servers": kafka.bootstrap_servers})
    cluster = ClusterClient(settings.connection)
    task = RangeTask(
        offsets=OffsetRange(topic, 0, 1, 5),
        topic_id=cluster.topics([topic])[topic].topic_id,
        leader=cluster.known_leaders([TopicPartition(topic, 0)])[TopicPartition(topic, 0)],
    )
    work = pickle.dumps((*settings, task)).hex()
    run = subprocess.run([sys.executable, *flags, "-c", READ], input=work, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["4", "5", "[]"]
