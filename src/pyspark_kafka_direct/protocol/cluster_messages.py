"""Schemas of all but the producer's messages, after Kafka's (``clients/src/main/resources/common/message``, 4.4).

The highest version is often below Kafka's on purpose, if a newer version changes the meaning of a field or the shape of
the request; a comment at each schema has the reason.
"""

from __future__ import annotations

from pyspark_kafka_direct.protocol.schema import message_type

# From version 4 on, which introduced allow_auto_topic_creation (KIP-204): before, the request creates missing topics.
METADATA = message_type("""
    Metadata: key 3, versions 4-13, flexible 9+
    request
        topics: [Topic]?
            topic_id: uuid 10+ ignorable
            name: string?10+
        allow_auto_topic_creation: bool = true
        include_cluster_authorized_operations: bool 8-10
        include_topic_authorized_operations: bool 8+
    response
        throttle_time_ms: int32 ignorable
        brokers: [Broker]
            node_id: int32
            host: string
            port: int32
            rack: string? = null ignorable
        cluster_id: string? = null ignorable
        controller_id: int32 = -1 ignorable
        topics: [Topic]
            error_code: int16
            name: string?12+
            topic_id: uuid 10+ ignorable
            is_internal: bool ignorable
            partitions: [Partition]
                error_code: int16
                partition_index, leader_id: int32
                leader_epoch: int32 7+ = -1 ignorable
                replica_nodes, isr_nodes: [int32]
                offline_replicas: [int32] 5+ ignorable
            topic_authorized_operations: int32 8+ = -2147483648
        cluster_authorized_operations: int32 8-10 = -2147483648
        error_code: int16 13+ ignorable
""")

# From version 4 on, which introduced message format 2 (KIP-98). ``consumer.fetch_channel`` encodes and decodes it.
FETCH = message_type("""
    Fetch: key 1, versions 4-18, flexible 12+
    request
        replica_id: int32 0-14 = -1  # followers only, as the tagged fields
        max_wait_ms, min_bytes: int32
        max_bytes: int32 = 2147483647 ignorable
        isolation_level: int8 ignorable
        session_id: int32 7+ ignorable  # 0 and epoch -1: no fetch session
        session_epoch: int32 7+ = -1 ignorable
        topics: [FetchTopic]
            topic: string 0-12 ignorable
            topic_id: uuid 13+ ignorable
            partitions: [FetchPartition]
                partition: int32
                current_leader_epoch: int32 9+ = -1 ignorable
                fetch_offset: int64
                last_fetched_epoch: int32 12+ = -1
                log_start_offset: int64 5+ = -1 ignorable  # followers only
                partition_max_bytes: int32
                replica_directory_id: uuid 17+ ignorable tag 0
                high_watermark: int64 18+ = 9223372036854775807 ignorable tag 1
        forgotten_topics_data: [ForgottenTopic] 7+
            topic: string 7-12 ignorable
            topic_id: uuid 13+ ignorable
            partitions: [int32]
        rack_id: string 11+ ignorable
        cluster_id: string? 12+ = null ignorable tag 0
        replica_state: ReplicaState 15+ ignorable tag 1
            replica_id: int32 = -1
            replica_epoch: int64 = -1
    response
        throttle_time_ms: int32 ignorable
        error_code: int16 7+ ignorable
        session_id: int32 7+
        responses: [FetchableTopicResponse]
            topic: string 0-12 ignorable
            topic_id: uuid 13+ ignorable
            partitions: [PartitionData]
                partition_index: int32
                error_code: int16
                high_watermark: int64
                last_stable_offset: int64 = -1 ignorable
                log_start_offset: int64 5+ = -1 ignorable
                aborted_transactions: [AbortedTransaction]? ignorable
                    producer_id, first_offset: int64
                preferred_read_replica: int32 11+ = -1
                records: records?
                diverging_epoch: EpochEndOffset 12+ ignorable tag 0
                    epoch: int32 = -1
                    end_offset: int64 = -1
                current_leader: LeaderIdAndEpoch 12+ ignorable tag 1
                    leader_id, leader_epoch: int32 = -1
                snapshot_id: SnapshotId 12+ ignorable tag 2  # not for consumers
                    end_offset: int64 0+ = -1
                    epoch: int32 0+ = -1
        node_endpoints: [NodeEndpoint] 16+ ignorable tag 0  # the next metadata response has them too
            node_id: int32
            host: string
            port: int32
            rack: string? = null
""")

