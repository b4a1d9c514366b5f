"""What a log imports: everything before it is started, because an import may fail while memory is scarce."""

from __future__ import annotations

import subprocess
import sys

import pytest

USE = """
import sys
from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable
from pyspark_kafka_direct.log.log_clients import ResumePoint
from pyspark_kafka_direct.log.record_callbacks import LOG_COLUMNS
from pyspark_kafka_direct.offsets import TopicPartition

params = {"bootstrap.servers": "127.0.0.1:1"}
table, log = KafkaTable("t", params), KafkaBasedLog("t", params, on_record=print)
imported = set(sys.modules)

from array import array
import pyarrow as pa
from pyspark_kafka_direct.records import RecordDecoder, RecordEncoder
from pyspark_kafka_direct.records.columns import binary_column, header_column, integer_column

partition = TopicPartition("t", 0)
clients = log._clients
clients.open_producer()
clients.open_consumer(ResumePoint({partition: 0}, {}, {}), LOG_COLUMNS).close()
rows = pa.record_batch(
    {
        "key": binary_column([b"k", b"l", None]),
        "value": binary_column([b"v", None, b"w"]),
        "timestamp": integer_column(array("q", [1, 2, 3])),
        "partition": integer_column(array("i", [0, 0, 0])),
        "headers": header_column([[("h", b"x")], [], []]),
    }
)
encoder = RecordEncoder(topic="t", partitions=1, codec="zstd")
(batch,) = [*encoder.add(rows), *encoder.flush()]
for columns, deliver in ((("key", "value"), table._state.apply), (LOG_COLUMNS, log._worker._callbacks.deliver)):
    decoder = RecordDecoder(topic="t", partition=0, from_offset=0, until_offset=3, columns=columns)
    decoder.feed(bytes(batch.data))
    deliver(partition, decoder.read())
assert table._state.contents.copy() == {b"k": b"v"}
table.stop()
log.stop()
print(sorted(set(sys.modules) - imported))
"""


@pytest.mark.slow
def test_reading_writing_and_applying_records_imports_nothing() -> None:
    command = [sys.executable, "-W", "error", "-c", USE]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "[]"
