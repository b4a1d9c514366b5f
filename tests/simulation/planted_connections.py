"""Bugs of connections, the pool, metadata and groups."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.planting import BugsOf, Patch, does_nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

_bug: Final = BugsOf("connections")


def _settings_are_ignored() -> Sequence[Patch]:
    from pyspark_kafka_direct.client import connection_pool

    def key(original: Any) -> Any:
        return lambda settings, host, port: original(dataclasses.replace(settings, client_id=""), host, port)

    def open_connection(original: Any) -> Any:
        return lambda self, key, deadline: original(
            self, key._replace(settings=self.__dict__["last_settings"]), deadline
        )

    def acquire(original: Any) -> Any:
        def method(self: Any, settings: Any, *args: Any) -> Any:
            self.last_settings = settings
            return original(self, settings, *args)

        return method

    return [
        Patch(connection_pool, "_PoolKey", key),
        Patch(connection_pool.ConnectionPool, "_open", open_connection),
        Patch(connection_pool.ConnectionPool, "acquire", acquire),
    ]


def _idle_connections_are_not_limited() -> Sequence[Patch]:
    from pyspark_kafka_direct.client import connection_pool

    return [Patch(connection_pool, "_MAX_IDLE_PER_BROKER", lambda _: 100)]


def _surplus_connections_stay_open() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool

    def add(original: Any) -> Any:
        def _add_idle(self: Any, newest: Any) -> list[Any]:
            original(self, newest)
            return []

        return _add_idle

    return [Patch(ConnectionPool, "_add_idle", add)]


def _failed_coordinator_connections_leak() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.coordinator_client import CoordinatorClient

    def call(_: Any) -> Any:
        def _call_once(self: Any, call: Any, deadline: Any, tries: int) -> Any:
            node = self._node = self._node or self._find_coordinator(deadline, tries)
            connection = self._cluster.connect(node, deadline)
            result = call(connection, deadline)
            self._cluster.release(connection)  # not after an error
            return result

        return _call_once

    return [Patch(CoordinatorClient, "_call_once", call)]


def _retries_ignore_the_deadline() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.deadline import Retry

    def wait(original: Any) -> Any:
        def wait_or_raise(self: Any, error: Any) -> None:
            if self.tries < 40:
                self.deadline = self.deadline.after(30, system=self.deadline.system)
            original(self, error)

        return wait_or_raise

    return [Patch(Retry, "wait_or_raise", wait)]


def _requests_ignore_the_deadline() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.deadline import Deadline

    def limited(_: Any) -> Any:
        return lambda self, seconds, setting=None: Deadline(
            self.system.monotonic() + seconds, setting or self.setting, self.system
        )

    return [Patch(Deadline, "limited_to", limited)]


def _coordinator_is_kept_after_errors() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.coordinator_client import CoordinatorClient

    def find(original: Any) -> Any:
        nodes: dict[Any, Any] = {}

        def _find_coordinator(self: Any, deadline: Any, tries: int) -> Any:
            if self not in nodes:
                nodes[self] = original(self, deadline, tries)
            return nodes[self]

        return _find_coordinator

    return [Patch(CoordinatorClient, "_find_coordinator", find)]


def _errors_of_commits_are_ignored() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.consumer_group import ConsumerGroup

    return [Patch(ConsumerGroup, "_raise_for_error_code", lambda _: lambda *_: None)]


def _a_failed_commit_counts() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
    from pyspark_kafka_direct.errors import BrokerError

    def commit(original: Any) -> Any:
        def _commit(self: Any, offsets: Any, *, deadline: Any = None) -> None:
            try:
                original(self, offsets, deadline=deadline)
            except BrokerError:
                return

        return _commit

    return [Patch(ConsumerGroup, "commit", commit)]


def _one_broker_confirms_absence() -> Sequence[Patch]:
    from pyspark_kafka_direct.client import witnesses
    from pyspark_kafka_direct.planning import data_loss

    return [Patch(data_loss, "CONFIRMATION_SECONDS", lambda _: 0.0), Patch(witnesses, "MAX_WITNESSES", lambda _: 1)]


def _metadata_never_expires() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient

    def refresh(original: Any) -> Any:
        responses: dict[Any, Any] = {}

        def _refresh_topics(self: Any, names: Any, *args: Any, **options: Any) -> Any:
            key = (self, tuple(names or ()))
            if key not in responses:
                responses[key] = original(self, names, *args, **options)
            return responses[key]

        return _refresh_topics

    return [Patch(ClusterClient, "_refresh_topics", refresh)]


def _response_without_metadata_counts() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient

    return [Patch(ClusterClient, "check_metadata", does_nothing)]


def _rebootstrap_begins_with_the_same_server() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient

    def call_one(original: Any) -> Any:
        def _call_any_broker(self: Any, known: Any, call: Any, deadline: Any, tries: int) -> Any:
            if not self.needs_bootstrap:
                return original(self, known, call, deadline, tries)
            connection = self.pool.acquire(self.settings, *self.settings.bootstrap_servers[0], deadline)
            try:
                return call(connection, deadline)
            finally:
                self.pool.release(connection)

        return _call_any_broker

    return [Patch(ClusterClient, "_call_any_broker", call_one)]


def _leaders_of_a_deleted_topic_remain() -> Sequence[Patch]:
    from pyspark_kafka_direct.client import metadata

    def merge(original: Any) -> Any:
        def merge_by_leader_epoch(known: Any, received: Any, floors: Any) -> Any:
            has_ids = known is not None and received.topic_id is not None
            same = dataclasses.replace(known, topic_id=received.topic_id) if has_ids else known
            return original(same, received, floors)

        return merge_by_leader_epoch

    return [Patch(metadata, "merge_by_leader_epoch", merge)]


def _a_frozen_broker_takes_all_of_a_short_time() -> Sequence[Patch]:
    from pyspark_kafka_direct.client import broker_selection

    def timeout(_: Any) -> Any:
        return lambda remaining, later_brokers, longest: longest if later_brokers else remaining

    return [Patch(broker_selection, "broker_timeout", timeout)]


def _throttle_times_count() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.connection import Connection

    def receive(original: Any) -> Any:
        def method(self: Any, deadline: Any) -> Any:
            throttle_ms = 1000 * max(0.0, self._throttled_until - self.system.monotonic())
            settings = self.settings
            self.settings = dataclasses.replace(
                settings, request_timeout_ms=max(settings.request_timeout_ms - throttle_ms, 0)
            )
            try:
                return original(self, deadline)
            finally:
                self.settings = settings

        return method

    return [Patch(Connection, "receive", receive)]


def _committed_offsets_are_swapped() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.consumer_group import ConsumerGroup

    def fetch(original: Any) -> Any:
        def _fetch_committed(self: Any, *args: Any) -> Any:
            found = original(self, *args)
            return dict(zip(found, reversed(found.values()), strict=True))

        return _fetch_committed

    return [Patch(ConsumerGroup, "_fetch_committed", fetch)]


def _local_start_is_the_end() -> Sequence[Patch]:
    from pyspark_kafka_direct.client import cluster_client
    from pyspark_kafka_direct.offsets import LATEST

    return [Patch(cluster_client, "EARLIEST_LOCAL", lambda _: LATEST)]


def _idle_connections_never_expire() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool

    return [Patch(ConnectionPool, "_take_expired", lambda _: lambda self: [])]


def _bootstrap_servers_are_required_forever() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient

    def update(original: Any) -> Any:
        def _update_cache(self: Any, *args: Any) -> Any:
            needs_bootstrap = self._needs_bootstrap
            topics = original(self, *args)
            self._needs_bootstrap = needs_bootstrap
            return topics

        return _update_cache

    return [Patch(ClusterClient, "_update_cache", update)]


def _metadata_has_no_age() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.metadata import MetadataSnapshot

    return [Patch(MetadataSnapshot, "topics", lambda original: lambda self, names, *_: original(self, names))]


def _missing_topics_remain() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.metadata import MetadataSnapshot

    def update(original: Any) -> Any:
        return lambda self, response, names, floors, now: original(self, response, (), floors, now)

    return [Patch(MetadataSnapshot, "updated", update)]


def _all_tries_are_short() -> Sequence[Patch]:
    from pyspark_kafka_direct.client import coordinator_client, leader_requests

    def timeout(original: Any) -> Any:
        return lambda settings, tries: original(settings, 1)

    return [Patch(module, "attempt_timeout", timeout) for module in (coordinator_client, leader_requests)]


def _loading_coordinators_are_looked_up() -> Sequence[Patch]:
    from pyspark_kafka_direct.client import coordinator_client

    return [Patch(coordinator_client, "_RETRY_SAME_COORDINATOR", lambda _: frozenset())]


def _pending_offsets_do_not_count() -> Sequence[Patch]:
    from pyspark_kafka_direct.client import consumer_group

    return [Patch(consumer_group, "_FIRST_REQUIRE_STABLE_VERSION", lambda _: 99)]


def _later_committed_epochs_are_ignored() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient

    return [Patch(ClusterClient, "note_later_epochs", does_nothing)]


def _a_later_timeout_replaces_the_cause() -> Sequence[Patch]:
    from pyspark_kafka_direct.client.deadline import Retry

    def wait(original: Any) -> Any:
        def wait_or_raise(self: Any, error: Any) -> None:
            self._error_to_raise = None
            original(self, error)

        return wait_or_raise

    return [Patch(Retry, "wait_or_raise", wait)]


BUGS: Final = (
    _bug(
        "rebootstrap forever",
        "After a broker has required a rebootstrap once, a client calls the bootstrap servers only.",
        _bootstrap_servers_are_required_forever,
    ),
    _bug("metadata without age", "Metadata never becomes too old (metadata.max.age.ms).", _metadata_has_no_age),
    _bug("missing topics remain", "The metadata of a topic that was deleted remains.", _missing_topics_remain),
    _bug(
        "all tries are short",
        "Each try has a tenth of request.timeout.ms, so a call fails if its broker is slower.",
        _all_tries_are_short,
    ),
    _bug(
        "loading coordinator",
        "While a coordinator loads its state, it is looked up again for each try, after long pauses.",
        _loading_coordinators_are_looked_up,
    ),
    _bug(
        "pending offsets",
        "Committed offsets are returned while an open transaction commits later ones.",
        _pending_offsets_do_not_count,
    ),
    _bug(
        "later committed epochs",
        "The leader epochs of committed offsets are ignored, so a deposed leader remains known.",
        _later_committed_epochs_are_ignored,
    ),
    _bug(
        "timeout replaces the cause",
        "A call that fails at its deadline reports the last timeout, not the error before it.",
        _a_later_timeout_replaces_the_cause,
    ),
    _bug("idle forever", "Idle connections never expire (connections.max.idle.ms).", _idle_connections_never_expire),
    _bug(
        "committed offsets swapped",
        "Of several partitions, each gets the committed offset of another one.",
        _committed_offsets_are_swapped,
    ),
    _bug("local end", "The end of a log is returned as the start of its local part.", _local_start_is_the_end),
    _bug(
        "frozen broker",
        "If less time is left than one attempt may take, a frozen broker uses all of it, so a call with a short "
        "deadline fails although the brokers after it would respond.",
        _a_frozen_broker_takes_all_of_a_short_time,
    ),
    _bug(
        "throttle times count",
        "After a throttle time of at least request.timeout.ms, the next request times out just before its response, "
        "and all connections to the healthy broker are closed.",
        _throttle_times_count,
    ),
    _bug("settings ignored", "A connection is reused with other settings.", _settings_are_ignored),
    _bug("idle not limited", "Idle connections are not limited.", _idle_connections_are_not_limited),
    _bug("surplus open", "Surplus idle connections stay open.", _surplus_connections_stay_open),
    _bug("coordinator leak", "A connection leaks after a coordinator's error.", _failed_coordinator_connections_leak),
    _bug("retry without deadline", "Retries extend the deadline.", _retries_ignore_the_deadline),
    _bug("request without deadline", "Requests ignore the deadline of the call.", _requests_ignore_the_deadline),
    _bug("coordinator kept", "The coordinator is not found again after an error.", _coordinator_is_kept_after_errors),
    _bug("commit errors ignored", "Error codes of commits are ignored.", _errors_of_commits_are_ignored),
    _bug("failed commit counts", "A commit that failed counts as acknowledged.", _a_failed_commit_counts),
    _bug("absence by one", "One response of one broker proves absence.", _one_broker_confirms_absence, was_real=True),
    _bug("metadata never expires", "Metadata is never refreshed.", _metadata_never_expires),
    _bug(
        "leaders of a deleted topic",
        "After a topic was recreated, the leaders of the deleted one remain, because their epochs are higher.",
        _leaders_of_a_deleted_topic_remain,
    ),
    _bug("rebootstrap is loss", "REBOOTSTRAP_REQUIRED is evidence of absence.", _response_without_metadata_counts),
    _bug(
        "rebootstrap at one server",
        "After REBOOTSTRAP_REQUIRED, the same bootstrap server is called forever.",
        _rebootstrap_begins_with_the_same_server,
        was_real=True,
    ),
)