# From version 2 on, which introduced the isolation level (KIP-98): before, the end of a read_committed range is wrong.
LIST_OFFSETS = message_type("""
    ListOffsets: key 2, versions 2-11, flexible 6+
    request
        replica_id: int32
        isolation_level: int8
        topics: [Topic]
            name: string
            partitions: [Partition]
                partition_index: int32
                current_leader_epoch: int32 4+ = -1 ignorable
                timestamp: int64
        timeout_ms: int32 10+ ignorable
    response
        throttle_time_ms: int32 ignorable
        topics: [Topic]
            name: string
            partitions: [Partition]
                partition_index: int32
                error_code: int16
                timestamp, offset: int64 = -1
                leader_epoch: int32 4+ = -1
""")

# Up to version 3: from 4 on a request has many keys (KIP-699), and its response has another shape.
FIND_COORDINATOR = message_type("""
    FindCoordinator: key 10, versions 1-3, flexible 3+
    request
        key: string
        key_type: int8
    response
        throttle_time_ms: int32 ignorable
        error_code: int16
        error_message: string? ignorable
        node_id: int32
        host: string
        port: int32
""")

# Up to version 7: from 8 on a request has many groups (KIP-709), and 10 has topic ids.
OFFSET_FETCH = message_type("""
    OffsetFetch: key 9, versions 2-7, flexible 6+
    request
        group_id: string
        topics: [Topic]?
            name: string
            partition_indexes: [int32]
        require_stable: bool 7+
    response
        throttle_time_ms: int32 3+ ignorable
        topics: [Topic]
            name: string
            partitions: [Partition]
                partition_index: int32
                committed_offset: int64
                committed_leader_epoch: int32 5-7 = -1 ignorable
                metadata: string?
                error_code: int16
        error_code: int16 ignorable
""")

# Up to version 9: 10 has topic ids.
OFFSET_COMMIT = message_type("""
    OffsetCommit: key 8, versions 2-9, flexible 8+
    request
        group_id: string
        generation_id_or_member_epoch: int32 = -1 ignorable
        member_id: string ignorable
        group_instance_id: string? 7+ = null
        retention_time_ms: int64 2-4 = -1 ignorable
        topics: [Topic]
            name: string ignorable
            partitions: [Partition]
                partition_index: int32
                committed_offset: int64
                committed_leader_epoch: int32 6+ = -1 ignorable
                committed_metadata: string?
    response
        throttle_time_ms: int32 3+ ignorable
        topics: [Topic]
            name: string ignorable
            partitions: [Partition]
                partition_index: int32
                error_code: int16
""")

# Version 1 only: after version 0, the mechanism's bytes follow without SaslAuthenticate requests around them.
SASL_HANDSHAKE = message_type("""
    SaslHandshake: key 17, versions 1, flexible none
    request
        mechanism: string
    response
        error_code: int16
        mechanisms: [string]
""")

SASL_AUTHENTICATE = message_type("""
    SaslAuthenticate: key 36, versions 0-2, flexible 2+
    request
        auth_bytes: bytes
    response
        error_code: int16
        error_message: string?
        auth_bytes: bytes
        session_lifetime_ms: int64 1+ ignorable
""")

API_VERSIONS = message_type("""
    ApiVersions: key 18, versions 0-5, flexible 3+
    request
        client_software_name, client_software_version: string 3+ ignorable
        cluster_id: string? 5+ = null ignorable  # that the client expects, with the node id (KIP-1242)
        node_id: int32 5+ = -1 ignorable
    response
        error_code: int16
        api_keys: [ApiVersion]
            api_key, min_version, max_version: int16
        throttle_time_ms: int32 1+ ignorable
        supported_features: [SupportedFeature] 3+ ignorable tag 0
            name: string
            min_version, max_version: int16
        finalized_features_epoch: int64 3+ = -1 ignorable tag 1
        finalized_features: [FinalizedFeature] 3+ ignorable tag 2
            name: string
            max_version_level, min_version_level: int16
        zk_migration_ready: bool 3+ ignorable tag 3
""")

