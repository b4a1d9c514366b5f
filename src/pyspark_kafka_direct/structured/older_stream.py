"""The stream reader for Spark 4.0 and 4.1, which ask for the next end and tell neither the start nor a limit.

So this reader remembers where the last batch ends. Spark calls, whatever the trigger:

    a new query      latestOffset(), initialOffset(), partitions(initial, end), latestOffset(), ...
    after a restart  partitions(x, x), x being the end of the last batch that the checkpoint has; partitions(start, x)
                     if that was not finished, behind initialOffset() if it is the first; latestOffset(), ...

What ``latestOffset`` answers is the end of the next batch, and so the start of the one after it, with no ``partitions``
between them too: a sink may leave a batch unread. ``Trigger.Once`` and
``Trigger.AvailableNow`` are the same to these versions: one batch, which cannot be told from any other. Under
``spark.sql.streaming.triggerAvailableNowWrapper.enabled`` the latter asks ``latestOffset()`` first, after a restart
too, and reads to that end. It would be a new query's, so a restart is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import OffsetPlanError
from pyspark_kafka_direct.structured._stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import InputPartition

    from pyspark_kafka_direct.settings.source import StreamOptions
    from pyspark_kafka_direct.structured._schema import ReadSchema

_OTHER_ORDER: Final = (
    "this Spark asked where a batch ends before it told where the query stands, so that end may be wrong, and the "
    "query ends here; its checkpoint is as it was. Spark 4.0 and 4.1 do so for Trigger.AvailableNow under "
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled=true: leave that setting out, and start again. Where it is "
    "not set, please report this with your Spark's version"
)


class OlderStreamReader(StreamReader):
    """The reader, as Spark 4.0 and 4.1 ask it.

    Args:
        options: The checked options.
        schema: The columns to read.
    """

    def __init__(self, options: StreamOptions, schema: ReadSchema) -> None:
        super().__init__(options, schema)
        self._position: dict[str, Any] | None = None  # where the next batch begins; None: nothing was told yet
        self._taken_for_new = False  # an end was asked for first; initialOffset() is to follow

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's names, so below)
        """Return where a new query starts; the same at every call.

        Raises:
            KafkaDirectError: The cluster can't be asked.
        """
        self._taken_for_new = False
        return super().initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Return the end of the next batch; that of the last one when there is nothing to read.

        Raises:
            DataLossError: Records are lost, and ``failOnDataLoss`` is true.
            KafkaDirectError: A new query's starting position does not fit, or the cluster can't be asked.
        """
        if self._position is None:
            self._position = super().initialOffset()
            self._taken_for_new = True
        self._position = self._next_end(self._position)
        return self._position

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch; none where Spark only tells where the query stands.

        Raises:
            DataLossError: Records are lost, and ``failOnDataLoss`` is true.
            OptionError: The checkpoint's first batch is another source's, and where it began is not known.
            OffsetPlanError: Spark calls in an order that is not known.
            KafkaDirectError: The cluster can't be asked.
        """
        if self._taken_for_new:
            raise OffsetPlanError(_OTHER_ORDER)
        self._position = end
        return super().partitions(start, end)
