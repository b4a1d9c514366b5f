"""The protocol library is loaded as the package loads it: its import warns on some Python versions."""

from __future__ import annotations

from pyspark_kafka_direct.wire import _protocol

_protocol.load()