# From version 4 on (Kafka 2.4), which introduced the cluster's default replication factor (KIP-464).
CREATE_TOPICS = message_type("""
    CreateTopics: key 19, versions 4-7, flexible 5+
    request
        topics: [Topic]
            name: string
            num_partitions: int32
            replication_factor: int16
            assignments: [Assignment]
                partition_index: int32
                broker_ids: [int32]
            configs: [Config]
                name: string
                value: string?
        timeout_ms: int32 = 60000
        validate_only: bool
    response
        throttle_time_ms: int32 ignorable
        topics: [Topic]
            name: string
            topic_id: uuid 7+ ignorable
            error_code: int16
            error_message: string? ignorable
            topic_config_error_code: int16 5+ ignorable tag 0
            num_partitions: int32 5+ = -1 ignorable
            replication_factor: int16 5+ = -1 ignorable
            configs: [Config]? 5+ ignorable
                name: string
                value: string?
                read_only: bool
                config_source: int8 = -1 ignorable
                is_sensitive: bool
""")

DESCRIBE_CONFIGS = message_type("""
    DescribeConfigs: key 32, versions 1-4, flexible 4+
    request
        resources: [Resource]
            resource_type: int8
            resource_name: string
            configuration_keys: [string]?
        include_synonyms: bool
        include_documentation: bool 3+
    response
        throttle_time_ms: int32
        results: [Result]
            error_code: int16
            error_message: string?
            resource_type: int8
            resource_name: string
            configs: [Config]
                name: string
                value: string?
                read_only: bool
                config_source: int8 = -1 ignorable
                is_sensitive: bool
                synonyms: [Synonym] ignorable
                    name: string
                    value: string?
                    source: int8
                config_type: int8 3+ ignorable
                documentation: string?0+ 3+ ignorable
""")

DESCRIBE_PRODUCERS = message_type("""
    DescribeProducers: key 61, versions 0, flexible 0+
    request
        topics: [TopicRequest]
            name: string
            partition_indexes: [int32]
    response
        throttle_time_ms: int32
        topics: [TopicResponse]
            name: string
            partitions: [PartitionResponse]
                partition_index: int32
                error_code: int16
                error_message: string? = null
                active_producers: [ProducerState]
                    producer_id: int64
                    producer_epoch: int32
                    last_sequence: int32 = -1
                    last_timestamp: int64 = -1
                    coordinator_epoch: int32
                    current_txn_start_offset: int64 = -1
""")

# From version 1 on, which Kafka 4 requires (KIP-896).
CREATE_DELEGATION_TOKEN = message_type("""
    CreateDelegationToken: key 38, versions 1-3, flexible 2+
    request
        owner_principal_type: string?3+ 3+ = null ignorable
        owner_principal_name: string?3+ 3+ = null ignorable
        renewers: [CreatableRenewers]
            principal_type: string
            principal_name: string
        max_lifetime_ms: int64
    response
        error_code: int16
        principal_type: string
        principal_name: string
        token_requester_principal_type: string 3+ ignorable
        token_requester_principal_name: string 3+ ignorable
        issue_timestamp_ms: int64
        expiry_timestamp_ms: int64
        max_timestamp_ms: int64
        token_id: string
        hmac: bytes
        throttle_time_ms: int32
""")

RENEW_DELEGATION_TOKEN = message_type("""
    RenewDelegationToken: key 39, versions 1-2, flexible 2+
    request
        hmac: bytes
        renew_period_ms: int64
    response
        error_code: int16
        expiry_timestamp_ms: int64
        throttle_time_ms: int32
""")

# Each broker answers it from the metadata that it has.
DESCRIBE_DELEGATION_TOKEN = message_type("""
    DescribeDelegationToken: key 41, versions 1-3, flexible 2+
    request
        owners: [DescribeDelegationTokenOwner]?
            principal_type: string
            principal_name: string
    response
        error_code: int16
        tokens: [DescribedDelegationToken]
            principal_type: string
            principal_name: string
            token_requester_principal_type: string 3+
            token_requester_principal_name: string 3+
            issue_timestamp, expiry_timestamp, max_timestamp: int64
            token_id: string
            hmac: bytes
            renewers: [DescribedDelegationTokenRenewer]
                principal_type: string
                principal_name: string
        throttle_time_ms: int32
""")
