"""ApiVersions, Metadata, CreateTopics and DescribeConfigs, after Kafka's KafkaApis."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from tests.simulation.cluster.replies import SharedElements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.cluster.broker import Handler, SimulatedBroker
    from tests.simulation.cluster.replies import Reply
    from tests.simulation.cluster.topics import PartitionImage, SimulatedTopic, TopicImage

UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
INVALID_TOPIC = 17
UNSUPPORTED_VERSION = 35
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
UNKNOWN_TOPIC_ID = 100
TOPIC_AUTHORIZATION_FAILED = 29
REBOOTSTRAP_REQUIRED = 129

_NO_ID = UUID(int=0)
_UNKNOWN_OPERATIONS = -(2**31)
CONFIGS_OF: Final = "configs of "
"""With the name of a topic, or without one for brokers: the key of those that may not describe their configuration."""
_TOPIC_RESOURCE = 2
_BROKER_RESOURCE = 4
_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5  # sources
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

# Name: key, oldest and newest version of a Kafka 4.x broker; later versions than the package's need no implementation.
APIS: dict[str, tuple[int, int, int]] = {
    "Produce": (0, 3, 12),
    "Fetch": (1, 4, 17),
    "ListOffsets": (2, 1, 11),
    "Metadata": (3, 0, 13),
    "OffsetCommit": (8, 2, 9),
    "OffsetFetch": (9, 1, 9),
    "FindCoordinator": (10, 0, 6),
    "ListGroups": (16, 0, 5),
    "SaslHandshake": (17, 0, 1),
    "ApiVersions": (18, 0, 5),
    "CreateTopics": (19, 2, 7),
    "InitProducerId": (22, 0, 5),
    "AddPartitionsToTxn": (24, 0, 5),
    "AddOffsetsToTxn": (25, 0, 4),
    "EndTxn": (26, 0, 5),
    "TxnOffsetCommit": (28, 0, 5),
    "DescribeConfigs": (32, 1, 4),
    "SaslAuthenticate": (36, 0, 2),
    "DescribeProducers": (61, 0, 0),
    "DescribeTransactions": (65, 0, 0),
    "ListTransactions": (66, 0, 2),
}
_SUPPORTED_FEATURES: Final = SharedElements([{"name": "transaction.version", "min_version": 0, "max_version": 2}])
_NEWEST_WITHOUT_TOPIC_IDS = {"Fetch": 12, "Metadata": 9, "CreateTopics": 6, "Produce": 9}
_NEWEST_WITHOUT_LEADER_EPOCHS = {"Fetch": 8, "Metadata": 6, "ListOffsets": 3, "OffsetCommit": 5, "OffsetFetch": 4}
_NEWEST_WITHOUT_EARLIEST_LOCAL = {"ListOffsets": 7}

DEFAULT_TOPIC_CONFIGS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "unclean.leader.election.enable": "false",
}


def api_versions(broker: SimulatedBroker, version: int, request: Any, cluster_id: str | None = None) -> Reply:
    settings = broker.cluster.settings
    ranges = _version_ranges(
        tuple(settings.newest_versions.items()),
        topic_ids=settings.topic_ids,
        leader_epochs=settings.leader_epochs,
        earliest_local=settings.earliest_local,
    )
    newest = next(each["max_version"] for each in ranges if each["api_key"] == 18)
    if version > newest:  # the response has version 0, with the versions of ApiVersions only (KIP-511)
        own = [each for each in ranges if each["api_key"] == 18]
        return {"error_code": UNSUPPORTED_VERSION, "api_keys": own, "throttle_time_ms": 0}
    own_identity = (cluster_id or broker.cluster.cluster_id, broker.id)
    if version >= 5 and request.cluster_id is not None and (request.cluster_id, request.node_id) != own_identity:
        return {"error_code": REBOOTSTRAP_REQUIRED, "api_keys": [], "throttle_time_ms": 0}
    level = settings.transaction_version
    return {
        "error_code": 0,
        "api_keys": ranges,
        "throttle_time_ms": 0,
        "supported_features": _SUPPORTED_FEATURES,
        "finalized_features_epoch": broker.image.version,
        "finalized_features": _finalized_features(level),
        "zk_migration_ready": False,
    }


@cache
def _version_ranges(
    newest_versions: tuple[tuple[str, int], ...], *, topic_ids: bool, leader_epochs: bool, earliest_local: bool
) -> SharedElements:
    """Return the versions that a cluster supports, by API."""
    limits: list[Mapping[str, int]] = [dict(newest_versions)]
    if not topic_ids:
        limits.append(_NEWEST_WITHOUT_TOPIC_IDS)
    if not leader_epochs:
        limits.append(_NEWEST_WITHOUT_LEADER_EPOCHS)
    if not earliest_local:
        limits.append(_NEWEST_WITHOUT_EARLIEST_LOCAL)
    return SharedElements(
        {
            "api_key": key,
            "min_version": oldest,
            "max_version": max(oldest, min(newest, *(limit.get(name, newest) for limit in limits))),
        }
        for name, (key, oldest, newest) in APIS.items()
        if limits[0].get(name, newest) >= 0
    )


@cache
def _finalized_features(level: int) -> SharedElements:
    feature = {"name": "transaction.version", "max_version_level": level, "min_version_level": level}
    return SharedElements([feature] if level else [])


# Metadata.


def metadata(broker: SimulatedBroker, version: int, request: Any) -> Reply:
    cluster, image = broker.cluster, broker.image
    if version >= 13 and broker.rebootstrap_until > broker.world.now:
        broker.world.trace("metadata", broker.id, "REBOOTSTRAP_REQUIRED")
        return _metadata_response(error_code=REBOOTSTRAP_REQUIRED)
    if request.topics is None or (version == 0 and not request.topics):
        all_topics = [_named_topic(broker, name) for name in image.topics]
        topics = [each for each in all_topics if each["error_code"] != TOPIC_AUTHORIZATION_FAILED]
    else:
        topics = [_requested_topic(broker, each) for each in request.topics]
    broker.world.trace("metadata", broker.id, image.version, [(each["name"], each["error_code"]) for each in topics])
    return _metadata_response(
        brokers=[
            {"node_id": each, "host": node.host, "port": node.port, "rack": node.rack}
            for each in image.live_brokers
            for node in (cluster.brokers[each],)
        ],
        cluster_id=cluster.cluster_id,
        controller_id=image.live_brokers[0] if image.live_brokers else -1,
        topics=topics,
    )


def _metadata_response(**values: Any) -> dict[str, Any]:
    return {
        "throttle_time_ms": 0,
        "brokers": [],
        "cluster_id": None,
        "controller_id": -1,
        "topics": [],
        "cluster_authorized_operations": _UNKNOWN_OPERATIONS,
        "error_code": 0,
        **values,
    }


def _requested_topic(broker: SimulatedBroker, requested: Any) -> dict[str, Any]:
    name, topic_id = requested.name, requested.topic_id
    denied = broker.cluster.authorization_error
    if name is None:
        topic = broker.image.ids.get(topic_id)
        if topic is None or denied(topic.topic.name):
            return _topic_error(UNKNOWN_TOPIC_ID, None, topic_id)
        return _topic(broker, topic)
    return _named_topic(broker, name)


def _named_topic(broker: SimulatedBroker, name: str) -> dict[str, Any]:
    if denied := broker.cluster.authorization_error(name):
        return _topic_error(denied, name, _NO_ID)
    topic = broker.image.topics.get(name)
    if topic is None:
        return _topic_error(UNKNOWN_TOPIC_OR_PARTITION if _is_valid_name(name) else INVALID_TOPIC, name, _NO_ID)
    return _topic(broker, topic)


def _is_valid_name(name: str) -> bool:
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def _topic_error(error_code: int, name: str | None, topic_id: UUID) -> dict[str, Any]:
    return {
        "error_code": error_code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": _UNKNOWN_OPERATIONS,
    }


def _topic(broker: SimulatedBroker, image: TopicImage) -> dict[str, Any]:
    return {
        "error_code": 0,
        "name": image.topic.name,
        "topic_id": image.topic.topic_id if broker.cluster.settings.topic_ids else _NO_ID,
        "is_internal": image.topic.is_internal,
        "partitions": [_partition(broker, index, each) for index, each in enumerate(image.partitions)],
        "topic_authorized_operations": _UNKNOWN_OPERATIONS,
    }


def _partition(broker: SimulatedBroker, index: int, image: PartitionImage) -> dict[str, Any]:
    live = broker.image.live_brokers
    has_leader = image.leader in live
    return {
        "error_code": 0 if has_leader else LEADER_NOT_AVAILABLE,
        "partition_index": index,
        "leader_id": image.leader if has_leader else -1,
        "leader_epoch": image.epoch,
        "replica_nodes": image.replicas,
        "isr_nodes": image.in_sync_replicas,
        "offline_replicas": [each for each in image.replicas if each not in live],
    }


# Topics and their configuration.


def create_topics(broker: SimulatedBroker, version: int, request: Any) -> Reply:
    return {
        "throttle_time_ms": 0,
        "topics": [_create_topic(broker, each, validate_only=request.validate_only) for each in request.topics],
    }


def _create_topic(broker: SimulatedBroker, requested: Any, *, validate_only: bool) -> dict[str, Any]:
    cluster = broker.cluster
    count = len(requested.assignments) or (1 if requested.num_partitions == -1 else requested.num_partitions)
    configs = {each.name: each.value or "" for each in requested.configs}
    factor = requested.replication_factor
    factor = cluster.settings.replication_factor if factor == -1 else factor
    error = cluster.authorization_error(requested.name)
    if error:
        pass
    elif not _is_valid_name(requested.name):
        error = INVALID_TOPIC
    elif requested.name in cluster.topics:
        error = TOPIC_ALREADY_EXISTS
    elif count < 1:
        error = INVALID_PARTITIONS
    elif not requested.assignments and (factor == 0 or factor > len(cluster.unfenced_brokers())):
        error = INVALID_REPLICATION_FACTOR
    topic: SimulatedTopic | None = None
    topic_id = UUID(int=cluster.rng.getrandbits(128)) if validate_only and not error else _NO_ID
    if not error and not validate_only:
        topic = cluster.create_topic(requested.name, count, configs=configs, replicas=factor)
    return {
        "name": requested.name,
        "topic_id": topic_id if topic is None else topic.topic_id,
        "error_code": error,
        "error_message": f"error {error}" if error else None,
        "topic_config_error_code": 0,
        "num_partitions": -1 if error else count,
        "replication_factor": -1 if error else cluster.settings.replication_factor,
        "configs": None if error else [_created_config(each) for each in _configs(configs, None)],
    }


def _created_config(described: dict[str, Any]) -> dict[str, Any]:
    names = ("name", "value", "read_only", "config_source", "is_sensitive")
    return {name: described[name] for name in names}


def describe_configs(broker: SimulatedBroker, version: int, request: Any) -> Reply:
    return {"throttle_time_ms": 0, "results": [_describe_resource(broker, each) for each in request.resources]}


def _describe_resource(broker: SimulatedBroker, resource: Any) -> dict[str, Any]:
    error = 0
    configs: list[dict[str, Any]] = []
    if resource.resource_type == _TOPIC_RESOURCE:
        cluster, name = broker.cluster, resource.resource_name
        error = cluster.authorization_error(name) or cluster.authorization_error(CONFIGS_OF + name)
        topic = broker.image.topics.get(resource.resource_name)
        if not error and topic is None:
            error = UNKNOWN_TOPIC_OR_PARTITION
        elif not error and topic is not None:
            configs = _configs(topic.topic.configs, resource.configuration_keys)
    elif resource.resource_type == _BROKER_RESOURCE:
        error = broker.cluster.authorization_error(CONFIGS_OF)
        configs = [] if error else _configs(broker.cluster.settings.broker_configs, resource.configuration_keys, {})
    return {
        "error_code": error,
        "error_message": f"error {error}" if error else None,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": configs,
    }


def _configs(
    explicit: Mapping[str, str], keys: Any, defaults: Mapping[str, str] = DEFAULT_TOPIC_CONFIGS
) -> list[dict[str, Any]]:
    values = {**defaults, **explicit}
    return [
        {
            "name": name,
            "value": value,
            "read_only": False,
            "config_source": _TOPIC_CONFIG if name in explicit else _DEFAULT_CONFIG,
            "is_sensitive": False,
        }
        for name, value in values.items()
        if keys is None or name in keys
    ]


HANDLERS: dict[str, Handler] = {
    "ApiVersions": api_versions,
    "Metadata": metadata,
    "CreateTopics": create_topics,
    "DescribeConfigs": describe_configs,
}
