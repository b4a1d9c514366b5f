"""Kafka's error codes: whether they are retriable, the exception and the advice for each.

Names, numbers and the retriable flag follow the Kafka protocol guide ("Error Codes";
``org.apache.kafka.common.protocol.Errors``). ``refresh_metadata`` corresponds to Java's ``InvalidMetadataException``:
the broker does not lead the partition, so the client must find the leader again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from pyspark_kafka_direct.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    CorruptRecordError,
    KafkaDirectError,
    ProducerFencedError,
    ProtocolError,
    TopicNotFoundError,
    TransientBrokerError,
    UnsupportedBrokerError,
    printable,
)
from pyspark_kafka_direct.planning.data_loss import CONFIRMATION_SECONDS


class ErrorCode(IntEnum):
    """Every error code up to Kafka 4.4."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


class ErrorCodeInfo(NamedTuple):
    code: int
    name: str
    retriable: bool  # whether the same request may succeed later
    refresh_metadata: bool  # whether a retry requires new metadata
    advice: str  # one sentence for the user, or empty


def error_code_info(code: int) -> ErrorCodeInfo:
    """Return the meaning of an error code; unknown codes are neither retriable nor refresh metadata."""
    try:
        error_code = ErrorCode(code)
    except ValueError:
        return ErrorCodeInfo(
            code,
            f"error code {code}",
            retriable=False,
            refresh_metadata=False,
            advice="The error code is unknown to this package.",
        )
    refresh_metadata = error_code in _INVALID_METADATA
    retriable = refresh_metadata or error_code in _RETRIABLE
    return ErrorCodeInfo(code, error_code.name, retriable, refresh_metadata, _ADVICE.get(error_code, ""))


def error_for(
    code: int,
    operation: str,
    *,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    broker: str | None = None,
    detail: str | None = None,  # the broker's own message
) -> KafkaDirectError:
    """Return the exception for an error code; ``operation`` is a phrase such as "fetching records"."""
    info = error_code_info(code)
    message = f"{info.name} while {operation}"
    if detail:
        message += f": {printable(detail)}"
    message += "."
    if info.advice:
        message += f" {info.advice}"
    error = _error_type(info)(message, topic=topic, partition=partition, offset=offset, broker=broker)
    if isinstance(error, BrokerError):
        error.error_code = code
        error.may_be_expired = code in _EXPIRED_PRODUCER
    if code in _LOSS_EVIDENCE:
        error.confirmation_seconds = CONFIRMATION_SECONDS
    return error


def _error_type(info: ErrorCodeInfo) -> type[KafkaDirectError]:
    if info.code in _EXCEPTIONS:
        return _EXCEPTIONS[info.code]
    if info.refresh_metadata:
        return BrokerUnreachableError
    return TransientBrokerError if info.retriable else ProtocolError


_INVALID_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REBOOTSTRAP_REQUIRED,  # not in Kafka's guide: Java's client retries it beside this table (KIP-1102)
    }
)

# The coordinator lacks the transactional id, or the leader of a partition the producer's sequence numbers.
_EXPIRED_PRODUCER = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID})

# A topic that was deleted or recreated, an offset that is not in the log, or the log of a leader that was deposed.
_LOSS_EVIDENCE = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)

_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

_EXCEPTIONS: dict[int, type[KafkaDirectError]] = {
    ErrorCode.CORRUPT_MESSAGE: CorruptRecordError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: TopicNotFoundError,
    ErrorCode.INVALID_TOPIC_EXCEPTION: TopicNotFoundError,
    ErrorCode.UNKNOWN_TOPIC_ID: TopicNotFoundError,
    ErrorCode.REQUEST_TIMED_OUT: BrokerTimeoutError,
    ErrorCode.OFFSET_NOT_AVAILABLE: BrokerUnreachableError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationError,
    ErrorCode.ILLEGAL_SASL_STATE: AuthenticationError,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedBrokerError,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: UnsupportedBrokerError,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: UnsupportedBrokerError,
    # The transactional id has a newer epoch or another producer id. The broker also bumps the epoch when it aborts a
    # transaction that exceeded its timeout.
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFencedError,
    ErrorCode.PRODUCER_FENCED: ProducerFencedError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ProducerFencedError,
    # The request is invalid in the transaction's state: it has to be aborted, and a new transaction may succeed.
    ErrorCode.INVALID_TXN_STATE: BrokerError,
    ErrorCode.TRANSACTION_ABORTABLE: BrokerError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: BrokerError,
    ErrorCode.UNKNOWN_PRODUCER_ID: BrokerError,
    # The coordinator cannot be reached either while it moves.
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: BrokerUnreachableError,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: BrokerUnreachableError,
    ErrorCode.NOT_COORDINATOR: BrokerUnreachableError,
}

