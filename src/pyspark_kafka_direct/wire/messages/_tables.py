"""The messages that are used here, after Kafka's own definitions (``clients/src/main/resources/common/message``, 4.3).

The highest version of a row is often below Kafka's on purpose, as a version is a meaning: a field's sense or the way to
ask changes with it. The reason stands beside each.
"""

from __future__ import annotations

from pyspark_kafka_direct.wire.messages._fields import api, row, rows, struct

# From 4 on, which brought allow_auto_topic_creation (KIP-204): before it, asking for a missing topic creates it.
METADATA = api(
    "Metadata",
    3,
    "4-13",
    9,
    request=struct(
        "MetadataRequest",
        rows(
            "topics",
            struct(
                "Topic",
                row("topic_id", "uuid", "10+", ignorable=True),
                row("name", "string", nullable="10+"),
            ),
            nullable="1+",
        ),
        row("allow_auto_topic_creation", "bool", "4+", default=True),
        row("include_cluster_authorized_operations", "bool", "8-10"),
        row("include_topic_authorized_operations", "bool", "8+"),
    ),
    response=struct(
        "MetadataResponse",
        row("throttle_time_ms", "int32", "3+", ignorable=True),
        rows(
            "brokers",
            struct(
                "Broker",
                row("node_id", "int32"),
                row("host", "string"),
                row("port", "int32"),
                row("rack", "string", "1+", nullable="1+", ignorable=True, default=None),
            ),
        ),
        row("cluster_id", "string", "2+", nullable="2+", ignorable=True, default=None),
        row("controller_id", "int32", "1+", ignorable=True, default=-1),
        rows(
            "topics",
            struct(
                "Topic",
                row("error_code", "int16"),
                row("name", "string", nullable="12+"),
                row("topic_id", "uuid", "10+", ignorable=True),
                row("is_internal", "bool", "1+", ignorable=True),
                rows(
                    "partitions",
                    struct(
                        "Partition",
                        row("error_code", "int16"),
                        row("partition_index", "int32"),
                        row("leader_id", "int32"),
                        row("leader_epoch", "int32", "7+", ignorable=True, default=-1),
                        rows("replica_nodes", "int32"),
                        rows("isr_nodes", "int32"),
                        rows("offline_replicas", "int32", "5+", ignorable=True),
                    ),
                ),
                row("topic_authorized_operations", "int32", "8+", default=-(2**31)),
            ),
        ),
        row("cluster_authorized_operations", "int32", "8-10", default=-(2**31)),
        row("error_code", "int16", "13+", ignorable=True),
    ),
)

# From 2 on, which brought the isolation level (KIP-98): before it, the end of a read_committed range would be wrong.
LIST_OFFSETS = api(
    "ListOffsets",
    2,
    "2-11",
    6,
    request=struct(
        "ListOffsetsRequest",
        row("replica_id", "int32"),
        row("isolation_level", "int8", "2+"),
        rows(
            "topics",
            struct(
                "Topic",
                row("name", "string"),
                rows(
                    "partitions",
                    struct(
                        "Partition",
                        row("partition_index", "int32"),
                        row("current_leader_epoch", "int32", "4+", ignorable=True, default=-1),
                        row("timestamp", "int64"),
                    ),
                ),
            ),
        ),
        row("timeout_ms", "int32", "10+", ignorable=True),
    ),
    response=struct(
        "ListOffsetsResponse",
        row("throttle_time_ms", "int32", "2+", ignorable=True),
        rows(
            "topics",
            struct(
                "Topic",
                row("name", "string"),
                rows(
                    "partitions",
                    struct(
                        "Partition",
                        row("partition_index", "int32"),
                        row("error_code", "int16"),
                        row("timestamp", "int64", "1+", default=-1),
                        row("offset", "int64", "1+", default=-1),
                        row("leader_epoch", "int32", "4+", default=-1),
                    ),
                ),
            ),
        ),
    ),
)

# Up to 3: from 4 on one request asks for many keys (KIP-699), and its answer has another shape.
FIND_COORDINATOR = api(
    "FindCoordinator",
    10,
    "1-3",
    3,
    request=struct(
        "FindCoordinatorRequest",
        row("key", "string", "0-3"),
        row("key_type", "int8", "1+"),
    ),
    response=struct(
        "FindCoordinatorResponse",
        row("throttle_time_ms", "int32", "1+", ignorable=True),
        row("error_code", "int16", "0-3"),
        row("error_message", "string", "1-3", nullable="1-3", ignorable=True),
        row("node_id", "int32", "0-3"),
        row("host", "string", "0-3"),
        row("port", "int32", "0-3"),
    ),
)

