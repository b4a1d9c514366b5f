"""A connection of a pool for the length of a ``with`` block."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.pool import ConnectionPool


@contextmanager
def lend(
    pool: ConnectionPool, settings: ConnectionSettings, host: str, port: int, deadline: Deadline
) -> Iterator[Connection]:
    """Borrow a connection and give it back; an error in the block closes it."""
    connection = pool.borrow(settings, host, port, deadline)
    try:
        yield connection
    except BaseException:
        connection.close()
        pool.give_back(connection)
        raise
    pool.give_back(connection)
