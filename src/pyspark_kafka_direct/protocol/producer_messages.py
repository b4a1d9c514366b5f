"""Schemas of the producer's messages, including transactions, after Kafka's definitions; see ``cluster_messages``."""

from __future__ import annotations

from pyspark_kafka_direct.protocol.schema import (
    array,
    message_type,
    scalar,
    struct,
    tagged_struct,
)

# From version 3 on, which introduced message format 2 and transactions (KIP-98). Up to 12: 13 has topic ids
# (KIP-516). With a transactional id, version 12 adds the partition to the transaction (KIP-890).
PRODUCE = message_type(
    "Produce",
    0,
    "3-12",
    9,
    request=struct(
        "ProduceRequest",
        scalar("transactional_id", "string", "3+", nullable="3+", default=None),
        scalar("acks", "int16"),
        scalar("timeout_ms", "int32"),
        array(
            "topic_data",
            struct(
                "TopicProduceData",
                scalar("name", "string", "0-12", ignorable=True),
                array(
                    "partition_data",
                    struct(
                        "PartitionProduceData", scalar("index", "int32"), scalar("records", "records", nullable="0+")
                    ),
                ),
            ),
        ),
    ),
    response=struct(
        "ProduceResponse",
        array(
            "responses",
            struct(
                "TopicProduceResponse",
                scalar("name", "string", "0-12", ignorable=True),
                array(
                    "partition_responses",
                    struct(
                        "PartitionProduceResponse",
                        scalar("index", "int32"),
                        scalar("error_code", "int16"),
                        scalar("base_offset", "int64"),
                        scalar("log_append_time_ms", "int64", "2+", ignorable=True, default=-1),
                        scalar("log_start_offset", "int64", "5+", ignorable=True, default=-1),
                        array(
                            "record_errors",
                            struct(
                                "BatchIndexAndErrorMessage",
                                scalar("batch_index", "int32", "8+"),
                                scalar("batch_index_error_message", "string", "8+", nullable="8+", default=None),
                            ),
                            "8+",
                            ignorable=True,
                        ),
                        scalar("error_message", "string", "8+", nullable="8+", ignorable=True, default=None),
                        tagged_struct(
                            "current_leader",
                            struct(
                                "LeaderIdAndEpoch",
                                scalar("leader_id", "int32", "10+", default=-1),
                                scalar("leader_epoch", "int32", "10+", default=-1),
                            ),
                            "10+",
                            tag=0,
                        ),
                    ),
                ),
            ),
        ),
        scalar("throttle_time_ms", "int32", "1+", ignorable=True),
        array(
            "node_endpoints",
            struct(
                "NodeEndpoint",
                scalar("node_id", "int32", "10+"),
                scalar("host", "string", "10+"),
                scalar("port", "int32", "10+"),
                scalar("rack", "string", "10+", nullable="10+", default=None),
            ),
            "10+",
            ignorable=True,
            tag=0,
        ),
    ),
)

# Up to version 5: 6 is for two-phase commits (KIP-939). The response may have PRODUCER_FENCED from 4 on,
# TRANSACTION_ABORTABLE from 5 on.
INIT_PRODUCER_ID = message_type(
    "InitProducerId",
    22,
    "0-5",
    2,
    request=struct(
        "InitProducerIdRequest",
        scalar("transactional_id", "string", nullable="0+"),
        scalar("transaction_timeout_ms", "int32"),
        scalar("producer_id", "int64", "3+", default=-1),
        scalar("producer_epoch", "int16", "3+", default=-1),
    ),
    response=struct(
        "InitProducerIdResponse",
        scalar("throttle_time_ms", "int32", ignorable=True),
        scalar("error_code", "int16"),
        scalar("producer_id", "int64", default=-1),
        scalar("producer_epoch", "int16"),
    ),
)

# Up to version 3: later versions are requests between brokers about several transactions (KIP-890).
ADD_PARTITIONS_TO_TXN = message_type(
    "AddPartitionsToTxn",
    24,
    "0-3",
    3,
    request=struct(
        "AddPartitionsToTxnRequest",
        scalar("v3_and_below_transactional_id", "string", "0-3"),
        scalar("v3_and_below_producer_id", "int64", "0-3"),
        scalar("v3_and_below_producer_epoch", "int16", "0-3"),
        array(
            "v3_and_below_topics",
            struct("Topic", scalar("name", "string"), array("partitions", "int32")),
            "0-3",
        ),
    ),
    response=struct(
        "AddPartitionsToTxnResponse",
        scalar("throttle_time_ms", "int32"),
        array(
            "results_by_topic_v3_and_below",
            struct(
                "Topic",
                scalar("name", "string"),
                array(
                    "results_by_partition",
                    struct("Partition", scalar("partition_index", "int32"), scalar("partition_error_code", "int16")),
                ),
            ),
            "0-3",
        ),
    ),
)

# Version 5 means that the whole transaction was written with transaction.version 2 (KIP-890), and returns the next
# epoch; otherwise use ``END_TXN.with_max_version(4)``.
END_TXN = message_type(
    "EndTxn",
    26,
    "0-5",
    3,
    request=struct(
        "EndTxnRequest",
        scalar("transactional_id", "string"),
        scalar("producer_id", "int64"),
        scalar("producer_epoch", "int16"),
        scalar("committed", "bool"),
    ),
    response=struct(
        "EndTxnResponse",
        scalar("throttle_time_ms", "int32"),
        scalar("error_code", "int16"),
        scalar("producer_id", "int64", "5+", ignorable=True, default=-1),
        scalar("producer_epoch", "int16", "5+", ignorable=True, default=-1),
    ),
)

# Used below transaction.version 2 only: from 2 on, TxnOffsetCommit 5 adds the group to the transaction.
ADD_OFFSETS_TO_TXN = message_type(
    "AddOffsetsToTxn",
    25,
    "0-3",
    3,
    request=struct(
        "AddOffsetsToTxnRequest",
        scalar("transactional_id", "string"),
        scalar("producer_id", "int64"),
        scalar("producer_epoch", "int16"),
        scalar("group_id", "string"),
    ),
    response=struct(
        "AddOffsetsToTxnResponse",
        scalar("throttle_time_ms", "int32"),
        scalar("error_code", "int16"),
    ),
)

# Version 5 means that the transaction is written with transaction.version 2; otherwise use
# ``TXN_OFFSET_COMMIT.with_max_version(4)``.
TXN_OFFSET_COMMIT = message_type(
    "TxnOffsetCommit",
    28,
    "0-5",
    3,
    request=struct(
        "TxnOffsetCommitRequest",
        scalar("transactional_id", "string"),
        scalar("group_id", "string"),
        scalar("producer_id", "int64"),
        scalar("producer_epoch", "int16"),
        scalar("generation_id", "int32", "3+", default=-1),
        scalar("member_id", "string", "3+"),
        scalar("group_instance_id", "string", "3+", nullable="3+", default=None),
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
                        scalar("committed_offset", "int64"),
                        scalar("committed_leader_epoch", "int32", "2+", ignorable=True, default=-1),
                        scalar("committed_metadata", "string", nullable="0+"),
                    ),
                ),
            ),
        ),
    ),
    response=struct(
        "TxnOffsetCommitResponse",
        scalar("throttle_time_ms", "int32"),
        array(
            "topics",
            struct(
                "Topic",
                scalar("name", "string"),
                array(
                    "partitions", struct("Partition", scalar("partition_index", "int32"), scalar("error_code", "int16"))
                ),
            ),
        ),
    ),
)
