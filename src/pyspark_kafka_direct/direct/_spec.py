"""What the user asked a direct stream for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_kafka_direct.direct.locations import LocationStrategy
    from pyspark_kafka_direct.direct.rates import PerPartitionConfig
    from pyspark_kafka_direct.direct.record import Decoder
    from pyspark_kafka_direct.direct.strategies import ConsumerStrategy


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """What the user asked for; pickled into the checkpoint, so it cannot change with a restart.

    Attributes:
        strategy: Which partitions, from where.
        locations: Where tasks should run.
        config: Limits of the partitions.
        batch_seconds: The batch interval.
        key_decoder: Makes something of a key's bytes.
        value_decoder: The same for values.
        assume_consecutive: Each offset is a record.
    """

    strategy: ConsumerStrategy
    locations: LocationStrategy
    config: PerPartitionConfig
    batch_seconds: float
    key_decoder: Decoder | None = None
    value_decoder: Decoder | None = None
    assume_consecutive: bool = False
