"""The use of a log or table on a healthy cluster: no call waits or sends a request in vain."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from tests.simulation.scenarios.shared_log_session import LogSession

_IDLE_REQUESTS = 4  # other than Fetch, of a log that nobody uses, in some seconds
_CALM_SECONDS = 2.0  # within which a call returns if no fault ever happened
_WRITE_SECONDS = 70.0  # within which one returns after faults: a request may wait for a lost response
_FOLLOW_SECONDS = 2.0
_EMPTY_KEY = b"empty"


def check_calm_time(member: LogSession, name: str, started: float) -> None:
    """Check that a call of a history without faults takes no longer than its requests."""
    passed = member.environment.world.now - started
    settings = member.environment.cluster.settings
    created_at: float = member.environment.plan.parameters.get("created_at", 0.0)
    limit = _CALM_SECONDS + created_at + settings.metadata_lag + 10 * settings.replication_delay
    if member.is_calm and not member.has_open_transactions and passed > limit:
        member.violations.append(f"{name} takes {passed:.2f} s without any fault")


def use_when_quiet(member: LogSession) -> None:
    """Let a log be idle, write to it, and let another program write to it."""
    _be_idle(member)
    _write(member)
    _follow(member)


def _be_idle(member: LogSession) -> None:
    """Check that a log that nobody uses fetches, and does nothing else."""
    wait = member.values["fetch_wait_ms"] / 1000
    seconds = 3.0 if wait < 1 else 2.2 * wait
    counts = _requests(member, seconds)
    fetches = counts.pop("Fetch", 0)
    if counts.total() > _idle_requests(member, seconds):
        member.violations.append(f"a log that is not used sends requests in {seconds:g} s: {dict(counts)}")
    brokers = member.environment.plan.parameters["brokers"]
    if member.is_calm and fetches > 200 + 6 * brokers * seconds / wait:
        member.violations.append(f"a log that is not used sends {fetches} Fetch requests in {seconds:g} s")


def _idle_requests(member: LogSession, seconds: float) -> float:
    """Return how many requests other than Fetch a log may send that nobody uses."""
    refreshes: float = 1000 * seconds / member.values.get("max_age_ms", 300_000)
    brokers = member.environment.cluster.brokers.values()
    refusing = sum(each.rebootstrap_until > member.environment.world.now for each in brokers)
    # After faults, requests may still end without a response, and each one lets the client look for the leader. It
    # connects to each broker again that returns no metadata.
    return (_IDLE_REQUESTS + refreshes + (0 if member.is_calm else 2 * seconds)) * (1 + refusing)


def _requests(member: LogSession, seconds: float) -> Counter[str]:
    sent = member.environment.network.sent_requests
    first = len(sent)
    member.process.sleep(seconds)
    return Counter(api for name, api in sent[first:] if name == member.process.name)


def _write(member: LogSession) -> None:
    """Write a record, and to a table an empty value and a tombstone, too; wait for each of them."""
    table, log = member.opened_table, member.opened_log
    if member.values.get("read_only"):
        return
    world, started = member.environment.world, member.environment.world.now
    send = member.send_one(b"quiet-" + member.name.encode())
    metadata = send.metadata
    if metadata is None:
        if member.is_calm and not member.values.get("transactional"):  # else another table may have fenced this one
            member.violations.append(f"a record fails without any fault: {send.error!r}")
        return
    if not member.reads(metadata.partition):
        return
    log.wait_for(metadata, _WRITE_SECONDS)
    check_calm_time(member, "a write and its wait", started)
    if table is None:
        return
    key = _EMPTY_KEY + member.name.encode()
    for value in (b"", None):
        started = world.now
        future = table.delete(key) if value is None else table.put(key, value)
        member.process.wait_for_future(future, _WRITE_SECONDS)
        log.wait_for(future.result(0), _WRITE_SECONDS)
        check_calm_time(member, "a write and its wait", started)
        found = table.snapshot()
        if member.truth_was_changed:  # without topic ids a table may not know of the newest topic yet
            return
        if table.get(key) != value or (key in table) != (value is not None) or found.get(key) != value:
            member.violations.append(f"a table has {table.get(key)!r} for {key!r} after {value!r} was written")
        if len(table) != len(found) or set(table) != set(found):
            member.violations.append(f"the length of a table is {len(table)}, and it has {sorted(found)}")


def _follow(member: LogSession) -> None:
    """Check that a log reads what others write without a call, and without other requests than Fetch."""
    environment, log = member.environment, member.opened_log
    cluster_topic = environment.cluster.topics.get(member.topic)
    if cluster_topic is None:
        return
    count = len(cluster_topic.partitions)
    batch = {"records": 2, "keys": 2, "producer": 0, "transaction": None}
    for index in range(count):
        environment.write_log(
            member.topic,
            count,
            [{**batch, "partition": index}],
            first_number=member.next_batch_number(),
            partition_keys=True,
        )
    ends = {
        TopicPartition(member.topic, index): truth.path_end(truth.epoch()) for index, truth in member.partition_truths()
    }
    seconds = _FOLLOW_SECONDS + environment.cluster.settings.replication_delay
    counts = _requests(member, seconds)
    counts.pop("Fetch", 0)
    if counts.total() > _idle_requests(member, seconds):
        member.violations.append(f"a log that follows its topic sends requests: {dict(counts)}")
    positions = log.positions
    missing = {str(tp): end for tp, end in ends.items() if positions.get(tp, 0) < end}
    if member.is_calm and missing and not member.has_open_transactions:
        member.violations.append(f"a log does not follow its topic: it is at {positions}, and not at {missing}")
