"""Writes records to a topic, for the sample of the local broker and the example applications."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType


class TopicWriter:
    """Writes to an existing topic with the package's own producer; for one thread at a time."""

    def __init__(self, servers: str, topic: str, codec: str = "none") -> None:
        from pyspark_kafka_direct.client.cluster_client import ClusterClient
        from pyspark_kafka_direct.options.sink_options import parse_sink_options
        from pyspark_kafka_direct.producer.batch_producer import BatchProducer
        from pyspark_kafka_direct.producer.row_writer import RowWriter, with_half_buffer

        sink_options = {
            "kafka.bootstrap.servers": servers,
            "topic": topic,
            "kafka.delivery.timeout.ms": "30000",  # so that the program soon reports a broker that has exited
            "kafka.compression.type": codec,
        }
        options = parse_sink_options(sink_options, streaming=False)
        cluster = ClusterClient(options.connection)
        self._producer = BatchProducer(cluster, with_half_buffer(options.produce))
        send = functools.partial(self._producer.send, more_follows=True)  # `write` flushes, so small batches may wait
        self._rows = RowWriter(cluster, options.produce, send, topic=topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(
        self, keys: Sequence[str] | Sequence[bytes], values: Sequence[str] | Sequence[bytes], timestamps: Sequence[int]
    ) -> None:
        """Write at least one record, with timestamps in milliseconds, and wait until the brokers acknowledge it."""
        import pyarrow as pa

        self._rows.write(pa.RecordBatch.from_pydict({"key": keys, "value": values, "timestamp": timestamps}))
        self._rows.flush()
        self._producer.flush()

    def close(self) -> None:
        """Close the connections."""
        self._producer.close()
