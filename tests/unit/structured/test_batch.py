"""What of the batch reader travels to the executors."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

from pyspark_kafka_direct.structured._range import TaskReader
from pyspark_kafka_direct.structured.source import KafkaDirectSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.datasource import DataSource, DataSourceReader

OPTIONS = {
    "kafka.bootstrap.servers": "nowhere.invalid:9092",
    "kafka.max.partition.fetch.bytes": "100000",
    "subscribe": "t",
    "failOnDataLoss": "false",
    "kafkaConsumer.pollTimeoutMs": "1500",
    "maxRecordBatchBytes": "70000",
    "rackEnvironmentVariable": "RACK",
}

LOAD = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    pickle.load(file)
print(*sorted(name for name in sys.modules if name.startswith("pyspark_kafka_direct")))
"""


def made(**more: str) -> tuple[DataSource, DataSourceReader]:
    source = KafkaDirectSource(OPTIONS | more)
    return source, source.reader(source.schema())


def test_a_task_gets_what_reading_takes() -> None:
    _, reader = made(pushDownFilters="true")
    task = pickle.loads(pickle.dumps(reader))
    assert isinstance(task, TaskReader)
    reading = task.reading
    assert (reading.fail_on_data_loss, reading.poll_timeout, reading.rack_environment_variable) == (False, 1.5, "RACK")
    assert reading.max_batch_bytes == 70_000
    assert reading.fetch.max_partition_fetch_bytes == 100_000
    assert reading.settings.bootstrap_servers == (("nowhere.invalid", 9092),)
    assert task.schema.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def test_a_new_worker_imports_nothing_of_the_planning(tmp_path: Path) -> None:
    pickled = tmp_path / "pickled"
    pickled.write_bytes(pickle.dumps(made()))
    run = subprocess.run([sys.executable, "-c", LOAD, str(pickled)], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert {"pyspark_kafka_direct.settings.connection", "pyspark_kafka_direct.settings.fetch"} <= {*loaded}
    unwanted = (
        "planning",
        "settings._",
        "settings.row",
        "settings.client",
        "settings.source",
        "wire",
        "structured.batch",
    )
    assert not [name for name in loaded if name.removeprefix("pyspark_kafka_direct.").startswith(unwanted)]
