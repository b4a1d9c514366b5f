"""Typed settings (frozen and picklable). Tasks unpickle some of them, so this module imports little.

The fields are named after the options and have their meanings. Times are in milliseconds, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.security_settings import PLAINTEXT, SecuritySettings

if TYPE_CHECKING:
    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.options.offset_specs import OffsetSpec, StartingOffsetSpec
    from pyspark_kafka_direct.options.payload_settings import PayloadSettings
    from pyspark_kafka_direct.options.sink_payloads import SinkPayloads
    from pyspark_kafka_direct.options.subscription import SubscriptionStrategy

IsolationLevel = Literal["read_uncommitted", "read_committed"]

ISOLATION_LEVEL_IDS: Final[dict[IsolationLevel, int]] = {"read_uncommitted": 0, "read_committed": 1}
"""Isolation levels in requests (protocol guide, Fetch and ListOffsets)."""

DeliveryGuarantee = Literal["at-least-once", "exactly-once"]

CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]

COMPRESSION_TYPE_IDS: Final[dict[CompressionType, int]] = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Compression types in the attributes of record batches (protocol guide, "Record Batch")."""


DEFAULT_MAX_RECORD_BATCH_BYTES: Final = 128 << 20
"""Of a decompressed record batch, and of a record: 128 times the default ``max.message.bytes`` of a topic."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Settings of the fetches of tasks, and the rule for lost records."""

    isolation_level: IsolationLevel = "read_uncommitted"
    client_rack: str = ""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 4_194_304
    check_crcs: bool = True
    max_record_batch_bytes: int = DEFAULT_MAX_RECORD_BATCH_BYTES  # of a decompressed record batch, and of a record
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000  # without progress, after which a read fails
    rack_environment_variable: str | None = None  # of the executor; its value takes precedence over client_rack

    @property
    def read_committed(self) -> bool:
        """Whether end offsets are last stable offsets."""
        return self.isolation_level == "read_committed"


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of a producer."""

    acks: Literal[-1, 0, 1] = -1  # -1: all in-sync replicas, 1: the leader, 0: none
    idempotent: bool = True  # requires acks=-1 (enable.idempotence)
    codec: CompressionType = "none"  # compression.type
    level: int | None = None  # compression.<codec>.level; None: the default of the codec
    batch_bytes: int = 524_288  # batch.size: approximate, before compression
    max_request_bytes: int = 1_048_576  # max.request.size: of a request and of a record
    buffer_bytes: int = 33_554_432  # buffer.memory: of records in open and in unacknowledged batches
    max_in_flight: int = 5  # max.in.flight.requests.per.connection
    delivery_timeout_ms: int = 120_000
    ignore_keys: bool = False  # partitioner.ignore.keys


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Settings of connections to brokers and of retries; the key of connection pools.

    Settings that can differ between users of one connection, such as the isolation level, do not belong here.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "pyspark-kafka-direct"
    security: SecuritySettings = PLAINTEXT
    address_family: Literal["any", "v4", "v6"] = "any"
    connect_timeout_ms: int = 10_000
    connect_timeout_max_ms: int = 30_000
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    connections_max_idle_ms: int = 540_000
    metadata_max_age_ms: int = 300_000
    metadata_cluster_check_enable: bool = True
    receive_buffer_bytes: int = -1  # -1: the operating system chooses it
    send_buffer_bytes: int = -1

    @property
    def bootstrap_string(self) -> str:
        """The bootstrap servers in the format of the option: ``host:port,[::1]:port``."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.bootstrap_servers
        )


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits on micro-batches that the options set; ``None`` is no limit."""

    max_offsets: int | None = None  # maxOffsetsPerTrigger
    min_offsets: int | None = None  # minOffsetsPerTrigger
    max_delay: float = 900.0  # maxTriggerDelay in seconds: how long min_offsets may delay a batch
    max_bytes: int | None = None  # maxBytesPerTrigger

    @property
    def active(self) -> bool:
        """Whether any limit is set."""
        return self.max_offsets is not None or self.min_offsets is not None or self.max_bytes is not None


@dataclass(frozen=True, slots=True)
class PIDGains:
    """The settings of the controller."""

    proportional: float = 1.0  # weight of the difference between the last and the measured rate
    integral: float = 0.2  # weight of the records that accumulated while batches waited
    derived: float = 0.0  # weight of the change of the difference
    min_rate: float = 100.0  # records per second

    def __post_init__(self) -> None:
        for name in ("proportional", "integral", "derived"):
            if not getattr(self, name) >= 0:
                raise OptionError(f"the {name} term of backpressure must not be negative, got {getattr(self, name)}")
        if not self.min_rate > 0:
            raise OptionError(f"the minimum rate of backpressure must be above 0, got {self.min_rate}")


@dataclass(frozen=True, slots=True)
class BackpressureOptions:
    """The options of backpressure."""

    gains: PIDGains
    initial_rate: float | None = None  # records per second before the first measured rate; None is no limit


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """The selection and the planning of what a query reads."""

    selection: SubscriptionStrategy
    start: StartingOffsetSpec  # of a batch, or of a new stream or continuous query
    end: OffsetSpec | None = None  # of a batch; None: the latest offsets
    offset_ranges: tuple[OffsetRange, ...] | None = None  # replace `start` and `end`
    include_headers: bool = False
    push_down_filters: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    limits: ReadLimits = ReadLimits()
    backpressure: BackpressureOptions | None = None
    commit_group_id: str | None = None  # the group to commit completed batches or epochs for
    start_group_id: str | None = None  # the group of `startingOffsets=committed`
    offset_fetch_attempts: int | None = None  # None: until the API timeout
    offset_fetch_retry_interval_ms: int | None = None  # None: grows exponentially

    @property
    def confirmations(self) -> int:
        """The number of responses that confirm that a partition or its records are missing."""
        return self.offset_fetch_attempts or 3


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of a query that reads, from the parser to the planner; tasks receive the first two."""

    connection: ConnectionSettings
    fetch: FetchSettings
    source: SourceSettings
    payloads: PayloadSettings
    warnings: tuple[str, ...] = ()  # to log once


@dataclass(frozen=True, kw_only=True)
class WriteSettings:
    """The settings of a query that writes."""

    connection: ConnectionSettings
    produce: ProducerSettings
    payloads: SinkPayloads
    delivery_guarantee: DeliveryGuarantee
    sink_state_topic: str
    staging_threshold: int  # maximum bytes of a task that are sent through the driver
    transaction_timeout_ms: int
    stamp_batch: bool
    topic: str | None = None  # None: the column `topic` names it
    transactional_id_prefix: str | None = None  # not None with exactly-once
    reset_transaction_state: str | None = None  # the token of an error to override
    job_id: str | None = None
    staging_location: str | None = field(default=None, repr=False)  # its URI may contain secrets
    warnings: tuple[str, ...] = ()  # to log once
