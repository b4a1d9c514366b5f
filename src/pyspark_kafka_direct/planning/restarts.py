"""Which errors end a continuous query, and how long it waits before it starts again after others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct import errors
from pyspark_kafka_direct.errors import (
    AuthenticationError,
    AuthorizationError,
    CheckpointTakenError,
    ColumnError,
    DataLossError,
    DeliveryRefusedError,
    FencedError,
    KafkaDirectError,
    OffsetPlanError,
    OptionError,
    RunFailedError,
    TimestampError,
    TlsError,
    UnsupportedBrokerError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_FINAL: Final = (
    AuthenticationError,
    AuthorizationError,
    CheckpointTakenError,
    ColumnError,
    DataLossError,
    DeliveryRefusedError,
    FencedError,
    OffsetPlanError,
    OptionError,
    TimestampError,
    TlsError,
    UnsupportedBrokerError,
)
_FIRST_PAUSE: Final = 0.1  # seconds
_LONGEST_PAUSE: Final = 10.0


def final(error: BaseException) -> KafkaDirectError | None:
    """Return the error that ends a query for good, because no restart can mend it; ``None`` for any other.

    Args:
        error: What has ended a run. Of one that a task has told, only the name of its class is known; what is returned
            is then an error of that class.
    """
    if isinstance(error, _FINAL):
        return error if isinstance(error, KafkaDirectError) else None
    if not isinstance(error, RunFailedError) or error.cause is None:
        return None
    kind = next((each for each in _classes() if each.__name__ == error.cause), None)
    if kind is None or not issubclass(kind, _FINAL):
        return None
    told = kind(error.message, topic=error.topic, partition=error.partition, offset=error.offset, broker=error.broker)
    told.__cause__ = error
    return told


def pause_before(restart: int) -> float:
    """Return how long to wait before a restart, in seconds.

    Args:
        restart: Its number among those of the window, from 1.
    """
    return float(min(_FIRST_PAUSE * 2.0 ** min(restart - 1, 16), _LONGEST_PAUSE))


def _classes() -> Iterator[type[KafkaDirectError]]:
    for each in vars(errors).values():
        if isinstance(each, type) and issubclass(each, KafkaDirectError):
            yield each
