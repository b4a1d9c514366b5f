"""The stream reader for Spark 4.0 and 4.1, which pass neither the start nor a limit when they request the next end.

So this reader remembers the end of the last batch. Spark calls, with any trigger:

    a new query      latestOffset(), initialOffset(), partitions(initial, end), latestOffset(), ...
    after a restart  partitions(x, x), x being the end of the last batch in the checkpoint; partitions(start, x) if that
                     batch was not finished, after initialOffset() if it is the first; latestOffset(), ...

The value of ``latestOffset`` is the end of the next batch and the start of the one after it, even without a call of
``partitions`` in between, because a sink may leave a batch unread. These versions run ``Trigger.Once`` and
``Trigger.AvailableNow`` as one batch that looks like any other. With
``spark.sql.streaming.triggerAvailableNowWrapper.enabled``, ``Trigger.AvailableNow`` calls ``latestOffset()`` first,
also after a restart, and reads to that end. For the reader this looks like a new query, so it rejects such a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.datasource.micro_batch_stream_base import KafkaMicroBatchStreamBase
from pyspark_kafka_direct.errors import InvalidOffsetsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import InputPartition

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.datasource.read_schema import ReadSchema
    from pyspark_kafka_direct.options.settings import ReadSettings

_UNEXPECTED_CALL_ORDER: Final = (
    "Spark requested the end of a batch before it passed the start offsets of the query, so that end may be wrong. The "
    "query stops, and its checkpoint is unchanged. Spark 4.0 and 4.1 do this for Trigger.AvailableNow with "
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled=true: remove that setting and restart the query. If it is "
    "not set, please report this with your Spark version"
)


class LegacyKafkaMicroBatchStream(KafkaMicroBatchStreamBase):
    def __init__(self, settings: ReadSettings, schema: ReadSchema, pool: ConnectionPool | None = None) -> None:
        super().__init__(settings, schema, pool)
        self._next_start: dict[str, Any] | None = None  # None until Spark has passed or requested an offset
        self._assumed_new_query = False  # an end was requested first; initialOffset() has to follow

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's names, also below)
        self._assumed_new_query = False
        return super().initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        if self._next_start is None:
            self._next_start = super().initialOffset()
            self._assumed_new_query = True
        self._next_start = self._next_end_offset(self._next_start)
        return self._next_start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if self._assumed_new_query:
            raise InvalidOffsetsError(_UNEXPECTED_CALL_ORDER)
        self._next_start = end
        return super().partitions(start, end)
