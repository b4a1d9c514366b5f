"""Apache Kafka for PySpark with no connector jar: ``spark.read.format("kafka-direct")``.

Spark imports every installed package whose name starts with ``pyspark_`` when it first resolves a data source. So this
module has to be cheap to import: modules that need Spark, Arrow or a Kafka client are imported where they are used.
"""

from __future__ import annotations

from importlib import import_module

from pyspark_kafka_direct._version import __version__ as __version__

TYPE_CHECKING = False  # as type checkers know it; the module typing alone takes as long as all that is imported here
if TYPE_CHECKING:
    from typing import Any

    from pyspark_kafka_direct.arrow.reader import read_arrow
    from pyspark_kafka_direct.arrow.writer import write_arrow
    from pyspark_kafka_direct.datasource.dead_letters import dead_letters
    from pyspark_kafka_direct.datasource.foreach_batch import foreach_batch_writer
    from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider as DefaultSource
    from pyspark_kafka_direct.errors import (
        AuthenticationError,
        AuthorizationError,
        BrokerError,
        BrokerTimeoutError,
        BrokerUnreachableError,
        CheckpointFencedError,
        ColumnError,
        CorruptRecordError,
        DataLossError,
        ExternalToolError,
        IllegalLogStateError,
        InvalidOffsetsError,
        InvalidRecordError,
        KafkaDirectError,
        KernelMissingError,
        MalformedPayloadError,
        OptionError,
        OutcomeUnknownError,
        PatternTimeoutError,
        PayloadSchemaError,
        ProducerFencedError,
        ProtocolError,
        QueryRunError,
        RecordError,
        RecordTooLargeError,
        SchemaError,
        SchemaNotFoundError,
        SchemaRegistryError,
        SchemaRegistryUnavailableError,
        SparkVersionError,
        TaskStartTimeoutError,
        TimestampOverflowError,
        TlsError,
        TopicNotFoundError,
        TopicRecreatedError,
        TransactionStateError,
        TransientBrokerError,
        TruncatedError,
        UnsupportedBrokerError,
        UnsupportedRecordError,
    )
    from pyspark_kafka_direct.monitor import enable
    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
    from pyspark_kafka_direct.spark.error_parser import error_of
    from pyspark_kafka_direct.spark.stop_at_signal import stop_at_signal

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BrokerError",
    "BrokerTimeoutError",
    "BrokerUnreachableError",
    "CheckpointFencedError",
    "ColumnError",
    "CorruptRecordError",
    "DataLossError",
    "DefaultSource",
    "ExternalToolError",
    "IllegalLogStateError",
    "InvalidOffsetsError",
    "InvalidRecordError",
    "KafkaDirectError",
    "KernelMissingError",
    "MalformedPayloadError",
    "OffsetRange",
    "OptionError",
    "OutcomeUnknownError",
    "PatternTimeoutError",
    "PayloadSchemaError",
    "ProducerFencedError",
    "ProtocolError",
    "QueryRunError",
    "RecordError",
    "RecordTooLargeError",
    "SchemaError",
    "SchemaNotFoundError",
    "SchemaRegistryError",
    "SchemaRegistryUnavailableError",
    "SparkVersionError",
    "TaskStartTimeoutError",
    "TimestampOverflowError",
    "TlsError",
    "TopicNotFoundError",
    "TopicPartition",
    "TopicRecreatedError",
    "TransactionStateError",
    "TransientBrokerError",
    "TruncatedError",
    "UnsupportedBrokerError",
    "UnsupportedRecordError",
    "dead_letters",
    "enable",
    "error_of",
    "foreach_batch_writer",
    "read_arrow",
    "stop_at_signal",
    "write_arrow",
]


# Imported when they are first used: the module and the name in it.
_LAZY = {
    "OffsetRange": ("offsets", "OffsetRange"),
    "TopicPartition": ("offsets", "TopicPartition"),
    "DefaultSource": ("datasource.source_provider", "KafkaSourceProvider"),
    "dead_letters": ("datasource.dead_letters", "dead_letters"),
    "enable": ("monitor", "enable"),
    "error_of": ("spark.error_parser", "error_of"),
    "foreach_batch_writer": ("datasource.foreach_batch", "foreach_batch_writer"),
    "read_arrow": ("arrow.reader", "read_arrow"),
    "stop_at_signal": ("spark.stop_at_signal", "stop_at_signal"),
    "write_arrow": ("arrow.writer", "write_arrow"),
}


_MODULES = {"errors", "offsets"}  # attributes without an import of the module


# What the error names if PySpark is missing.
_NEEDS_SPARK = {
    "DefaultSource": "The data source kafka-direct",
    "dead_letters": "The function dead_letters",
    "enable": "The monitor",
    "foreach_batch_writer": "The sink kafka-direct",
}


def __getattr__(name: str) -> Any:
    # Spark finds `DefaultSource` with hasattr; PySpark's data source classes are imported only then.
    if name.endswith("Error") and name in __all__:
        return getattr(import_module(f"{__name__}.errors"), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _NEEDS_SPARK:  # otherwise the import below would fail with PySpark's error, which gives no advice
        import_module(f"{__name__}.spark.spark_versions").require_spark(_NEEDS_SPARK[name])
    module, attribute = _LAZY[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)