# Up to 7: from 8 on one request asks for many groups (KIP-709), and 10 names topics by id.
OFFSET_FETCH = api(
    "OffsetFetch",
    9,
    "2-7",
    6,
    request=struct(
        "OffsetFetchRequest",
        row("group_id", "string", "0-7"),
        rows(
            "topics",
            struct("Topic", row("name", "string", "0-7"), rows("partition_indexes", "int32", "0-7")),
            "0-7",
            nullable="2-7",
        ),
        row("require_stable", "bool", "7+"),
    ),
    response=struct(
        "OffsetFetchResponse",
        row("throttle_time_ms", "int32", "3+", ignorable=True),
        rows(
            "topics",
            struct(
                "Topic",
                row("name", "string", "0-7"),
                rows(
                    "partitions",
                    struct(
                        "Partition",
                        row("partition_index", "int32", "0-7"),
                        row("committed_offset", "int64", "0-7"),
                        row("committed_leader_epoch", "int32", "5-7", ignorable=True, default=-1),
                        row("metadata", "string", "0-7", nullable="0-7"),
                        row("error_code", "int16", "0-7"),
                    ),
                    "0-7",
                ),
            ),
            "0-7",
        ),
        row("error_code", "int16", "2-7", ignorable=True),
    ),
)

# Up to 9: 10 names topics by id.
OFFSET_COMMIT = api(
    "OffsetCommit",
    8,
    "2-9",
    8,
    request=struct(
        "OffsetCommitRequest",
        row("group_id", "string"),
        row("generation_id_or_member_epoch", "int32", "1+", ignorable=True, default=-1),
        row("member_id", "string", "1+", ignorable=True),
        row("group_instance_id", "string", "7+", nullable="7+", default=None),
        row("retention_time_ms", "int64", "2-4", ignorable=True, default=-1),
        rows(
            "topics",
            struct(
                "Topic",
                row("name", "string", "0-9", ignorable=True),
                rows(
                    "partitions",
                    struct(
                        "Partition",
                        row("partition_index", "int32"),
                        row("committed_offset", "int64"),
                        row("committed_leader_epoch", "int32", "6+", ignorable=True, default=-1),
                        row("committed_metadata", "string", nullable="0+"),
                    ),
                ),
            ),
        ),
    ),
    response=struct(
        "OffsetCommitResponse",
        row("throttle_time_ms", "int32", "3+", ignorable=True),
        rows(
            "topics",
            struct(
                "Topic",
                row("name", "string", "0-9", ignorable=True),
                rows("partitions", struct("Partition", row("partition_index", "int32"), row("error_code", "int16"))),
            ),
        ),
    ),
)

# 1 exactly: after 0 the login's bytes follow bare, without SaslAuthenticate around them.
SASL_HANDSHAKE = api(
    "SaslHandshake",
    17,
    "1",
    None,
    request=struct("SaslHandshakeRequest", row("mechanism", "string")),
    response=struct("SaslHandshakeResponse", row("error_code", "int16"), rows("mechanisms", "string")),
)

SASL_AUTHENTICATE = api(
    "SaslAuthenticate",
    36,
    "0-2",
    2,
    request=struct("SaslAuthenticateRequest", row("auth_bytes", "bytes")),
    response=struct(
        "SaslAuthenticateResponse",
        row("error_code", "int16"),
        row("error_message", "string", nullable="0+"),
        row("auth_bytes", "bytes"),
        row("session_lifetime_ms", "int64", "1+", ignorable=True),
    ),
)

API_VERSIONS = api(
    "ApiVersions",
    18,
    "0-3",
    3,
    opens=True,
    request=struct(
        "ApiVersionsRequest",
        row("client_software_name", "string", "3+", ignorable=True),
        row("client_software_version", "string", "3+", ignorable=True),
    ),
    response=struct(
        "ApiVersionsResponse",
        row("error_code", "int16"),
        rows(
            "api_keys",
            struct("ApiVersion", row("api_key", "int16"), row("min_version", "int16"), row("max_version", "int16")),
        ),
        row("throttle_time_ms", "int32", "1+", ignorable=True),
        rows(
            "supported_features",
            struct(
                "SupportedFeature",
                row("name", "string", "3+"),
                row("min_version", "int16", "3+"),
                row("max_version", "int16", "3+"),
            ),
            "3+",
            ignorable=True,
            tag=0,
        ),
        row("finalized_features_epoch", "int64", "3+", ignorable=True, tag=1, default=-1),
        rows(
            "finalized_features",
            struct(
                "FinalizedFeature",
                row("name", "string", "3+"),
                row("max_version_level", "int16", "3+"),
                row("min_version_level", "int16", "3+"),
            ),
            "3+",
            ignorable=True,
            tag=2,
        ),
        row("zk_migration_ready", "bool", "3+", ignorable=True, tag=3),
    ),
)
