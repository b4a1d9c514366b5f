"""What the queries of a session have written: the last batch of each, and sums for metrics."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.runtime.written_files import find

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.planning.written import BatchWritten

_log = logging.getLogger("pyspark_kafka_direct.monitor")

_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class SinkTotal:
    """What a query has written to a topic.

    Attributes:
        query: The query's name, else its id.
        topic: The topic.
        records: How many records.
        bytes: How many bytes, as they were sent.
    """

    query: str
    topic: str
    records: int
    bytes: int


class WriteLog:
    """Finds what was written. Safe to use from several threads.

    Args:
        folder: Where commit steps leave it; ``None``: nowhere (Spark Connect).
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._ids: dict[str, str] = {}
        self._totals: OrderedDict[str, dict[str, SinkTotal]] = OrderedDict()

    def last(self, query: Any = None) -> BatchWritten | None:
        """See ``Monitor.written``."""
        if self._folder is None:
            return None
        name = "" if query is None else str(getattr(query, "id", query))
        return find(self._folder, self._ids.get(name, name))

    @property
    def totals(self) -> tuple[SinkTotal, ...]:
        """See ``Monitor.sink_totals``."""
        with self._lock:
            return tuple(total for topics in self._totals.values() for total in topics.values())

    def batch_ended(self, query_id: str, name: str | None, batch_id: int) -> None:
        """Take note that a micro-batch is done.

        Args:
            query_id: Of the query.
            name: Its name, if it has one.
            batch_id: Of the batch.
        """
        written = None if self._folder is None else find(self._folder, query_id, batch_id)
        if written is None:
            return
        shown = name or query_id
        _log.info("%s, batch %d: wrote %d records, %d bytes", shown, batch_id, written.records, written.bytes)
        with self._lock:
            self._ids[shown] = query_id
            topics = self._totals.setdefault(query_id, {})
            for (topic, _), each in written.partitions.items():
                before = topics.get(topic, SinkTotal(shown, topic, 0, 0))
                topics[topic] = SinkTotal(shown, topic, before.records + each.records, before.bytes + each.bytes)
            self._totals.move_to_end(query_id)
            while len(self._totals) > _KEPT:
                self._totals.popitem(last=False)
