"""Apache Kafka for PySpark with no connector jar: ``spark.read.format("kafka-direct")``.

Spark imports every installed package whose name starts with ``pyspark_`` when it first looks for a data source. So this
module stays cheap to import: whatever needs Spark, Arrow or a Kafka client is imported where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct._version import __version__ as __version__
from pyspark_kafka_direct.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    CheckpointTakenError,
    ColumnError,
    CorruptRecordError,
    DataLossError,
    DeliveryRefusedError,
    FencedError,
    KafkaDirectError,
    LogStateError,
    OffsetPlanError,
    OptionError,
    OutcomeUnknownError,
    ProtocolError,
    RecordError,
    RecordRefusedError,
    RecordTooLargeError,
    RunFailedError,
    TaskStartError,
    TimestampError,
    TlsError,
    ToolError,
    TopicNotFoundError,
    TopicRecreatedError,
    TransientBrokerError,
    TruncatedError,
    UnsupportedBrokerError,
    UnsupportedRecordError,
)
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark_kafka_direct.monitor import enable
    from pyspark_kafka_direct.structured.foreach_batch import foreach_batch_writer
    from pyspark_kafka_direct.structured.source import KafkaDirectSource as DefaultSource

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BrokerError",
    "BrokerTimeoutError",
    "BrokerUnreachableError",
    "CheckpointTakenError",
    "ColumnError",
    "CorruptRecordError",
    "DataLossError",
    "DefaultSource",
    "DeliveryRefusedError",
    "FencedError",
    "KafkaDirectError",
    "LogStateError",
    "OffsetPlanError",
    "OffsetRange",
    "OptionError",
    "OutcomeUnknownError",
    "ProtocolError",
    "RecordError",
    "RecordRefusedError",
    "RecordTooLargeError",
    "RunFailedError",
    "TaskStartError",
    "TimestampError",
    "TlsError",
    "ToolError",
    "TopicNotFoundError",
    "TopicPartition",
    "TopicRecreatedError",
    "TransientBrokerError",
    "TruncatedError",
    "UnsupportedBrokerError",
    "UnsupportedRecordError",
    "enable",
    "foreach_batch_writer",
]


def __getattr__(name: str) -> Any:
    # Spark asks for `DefaultSource` by hasattr, and only then PySpark's data source classes are needed.
    if name == "DefaultSource":
        from pyspark_kafka_direct.structured.source import KafkaDirectSource

        return KafkaDirectSource
    if name == "enable":
        from pyspark_kafka_direct.monitor import enable

        return enable
    if name == "foreach_batch_writer":
        from pyspark_kafka_direct.structured.foreach_batch import foreach_batch_writer

        return foreach_batch_writer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
