"""The protocol library is loaded as the package loads it, for scripted brokers: its import warns on some Pythons."""

from __future__ import annotations

from pyspark_kafka_direct.wire import _protocol

_protocol.load()
