"""Each lock of the package is held where what it guards is used, so that none can be removed."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from tests.unit.lock_analysis import Use, lock_owners

import pyspark_kafka_direct

ROOT = Path(pyspark_kafka_direct.__file__).parent

# By module, class and lock: the attributes that a lock guards, and the methods that run only while it is held.
GUARDED: dict[tuple[str, str, str], str] = {
    ("arrow/parallel_reads.py", "_SharedReads", "_changed"): (
        "_closed _error _first _first_idle _offsets_without_records _running _was_started .batch .has_ended .is_busy"
    ),
    ("client/cluster_client.py", "ClusterClient", "_lock"): (
        "_broker_shift _epoch_floors _replica_witnesses _was_called _witnessed_at _witnessed_topics cluster_id "
        "_raise_epoch_floor _snapshot"
    ),
    ("client/connection_pool.py", "ConnectionPool", "_lock"): "_closed _failures _idle",
    ("client/producer_state.py", "IdleProducerPool", "_lock"): "_idle",
    ("client/security/oauth_login.py", "_TokenCache", "_lock"): (
        "_cached _refresh_at _refresh_at_monotonic _retrieved_at _is_refresh_failing _rejection _calls "
        "_is_refresh_due _new_or_valid_token _refresh_after _request"
    ),
    ("client/unbounded_call.py", "UnboundedCalls", "_completed"): "_abandoned",
    ("client/security/kerberos_login.py", "_KerberosLogin", "_lock"): "_current _renew_at _has_warned _log_in _renew",
    ("consumer/background.py", "BackgroundTasks", "_lock"): "_closed _completed _signal",
    ("continuous/control_socket.py", "TaskChannel", "_sending"): "_connection",
    ("continuous/epoch_coordinator.py", "EpochCommitter", "_changed"): (
        "_abandon_at _deadline _epoch _error _is_closing _is_thread_running _pending"
    ),
    ("continuous/partition_discovery.py", "PartitionDiscovery", "_close_condition"): "_closed",
    ("continuous/query_run.py", "SparkJob", "_changed"): "_ended",
    ("continuous/query_state.py", "QueryState", "_changed"): (
        "_progress _stop_run ended error offsets stopping status"
    ),
    ("continuous/task_lease.py", "TaskLease", "_close_condition"): "_closed",
    ("direct/checkpointed_stream.py", "", "_registry_lock"): "_streams _stopped_streams",
    ("direct/checkpointed_stream.py", "CheckpointedStream", "_lock"): "_client _deleted_offset_counts _state",
    ("direct/checkpointed_stream.py", "CheckpointedStream", "_planning_lock"): "_cluster_view",
    ("direct/rate_controller.py", "RateController", "_lock"): "_attached _estimator _rate",
    ("direct/stop_hooks.py", "StopSignal", "_changed"): "_planning_deadline",
    ("direct/streaming_context.py", "StreamingContextBinding", "_lock"): "_make_rdd _rdds _reported_times",
    ("log/kafka_offset_store.py", "KafkaOffsetStore", "_lock"): (
        "_added_partition_offsets _ensure_topic _offsets_of_same_topics _run_id _saved_offsets ._saved_offsets _state "
        "_store"
    ),
    ("log/log_thread.py", "LogThread", "_lock"): "state",
    ("log/pending_reads.py", "PendingReads", "_lock"): "_active_reads _queued_reads _reads_past_offsets ends",
    ("log/single_writer.py", "SingleWriter", "_lock"): "_producer _end_claim _write _partition_count yield",
    ("monitor/enable_monitor.py", "", "_lock"): "_monitors",
    ("monitor/group_committer.py", "GroupCommitter", "_lock"): "_groups _runs",
    ("monitor/query_monitor.py", "Monitor", "_lock"): "_is_current _lags _runs _store_lag .is_refreshing",
    ("monitor/query_status.py", "QueryHealthTracker", "_lock"): "_queries",
    ("monitor/query_status.py", "WriteTracker", "_lock"): "_queries",
    ("producer/async_producer.py", "AsyncProducer", "_lock"): (
        "_aborted _buffered_bytes _closed _completed_count _flushes_in_progress _incomplete _new_records _sent_count "
        ".completion_claimed .sent_to_producer"
    ),
    ("producer/async_producer.py", "AsyncProducer", "self._futures.condition"): ".acknowledge",
    ("producer/record_future.py", "FutureGroup", "condition"): "",
    ("producer/record_future.py", "RecordFuture", "_condition"): "_waiters _done_callbacks is_observed",
    ("payloads/registry/registry_client.py", "MissingIds", "_lock"): "_free_at",
    ("payloads/registry/single_flight_cache.py", "SingleFlightCache", "_lock"): "_entries _weight",
    ("spark/delegation_tokens.py", "", "_lock"): "_known_folders _read_configuration",
    ("spark/delegation_tokens.py", "ApplicationTokens", "_lock"): "_states _write",
    ("spark/loss_channel.py", "LossReporter", "_condition"): "_has_thread _sending _unresponsive _unsent",
    ("spark/offset_committer.py", "AsyncOffsetCommitter", "_changed"): (
        "_added_items _deadline _ready_items _running _sync_commit_count"
    ),
    ("spark/offset_committer.py", "AsyncOffsetCommitter", "_commit_lock"): "_commit",
}

# By module and class: methods that use an attribute without its lock (``*2``: in two places), and why they may.
WITHOUT_LOCK: dict[tuple[str, str], tuple[str, str]] = {
    ("client/cluster_client.py", "ClusterClient"): (
        "_call_any_broker._broker_shift _call_any_broker._was_called _fetch_once._snapshot _fresh_topics._snapshot "
        "_identity.cluster_id*4 call_any_broker._snapshot known_leaders._snapshot known_replicas._snapshot "
        "known_topic_ids._snapshot leaders._snapshot nodes._snapshot raise_epoch_floors._snapshot "
        "raise_epoch_floors._witnessed_at was_reached._snapshot",
        "each reads one reference once, and the containers are replaced, not changed",
    ),
    ("client/connection_pool.py", "ConnectionPool"): ("_failures_of._failures", "one lookup is atomic"),
    ("client/security/oauth_login.py", "_TokenCache"): (
        "_limit._cached token._cached token._rejection",
        "each reads one reference: a token does not change",
    ),
    ("consumer/background.py", "BackgroundTasks"): (
        "close._completed*2 run_callbacks._completed close_after_fork._signal fileno._signal",
        "``close`` empties what no thread extends any more; after a fork, the lock may be held forever",
    ),
    ("continuous/control_socket.py", "TaskChannel"): (
        "_receive_lines._connection _send_all._connection*2 _wait_for_line._connection close._connection "
        "fileno._connection receive._connection wait_for_start._connection",
        "only sending needs the lock: one thread receives",
    ),
    ("continuous/epoch_coordinator.py", "EpochCommitter"): (
        "_run._error _run._pending due_at._deadline*2 is_busy._pending raise_if_failed._deadline "
        "raise_if_failed._epoch raise_if_failed._error*2",
        "each reads or sets one reference, and ``on_done`` wakes the coordinator",
    ),
    ("continuous/partition_discovery.py", "PartitionDiscovery"): ("_run._closed", "reads a flag"),
    ("continuous/query_run.py", "SparkJob"): ("start._ended", "no thread was started"),
    ("continuous/query_state.py", "QueryState"): ("wait_for_stop.stopping", "a predicate, called with the lock"),
    ("continuous/task_lease.py", "TaskLease"): ("_run._closed", "reads a flag"),
    ("direct/checkpointed_stream.py", "CheckpointedStream"): (
        "_warn_of_secrets._client close._client commit_queue._client",
        "each reads one reference; the first runs before the stream starts",
    ),
    ("direct/rate_controller.py", "RateController"): ("latest_rate._rate", "reads one reference"),
    ("log/kafka_offset_store.py", "KafkaOffsetStore"): ("__repr__._state", "reads one reference"),
    ("log/log_thread.py", "LogThread"): ("check_state.state*3 status.state*2", "reads one reference"),
    ("log/pending_reads.py", "PendingReads"): (
        "are_ends_reached.ends*2 has_pending._active_reads has_pending._queued_reads has_pending._reads_past_offsets "
        "has_queued._queued_reads",
        "the lists are replaced, not changed, and only the thread of the log sets the ends",
    ),
    ("log/single_writer.py", "SingleWriter"): ("_encode._partition_count", "reads one number"),
    ("monitor/query_monitor.py", "Monitor"): (
        "_refresh_end_offsets..is_refreshing _start_refresh..is_refreshing",
        "only the thread that has set it, or could not be started, clears it",
    ),
    ("producer/async_producer.py", "AsyncProducer"): (
        "completed_count._completed_count sent_count._sent_count _fail_all..sent_to_producer",
        "each reads one number or flag",
    ),
    ("producer/record_future.py", "RecordFuture"): (
        "acknowledge._waiters acknowledge.is_observed",
        "the caller holds the condition of the group",
    ),
}

OWNERS = {
    (path.relative_to(ROOT).as_posix(), owner.name): owner
    for path in sorted(ROOT.rglob("*.py"))
    for owner in lock_owners(path)
}


def test_each_lock_guards_something() -> None:
    found = {(*key, lock) for key, owner in OWNERS.items() for lock in owner.locks.values()}
    assert found == GUARDED.keys(), "add what the lock guards to GUARDED"


@pytest.mark.parametrize("owner", OWNERS, ids="::".join)
def test_what_a_lock_guards_is_used_with_it(owner: tuple[str, str]) -> None:
    guarded = {name: lock for (*key, lock), names in GUARDED.items() if tuple(key) == owner for name in names.split()}
    used = {attribute for _, attribute in OWNERS[owner].held_at}
    assert guarded.keys() <= used, "an attribute was renamed"
    found = sorted(f"{use.method}.{use.attribute}" for use in OWNERS[owner].uses_without(guarded))
    expected = (each.split("*") for each in WITHOUT_LOCK.get(owner, ("", ""))[0].split())
    assert found == sorted(name for name, *count in expected for _ in range(int(*count or "1")))


def found_uses(tmp_path: Path, body: str) -> list[Use]:
    """Return how a class uses ``_items`` without its lock."""
    path = tmp_path / "module.py"
    path.write_text(
        "class A:\n    def __init__(self, system):\n        self._lock = system.lock()\n" + indent(body, "    ")
    )
    (owner,) = lock_owners(path)
    return owner.uses_without({"_items": "_lock"})


@pytest.mark.parametrize(
    "body",
    [
        "def put(self):\n    with self._lock:\n        self._items.append(1)\n",
        "def put(self):\n    with self._lock:\n        self._put()\ndef _put(self):\n    self._items.append(1)\n",
        "def put(self):\n    with self._lock:\n        wait(lambda: self._items)\n",
        "def put(self):\n    self._lock.acquire()\n    try:\n        self._items = 1\n"
        "    finally:\n        self._lock.release()\n",
    ],
    ids=["with", "caller", "lambda", "release"],
)
def test_a_use_with_the_lock(tmp_path: Path, body: str) -> None:
    assert found_uses(tmp_path, body) == []


@pytest.mark.parametrize(
    "body",
    [
        "def put(self):\n    self._items.append(1)\n",
        "def put(self):\n    with self._lock:\n        pass\n    self._items = 1\n",
        "def put(self):\n    with self._other:\n        self._items = 1\n",
        "def put(self):\n    with self.system.lock():\n        del self._items[0]\n",
        "def a(self):\n    with self._lock:\n        self._put()\ndef put(self):\n    self._put()\n"
        "def _put(self):\n    self._items.append(1)\n",
        "def a(self):\n    with self._lock:\n        start(self._put)\ndef _put(self):\n    self._items.append(1)\n",
        "def a(self):\n    with self._lock:\n        def put():\n            self._items = 1\n        start(put)\n",
    ],
    ids=["no with", "after", "other", "new lock", "one caller without", "thread", "nested"],
)
def test_a_use_without_the_lock(tmp_path: Path, body: str) -> None:
    assert {use.attribute for use in found_uses(tmp_path, body)} == {"_items"}
