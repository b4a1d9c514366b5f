"""Which queries run: lag alone does not tell, for it stays what it was when a query dies."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

_KEPT = 100


@dataclass(frozen=True, slots=True)
class QueryHealth:
    """A query.

    Attributes:
        query: Its name, or its id where it has none.
        query_id: Stays the same over restarts from a checkpoint.
        run_id: Of its last start.
        is_running: Whether that has not ended.
        last_batch: When its last batch ended, in seconds since 1970; ``None`` before the first.
    """

    query: str
    query_id: str
    run_id: str
    is_running: bool = True
    last_batch: float | None = None


class Health:
    """Remembers the queries of a session; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: OrderedDict[str, QueryHealth] = OrderedDict()

    @property
    def queries(self) -> tuple[QueryHealth, ...]:
        """All queries, those that have ended too."""
        with self._lock:
            return tuple(self._queries.values())

    @property
    def running(self) -> frozenset[str]:
        """The ids of the queries that run."""
        return frozenset(each.query_id for each in self.queries if each.is_running)

    def started(self, query_id: str, run_id: str, name: str | None) -> None:
        """Take in the start of a query."""
        with self._lock:
            before = self._queries.pop(query_id, None)
            last = None if before is None else before.last_batch
            self._queries[query_id] = QueryHealth(name or query_id, query_id, run_id, last_batch=last)
            ended = [each for each, query in self._queries.items() if not query.is_running]
            for each in ended[: max(len(self._queries) - _KEPT, 0)]:
                del self._queries[each]

    def batch_ended(self, query_id: str, run_id: str, name: str | None, at: float) -> None:
        """Take in the end of a batch."""
        with self._lock:
            known = self._queries.get(query_id) or QueryHealth(name or query_id, query_id, run_id)
            self._queries[query_id] = replace(known, last_batch=at)

    def ended(self, run_id: str) -> None:
        """Take in the end of a query."""
        with self._lock:
            for query_id, each in self._queries.items():
                if each.run_id == run_id:
                    self._queries[query_id] = replace(each, is_running=False)

    def all_ended(self) -> None:
        """Take in the end of all queries."""
        with self._lock:
            for query_id, each in self._queries.items():
                self._queries[query_id] = replace(each, is_running=False)
