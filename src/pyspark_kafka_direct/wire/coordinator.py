"""The coordinator of a key: the broker that looks after one consumer group, or one transactional id.

It moves as leaders do, and one that has just taken over may still be loading. So it is looked for when it is first
needed, and again after any trouble with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from pyspark_kafka_direct.errors import TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.wire._any_broker import patience
from pyspark_kafka_direct.wire._retry import DENIALS_TO_BELIEVE, Retry
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for, lookup
from pyspark_kafka_direct.wire.messages import FIND_COORDINATOR
from pyspark_kafka_direct.wire.metadata import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline

_T = TypeVar("_T")

Kind: TypeAlias = Literal["group", "transaction"]

_KEY_TYPES: Final[dict[Kind, int]] = {"group": 0, "transaction": 1}

# The coordinator is the right one and will answer differently in a moment.
_STAYS: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
_SHORT_PAUSE = 0.01


class Brokers(Protocol):
    """The cluster that has the coordinator; ``Cluster`` is it."""

    settings: ConnectionSettings

    @property
    def nodes(self) -> Mapping[int, Node]:
        """The brokers that are known; none before the cluster was reached."""

    def deadline(self) -> Deadline:
        """Return the end of a wait of ``default.api.timeout.ms`` that begins now."""

    def topics(self, names: Collection[str], *, deadline: Deadline | None = None) -> Mapping[str, Any]:
        """Ask about topics; gives a cluster up soon that was never reached."""

    def reach(self, *, deadline: Deadline | None = None) -> None:
        """Ask who the brokers are; gives a cluster up soon that was never reached."""

    def ask_any(self, ask: Callable[[Connection, Deadline], _T], deadline: Deadline, tries: int = 1) -> _T:
        """Ask one broker after the other until one answers."""

    def connect(self, node: Node, deadline: Deadline) -> Connection:
        """Borrow a connection to a broker."""

    def give_back(self, connection: Connection) -> None:
        """Take a borrowed connection back."""


class TryAgain(Exception):  # noqa: N818 (the coordinator catches it; never seen outside)
    """An answer that another try, at the coordinator of the moment, may change; not itself an error of ours.

    Attributes:
        error: What to raise when there is no other try.
        stays: Whether the coordinator is the right one, and only needs a moment.
    """

    def __init__(self, error: KafkaDirectError, *, stays: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.stays = stays


def check(code: int, doing: str, broker: str, partition: TopicPartition | None = None) -> None:
    """Judge an error code in a coordinator's answer.

    Args:
        code: The code.
        doing: What went on, for errors.
        broker: Who answered.
        partition: Which partition it is about, if one.

    Raises:
        TryAgain: The code passes.
        KafkaDirectError: It does not.
    """
    if code == ErrorCode.NONE:
        return
    topic, number = (None, None) if partition is None else partition
    error = error_for(code, doing, broker=broker, topic=topic, partition=number)
    if lookup(code).retriable:
        raise TryAgain(error, stays=code in _STAYS)
    raise error


class Coordinator:
    """Asks the coordinator of one key; for several threads.

    Every question is asked again, at the coordinator of the moment, until ``default.api.timeout.ms`` has passed or its
    own deadline. The first tries are short, as a coordinator that does not answer may be replaced by another broker.

    Args:
        cluster: The cluster.
        kind: What the key names.
        key: The group's name, or the transactional id.
    """

    def __init__(self, cluster: Brokers, kind: Kind, key: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self._key = key
        self._node: Node | None = None

    def ask(
        self,
        ask: Callable[[Connection, Deadline], _T],
        topics: Collection[str],
        deadline: Deadline | None = None,
    ) -> _T:
        """Ask a question until there is an answer.

        Args:
            ask: Asks over one connection, within a deadline; raises ``TryAgain`` as ``check`` does.
            topics: What the question is about, if topics. A cluster that was never reached is asked for these first,
                or else for its brokers: it is given up soon.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            KafkaDirectError: What ``ask`` raised, or the last trouble when time was up.
        """
        settings = self._cluster.settings
        deadline = deadline or self._cluster.deadline()
        retry = Retry(deadline, None, settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)
        moment = Retry(deadline, None, _SHORT_PAUSE, settings.retry_backoff_ms / 1000)
        denials = 0
        if self._node is None and not self._cluster.nodes:
            if topics:
                self._cluster.topics(topics, deadline=deadline)
            else:
                self._cluster.reach(deadline=deadline)
        while True:
            try:
                return self._ask_once(ask, deadline, retry.tries)
            except TryAgain as again:
                if again.stays:
                    moment.after(again.error)
                    continue
                denials = denials + 1 if isinstance(again.error, TopicNotFoundError) else 0
                if denials >= DENIALS_TO_BELIEVE:
                    raise again.error from None
                self._node = None
                retry.after(again.error)
            except TransientBrokerError as error:
                self._node = None
                retry.after(error)

    def _ask_once(self, ask: Callable[[Connection, Deadline], _T], deadline: Deadline, tries: int) -> _T:
        node = self._node  # another thread may give it up meanwhile
        if node is None:
            node = self._node = self._find(deadline, tries)
        limit = deadline.sooner(patience(self._cluster.settings, tries))
        connection = self._cluster.connect(node, limit)
        try:
            return ask(connection, limit)
        finally:
            self._cluster.give_back(connection)

    def _find(self, deadline: Deadline, tries: int) -> Node:
        wanted = {"key": self._key, "key_type": _KEY_TYPES[self._kind]}

        def ask(connection: Connection, limit: Deadline) -> tuple[Any, str]:
            return connection.call(FIND_COORDINATOR, wanted, limit), connection.broker

        response, broker = self._cluster.ask_any(ask, deadline, tries)
        check(response.error_code, f"looking for the coordinator of the {self._kind} {self._key!r}", broker)
        return Node(response.node_id, response.host, response.port)