_ADVICE: dict[int, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "Check the broker's log for the reason.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is before the log's start (retention) or beyond its end.",
    ErrorCode.CORRUPT_MESSAGE: "The broker found a wrong checksum in its own log; check the broker's disk and log.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Check the topic's name and the principal's DESCRIBE permission.",
    ErrorCode.LEADER_NOT_AVAILABLE: "A leader is being elected, or all replicas of the partition are down.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "The leader moved, and the new one was not found in time.",
    ErrorCode.REQUEST_TIMED_OUT: "A request inside the cluster timed out; check the broker's log for the reason.",
    ErrorCode.REPLICA_NOT_AVAILABLE: "The replica is being moved or is down.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "A topic name has 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than the topic's min.insync.replicas.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Fewer replicas are in sync than the topic's min.insync.replicas.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "Grant the principal READ, or WRITE for a sink, on the topic (both include DESCRIBE), or check the credentials."
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Grant the principal READ on the consumer group.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Grant the principal the operation on the cluster resource.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Grant the principal WRITE on the transactional id.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "Set kafka.sasl.mechanism to one that the listener supports.",
    ErrorCode.ILLEGAL_SASL_STATE: "The listener does not use SASL; set kafka.security.protocol to PLAINTEXT or SSL.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "Check the user name, password or token.",
    ErrorCode.UNSUPPORTED_VERSION: "The broker is too old, or too new, for this request.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        "The topic's message format is older than Kafka 0.10 and has no timestamps; read the topic by offsets."
    ),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "The broker cannot return zstd batches in this version of the request.",
    ErrorCode.INVALID_PRODUCER_EPOCH: (
        "Another producer has acquired the transactional id, or the broker aborted a transaction that was open longer "
        "than kafka.transaction.timeout.ms."
    ),
    ErrorCode.PRODUCER_FENCED: "Another producer has acquired the transactional id.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "The transactional id belongs to another producer, or was unused for longer than the brokers' "
        "transactional.id.expiration.ms, by default 7 days."
    ),
    ErrorCode.INVALID_TXN_STATE: "The broker or another producer ended the transaction.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "kafka.transaction.timeout.ms must not exceed the brokers' transaction.max.timeout.ms, by default 900000."
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: "An earlier transaction of the transactional id has not ended yet.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator has moved and is loading its state.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is moving or down, or its internal topic has no leader.",
    ErrorCode.NOT_COORDINATOR: "The coordinator moved, and the new one was not found in time.",
    ErrorCode.TRANSACTION_ABORTABLE: "The transaction can no longer be committed; a new one may succeed.",
    ErrorCode.KAFKA_STORAGE_ERROR: "A log directory of the broker failed; check the broker's disk and log.",
    ErrorCode.LISTENER_NOT_FOUND: "The leader has no listener with the name of the bootstrap server's listener.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader changed, and the new one was not found in time.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The broker does not have the newest leader epoch yet.",
    ErrorCode.OFFSET_NOT_AVAILABLE: "A newly elected leader has no end offset yet.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "A quota of the cluster is exceeded; retry later or raise the quota.",
    ErrorCode.UNKNOWN_TOPIC_ID: "The topic was deleted or recreated.",
    ErrorCode.INCONSISTENT_TOPIC_ID: "The topic was recreated.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "The known brokers now belong to another cluster.",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset is available in tiered storage only.",
}
