"""What one task is asked to read."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.cluster import PartitionLeader


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """What one task reads, and how.

    Attributes:
        offsets: The offset range.
        columns: Columns to decode, in this order (see ``records.COLUMNS``).
        topic_id: The topic's id when the range was planned; another id at reading means that it was recreated.
        leader: The partition's leader when the range was planned, if known: the first request can go straight there.
        from_earliest: The range begins at the log start because that was asked for: what ages out before its first
            record is read was not asked for by number.
        fail_on_data_loss: Whether lost records are an error, or skipped with a warning.
        poll_timeout: Seconds without any progress after which the read fails.
        max_rows: Most rows of one Arrow batch.
        max_bytes: Bytes of keys, values and headers after which an Arrow batch is closed.
        max_batch_bytes: Most bytes that a record batch may decompress to, and that a record may take.
    """

    offsets: OffsetRange
    columns: tuple[str, ...]
    topic_id: UUID | None = None
    leader: PartitionLeader | None = None
    from_earliest: bool = False
    fail_on_data_loss: bool = True
    poll_timeout: float = 120.0
    max_rows: int = 32_768
    max_bytes: int = 4 << 20
    max_batch_bytes: int = 1 << 30


def with_rack(settings: FetchSettings, variable: str | None) -> FetchSettings:
    """Return the settings with the rack that this executor's environment names; an option would be the same for all.

    Args:
        settings: Those that all executors got.
        variable: The environment variable (option ``rackEnvironmentVariable``); unset or empty changes nothing.
    """
    rack = os.environ.get(variable, "") if variable else ""
    return dataclasses.replace(settings, client_rack=rack) if rack else settings
