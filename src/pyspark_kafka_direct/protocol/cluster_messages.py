"""Schemas of all but the producer's messages, after Kafka's (``clients/src/main/resources/common/message``, 4.3).

The highest version is often below Kafka's on purpose, if a newer version changes the meaning of a field or the shape of
the request; a comment at each schema has the reason.
"""

from __future__ import annotations

from pyspark_kafka_direct.protocol.schema import (
    array,
    message_type,
    scalar,
    struct,
)

# From version 4 on, which introduced allow_auto_topic_creation (KIP-204): before, the request creates missing topics.
METADATA = message_type(
    "Metadata",
    3,
    "4-13",
    9,
    request=struct(
        "MetadataRequest",
        array(
            "topics",
            struct(
                "Topic",
                scalar("topic_id", "uuid", "10+", ignorable=True),
                scalar("name", "string", nullable="10+"),
            ),
            nullable="1+",
        ),
        scalar("allow_auto_topic_creation", "bool", "4+", default=True),
        scalar("include_cluster_authorized_operations", "bool", "8-10"),
        scalar("include_topic_authorized_operations", "bool", "8+"),
    ),
    response=struct(
        "MetadataResponse",
        scalar("throttle_time_ms", "int32", "3+", ignorable=True),
        array(
            "brokers",
            struct(
                "Broker",
                scalar("node_id", "int32"),
                scalar("host", "string"),
                scalar("port", "int32"),
                scalar("rack", "string", "1+", nullable="1+", ignorable=True, default=None),
            ),
        ),
        scalar("cluster_id", "string", "2+", nullable="2+", ignorable=True, default=None),
        scalar("controller_id", "int32", "1+", ignorable=True, default=-1),
        array(
            "topics",
            struct(
                "Topic",
                scalar("error_code", "int16"),
                scalar("name", "string", nullable="12+"),
                scalar("topic_id", "uuid", "10+", ignorable=True),
                scalar("is_internal", "bool", "1+", ignorable=True),
                array(
                    "partitions",
                    struct(
                        "Partition",
                        scalar("error_code", "int16"),
                        scalar("partition_index", "int32"),
                        scalar("leader_id", "int32"),
                        scalar("leader_epoch", "int32", "7+", ignorable=True, default=-1),
                        array("replica_nodes", "int32"),
                        array("isr_nodes", "int32"),
                        array("offline_replicas", "int32", "5+", ignorable=True),
                    ),
                ),
                scalar("topic_authorized_operations", "int32", "8+", default=-(2**31)),
            ),
        ),
        scalar("cluster_authorized_operations", "int32", "8-10", default=-(2**31)),
        scalar("error_code", "int16", "13+", ignorable=True),
    ),
)

# From version 2 on, which introduced the isolation level (KIP-98): before, the end of a read_committed range is wrong.
LIST_OFFSETS = message_type(
    "ListOffsets",
    2,
    "2-11",
    6,
    request=struct(
        "ListOffsetsRequest",
        scalar("replica_id", "int32"),
        scalar("isolation_level", "int8", "2+"),
        array(
            "topics",
            struct(
                "Topic",
                scalar("name", "string"),
                array(
                    "partitions",
                    struct(
                        "Partition",
                        scalar("partition_index", "int32"),
                        scalar("current_leader_epoch", "int32", "4+", ignorable=True, default=-1),
                        scalar("timestamp", "int64"),
                    ),
                ),
            ),
        ),
        scalar("timeout_ms", "int32", "10+", ignorable=True),
    ),
    response=struct(
        "ListOffsetsResponse",
        scalar("throttle_time_ms", "int32", "2+", ignorable=True),
        array(
            "topics",
            struct(
                "Topic",
                scalar("name", "string"),
                array(
                    "partitions",
                    struct(
                        "Partition",
                        scalar("partition_index", "int32"),
                        scalar("error_code", "int16"),
                        scalar("timestamp", "int64", "1+", default=-1),
                        scalar("offset", "int64", "1+", default=-1),
                        scalar("leader_epoch", "int32", "4+", default=-1),
                    ),
                ),
            ),
        ),
    ),
)

# Up to version 3: from 4 on a request has many keys (KIP-699), and its response has another shape.
FIND_COORDINATOR = message_type(
    "FindCoordinator",
    10,
    "1-3",
    3,
    request=struct(
        "FindCoordinatorRequest",
        scalar("key", "string", "0-3"),
        scalar("key_type", "int8", "1+"),
    ),
    response=struct(
        "FindCoordinatorResponse",
        scalar("throttle_time_ms", "int32", "1+", ignorable=True),
        scalar("error_code", "int16", "0-3"),
        scalar("error_message", "string", "1-3", nullable="1-3", ignorable=True),
        scalar("node_id", "int32", "0-3"),
        scalar("host", "string", "0-3"),
        scalar("port", "int32", "0-3"),
    ),
)

