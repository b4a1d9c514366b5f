"""Typed settings of connections, fetches and producers (frozen, hashable and picklable).

The fields are named after client settings and have their meanings. Times are in milliseconds, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pyspark_kafka_direct.config.security_settings import PLAINTEXT, SecuritySettings

IsolationLevel = Literal["read_uncommitted", "read_committed"]

ISOLATION_LEVEL_IDS: Final[dict[IsolationLevel, int]] = {"read_uncommitted": 0, "read_committed": 1}
"""Isolation levels in requests (protocol guide, Fetch and ListOffsets)."""

CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]

COMPRESSION_TYPE_IDS: Final[dict[CompressionType, int]] = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Compression types in the attributes of record batches (protocol guide, "Record Batch")."""


DEFAULT_MAX_RECORD_BATCH_BYTES: Final = 128 << 20
"""Of a decompressed record batch, and of a record: 128 times the default ``max.message.bytes`` of a topic."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How to fetch records."""

    isolation_level: IsolationLevel = "read_uncommitted"
    client_rack: str = ""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 4_194_304
    check_crcs: bool = True


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How to write records."""

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
    """How to connect to brokers and to retry requests; the key of connection pools.

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
class ReadConfig:
    """What is the same for all ranges of a query."""

    connection: ConnectionSettings
    fetch: FetchSettings
    poll_timeout: float = 120.0  # seconds without progress after which a read fails
    rack_environment_variable: str | None = None
    fail_on_data_loss: bool = True
    max_batch_bytes: int = DEFAULT_MAX_RECORD_BATCH_BYTES  # of a decompressed record batch, and of a record
