"""Asking a question that any broker can answer: whom first, for how long, and who is next.

One broker may be frozen: its process stopped, its machine gone from the network. It takes connections and requests and
answers none, so waiting out ``request.timeout.ms`` (30 s) on it would hold everything up while the others are well. So
each but the last gets a short time only, longer with each round, and one that failed comes last the next time.
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
    from collections.abc import Callable, Iterable

    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.pool import ConnectionPool

    Address = tuple[str, int]

_T = TypeVar("_T")

# The first patience with a broker, as a part of request.timeout.ms: 3 s by default. Brokers answer within milliseconds,
# with long pauses of their collector within a second; where all are slower, the last one gets its full time anyway.
_FIRST_PATIENCE = 0.1


def ask_any(
    pool: ConnectionPool,
    settings: ConnectionSettings,
    known: Iterable[Address],
    ask: Callable[[Connection, Deadline], _T],
    deadline: Deadline,
    *,
    tries: int = 1,
    turn: int = 0,
) -> _T:
    """Ask brokers one after the other until one answers.

    Args:
        pool: Has the connections.
        settings: How to reach them; its bootstrap servers are asked after the known brokers.
        known: Brokers that are known to be there.
        ask: Asks over one connection, within a deadline.
        deadline: End of the wait.
        tries: How often the same question was asked, this time included.
        turn: Which of the known brokers to begin with: another one for another number.

    Raises:
        BrokerError: None answered, or one did that nothing can be done about.
    """
    addresses = in_turn(known, settings.bootstrap_servers, pool.failed_at, pool.rotation, turn)
    failures: list[BrokerError] = []
    for index, (host, port) in enumerate(addresses):
        others = len(addresses) - index - 1
        limit = deadline.sooner(share(deadline.remaining(), others, patience(settings, tries)))
        try:
            connection = pool.borrow(settings, host, port, limit)
            try:
                return ask(connection, limit)
            finally:
                pool.give_back(connection)
        except (TransientBrokerError, ProtocolError) as error:
            failures.append(error)
    raise _unreachable(failures)


def in_turn(
    known: Iterable[Address],
    bootstrap: Iterable[Address],
    failed_at: Callable[[Address], float],
    rotation: float,
    turn: int = 0,
) -> list[Address]:
    """Return brokers in the order to ask them: the known ones, then the bootstrap servers; those that failed last.

    Args:
        known: Addresses of known brokers.
        bootstrap: Addresses of the bootstrap servers.
        failed_at: When an address failed, 0 if it did not: of those that failed, the first to fail is asked first.
        rotation: Where to begin among the known ones, as a part of them.
        turn: How many places further on.
    """
    nodes = list(known)
    first = (int(rotation * len(nodes)) + turn) % max(len(nodes), 1)
    return sorted(dict.fromkeys([*nodes[first:], *nodes[:first], *bootstrap]), key=failed_at)


def share(left: float, others: int, longest: float) -> float:
    """Return how long to wait for one of several brokers, in seconds.

    Args:
        left: Seconds until the deadline.
        others: How many brokers can be asked after this one; the last one gets all that is left.
        longest: The most for one that is not the last.
    """
    return min(left / (others + 1), longest) if others else left


def patience(settings: ConnectionSettings, tries: int) -> float:
    """Return how long to wait for an answer, in seconds, where asking again may lead to another broker.

    Args:
        settings: Whose ``request.timeout.ms`` it begins as a part of; that also bounds the wait for any one answer.
        tries: How often the same was asked, this time included: the time doubles with each.
    """
    return settings.request_timeout_ms / 1000 * _FIRST_PATIENCE * 2.0 ** min(tries - 1, 16)


def _unreachable(failures: list[BrokerError]) -> BrokerError:
    if len(failures) == 1:
        return failures[0]
    tried = "; ".join(f"{failure.broker}: {failure.message}" for failure in failures)
    if all(isinstance(failure, BrokerTimeoutError) for failure in failures):
        return BrokerTimeoutError(f"No broker answered in time. {tried}")
    return BrokerUnreachableError(f"No broker could be reached. {tried}")
