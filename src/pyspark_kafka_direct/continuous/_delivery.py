"""Delivery at least once: the logs alone say where a query goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.continuous._log_state import LogState
    from pyspark_kafka_direct.continuous._seams import EpochSinkFactory
    from pyspark_kafka_direct.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class AtLeastOnce:
    """A ``Delivery`` that needs nothing of its own.

    Attributes:
        factory: Makes the sinks.
    """

    factory: EpochSinkFactory

    def prepare(self, query_id: str, partitions: Collection[TopicPartition], tasks: int) -> None:
        """See ``Delivery``."""

    def reached(self, state: LogState) -> Mapping[TopicPartition, int] | None:
        """See ``Delivery``."""
        return None

    @property
    def shares_numbers(self) -> bool:
        """See ``Delivery``: a user's sink may keep what it has by the numbers."""
        return False

    def sink(self) -> EpochSinkFactory:
        """See ``Delivery``."""
        return self.factory
