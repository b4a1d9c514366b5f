"""The name of a stream in Spark's UI, and a stop of the SparkContext alone, in a session that ends here."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.streaming import StreamingContext
from tests.integration.direct.streaming_contexts import BatchResults, direct_stream
from tests.settings import parse_client_params

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark import RDD
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.sessions import SparkSessions

    from pyspark_kafka_direct.broker import EmbeddedKafka

LINEAGES = BatchResults()


@pytest.fixture(scope="module")
def spark(make_spark: SparkSessions) -> SparkSession:
    return make_spark({"spark.ui.enabled": "true", "spark.ui.port": "0"})


def store_lineage(rdd: RDD[Any]) -> None:
    """Pickled by reference in the checkpoint."""
    LINEAGES.add(rdd._jrdd.rdd().toDebugString())


def test_the_ui_shows_the_name_of_sparks_own_stream(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Also after a restart from a checkpoint."""
    checkpoint, files, topic = tmp_path / "checkpoint", tmp_path / "files", make_topic()
    files.mkdir()

    def create() -> StreamingContext:
        ssc = StreamingContext(spark.sparkContext, 1)
        ssc.checkpoint(str(checkpoint))
        ssc.textFileStream(str(files)).foreachRDD(lambda rdd: None)
        direct_stream(ssc, kafka.bootstrap_servers, topic, None).foreachRDD(store_lineage)
        return ssc

    for _ in range(2):
        ssc = StreamingContext.getOrCreate(str(checkpoint), create)
        ssc.start()
        try:
            lineage = LINEAGES.wait_for_more()[-1]
            names = ssc._jssc.ssc().graph().getInputStreamNameAndID().mkString(" ")
            address = f"{spark.sparkContext.uiWebUrl}/streaming/"
            page = urllib.request.urlopen(address, timeout=600).read().decode()
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=True)
        assert names == "(File stream [0],0) (Kafka 0.10 direct stream [1],1)"
        name = "Kafka 0.10 direct stream [1]"
        assert (name in page, "Constant" in page, name in lineage) == (True, False, True)


def test_stopping_only_the_spark_context_sends_commits(
    spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any
) -> None:
    """The last test of this session."""
    topic = make_topic()
    put(topic, range(3))
    stream = direct_stream(StreamingContext(spark.sparkContext, 600), kafka.bootstrap_servers, topic, topic)
    stream.commitAsync([OffsetRange(topic, 0, 0, 3)])  # the next batch, which would send the commit, never starts
    spark.sparkContext.stop()
    group = ConsumerGroup(
        ClusterClient(parse_client_params({"bootstrap.servers": kafka.bootstrap_servers}).connection), topic
    )
    assert group.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 3}
