"""A pooled connection, acquired for a ``with`` block."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.options.settings import ConnectionSettings


@contextmanager
def pooled_connection(
    pool: ConnectionPool, settings: ConnectionSettings, host: str, port: int, deadline: Deadline
) -> Iterator[Connection]:
    """Acquire a connection and release it; an error in the block closes it."""
    connection = pool.acquire(settings, host, port, deadline)
    try:
        yield connection
    except BaseException:
        connection.close()
        pool.release(connection)
        raise
    pool.release(connection)
