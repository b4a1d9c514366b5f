"""The messages of writing, as ``_tables.py`` has the others."""

from __future__ import annotations

from pyspark_kafka_direct.wire.messages._fields import api, nested, row, rows, struct

# From 3 on, which brought message format 2 and transactions (KIP-98). Up to 12: 13 names topics by id (KIP-516).
# With a transactional id, 12 adds the partition to the transaction (KIP-890); ``wire/produce.py`` has more of that.
PRODUCE = api(
    "Produce",
    0,
    "3-12",
    9,
    request=struct(
        "ProduceRequest",
        row("transactional_id", "string", "3+", nullable="3+", default=None),
        row("acks", "int16"),
        row("timeout_ms", "int32"),
        rows(
            "topic_data",
            struct(
                "TopicProduceData",
                row("name", "string", "0-12", ignorable=True),
                rows(
                    "partition_data",
                    struct("PartitionProduceData", row("index", "int32"), row("records", "records", nullable="0+")),
                ),
            ),
        ),
    ),
    response=struct(
        "ProduceResponse",
        rows(
            "responses",
            struct(
                "TopicProduceResponse",
                row("name", "string", "0-12", ignorable=True),
                rows(
                    "partition_responses",
                    struct(
                        "PartitionProduceResponse",
                        row("index", "int32"),
                        row("error_code", "int16"),
                        row("base_offset", "int64"),
                        row("log_append_time_ms", "int64", "2+", ignorable=True, default=-1),
                        row("log_start_offset", "int64", "5+", ignorable=True, default=-1),
                        rows(
                            "record_errors",
                            struct(
                                "BatchIndexAndErrorMessage",
                                row("batch_index", "int32", "8+"),
                                row("batch_index_error_message", "string", "8+", nullable="8+", default=None),
                            ),
                            "8+",
                            ignorable=True,
                        ),
                        row("error_message", "string", "8+", nullable="8+", ignorable=True, default=None),
                        nested(
                            "current_leader",
                            struct(
                                "LeaderIdAndEpoch",
                                row("leader_id", "int32", "10+", default=-1),
                                row("leader_epoch", "int32", "10+", default=-1),
                            ),
                            "10+",
                            tag=0,
                        ),
                    ),
                ),
            ),
        ),
        row("throttle_time_ms", "int32", "1+", ignorable=True),
        rows(
            "node_endpoints",
            struct(
                "NodeEndpoint",
                row("node_id", "int32", "10+"),
                row("host", "string", "10+"),
                row("port", "int32", "10+"),
                row("rack", "string", "10+", nullable="10+", default=None),
            ),
            "10+",
            ignorable=True,
            tag=0,
        ),
    ),
)

# Up to 5: 6 is for transactions of two phases (KIP-939). From 4 on PRODUCER_FENCED may be the answer, from 5 on
# TRANSACTION_ABORTABLE.
INIT_PRODUCER_ID = api(
    "InitProducerId",
    22,
    "0-5",
    2,
    request=struct(
        "InitProducerIdRequest",
        row("transactional_id", "string", nullable="0+"),
        row("transaction_timeout_ms", "int32"),
        row("producer_id", "int64", "3+", default=-1),
        row("producer_epoch", "int16", "3+", default=-1),
    ),
    response=struct(
        "InitProducerIdResponse",
        row("throttle_time_ms", "int32", ignorable=True),
        row("error_code", "int16"),
        row("producer_id", "int64", default=-1),
        row("producer_epoch", "int16"),
    ),
)
