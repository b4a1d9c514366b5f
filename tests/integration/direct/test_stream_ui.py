"""The name of a stream in Spark's UI, before and after a restart from a checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

SHOWS_ITS_NAME = """
import os, sys, time, urllib.request
from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext
from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies

servers, topic, checkpoint = sys.argv[1:]
conf = SparkConf().setMaster("local[2]").setAppName("ui").set("spark.ui.port", "0")
sc = SparkContext(conf=conf.set("spark.driver.host", "127.0.0.1").set("spark.ui.showConsoleProgress", "false"))
folder = checkpoint + "-files"
lineage = checkpoint + "-lineage"
os.mkdir(folder)

def handle(rdd):
    with open(lineage, "w") as file:
        file.write(rdd._jrdd.rdd().toDebugString())

def create():
    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(checkpoint)
    ssc.textFileStream(folder).foreachRDD(lambda rdd: None)
    strategy = ConsumerStrategies.Subscribe([topic], {"bootstrap.servers": servers})
    KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy).foreachRDD(handle)
    return ssc

for run in range(2):
    ssc = StreamingContext.getOrCreate(checkpoint, create if run == 0 else None)
    ssc.start()
    while not os.path.exists(lineage) or not os.path.getsize(lineage):
        time.sleep(0.1)
    names = ssc._jssc.ssc().graph().getInputStreamNameAndID().mkString(" ")
    page = urllib.request.urlopen(sc.uiWebUrl + "/streaming/", timeout=60).read().decode()
    stream = "Kafka 0.10 direct stream [1]"
    print(names, stream in page, "Constant" in page, stream in open(lineage).read(), flush=True)
    ssc.stop(False, True)
    os.remove(lineage)
sc.stop()
"""


@pytest.mark.spark_app
def test_the_ui_shows_the_name_of_sparks_own_stream(
    kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    command = [sys.executable, "-W", "ignore", "-c", SHOWS_ITS_NAME, kafka.bootstrap_servers, make_topic()]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.run(
        [*command, str(tmp_path / "checkpoint")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    expected = "(File stream [0],0) (Kafka 0.10 direct stream [1],1) True False True"
    assert process.stdout.splitlines() == [expected, expected]
