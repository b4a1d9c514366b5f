"""The messages that create topics and tell their configuration, after Kafka's own definitions as in ``_tables.py``."""

from __future__ import annotations

from pyspark_kafka_direct.wire.messages._fields import api, row, rows, struct

# From 4 on (Kafka 2.4), which brought the cluster's own number of replicas (KIP-464).
CREATE_TOPICS = api(
    "CreateTopics",
    19,
    "4-7",
    5,
    request=struct(
        "CreateTopicsRequest",
        rows(
            "topics",
            struct(
                "Topic",
                row("name", "string"),
                row("num_partitions", "int32"),
                row("replication_factor", "int16"),
                rows("assignments", struct("Assignment", row("partition_index", "int32"), rows("broker_ids", "int32"))),
                rows("configs", struct("Config", row("name", "string"), row("value", "string", nullable="0+"))),
            ),
        ),
        row("timeout_ms", "int32", default=60_000),
        row("validate_only", "bool", "1+"),
    ),
    response=struct(
        "CreateTopicsResponse",
        row("throttle_time_ms", "int32", "2+", ignorable=True),
        rows(
            "topics",
            struct(
                "Topic",
                row("name", "string"),
                row("topic_id", "uuid", "7+", ignorable=True),
                row("error_code", "int16"),
                row("error_message", "string", "1+", nullable="0+", ignorable=True),
                row("topic_config_error_code", "int16", "5+", ignorable=True, tag=0),
                row("num_partitions", "int32", "5+", ignorable=True, default=-1),
                row("replication_factor", "int16", "5+", ignorable=True, default=-1),
                rows(
                    "configs",
                    struct(
                        "Config",
                        row("name", "string", "5+"),
                        row("value", "string", "5+", nullable="5+"),
                        row("read_only", "bool", "5+"),
                        row("config_source", "int8", "5+", ignorable=True, default=-1),
                        row("is_sensitive", "bool", "5+"),
                    ),
                    "5+",
                    nullable="5+",
                    ignorable=True,
                ),
            ),
        ),
    ),
)

DESCRIBE_CONFIGS = api(
    "DescribeConfigs",
    32,
    "1-4",
    4,
    request=struct(
        "DescribeConfigsRequest",
        rows(
            "resources",
            struct(
                "Resource",
                row("resource_type", "int8"),
                row("resource_name", "string"),
                rows("configuration_keys", "string", nullable="0+"),
            ),
        ),
        row("include_synonyms", "bool", "1+"),
        row("include_documentation", "bool", "3+"),
    ),
    response=struct(
        "DescribeConfigsResponse",
        row("throttle_time_ms", "int32"),
        rows(
            "results",
            struct(
                "Result",
                row("error_code", "int16"),
                row("error_message", "string", nullable="0+"),
                row("resource_type", "int8"),
                row("resource_name", "string"),
                rows(
                    "configs",
                    struct(
                        "Config",
                        row("name", "string"),
                        row("value", "string", nullable="0+"),
                        row("read_only", "bool"),
                        row("config_source", "int8", "1+", ignorable=True, default=-1),
                        row("is_sensitive", "bool"),
                        rows(
                            "synonyms",
                            struct(
                                "Synonym",
                                row("name", "string", "1+"),
                                row("value", "string", "1+", nullable="0+"),
                                row("source", "int8", "1+"),
                            ),
                            "1+",
                            ignorable=True,
                        ),
                        row("config_type", "int8", "3+", ignorable=True),
                        row("documentation", "string", "3+", nullable="0+", ignorable=True),
                    ),
                ),
            ),
        ),
    ),
)
