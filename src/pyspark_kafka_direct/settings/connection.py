"""What a connection to a broker needs to know, and asking over it again. It imports nothing but its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark_kafka_direct.settings.security import PLAINTEXT, SecuritySettings


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Everything a connection and its retries need to know. Hashable (it keys the connection pool) and picklable.

    What differs between uses of one connection, such as the isolation level, has no place here: uses that differ in
    nothing else share connections.

    All times are milliseconds, all sizes bytes; -1 as a buffer size leaves it to the operating system. Each field has
    the meaning and default of the client setting of that name.
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
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1

    @property
    def bootstrap_text(self) -> str:
        """The bootstrap servers as they are written: ``host:port,[::1]:port``."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.bootstrap_servers
        )
