"""A compacted topic as a shared log (``KafkaBasedLog``), as a dictionary (``KafkaTable``), and as a store of offsets.

::

    from pyspark_kafka_direct.log import KafkaTable

    with KafkaTable("settings", {"bootstrap.servers": "broker1:9092"}, create={"replication_factor": 3}) as table:
        table.put(b"job-1", b'{"rate": 100}')
        table.read_to_end().result(timeout=10)
        print(table[b"job-1"])
"""

from __future__ import annotations

from pyspark_kafka_direct.log.kafka_based_log import KafkaBasedLog
from pyspark_kafka_direct.log.kafka_offset_store import KafkaOffsetStore
from pyspark_kafka_direct.log.kafka_table import KafkaTable
from pyspark_kafka_direct.log.record_callbacks import LogRecord
from pyspark_kafka_direct.log.serde import Serde
from pyspark_kafka_direct.producer.async_producer import RecordMetadata

__all__ = ["KafkaBasedLog", "KafkaOffsetStore", "KafkaTable", "LogRecord", "RecordMetadata", "Serde"]
