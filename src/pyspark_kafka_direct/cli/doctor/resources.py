"""Topics and groups: whether they exist, can be used, and what the principal may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.cli.doctor.findings import Finding
from pyspark_kafka_direct.cli.doctor.permissions import check_permission, grant
from pyspark_kafka_direct.options.hints import did_you_mean, listed, missing_topic_advice
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_kafka_direct.cli.doctor.broker_check import BrokerCheck
    from pyspark_kafka_direct.options.settings import ConnectionSettings

_WITHOUT_GROUP: Final = "Dead"  # the state of a group that does not exist


def check_topic(
    topic: str, reached: Sequence[BrokerCheck], settings: ConnectionSettings, *, writes: bool
) -> Iterator[Finding]:
    """Yield the findings about a topic, from the responses of all brokers that were reached."""
    subject = f"topic {topic}"
    needed = "Write" if writes else "Read"
    responses = [check.topics[topic] for check in reached if topic in check.topics]
    if not responses:
        yield Finding(subject, "exists", "unknown", "No broker has returned metadata: see the findings above.")
        return
    existing = [each for each in responses if each.error_code == ErrorCode.NONE]
    if not existing:
        yield _missing_topic(topic, responses, reached, settings, needed=needed)
        return
    best = max(existing, key=lambda each: len(each.partitions))
    if len(existing) < len(responses):
        lagging = [each.address for each in reached if topic in each.topics and each.topics[topic].error_code]
        text = f"{listed(lagging)} does not know the topic: it was just created or deleted, or the broker lags behind."
        yield Finding(subject, "exists", "warning", f"{text} Run this command again.")
    yield _check_partitions(subject, best)
    yield check_permission(subject, best.topic_authorized_operations, needed, f"--topic {topic}", settings)


def check_group(group: str, reached: Sequence[BrokerCheck], settings: ConnectionSettings) -> Iterator[Finding]:
    """Yield the findings about a consumer group; only its coordinator describes it."""
    subject = f"group {group}"
    responses = [check.groups[group] for check in reached if group in check.groups]
    wrong_broker = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    described = next((each for each in responses if each.error_code not in wrong_broker), None)
    known = {each for check in reached for each in check.group_ids}
    if described is None:
        if any(check.has_failed for check in reached) or not responses:
            text = "Its coordinator was not reached: see the findings about brokers above."
            yield Finding(subject, "exists", "unknown", text)
        else:  # the cluster has no topic of committed offsets yet, or it has no leader
            yield _missing_group(subject, group, known)
            text = "No broker coordinates groups yet, so none returns permissions: check again after the first commit."
            yield Finding(subject, "acls", "unknown", text)
        return
    if described.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        text = f"The principal lacks Describe on the group. {grant('Read', f'--group {group}', settings)}"
        yield Finding(subject, "acls", "problem", text)
        return
    if described.error_code:
        error = error_for(described.error_code, f"describing the group {group!r}")
        yield Finding(subject, "exists", "problem", error.message)
        return
    if described.group_state == _WITHOUT_GROUP:
        yield _missing_group(subject, group, known)
    elif described.members:
        clients = listed(sorted({member.client_id for member in described.members}), 5)
        count = len(described.members)
        text = (
            f"The group has {count} active {'member' if count == 1 else 'members'} (client ids: {clients}), which "
            "commit its offsets, so a query cannot: use a separate group id for each query."
        )
        yield Finding(subject, "exists", "warning", text)
    else:
        yield Finding(subject, "exists", "ok", "exists, without active members")
    yield check_permission(subject, described.authorized_operations, "Read", f"--group {group}", settings)


def _missing_topic(
    topic: str,
    responses: Sequence[Any],
    reached: Sequence[BrokerCheck],
    settings: ConnectionSettings,
    *,
    needed: str,  # the operation
) -> Finding:
    subject = f"topic {topic}"
    codes = {each.error_code for each in responses}
    if ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes:
        text = (
            "The principal lacks Describe on the topic; brokers do not say whether it exists. "
            f"{grant(needed, f'--topic {topic}', settings)}"
        )
        return Finding(subject, "acls", "problem", text)
    if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in codes:
        error = error_for(responses[0].error_code, f"fetching the metadata of the topic {topic!r}")
        return Finding(subject, "exists", "problem", error.message)
    listings = [check.topic_names for check in reached if check.topic_names is not None]
    names = {name for listing in listings for name in listing}
    advice = missing_topic_advice(topic, names, settings.bootstrap_string) if listings else ""
    text = f"No such topic; it was never created, or it was deleted{advice}".rstrip(".") + "."
    return Finding(subject, "exists", "problem", text.replace("?.", "?"))


def _missing_group(subject: str, group: str, known: set[str]) -> Finding:
    close = did_you_mean(group, known)
    text = f"The group does not exist{close or '.'}"
    if close:
        return Finding(subject, "exists", "problem", text)
    return Finding(subject, "exists", "warning", f"{text} The first commit of a query with commitGroupId creates it.")


def _check_partitions(subject: str, topic: Any) -> Finding:
    count = len(topic.partitions)
    leaderless = [each.partition_index for each in topic.partitions if each.leader_id < 0]
    if leaderless:
        replicas = {node for each in topic.partitions if each.leader_id < 0 for node in each.replica_nodes}
        text = (
            f"No leader for {_partitions(leaderless)} of {count}, which can be neither read nor written. Start "
            f"{_brokers(replicas)}, with the replicas, or check why the controller elects none."
        )
        return Finding(subject, "partitions", "problem", text)
    lagging = [each.partition_index for each in topic.partitions if len(each.isr_nodes) < len(each.replica_nodes)]
    if lagging:
        missing = {node for each in topic.partitions for node in each.replica_nodes if node not in set(each.isr_nodes)}
        text = (
            f"Replicas of {_partitions(lagging)} of {count} are not in sync, those on {_brokers(missing)}: check the "
            "process and the log there."
        )
        return Finding(subject, "partitions", "warning", text)
    factors = sorted({len(each.replica_nodes) for each in topic.partitions})
    each = "1 replica" if factors == [1] else f"{listed(factors)} replicas"
    return Finding(subject, "partitions", "ok", f"{count}, with {each} each, all in sync")


def _partitions(indexes: Sequence[int]) -> str:
    return f"{'partition' if len(indexes) == 1 else 'partitions'} {listed(sorted(indexes))}"


def _brokers(ids: set[int]) -> str:
    return f"{'broker' if len(ids) == 1 else 'brokers'} {listed(sorted(ids))}"
