"""How many records one offset range holds: fetched like any read, but only the headers of record batches are looked at.

The loop is that of ``range_reader``, with a counter in the decoder's place, and so are the rules for what goes wrong.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.reading._recovery import Recovery
from pyspark_kafka_direct.reading._replica import Replica
from pyspark_kafka_direct.reading.counts import ReadCounts
from pyspark_kafka_direct.records import AbortedTransaction
from pyspark_kafka_direct.records.counting import RecordCounter

if TYPE_CHECKING:
    from pyspark_kafka_direct.reading.request import RangeRequest
    from pyspark_kafka_direct.wire.settings import ConnectionSettings

_log = logging.getLogger("pyspark_kafka_direct.reading")


def count_range(
    settings: ConnectionSettings, request: RangeRequest, *, limit: int | None = None, counts: ReadCounts | None = None
) -> int:
    """Counts the records that ``read_range`` would read.

    Args:
        settings: How to reach the cluster.
        request: What to read; its columns do not matter.
        limit: Stop when so many were counted; the number may then be larger, but is not the whole.
        counts: Filled while reading, if given.

    Raises:
        KafkaDirectError: As ``read_range``.
    """
    offsets = request.offsets
    counts = counts if counts is not None else ReadCounts()
    counter = RecordCounter(offsets.topic, offsets.partition, offsets.from_offset, offsets.until_offset)
    replica = Replica(settings, offsets.topic_partition, request.topic_id, request.leader)
    recovery = Recovery(settings, request, replica, counts)
    started = time.monotonic()
    try:
        while (position := counter.next_offset) < offsets.until_offset and (limit is None or counter.records < limit):
            recovery.check_time()
            try:
                replica.ask(position, settings.max_partition_fetch_bytes, recovery.deadline)
                fetched = replica.answer(recovery.deadline)
                counts.fetched(replica.broker, len(fetched.records))
                if fetched.error_code:
                    counter.skip_to(recovery.after_code(position, fetched))
                    continue
                counter.feed(fetched.records, [AbortedTransaction(*entry) for entry in fetched.aborted])
                if counter.next_offset <= position:
                    counter.skip_to(recovery.after_empty(position, fetched))
                    continue
                recovery.progressed()
                if limit is None:
                    recovery.ask_ahead(counter.next_offset)
            except TransientBrokerError as error:
                recovery.after_trouble(error)
            except TopicNotFoundError as error:
                counter.skip_to(recovery.after_missing(position, error))
    finally:
        replica.drop()
        counts.records = counter.records
        counts.total_seconds = time.monotonic() - started
        _log.info("%s [%d, %d) counted: %s", offsets.topic_partition, offsets.from_offset, offsets.until_offset, counts)
    return counter.records
