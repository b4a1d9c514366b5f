"""More bugs of continuous queries: failed commits, restarts, other programs, and what is left of a run."""

from __future__ import annotations

from typing import Any, Final

from tests.simulation.planting import BugsOf, does_nothing

from pyspark_kafka_direct.continuous import continuous_execution, sink_delivery
from pyspark_kafka_direct.continuous.checkpoint_logs import CheckpointLogs
from pyspark_kafka_direct.continuous.continuous_epochs import JOB_CANCELLED
from pyspark_kafka_direct.continuous.continuous_execution import ContinuousExecution
from pyspark_kafka_direct.continuous.handshake import HandshakeServer
from pyspark_kafka_direct.continuous.partition_discovery import PartitionDiscovery
from pyspark_kafka_direct.errors import QueryRunError

_bug: Final = BugsOf("continuous").by_one_patch


def _topic_ids_before_the_commit(original: Any) -> Any:
    def commit_epoch(self: Any, result: Any) -> None:
        self._planner.retain_topic_ids(result.recreated_topic_ids)
        original(self, result)

    return commit_epoch


def _selected_again_from_the_start(original: Any) -> Any:
    def offsets_ahead(committed: Any, **named: Any) -> Any:
        return original(committed, **{**named, "partitions": ()})

    return offsets_ahead


def _failed_commit_stays_in_flight(_: Any) -> Any:
    def on_epoch(self: Any, result: Any) -> None:
        self._epoch_being_committed = result.epoch
        self._commit_epoch(result)
        self._epoch_being_committed = None

    return on_epoch


def _settings_of_the_new_driver(original: Any) -> Any:
    def recover(self: Any, *arguments: Any) -> Any:
        recovery = original(self, *arguments)
        self._conf = None
        return recovery

    return recover


def _strangers_end_the_run(_: Any) -> Any:
    def reject(self: Any, pending: Any, reason: str) -> None:
        raise QueryRunError(f"{pending.address}: {reason}")

    return reject


def _cancelled_jobs_restart(original: Any) -> Any:
    def final_error(error: Any) -> Any:
        is_cancelled = getattr(error, "cause_class", None) == JOB_CANCELLED
        return None if is_cancelled else original(error)

    return final_error


def _owner_is_not_checked(_: Any) -> Any:
    def check(self: Any, query_id: str) -> None:
        self._check_cluster()
        self._query_id = query_id

    return check


BUGS: Final = (
    _bug(
        "topic ids before the commit",
        "If the epoch that has found a recreated topic is not committed, the next run skips records of the new topic.",
        ContinuousExecution,
        "_commit_epoch",
        _topic_ids_before_the_commit,
    ),
    _bug(
        "selected again from the start",
        "Topics that a query has not read for some epochs are read again from their start.",
        sink_delivery,
        "offsets_ahead",
        _selected_again_from_the_start,
    ),
    _bug(
        "no restart after a failed commit",
        "After an epoch whose commit has failed, the query ends, although it may restart.",
        ContinuousExecution,
        "_on_epoch",
        _failed_commit_stays_in_flight,
    ),
    _bug(
        "discovery that outlives its run",
        "Each run leaves a thread that looks for new partitions.",
        PartitionDiscovery,
        "close",
        does_nothing,
    ),
    _bug(
        "settings of the new driver",
        "After a restart, the offset log has other session settings.",
        CheckpointLogs,
        "recover",
        _settings_of_the_new_driver,
    ),
    _bug(
        "strangers that end the run",
        "A port scanner ends the run.",
        HandshakeServer,
        "_reject",
        _strangers_end_the_run,
    ),
    _bug(
        "restart of a cancelled job",
        "A query whose job a user has cancelled restarts.",
        continuous_execution,
        "final_error",
        _cancelled_jobs_restart,
    ),
    _bug(
        "prefix of another query",
        "A query with the prefix of another one fences that before it is rejected.",
        sink_delivery.ExactlyOnceDelivery,
        "check",
        _owner_is_not_checked,
    ),
)
