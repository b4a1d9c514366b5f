"""The error about an optional library that is not installed."""

from __future__ import annotations

import socket

from pyspark_kafka_direct.errors import OptionError


def missing_library(library: str, *, extra: str, purpose: str) -> OptionError:
    return OptionError(
        f"{purpose} requires {library}, which is not installed on {socket.gethostname()}; run pip install "
        f"'pyspark-kafka-direct[{extra}]' on the driver and on every executor"
    )
