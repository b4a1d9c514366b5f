"""Encodes rows as record batches, with one encoder per topic and a memory limit for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.client.deadline import Retry
from pyspark_kafka_direct.errors import BrokerError, ColumnError, TopicNotFoundError
from pyspark_kafka_direct.options.hints import missing_topic_advice
from pyspark_kafka_direct.records import RecordEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.options.settings import ProducerSettings
    from pyspark_kafka_direct.records import EncodedBatch

_TOPIC_COLUMN: Final = "topic"

_REFRESH_SECONDS: Final = 5.0  # timeout of a metadata refresh; without a response, the known metadata is used again


class _TopicEncoder(NamedTuple):
    encoder: RecordEncoder
    partitions: int


def with_half_buffer(settings: ProducerSettings) -> ProducerSettings:
    """Return the settings for the producer behind a ``RowWriter``: each of the two uses half of ``buffer.memory``."""
    return replace(settings, buffer_bytes=max(1, settings.buffer_bytes // 2))


class RowWriter:
    """Encodes rows, and passes each record batch to ``send`` as soon as it is full."""

    def __init__(
        self,
        cluster: ClusterClient,
        settings: ProducerSettings,
        send: Callable[[str, EncodedBatch], None],  # receives a topic and a record batch
        *,
        topic: str | None = None,  # None: the rows have a `topic` column
        # Rows without keys go to one partition for 16 KiB, then to the next (KIP-480, KIP-794). This is the first one,
        # modulo the number of partitions; batches and tasks should differ in it.
        first_sticky_partition: int = 0,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._send = send
        self._topic = topic
        self._first_sticky_partition = first_sticky_partition
        self._encoders: dict[str, _TopicEncoder] = {}
        self._used_topics: set[str] = set()  # since the last metadata refresh
        self._metadata_max_age = cluster.settings.metadata_max_age_ms / 1000
        self._refresh_at = cluster.pool.system.monotonic() + self._metadata_max_age
        self._row_count = 0  # for error messages

    def write(self, rows: pa.RecordBatch) -> None:
        """Encode rows; the columns are those of ``RecordEncoder.add``, and ``topic`` unless the topic is fixed."""
        if self._cluster.pool.system.monotonic() >= self._refresh_at:
            self._refresh_topics()
        for topic, topic_rows in self._split_by_topic(rows):
            self._used_topics.add(topic)
            self._send_batches(topic, self._encoder(topic).add(topic_rows))
        self._row_count += rows.num_rows
        # The other half is for the producer (`with_half_buffer`).
        if sum(each.encoder.open_bytes for each in self._encoders.values()) > self._settings.buffer_bytes // 2:
            self.flush()

    def flush(self) -> None:
        """Pass open batches to ``send``."""
        for topic, each in self._encoders.items():
            self._send_batches(topic, each.encoder.flush())

    def _send_batches(self, topic: str, batches: Iterable[EncodedBatch]) -> None:
        for batch in batches:
            self._send(topic, batch)

    def _split_by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            yield self._topic, rows
            return
        topic_index = rows.schema.get_field_index(_TOPIC_COLUMN)
        topics, other_columns = rows.column(topic_index), rows.remove_column(topic_index)
        if topics.null_count:
            row = pc.index(topics.is_null(), True).as_py()
            raise ColumnError(
                "The Kafka message data sent to the producer contains a null topic. Use the `topic` option for setting "
                f"a default topic, or filter out such rows: row {self._row_count + row} of the task"
            )
        # One slice of the sorted rows for each topic. The sort is stable, so the rows of each topic stay in order.
        encoded_topics = topics.dictionary_encode()
        if len(encoded_topics.dictionary) > 1:
            order = pc.sort_indices(encoded_topics.indices)
            other_columns = other_columns.take(order)
        start = 0
        row_counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(encoded_topics.indices).to_pylist()}
        for index, name in enumerate(encoded_topics.dictionary.to_pylist()):
            yield name, other_columns.slice(start, row_counts[index])
            start += row_counts[index]

    def _refresh_topics(self) -> None:
        """Drop the encoders of topics without rows since the last refresh, or with another number of partitions."""
        now = self._cluster.pool.system.monotonic()
        self._refresh_at = now + self._metadata_max_age
        used_topics, self._used_topics = self._used_topics, set()
        deadline = self._cluster.deadline(_REFRESH_SECONDS)
        try:
            topics = self._cluster.topics(used_topics, deadline=deadline, retry=Retry(deadline, retries=0))
        except BrokerError:
            topics = {}  # the number of partitions of a topic seldom changes, and a send reports what is wrong with it
        for topic, (encoder, partitions) in list(self._encoders.items()):
            is_changed = topic in topics and len(topics[topic].partitions) != partitions
            if topic not in used_topics or is_changed:
                del self._encoders[topic]
                self._send_batches(topic, encoder.flush())

    def _encoder(self, topic: str) -> RecordEncoder:
        known = self._encoders.get(topic)
        if known is None:
            partition_count, settings = self._partition_count(topic), self._settings
            encoder = RecordEncoder(
                topic=topic,
                partitions=partition_count,
                codec=settings.codec,
                level=settings.level,
                batch_bytes=settings.batch_bytes,
                max_record_bytes=settings.max_request_bytes,
                ignore_keys=settings.ignore_keys,
                first_sticky_partition=self._first_sticky_partition % partition_count,
            )
            known = self._encoders[topic] = _TopicEncoder(encoder, partition_count)
        return known.encoder

    def _partition_count(self, topic: str) -> int:
        metadata = self._cluster.topics([topic]).get(topic)
        if metadata is None:
            advice = missing_topic_advice(topic, self._cluster.all_topics(), self._cluster.settings.bootstrap_string)
            raise TopicNotFoundError(
                f"Topic {topic!r} does not exist, and writing does not create topics: create it first{advice}",
                topic=topic,
            )
        return len(metadata.partitions)