# Up to version 7: from 8 on a request has many groups (KIP-709), and 10 has topic ids.
OFFSET_FETCH = message_type(
    "OffsetFetch",
    9,
    "2-7",
    6,
    request=struct(
        "OffsetFetchRequest",
        scalar("group_id", "string", "0-7"),
        array(
            "topics",
            struct("Topic", scalar("name", "string", "0-7"), array("partition_indexes", "int32", "0-7")),
            "0-7",
            nullable="2-7",
        ),
        scalar("require_stable", "bool", "7+"),
    ),
    response=struct(
        "OffsetFetchResponse",
        scalar("throttle_time_ms", "int32", "3+", ignorable=True),
        array(
            "topics",
            struct(
                "Topic",
                scalar("name", "string", "0-7"),
                array(
                    "partitions",
                    struct(
                        "Partition",
                        scalar("partition_index", "int32", "0-7"),
                        scalar("committed_offset", "int64", "0-7"),
                        scalar("committed_leader_epoch", "int32", "5-7", ignorable=True, default=-1),
                        scalar("metadata", "string", "0-7", nullable="0-7"),
                        scalar("error_code", "int16", "0-7"),
                    ),
                    "0-7",
                ),
            ),
            "0-7",
        ),
        scalar("error_code", "int16", "2-7", ignorable=True),
    ),
)

# Up to version 9: 10 has topic ids.
OFFSET_COMMIT = message_type(
    "OffsetCommit",
    8,
    "2-9",
    8,
    request=struct(
        "OffsetCommitRequest",
        scalar("group_id", "string"),
        scalar("generation_id_or_member_epoch", "int32", "1+", ignorable=True, default=-1),
        scalar("member_id", "string", "1+", ignorable=True),
        scalar("group_instance_id", "string", "7+", nullable="7+", default=None),
        scalar("retention_time_ms", "int64", "2-4", ignorable=True, default=-1),
        array(
            "topics",
            struct(
                "Topic",
                scalar("name", "string", "0-9", ignorable=True),
                array(
                    "partitions",
                    struct(
                        "Partition",
                        scalar("partition_index", "int32"),
                        scalar("committed_offset", "int64"),
                        scalar("committed_leader_epoch", "int32", "6+", ignorable=True, default=-1),
                        scalar("committed_metadata", "string", nullable="0+"),
                    ),
                ),
            ),
        ),
    ),
    response=struct(
        "OffsetCommitResponse",
        scalar("throttle_time_ms", "int32", "3+", ignorable=True),
        array(
            "topics",
            struct(
                "Topic",
                scalar("name", "string", "0-9", ignorable=True),
                array(
                    "partitions", struct("Partition", scalar("partition_index", "int32"), scalar("error_code", "int16"))
                ),
            ),
        ),
    ),
)

# Version 1 only: after version 0, the mechanism's bytes follow without SaslAuthenticate requests around them.
SASL_HANDSHAKE = message_type(
    "SaslHandshake",
    17,
    "1",
    None,
    request=struct("SaslHandshakeRequest", scalar("mechanism", "string")),
    response=struct("SaslHandshakeResponse", scalar("error_code", "int16"), array("mechanisms", "string")),
)

SASL_AUTHENTICATE = message_type(
    "SaslAuthenticate",
    36,
    "0-2",
    2,
    request=struct("SaslAuthenticateRequest", scalar("auth_bytes", "bytes")),
    response=struct(
        "SaslAuthenticateResponse",
        scalar("error_code", "int16"),
        scalar("error_message", "string", nullable="0+"),
        scalar("auth_bytes", "bytes"),
        scalar("session_lifetime_ms", "int64", "1+", ignorable=True),
    ),
)

