"""Schemas of the producer's messages, including transactions, after Kafka's definitions; see ``cluster_messages``."""

from __future__ import annotations

from pyspark_kafka_direct.protocol.schema import message_type

# From version 3 on, which introduced message format 2 and transactions (KIP-98). Up to 12: 13 has topic ids
# (KIP-516). With a transactional id, version 12 adds the partition to the transaction (KIP-890).
PRODUCE = message_type("""
    Produce: key 0, versions 3-12, flexible 9+
    request
        transactional_id: string? = null
        acks: int16
        timeout_ms: int32
        topic_data: [TopicProduceData]
            name: string ignorable
            partition_data: [PartitionProduceData]
                index: int32
                records: records?
    response
        responses: [TopicProduceResponse]
            name: string ignorable
            partition_responses: [PartitionProduceResponse]
                index: int32
                error_code: int16
                base_offset: int64
                log_append_time_ms: int64 = -1 ignorable
                log_start_offset: int64 5+ = -1 ignorable
                record_errors: [BatchIndexAndErrorMessage] 8+ ignorable
                    batch_index: int32
                    batch_index_error_message: string? = null
                error_message: string? 8+ = null ignorable
                current_leader: LeaderIdAndEpoch 10+ ignorable tag 0
                    leader_id, leader_epoch: int32 = -1
        throttle_time_ms: int32 ignorable
        node_endpoints: [NodeEndpoint] 10+ ignorable tag 0
            node_id: int32
            host: string
            port: int32
            rack: string? = null
""")

# Up to version 5: 6 is for two-phase commits (KIP-939). The response may have PRODUCER_FENCED from 4 on,
# TRANSACTION_ABORTABLE from 5 on.
INIT_PRODUCER_ID = message_type("""
    InitProducerId: key 22, versions 0-5, flexible 2+
    request
        transactional_id: string?
        transaction_timeout_ms: int32
        producer_id: int64 3+ = -1
        producer_epoch: int16 3+ = -1
    response
        throttle_time_ms: int32 ignorable
        error_code: int16
        producer_id: int64 = -1
        producer_epoch: int16
""")

# Up to version 3: later versions are requests between brokers about several transactions (KIP-890).
ADD_PARTITIONS_TO_TXN = message_type("""
    AddPartitionsToTxn: key 24, versions 0-3, flexible 3+
    request
        v3_and_below_transactional_id: string
        v3_and_below_producer_id: int64
        v3_and_below_producer_epoch: int16
        v3_and_below_topics: [Topic]
            name: string
            partitions: [int32]
    response
        throttle_time_ms: int32
        results_by_topic_v3_and_below: [Topic]
            name: string
            results_by_partition: [Partition]
                partition_index: int32
                partition_error_code: int16
""")

# Version 5 means that the whole transaction was written with transaction.version 2 (KIP-890), and returns the next
# epoch; otherwise use ``END_TXN.with_max_version(4)``.
END_TXN = message_type("""
    EndTxn: key 26, versions 0-5, flexible 3+
    request
        transactional_id: string
        producer_id: int64
        producer_epoch: int16
        committed: bool
    response
        throttle_time_ms: int32
        error_code: int16
        producer_id: int64 5+ = -1 ignorable
        producer_epoch: int16 5+ = -1 ignorable
""")

# Used below transaction.version 2 only: from 2 on, TxnOffsetCommit 5 adds the group to the transaction.
ADD_OFFSETS_TO_TXN = message_type("""
    AddOffsetsToTxn: key 25, versions 0-3, flexible 3+
    request
        transactional_id: string
        producer_id: int64
        producer_epoch: int16
        group_id: string
    response
        throttle_time_ms: int32
        error_code: int16
""")

# Version 5 means that the transaction is written with transaction.version 2; otherwise use
# ``TXN_OFFSET_COMMIT.with_max_version(4)``.
TXN_OFFSET_COMMIT = message_type("""
    TxnOffsetCommit: key 28, versions 0-5, flexible 3+
    request
        transactional_id, group_id: string
        producer_id: int64
        producer_epoch: int16
        generation_id: int32 3+ = -1
        member_id: string 3+
        group_instance_id: string? 3+ = null
        topics: [Topic]
            name: string
            partitions: [Partition]
                partition_index: int32
                committed_offset: int64
                committed_leader_epoch: int32 2+ = -1 ignorable
                committed_metadata: string?
    response
        throttle_time_ms: int32
        topics: [Topic]
            name: string
            partitions: [Partition]
                partition_index: int32
                error_code: int16
""")

# The next two and DescribeProducers are those of ``kafka-transactions.sh`` (KIP-664, Kafka 3.0).
LIST_TRANSACTIONS = message_type("""
    ListTransactions: key 66, versions 0-2, flexible 0+
    request
        state_filters: [string]
        producer_id_filters: [int64]
        duration_filter: int64 1+ = -1
        transactional_id_pattern: string?2+ 2+ = null
    response
        throttle_time_ms: int32
        error_code: int16
        unknown_state_filters: [string]
        transaction_states: [TransactionState]
            transactional_id: string
            producer_id: int64
            transaction_state: string
""")

DESCRIBE_TRANSACTIONS = message_type("""
    DescribeTransactions: key 65, versions 0, flexible 0+
    request
        transactional_ids: [string]
    response
        throttle_time_ms: int32
        transaction_states: [TransactionState]
            error_code: int16
            transactional_id: string
            transaction_state: string
            transaction_timeout_ms: int32
            transaction_start_time_ms: int64
            producer_id: int64
            producer_epoch: int16
            topics: [TopicData]
                topic: string
                partitions: [int32]
""")

WRITE_TXN_MARKERS = message_type("""
    WriteTxnMarkers: key 27, versions 1-2, flexible 1+
    request
        markers: [WritableTxnMarker]
            producer_id: int64
            producer_epoch: int16
            transaction_result: bool
            topics: [WritableTxnMarkerTopic]
                name: string
                partition_indexes: [int32]
            coordinator_epoch: int32
            transaction_version: int8 2+ = 0 ignorable
    response
        markers: [WritableTxnMarkerResult]
            producer_id: int64
            topics: [WritableTxnMarkerTopicResult]
                name: string
                partitions: [WritableTxnMarkerPartitionResult]
                    partition_index: int32
                    error_code: int16
""")
