"""Schemas of messages that describe brokers, groups and the controllers' quorum (Kafka 4.4), for the command line."""

from __future__ import annotations

from pyspark_kafka_direct.protocol.schema import message_type

# Fenced brokers, which Metadata lacks, from version 2 on (KIP-1073, Kafka 4.0).
DESCRIBE_CLUSTER = message_type("""
    DescribeCluster: key 60, versions 0-2, flexible 0+
    request
        include_cluster_authorized_operations: bool
        endpoint_type: int8 1+ = 1
        include_fenced_brokers: bool 2+
    response
        throttle_time_ms: int32
        error_code: int16
        error_message: string? = null
        endpoint_type: int8 1+ = 1
        cluster_id: string
        controller_id: int32 = -1
        brokers: [DescribeClusterBroker]
            broker_id: int32
            host: string
            port: int32
            rack: string? = null
            is_fenced: bool 2+
        cluster_authorized_operations: int32 = -2147483648
""")

# Up to version 5: from 6 on a group that does not exist is an error, without the authorized operations (KIP-1043).
DESCRIBE_GROUPS = message_type("""
    DescribeGroups: key 15, versions 0-5, flexible 5+
    request
        groups: [string]
        include_authorized_operations: bool 3+
    response
        throttle_time_ms: int32 1+ ignorable
        groups: [DescribedGroup]
            error_code: int16
            group_id, group_state, protocol_type, protocol_data: string
            members: [DescribedGroupMember]
                member_id: string
                group_instance_id: string? 4+ = null ignorable
                client_id, client_host: string
                member_metadata, member_assignment: bytes
            authorized_operations: int32 3+ = -2147483648
""")

LIST_GROUPS = message_type("""
    ListGroups: key 16, versions 0-5, flexible 3+
    request
        states_filter: [string] 4+
        types_filter: [string] 5+
    response
        throttle_time_ms: int32 1+ ignorable
        error_code: int16
        groups: [ListedGroup]
            group_id, protocol_type: string
            group_state: string 4+ ignorable
            group_type: string 5+ ignorable
""")

# From version 1 on, which has timestamps (KIP-836, Kafka 3.3). Up to it: 2 has ids of directories (KIP-853).
DESCRIBE_QUORUM = message_type("""
    DescribeQuorum: key 55, versions 1, flexible 0+
    request
        topics: [TopicData]
            topic_name: string
            partitions: [PartitionData]
                partition_index: int32
    response
        error_code: int16
        topics: [TopicData]
            topic_name: string
            partitions: [PartitionData]
                partition_index: int32
                error_code: int16
                leader_id, leader_epoch: int32
                high_watermark: int64
                current_voters, observers: [ReplicaState]
                    replica_id: int32
                    log_end_offset: int64
                    last_fetch_timestamp, last_caught_up_timestamp: int64 = -1 ignorable
""")
