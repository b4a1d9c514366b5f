"""Bugs of producers after rare errors: a leader that forgets them, a replaced producer, a split, a close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import BugsOf, Patch

if TYPE_CHECKING:
    from collections.abc import Sequence


def _batches_keep_their_state() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.partition_queue import PartitionQueue

    def reset(original: Any) -> Any:
        def reset_producer_id(self: Any, partition_sequence: Any) -> None:
            states = [batch.has_producer_state for batch in self._queued]
            original(self, partition_sequence)
            for batch, state in zip(self._queued, states, strict=True):
                batch.has_producer_state = state

        return reset_producer_id

    return [Patch(PartitionQueue, "reset_producer_id", reset)]


def _replacements_have_another_id() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

    def replacement(_: Any) -> Any:
        def replace(self: Any, error: BaseException) -> Any:
            self._fail_all_batches(error)
            self._disconnect()
            return BatchProducer(self._cluster, self._settings)

        return replace

    return [Patch(BatchProducer, "replacement", replacement)]


def _splits_are_not_counted() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.batch_producer import BatchProducer

    def split(original: Any) -> Any:
        def split_batch(self: Any, partition: Any, batch: Any) -> None:
            before = self._buffered_bytes
            original(self, partition, batch)
            self._buffered_bytes = before

        return split_batch

    return [Patch(BatchProducer, "_split_batch", split)]


def _closes_early() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.async_producer import AsyncProducer

    def wait(original: Any) -> Any:
        def wait_for_thread(self: Any, ends_at: float) -> None:
            now = self._monotonic()
            original(self, now + (ends_at - now) / 2)

        return wait_for_thread

    return [Patch(AsyncProducer, "_wait_for_thread", wait)]


def _nothing_is_in_flight() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.partition_queue import PartitionQueue

    def abort(_: Any) -> Any:
        return lambda self: [*self._in_flight, *self._queued]

    return [Patch(PartitionQueue, "abort_batches", abort)]


_producers = BugsOf("producers", "rare errors: ")

BUGS: Final = (
    _producers(
        "old sequence after a loss of state",
        "After a broker has lost the state of a producer, batches are sent again with the old epoch.",
        _batches_keep_their_state,
    ),
    _producers(
        "other id after an error",
        "After an error that fails all records, the next ones have another producer id, so late requests are written.",
        _replacements_have_another_id,
    ),
    _producers("bytes of a split batch", "The bytes of split batches are not released.", _splits_are_not_counted),
    _producers("early close", "close waits only for half of its time.", _closes_early),
    _producers(
        "outcome in flight",
        "When a producer fails, its records in flight are reported as not written.",
        _nothing_is_in_flight,
    ),
)
