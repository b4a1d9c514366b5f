"""Which of Spark's suites run, and with which sources."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Source: TypeAlias = Literal["jvm", "ours"]
"""The JVM connector, and this package in its place."""

SOURCES: Final[tuple[Source, ...]] = ("jvm", "ours")

PACKAGE: Final = "org.apache.spark.sql.kafka010"

SUITES: Final = (
    "KafkaMicroBatchV2SourceWithAdminSuite",
    "KafkaRelationSuiteV2",
    "KafkaSinkBatchSuiteV2",
    "KafkaSinkMicroBatchStreamingSuite",
    "KafkaDontFailOnDataLossSuite",
    "KafkaSourceStressSuite",
    "KafkaSourceStressForDontFailOnDataLossSuite",
)

TESTS_OF: Final = {"4.3.0": "4.2.0"}
"""Versions of PySpark that run the tests and the connector of an older one, because Maven has none of their own."""
