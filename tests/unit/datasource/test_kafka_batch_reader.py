"""The parts of the batch reader that are sent to executors."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

from pyspark_kafka_direct.datasource.partition_reader import KafkaPartitionReader
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider

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


def source_and_reader(**more: str) -> tuple[DataSource, DataSourceReader]:
    source = KafkaSourceProvider(OPTIONS | more)
    return source, source.reader(source.schema())


def test_a_task_gets_the_read_options() -> None:
    _, batch_reader = source_and_reader(pushDownFilters="true")
    task = pickle.loads(pickle.dumps(batch_reader))
    assert isinstance(task, KafkaPartitionReader)
    fetch = task.task_reader.fetch
    assert (fetch.fail_on_data_loss, fetch.poll_timeout_ms, fetch.rack_environment_variable) == (False, 1500, "RACK")
    assert fetch.max_record_batch_bytes == 70_000
    assert fetch.max_partition_fetch_bytes == 100_000
    assert task.task_reader.connection.bootstrap_servers == (("nowhere.invalid", 9092),)
    assert task.schema.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def test_a_new_worker_imports_no_planning_modules(tmp_path: Path) -> None:
    pickled = tmp_path / "pickled"
    pickled.write_bytes(pickle.dumps(source_and_reader()))
    run = subprocess.run([sys.executable, "-c", LOAD, str(pickled)], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    modules = [name.removeprefix("pyspark_kafka_direct.") for name in loaded]
    assert {each for each in modules if each.startswith("options.")} == {
        "options.settings",
        "options.security_settings",
    }
    planners = ("datasource.micro_batch_planner", "datasource.kafka_batch_reader")
    unwanted = ("planning", "client", "protocol", "consumer", "producer", *planners)
    assert not [each for each in modules if each.startswith(unwanted)]
