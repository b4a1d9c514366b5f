"""The messages of transactions, after Kafka's own definitions as in ``_tables.py``."""

from __future__ import annotations

from pyspark_kafka_direct.wire.messages._fields import api, row, rows, struct

# Up to 3: from 4 on brokers ask one another, about several transactions at once (KIP-890).
ADD_PARTITIONS_TO_TXN = api(
    "AddPartitionsToTxn",
    24,
    "0-3",
    3,
    request=struct(
        "AddPartitionsToTxnRequest",
        row("v3_and_below_transactional_id", "string", "0-3"),
        row("v3_and_below_producer_id", "int64", "0-3"),
        row("v3_and_below_producer_epoch", "int16", "0-3"),
        rows(
            "v3_and_below_topics",
            struct("Topic", row("name", "string"), rows("partitions", "int32")),
            "0-3",
        ),
    ),
    response=struct(
        "AddPartitionsToTxnResponse",
        row("throttle_time_ms", "int32"),
        rows(
            "results_by_topic_v3_and_below",
            struct(
                "Topic",
                row("name", "string"),
                rows(
                    "results_by_partition",
                    struct("Partition", row("partition_index", "int32"), row("partition_error_code", "int16")),
                ),
            ),
            "0-3",
        ),
    ),
)

# 5 says that the whole transaction was written the way of transaction.version 2 (KIP-890), and answers with the next
# epoch; where it was not, ask with ``END_TXN.up_to(4)``.
END_TXN = api(
    "EndTxn",
    26,
    "0-5",
    3,
    request=struct(
        "EndTxnRequest",
        row("transactional_id", "string"),
        row("producer_id", "int64"),
        row("producer_epoch", "int16"),
        row("committed", "bool"),
    ),
    response=struct(
        "EndTxnResponse",
        row("throttle_time_ms", "int32"),
        row("error_code", "int16"),
        row("producer_id", "int64", "5+", ignorable=True, default=-1),
        row("producer_epoch", "int16", "5+", ignorable=True, default=-1),
    ),
)

# Only below transaction.version 2; from there on TxnOffsetCommit 5 does it by itself.
ADD_OFFSETS_TO_TXN = api(
    "AddOffsetsToTxn",
    25,
    "0-3",
    3,
    request=struct(
        "AddOffsetsToTxnRequest",
        row("transactional_id", "string"),
        row("producer_id", "int64"),
        row("producer_epoch", "int16"),
        row("group_id", "string"),
    ),
    response=struct(
        "AddOffsetsToTxnResponse",
        row("throttle_time_ms", "int32"),
        row("error_code", "int16"),
    ),
)

# 5 says that the transaction is written the way of transaction.version 2; where it is not, ask with
# ``TXN_OFFSET_COMMIT.up_to(4)``.
TXN_OFFSET_COMMIT = api(
    "TxnOffsetCommit",
    28,
    "0-5",
    3,
    request=struct(
        "TxnOffsetCommitRequest",
        row("transactional_id", "string"),
        row("group_id", "string"),
        row("producer_id", "int64"),
        row("producer_epoch", "int16"),
        row("generation_id", "int32", "3+", default=-1),
        row("member_id", "string", "3+"),
        row("group_instance_id", "string", "3+", nullable="3+", default=None),
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
                        row("committed_offset", "int64"),
                        row("committed_leader_epoch", "int32", "2+", ignorable=True, default=-1),
                        row("committed_metadata", "string", nullable="0+"),
                    ),
                ),
            ),
        ),
    ),
    response=struct(
        "TxnOffsetCommitResponse",
        row("throttle_time_ms", "int32"),
        rows(
            "topics",
            struct(
                "Topic",
                row("name", "string"),
                rows("partitions", struct("Partition", row("partition_index", "int32"), row("error_code", "int16"))),
            ),
        ),
    ),
)
