"""Kafka record batches to Arrow and back, by the native kernel (``rust/``).

A decoder reads one offset range of one partition. It is fed the record bytes of fetch responses and returns Arrow
record batches with exactly the wanted columns::

    decoder = RecordDecoder(topic="flights", partition=0, from_offset=0, until_offset=1000, columns=("key", "value"))
    while not decoder.done:
        decoder.feed(fetch(decoder.next_offset))
        while (batch := decoder.read()) is not None:
            ...

An encoder writes rows of one topic, and returns Kafka record batches as they fill. The producer's id, epoch and
sequence number are written into a batch just before it is sent::

    encoder = RecordEncoder(topic="flights", partitions=6, codec="lz4")
    for batch in (*encoder.add(rows), *encoder.flush()):
        set_producer_state(batch.data, producer_id, epoch, sequence, transactional=False)
        send(batch.partition, batch.data)
"""

from __future__ import annotations

from pyspark_kafka_direct.records.columns import COLUMNS, arrow_schema
from pyspark_kafka_direct.records.murmur2 import partition_for_key
from pyspark_kafka_direct.records.native_kernel import native
from pyspark_kafka_direct.records.record_batches import (
    AbortedTransaction,
    DecodeCounts,
    EncodedBatch,
    RecordDecoder,
    RecordEncoder,
    WritableBytes,
)
from pyspark_kafka_direct.records.scanned_batches import is_abort_marker, scan_batches

__all__ = [
    "COLUMNS",
    "AbortedTransaction",
    "DecodeCounts",
    "EncodedBatch",
    "RecordDecoder",
    "RecordEncoder",
    "WritableBytes",
    "arrow_schema",
    "is_abort_marker",
    "is_valid_batch",
    "partition_for_key",
    "scan_batches",
    "scan_leader_epoch",
    "set_producer_state",
    "split_batch",
]

scan_leader_epoch = native.scan_leader_epoch
set_producer_state = native.set_producer_state
is_valid_batch = native.is_valid_batch
split_batch = native.split_batch