API_VERSIONS = message_type(
    "ApiVersions",
    18,
    "0-3",
    3,
    is_version_request=True,
    request=struct(
        "ApiVersionsRequest",
        scalar("client_software_name", "string", "3+", ignorable=True),
        scalar("client_software_version", "string", "3+", ignorable=True),
    ),
    response=struct(
        "ApiVersionsResponse",
        scalar("error_code", "int16"),
        array(
            "api_keys",
            struct(
                "ApiVersion", scalar("api_key", "int16"), scalar("min_version", "int16"), scalar("max_version", "int16")
            ),
        ),
        scalar("throttle_time_ms", "int32", "1+", ignorable=True),
        array(
            "supported_features",
            struct(
                "SupportedFeature",
                scalar("name", "string", "3+"),
                scalar("min_version", "int16", "3+"),
                scalar("max_version", "int16", "3+"),
            ),
            "3+",
            ignorable=True,
            tag=0,
        ),
        scalar("finalized_features_epoch", "int64", "3+", ignorable=True, tag=1, default=-1),
        array(
            "finalized_features",
            struct(
                "FinalizedFeature",
                scalar("name", "string", "3+"),
                scalar("max_version_level", "int16", "3+"),
                scalar("min_version_level", "int16", "3+"),
            ),
            "3+",
            ignorable=True,
            tag=2,
        ),
        scalar("zk_migration_ready", "bool", "3+", ignorable=True, tag=3),
    ),
)

# From version 4 on (Kafka 2.4), which introduced the cluster's default replication factor (KIP-464).
CREATE_TOPICS = message_type(
    "CreateTopics",
    19,
    "4-7",
    5,
    request=struct(
        "CreateTopicsRequest",
        array(
            "topics",
            struct(
                "Topic",
                scalar("name", "string"),
                scalar("num_partitions", "int32"),
                scalar("replication_factor", "int16"),
                array(
                    "assignments",
                    struct("Assignment", scalar("partition_index", "int32"), array("broker_ids", "int32")),
                ),
                array("configs", struct("Config", scalar("name", "string"), scalar("value", "string", nullable="0+"))),
            ),
        ),
        scalar("timeout_ms", "int32", default=60_000),
        scalar("validate_only", "bool", "1+"),
    ),
    response=struct(
        "CreateTopicsResponse",
        scalar("throttle_time_ms", "int32", "2+", ignorable=True),
        array(
            "topics",
            struct(
                "Topic",
                scalar("name", "string"),
                scalar("topic_id", "uuid", "7+", ignorable=True),
                scalar("error_code", "int16"),
                scalar("error_message", "string", "1+", nullable="0+", ignorable=True),
                scalar("topic_config_error_code", "int16", "5+", ignorable=True, tag=0),
                scalar("num_partitions", "int32", "5+", ignorable=True, default=-1),
                scalar("replication_factor", "int16", "5+", ignorable=True, default=-1),
                array(
                    "configs",
                    struct(
                        "Config",
                        scalar("name", "string", "5+"),
                        scalar("value", "string", "5+", nullable="5+"),
                        scalar("read_only", "bool", "5+"),
                        scalar("config_source", "int8", "5+", ignorable=True, default=-1),
                        scalar("is_sensitive", "bool", "5+"),
                    ),
                    "5+",
                    nullable="5+",
                    ignorable=True,
                ),
            ),
        ),
    ),
)

DESCRIBE_CONFIGS = message_type(
    "DescribeConfigs",
    32,
    "1-4",
    4,
    request=struct(
        "DescribeConfigsRequest",
        array(
            "resources",
            struct(
                "Resource",
                scalar("resource_type", "int8"),
                scalar("resource_name", "string"),
                array("configuration_keys", "string", nullable="0+"),
            ),
        ),
        scalar("include_synonyms", "bool", "1+"),
        scalar("include_documentation", "bool", "3+"),
    ),
    response=struct(
        "DescribeConfigsResponse",
        scalar("throttle_time_ms", "int32"),
        array(
            "results",
            struct(
                "Result",
                scalar("error_code", "int16"),
                scalar("error_message", "string", nullable="0+"),
                scalar("resource_type", "int8"),
                scalar("resource_name", "string"),
                array(
                    "configs",
                    struct(
                        "Config",
                        scalar("name", "string"),
                        scalar("value", "string", nullable="0+"),
                        scalar("read_only", "bool"),
                        scalar("config_source", "int8", "1+", ignorable=True, default=-1),
                        scalar("is_sensitive", "bool"),
                        array(
                            "synonyms",
                            struct(
                                "Synonym",
                                scalar("name", "string", "1+"),
                                scalar("value", "string", "1+", nullable="0+"),
                                scalar("source", "int8", "1+"),
                            ),
                            "1+",
                            ignorable=True,
                        ),
                        scalar("config_type", "int8", "3+", ignorable=True),
                        scalar("documentation", "string", "3+", nullable="0+", ignorable=True),
                    ),
                ),
            ),
        ),
    ),
)
