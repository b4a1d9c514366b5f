"""The records that a producer has written to a partition."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_kafka_direct.producer.produce_channel import NO_OFFSET


class WrittenRange(NamedTuple):
    """The offsets and size of the batches written to a partition; records of other producers may lie between them."""

    first_offset: int  # -1 if the broker did not return it for every batch
    next_offset: int  # -1 likewise
    records: int
    bytes: int  # as sent, after compression

    def including(self, other: WrittenRange) -> WrittenRange:
        # The broker returns the original offset of a duplicate, which may be lower than offsets returned since.
        is_known = NO_OFFSET not in (self.first_offset, other.first_offset)
        return WrittenRange(
            min(self.first_offset, other.first_offset) if is_known else NO_OFFSET,
            max(self.next_offset, other.next_offset) if is_known else NO_OFFSET,
            self.records + other.records,
            self.bytes + other.bytes,
        )
