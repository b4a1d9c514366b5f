"""A cache of values that are fetched once: threads that want the same value wait for the same request."""

from __future__ import annotations

import copy
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pyspark_kafka_direct.errors import KafkaDirectError, SchemaError, SchemaNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from pyspark_kafka_direct.client.system import System

_T = TypeVar("_T")

MISSING_SECONDS: Final = 10.0
"""For which a missing value is not requested again."""

_MAX_ENTRIES: Final = 10_000  # each missing id is an entry, too
_MAX_WEIGHT: Final = 64 << 20


@dataclass(slots=True)
class _Entry(Generic[_T]):
    future: Future[_T]
    expires_at: float | None = None  # None: never
    weight: int = 0  # of the value, once it is there


class SingleFlightCache(Generic[_T]):
    """Caches values and ``SchemaError`` without a limit of time, and ``SchemaNotFoundError`` for ten seconds.

    Other errors are not cached: threads that already wait get them, and the next call requests the value again. Several
    threads may share a cache.
    """

    def __init__(self, system: System, weigh: Callable[[_T], int]) -> None:
        self._system = system
        self._weigh = weigh  # returns the approximate number of bytes of a value
        self._lock = system.lock()
        self._entries: OrderedDict[Hashable, _Entry[_T]] = OrderedDict()
        self._weight = 0

    def has(self, key: Hashable) -> bool:
        """Return whether a value, or its error, need not be fetched."""
        with self._lock:
            entry = self._entries.get(key)
            return entry is not None and not self._has_expired(entry)

    def get(self, key: Hashable, fetch: Callable[[], _T], seconds: float) -> _T:
        """Return the value of a key; ``seconds`` is how long another thread may take to fetch it."""
        with self._lock:
            entry, is_new = self._find_or_add(key)
        if is_new:
            return self._fetch(key, entry, fetch)
        self._system.wait_for_future(entry.future, seconds)
        if not entry.future.done():
            return fetch()  # the other thread is much too late, so this one does not depend on it
        error = entry.future.exception()
        if isinstance(error, KafkaDirectError):
            raise copy.copy(error) from None  # each thread needs an error of its own, because it adds its stack
        return entry.future.result()

    def _find_or_add(self, key: Hashable) -> tuple[_Entry[_T], bool]:
        """Return the entry of a key, and whether it is new, so that the caller has to fetch its value."""
        entry = self._entries.get(key)
        if entry is not None and not self._has_expired(entry):
            self._entries.move_to_end(key)
            return entry, False
        if entry is not None:
            self._remove(key)
        entry = self._entries[key] = _Entry(Future())
        return entry, True

    def _fetch(self, key: Hashable, entry: _Entry[_T], fetch: Callable[[], _T]) -> _T:
        """Fetch a value, and set it, or its error, for the threads that wait for the entry."""
        try:
            value = fetch()
        except BaseException as error:
            with self._lock:
                if isinstance(error, SchemaNotFoundError):
                    entry.expires_at = self._system.monotonic() + MISSING_SECONDS
                elif not isinstance(error, SchemaError) and self._entries.get(key) is entry:
                    self._remove(key)  # so that the next call fetches it again
                self._evict()
            # A copy is cached: the traceback of the error retains what the callers have, such as a batch of values.
            entry.future.set_exception(copy.copy(error) if isinstance(error, KafkaDirectError) else error)
            raise
        with self._lock:
            if self._entries.get(key) is entry:  # it may have been evicted
                entry.weight = self._weigh(value)
                self._weight += entry.weight
                self._evict()
        entry.future.set_result(value)
        return value

    def _has_expired(self, entry: _Entry[_T]) -> bool:
        return entry.expires_at is not None and self._system.monotonic() >= entry.expires_at

    def _evict(self) -> None:
        """Remove entries that were not used for longest, but never the newest one."""
        while len(self._entries) > 1 and (len(self._entries) > _MAX_ENTRIES or self._weight > _MAX_WEIGHT):
            self._remove(next(iter(self._entries)))

    def _remove(self, key: Hashable) -> None:
        self._weight -= self._entries.pop(key).weight
