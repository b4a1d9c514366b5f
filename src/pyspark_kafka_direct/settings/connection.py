"""What a connection to a broker needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark_kafka_direct.settings.security import PLAINTEXT, SecuritySettings


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Everything a connection needs to know. Hashable (it keys the connection pool) and picklable.

    All times are milliseconds, all sizes bytes; -1 as a buffer size leaves it to the operating system. Each field has
    the meaning and default of the client setting of that name.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "pyspark-kafka-direct"
    security: SecuritySettings = PLAINTEXT
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    client_rack: str = ""
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
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 4_194_304
    check_crcs: bool = True

    @property
    def bootstrap_text(self) -> str:
        """The bootstrap servers as they are written: ``host:port,[::1]:port``."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.bootstrap_servers
        )
