"""Bugs that strangers planted and no history showed, because their moments or states were never drawn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import BugsOf, Patch

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFIX: Final = "moments: "


def _failed_generation_of_a_known_batch() -> Sequence[Patch]:
    from pyspark_kafka_direct.direct.checkpoint_data import StreamCheckpointData

    def empty(_: Any) -> Any:
        def _empty_if_failed(self: Any) -> Any:
            planned = self._generation_batches
            return {
                each: () for each in self.unfinished_batches() if each in planned or each > self._newest_forgotten_ms
            }

        return _empty_if_failed

    return [Patch(StreamCheckpointData, "_empty_if_failed", empty)]


def _connections_in_use_at_a_stop() -> Sequence[Patch]:
    from pyspark_kafka_direct.direct.stream_client import StreamClient

    return [Patch(StreamClient, "close", lambda _: lambda self: self.cluster.pool.clear())]


def _retries_have_no_pause() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.deadline import Backoff

    return [Patch(Backoff, "without_jitter", lambda _: lambda self, tries: 0.0)]


def _metadata_is_requested_for_each_record() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.accumulator import RecordAccumulator

    def append(original: Any) -> Any:
        def append_each(self: Any, records: Any, *, flush_now: bool = False) -> None:
            records, self._unassigned = [*self._unassigned, *records], []
            postponed: list[Any] = []
            original(self, [], flush_now=flush_now)
            for record in records:
                original(self, [record], flush_now=flush_now)
                postponed += self._unassigned
                self._unassigned = []
            self._unassigned = postponed

        return append_each

    return [Patch(RecordAccumulator, "append", append)]


def _open_transactions_hide_the_own_state() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore

    def read(original: Any) -> Any:
        def read_stable(self: Any, key: str, deadline: Any = None) -> Any:
            log = self._log
            self._log = SimpleNamespace(
                start=log.start, find_newest=log.find_newest, end=lambda limit: log.end(limit, "read_committed")
            )
            try:
                return original(self, key, deadline)
            finally:
                self._log = log

        return read_stable

    return [Patch(SinkStateStore, "read", read)]


def _reads_of_a_log_that_stops() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_thread import LogThread

    return [Patch(LogThread, "wake", lambda _: lambda self: self._worker.wake())]


def _pending_first_offsets() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.sink_delivery import ExactlyOnceDelivery

    def prepare(original: Any) -> Any:
        def prepare_with_visible_offsets(self: Any, *arguments: Any) -> None:
            group = self._group

            def committed_with_metadata(partitions: Any = None, **named: Any) -> Any:
                return group.committed_with_metadata(**named)

            self._group = SimpleNamespace(committed_with_metadata=committed_with_metadata)
            try:
                original(self, *arguments)
            finally:
                self._group = group

        return prepare_with_visible_offsets

    return [Patch(ExactlyOnceDelivery, "prepare", prepare)]


_direct_streams = BugsOf("direct_streams", _PREFIX)

BUGS: Final = (
    _direct_streams(
        "failed generation",
        "If a restart fails to generate a batch of the checkpoint again, its ranges become empty.",
        _failed_generation_of_a_known_batch,
    ),
    _direct_streams(
        "connections in use",
        "Connections that are in use when the context stops stay open.",
        _connections_in_use_at_a_stop,
    ),
    BugsOf("connections", _PREFIX)(
        "retries without a pause",
        "Requests that fail are repeated without a pause.",
        _retries_have_no_pause,
    ),
    BugsOf("producers", _PREFIX)(
        "metadata that fails once",
        "If a request for metadata fails and the next one succeeds, later records are written before the first one.",
        _metadata_is_requested_for_each_record,
    ),
    BugsOf("exactly_once", _PREFIX)(
        "open transaction of another query",
        "A query does not see its newest state behind the open transaction of another query.",
        _open_transactions_hide_the_own_state,
    ),
    BugsOf("shared_log", _PREFIX)(
        "stop while a read is added",
        "A read that is added while another thread stops the log never completes.",
        _reads_of_a_log_that_stops,
    ),
    BugsOf("continuous", _PREFIX)(
        "pending first offsets",
        "A run ignores the first offset of a partition if it is pending, and writes its records again.",
        _pending_first_offsets,
    ),
)
