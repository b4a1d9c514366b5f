"""Lets ``format("kafka")`` mean this package's data source: Spark asks each ``pyspark_*`` for a DefaultSource."""

from __future__ import annotations

from pyspark_kafka_direct import DefaultSource as KafkaDirect


class DefaultSource(KafkaDirect):
    @classmethod
    def name(cls) -> str:
        return "kafka"
