"""From rows to record batches on their way: one encoder for each topic, and a limit on what waits in all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.errors import ColumnError, TopicNotFoundError
from pyspark_kafka_direct.planning.hints import did_you_mean
from pyspark_kafka_direct.records import create_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark_kafka_direct.records import EncodedBatch, RecordEncoder
    from pyspark_kafka_direct.settings.produce import ProduceSettings
    from pyspark_kafka_direct.wire.cluster import Cluster

_TOPIC: Final = "topic"


def settings_behind(settings: ProduceSettings) -> ProduceSettings:
    """Return the settings of a producer that a ``RowWriter`` with these hands its batches on to: half of the buffer."""
    return replace(settings, buffer_bytes=max(1, settings.buffer_bytes // 2))


class RowWriter:
    """Encodes rows and hands on each record batch as soon as it is full.

    Args:
        cluster: Knows how many partitions a topic has.
        settings: How records are written. Open batches hold half of ``buffer_bytes`` at most; the other half is for
            what was handed on.
        send: Takes a topic and a record batch.
        topic: The topic of all rows; ``None``: the column ``topic`` names it.
        first_sticky: Which partition rows without a key go to first, counted through the partitions there are. Give
            tasks different ones, so that they do not all begin with the same.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ProduceSettings,
        send: Callable[[str, EncodedBatch], None],
        *,
        topic: str | None = None,
        first_sticky: int = 0,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._send = send
        self._topic = topic
        self._first_sticky = first_sticky
        self._encoders: dict[str, RecordEncoder] = {}
        self._rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Encode rows.

        Args:
            rows: Columns as ``RecordEncoder.add`` takes them, and ``topic`` where the rows name it.

        Raises:
            ColumnError: A row has no topic, or names a partition that its topic does not have.
            TopicNotFoundError: A topic does not exist; it is not created.
            KafkaDirectError: A record cannot be encoded, or ``send`` has failed.
        """
        for topic, part in self._by_topic(rows):
            self._hand_on(topic, self._encoder(topic).add(part))
        self._rows += rows.num_rows
        if sum(encoder.open_bytes for encoder in self._encoders.values()) > self._settings.buffer_bytes // 2:
            self.flush()

    def flush(self) -> None:
        """Hand on what is in open batches.

        Raises:
            KafkaDirectError: ``send`` has failed.
        """
        for topic, encoder in self._encoders.items():
            self._hand_on(topic, encoder.flush())

    def _hand_on(self, topic: str, batches: Iterable[EncodedBatch]) -> None:
        for batch in batches:
            self._send(topic, batch)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            yield self._topic, rows
            return
        at = rows.schema.get_field_index(_TOPIC)
        topics, others = rows.column(at), rows.remove_column(at)
        if topics.null_count:
            row = pc.index(topics.is_null(), True).as_py()
            raise ColumnError(
                "The Kafka message data sent to the producer contains a null topic. Use the `topic` option for setting "
                f"a default topic, or filter such rows out: row {self._rows + row} of the task"
            )
        # Sorting is stable, so the rows of a topic stay in their order.
        names = topics.dictionary_encode()
        if len(names.dictionary) > 1:
            order = pc.sort_indices(names.indices)
            others = others.take(order)
        start = 0
        counts = {each["values"]: each["counts"] for each in pc.value_counts(names.indices).to_pylist()}
        for number, name in enumerate(names.dictionary.to_pylist()):
            yield name, others.slice(start, counts[number])
            start += counts[number]

    def _encoder(self, topic: str) -> RecordEncoder:
        encoder = self._encoders.get(topic)
        if encoder is None:
            partitions, settings = self._partitions(topic), self._settings
            encoder = self._encoders[topic] = create_encoder(
                topic=topic,
                partitions=partitions,
                codec=settings.codec,
                level=settings.level,
                batch_bytes=settings.batch_bytes,
                max_record_bytes=settings.max_request_bytes,
                ignore_keys=settings.ignore_keys,
                first_sticky=self._first_sticky % partitions,
            )
        return encoder

    def _partitions(self, topic: str) -> int:
        found = self._cluster.topics([topic]).get(topic)
        if found is None:
            hint = did_you_mean(topic, self._cluster.all_topics())
            raise TopicNotFoundError(
                f"topic {topic!r} does not exist, and writing creates no topics: create it first{hint}", topic=topic
            )
        return len(found.partitions)
