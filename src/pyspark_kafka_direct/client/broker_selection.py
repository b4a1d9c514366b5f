"""Selects a broker for requests that any broker can serve: the order, and the timeout of each.

A broker may be frozen: its process is stopped, or its host left the network. It accepts connections and requests but
does not respond, so waiting ``request.timeout.ms`` (30 s) for it would delay requests that other brokers could serve.
So each broker except the last gets a short timeout, longer in each round, and one that failed comes last next time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyspark_kafka_direct.errors import (
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ProtocolError,
    TransientBrokerError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_kafka_direct.client.connection import BrokerIdentity, Connection
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.options.settings import ConnectionSettings

    Address = tuple[str, int]

_T = TypeVar("_T")

# The first timeout, as a fraction of request.timeout.ms: 3 s by default. Brokers respond within milliseconds, during a
# long garbage collection within a second; if all are slower, the last one still gets its full time.
_FIRST_ATTEMPT_FRACTION = 0.1


def call_any_broker(
    pool: ConnectionPool,
    settings: ConnectionSettings,
    known_brokers: Mapping[Address, BrokerIdentity],
    call: Callable[[Connection, Deadline], _T],
    deadline: Deadline,
    *,
    any_broker: BrokerIdentity,  # of bootstrap servers
    tries: int = 1,  # attempts of the same request so far, including this one
    shift: int = 0,  # how many of the known brokers are moved to the end of the list
) -> _T:
    """Call brokers one after the other until one responds; raise ``BrokerError`` if none does."""
    addresses = order_brokers(known_brokers, settings.bootstrap_servers, pool.last_failure_time, pool.rotation, shift)
    failures: list[BrokerError] = []
    for index, (host, port) in enumerate(addresses):
        later_brokers = len(addresses) - index - 1
        limit = deadline.limited_to(
            broker_timeout(deadline.remaining(), later_brokers, attempt_timeout(settings, tries))
        )
        try:
            connection = pool.acquire(settings, host, port, limit, known_brokers.get((host, port), any_broker))
            try:
                return call(connection, limit)
            finally:
                pool.release(connection)
        except (TransientBrokerError, ProtocolError) as error:
            failures.append(error)
    raise no_broker_error(failures)


def order_brokers(
    known_addresses: Iterable[Address],
    bootstrap_addresses: Iterable[Address],
    last_failure_time: Callable[[Address], float],  # 0 if the address did not fail
    rotation: float,  # where to start among the known brokers, as a fraction of them
    shift: int = 0,
) -> list[Address]:
    """Return the order in which to call brokers: known ones, then bootstrap servers; recently failed ones last."""
    known = rotate(list(known_addresses), rotation, shift)
    return sorted(dict.fromkeys([*known, *bootstrap_addresses]), key=last_failure_time)


def rotate(brokers: list[_T], rotation: float, shift: int) -> list[_T]:
    """Return the list rotated by a fraction of its length and by ``shift``: processes begin with other brokers."""
    first = (int(rotation * len(brokers)) + shift) % max(len(brokers), 1)
    return [*brokers[first:], *brokers[:first]]


def broker_timeout(remaining_seconds: float, later_brokers: int, max_seconds: float) -> float:
    """Return the timeout for one broker, in seconds, so that time remains for the number of ``later_brokers``."""
    return min(remaining_seconds / (later_brokers + 1), max_seconds) if later_brokers else remaining_seconds


def attempt_timeout(settings: ConnectionSettings, tries: int) -> float:
    """Return the timeout of one attempt, in seconds, if the next one may reach another broker."""
    # request.timeout.ms also bounds the wait for any single response.
    return settings.request_timeout_ms / 1000 * _FIRST_ATTEMPT_FRACTION * 2.0 ** min(tries - 1, 16)


def no_broker_error(failures: Sequence[KafkaDirectError]) -> KafkaDirectError:
    """Return the error for a request that each broker failed to serve."""
    if len(failures) == 1:
        return failures[0]
    failure_list = "; ".join(f"{failure.broker}: {failure.message}" for failure in failures)
    if all(isinstance(failure, BrokerTimeoutError) for failure in failures):
        return BrokerTimeoutError(f"No broker responded in time. {failure_list}")
    if not any(isinstance(failure, TransientBrokerError) for failure in failures):
        return ProtocolError(f"No server responds as a broker. {failure_list}")  # a retry does not change that
    return BrokerUnreachableError(f"No broker could be reached. {failure_list}")
