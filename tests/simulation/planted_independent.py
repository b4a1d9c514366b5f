"""Bugs that someone planted who had not read the tests, and that no scenario found at first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import Patch, PlantedBug, does_nothing

if TYPE_CHECKING:
    from collections.abc import Sequence


def _coordinator_is_kept_after_a_connection_error() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.coordinator_client import CoordinatorClient, RetriableCoordinatorError
    from pyspark_kafka_direct.errors import TransientBrokerError

    nodes: dict[Any, Any] = {}

    def call_once(original: Any) -> Any:
        def _call_once(self: Any, *args: Any) -> Any:
            self._node = self._node or nodes.pop(self, None)
            try:
                return original(self, *args)
            except RetriableCoordinatorError:
                raise
            except TransientBrokerError:
                if self._node is not None:
                    nodes[self] = self._node
                raise

        return _call_once

    return [Patch(CoordinatorClient, "_call_once", call_once)]


def _cached_metadata_without_a_partition() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient

    def fresh(original: Any) -> Any:
        def _fresh_topics(self: Any, partitions: Any, deadline: Any) -> Any:
            names = {tp.topic for tp in partitions}
            expired_at = self.pool.system.monotonic() - self.settings.metadata_max_age_ms / 1000
            fresh_topics = self._snapshot.topics(names, expired_at)
            return fresh_topics if names == fresh_topics.keys() else original(self, partitions, deadline)

        return _fresh_topics

    return [Patch(ClusterClient, "_fresh_topics", fresh)]


def _one_recreated_topic_is_reported() -> Sequence[Patch]:
    from pyspark_kafka_direct.planning.loss_report import LossReport

    def report(original: Any) -> Any:
        def report_lost(self: Any, lost: Any, known_ids: Any) -> None:
            first = min((tp.topic for tp in lost.recreated), default=None)
            original(
                self,
                lost._replace(recreated={tp: value for tp, value in lost.recreated.items() if tp.topic == first}),
                known_ids,
            )

        return report_lost

    return [Patch(LossReport, "report_lost", report)]


def _epoch_is_not_incremented() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.producer_id_manager import ProducerIdManager

    def sequence(original: Any) -> Any:
        def sequence_for(self: Any, topic_partition: Any, previous: Any, deadline: Any) -> Any:
            found = original(self, topic_partition, previous, deadline)
            ended = None if self._producer_state is None else self._producer_state.sequences.get(topic_partition)
            if previous is None and ended is not None and found.producer.id == ended.producer.id:
                return found._replace(producer=ended.producer)
            return found

        return sequence_for

    return [Patch(ProducerIdManager, "sequence_for", sequence)]


def _exhausted_id_is_used_again() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.producer_state import PartitionSequence
    from pyspark_kafka_direct.producer import producer_id_manager

    def sequence(original: Any) -> Any:
        def sequence_for(self: Any, topic_partition: Any, previous: Any, deadline: Any) -> Any:
            if previous is not None and previous.producer.epoch >= producer_id_manager._MAX_EPOCH:
                return PartitionSequence(previous.producer, sequence=0)
            return original(self, topic_partition, previous, deadline)

        return sequence_for

    return [Patch(producer_id_manager.ProducerIdManager, "sequence_for", sequence)]


def _newest_state_is_not_checked() -> Sequence[Patch]:
    from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore

    return [Patch(SinkStateStore, "check_newest", does_nothing)]


def _lease_counts_from_the_response() -> Sequence[Patch]:
    from pyspark_kafka_direct.continuous.task_lease import TaskLease

    def extend(original: Any) -> Any:
        def extend_from_now(self: Any, number: int) -> None:
            before = self.expires_at
            original(self, number)
            if self.expires_at != before:
                self.expires_at = self._system.monotonic() + self._seconds

        return extend_from_now

    return [Patch(TaskLease, "extend", extend)]


def _reads_complete_in_a_suspected_truncation() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.log_worker import LogWorker

    def complete(original: Any) -> Any:
        def _complete_reached_reads(self: Any) -> None:
            suspected, self._suspected_truncations = self._suspected_truncations, {}
            try:
                original(self)
            finally:
                self._suspected_truncations = {**suspected, **self._suspected_truncations}

        return _complete_reached_reads

    return [Patch(LogWorker, "_complete_reached_reads", complete)]


def _lost_keys_are_not_reported() -> Sequence[Patch]:
    from pyspark_kafka_direct.log.table_state import TableState

    def end(original: Any) -> Any:
        def end_reload(self: Any) -> None:
            reloaded, on_change = self._reloaded, self._on_change

            def change(key: bytes, value: bytes | None) -> None:
                if reloaded is None or value is not None:
                    on_change(key, value)

            self._on_change = None if on_change is None else change
            try:
                original(self)
            finally:
                self._on_change = on_change

        return end_reload

    return [Patch(TableState, "end_reload", end)]


BUGS: Final = (
    PlantedBug(
        "independent: coordinator kept",
        "connections",
        "After a connection error the coordinator is not looked up again.",
        _coordinator_is_kept_after_a_connection_error,
    ),
    PlantedBug(
        "independent: cached metadata",
        "connections",
        "Cached metadata is used although it lacks a new partition.",
        _cached_metadata_without_a_partition,
    ),
    PlantedBug(
        "independent: one recreated topic",
        "micro_batches",
        "Of several recreated topics only the first one is reported.",
        _one_recreated_topic_is_reported,
    ),
    PlantedBug(
        "independent: epoch not incremented",
        "producers",
        "A producer id is used again in a partition that needs another epoch.",
        _epoch_is_not_incremented,
    ),
    PlantedBug(
        "independent: exhausted id",
        "producers",
        "A producer id whose epochs are exhausted is used again.",
        _exhausted_id_is_used_again,
    ),
    PlantedBug(
        "independent: newest state",
        "exactly_once",
        "The sink state record need not follow the one that was read.",
        _newest_state_is_not_checked,
    ),
    PlantedBug(
        "independent: lease from the response",
        "continuous",
        "A lease counts from the response to a heartbeat.",
        _lease_counts_from_the_response,
    ),
    PlantedBug(
        "independent: reads in a truncation",
        "shared_log",
        "Reads complete although a truncation is suspected.",
        _reads_complete_in_a_suspected_truncation,
    ),
    PlantedBug(
        "independent: lost keys",
        "shared_log",
        "Keys that a table lost by a reload are not reported.",
        _lost_keys_are_not_reported,
    ),
)
