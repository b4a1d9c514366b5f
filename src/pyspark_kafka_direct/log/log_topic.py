"""The topic of a log: its creation, and the partitions that are read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.client.admin import create_topic, describe_topic_config
from pyspark_kafka_direct.errors import BrokerError, OptionError, TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from uuid import UUID

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline

_log = logging.getLogger("pyspark_kafka_direct.log")

_DEFAULT_CONFIGS: Final = {"cleanup.policy": "compact"}
_FIELDS: Final = ("partitions", "replication_factor", "configs")


@dataclass(frozen=True, slots=True)
class LogTopicSpec:
    """The settings with which the topic of a log is created."""

    partitions: int
    replicas: int | None  # None: the cluster's default
    configs: Mapping[str, str]


class LogTopic(NamedTuple):
    topic_id: UUID | None
    partitions: list[TopicPartition]  # those that are read
    partition_count: int  # of the topic


def parse_topic_spec(create: Mapping[str, Any]) -> LogTopicSpec:
    """Validate the ``create`` argument of a log."""
    if not isinstance(create, Mapping):
        raise OptionError(f"create must be a dict with {', '.join(_FIELDS)}, got {type(create).__name__}")
    for name in create:
        if name not in _FIELDS:
            raise OptionError(f"create has no field {name!r}; use {', '.join(_FIELDS)}")
    configs = create.get("configs") or {}
    if not isinstance(configs, Mapping):
        raise OptionError(f"configs in create must be a dict of topic configs, got {type(configs).__name__}")
    config_values = {str(name): _config_value(value) for name, value in configs.items()}
    replicas = create.get("replication_factor")
    return LogTopicSpec(
        _positive_int("partitions", create.get("partitions", 1)),
        None if replicas is None else _positive_int("replication_factor", replicas),
        {**_DEFAULT_CONFIGS, **config_values},
    )


def create_topic_if_missing(cluster: ClusterClient, topic: str, topic_spec: LogTopicSpec, deadline: Deadline) -> None:
    """Create the topic; an existing one is not changed."""
    if topic not in cluster.topics([topic], deadline=deadline):
        create_topic(cluster, topic, topic_spec.partitions, topic_spec.configs, deadline, replicas=topic_spec.replicas)


def describe_log_topic(
    cluster: ClusterClient, topic: str, partition_filter: Callable[[int], bool] | None, deadline: Deadline
) -> LogTopic:
    """Return the topic id and the partitions that are read, or raise if there are none."""
    metadata = cluster.topics([topic], deadline=deadline).get(topic)
    if metadata is None:
        cluster.use_next_broker()  # which may have the topic, if the caller tries again
        raise TopicNotFoundError(
            "The topic does not exist or is not visible (a missing DESCRIBE permission looks the same). Create it, "
            "or let the log create it with create={}.",
            topic=topic,
        )
    if not metadata.partitions:
        raise TransientBrokerError("The topic has no partitions yet.", topic=topic)
    log_topic = selected_partitions(topic, metadata.topic_id, metadata.partitions, partition_filter)
    if not log_topic.partitions:
        raise OptionError(f"partitions selects none of the topic's {len(metadata.partitions)} partitions", topic=topic)
    return log_topic


def selected_partitions(
    topic: str, topic_id: UUID | None, numbers: Collection[int], partition_filter: Callable[[int], bool] | None
) -> LogTopic:
    """Return the partitions with these numbers that are read."""
    selected = [number for number in sorted(numbers) if partition_filter is None or partition_filter(number)]
    return LogTopic(topic_id, [TopicPartition(topic, number) for number in selected], len(numbers))


def fetch_cleanup_policy(cluster: ClusterClient, topic: str, deadline: Deadline) -> str | None:
    """Return the topic's ``cleanup.policy``; ``None`` if the principal may not read it."""
    try:
        return describe_topic_config(cluster, topic, ["cleanup.policy"], deadline).get("cleanup.policy")
    except (TransientBrokerError, TopicNotFoundError):
        raise
    except BrokerError as error:
        _log.debug("the cleanup.policy of topic %s is unknown: %s", topic, error)
        return None


def _positive_int(field: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise OptionError(f"{field} in create must be an integer of at least 1, got {value!r}")
    return value


def _config_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
