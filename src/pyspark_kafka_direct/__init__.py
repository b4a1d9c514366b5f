"""Apache Kafka for PySpark with no connector jar: ``spark.read.format("kafka-direct")``.

Spark imports every installed package whose name starts with ``pyspark_`` when it first looks for a data source. So this
module stays cheap to import: whatever needs Spark, Arrow or a Kafka client is imported where it is used.
"""

from __future__ import annotations

from importlib import import_module
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
    SparkVersionError,
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
    from pyspark_kafka_direct.runtime.error_of import error_of
    from pyspark_kafka_direct.runtime.stop_at_signal import stop_at_signal
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
    "SparkVersionError",
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
    "error_of",
    "foreach_batch_writer",
    "stop_at_signal",
]


_LATER = {
    "DefaultSource": ("structured.source", "KafkaDirectSource"),
    "enable": ("monitor", "enable"),
    "error_of": ("runtime.error_of", "error_of"),
    "foreach_batch_writer": ("structured.foreach_batch", "foreach_batch_writer"),
    "stop_at_signal": ("runtime.stop_at_signal", "stop_at_signal"),
}


_OF_SPARK = {
    "DefaultSource": "The data source kafka-direct",
    "enable": "The monitor",
    "foreach_batch_writer": "The sink kafka-direct",
}


def __getattr__(name: str) -> Any:
    # Spark asks for `DefaultSource` by hasattr, and only then PySpark's data source classes are needed.
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _OF_SPARK:
        import_module(f"{__name__}.runtime.spark_versions").require_spark(_OF_SPARK[name])
    module, attribute = _LATER[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)
