"""Finds the leaders of a tail's partitions, keeps a connection with each, and asks them for records.

A partition has no home while its leader is looked for: at the beginning, and after trouble. What takes long is an
errand; what comes of it is applied here, in the owner's thread, unless the owner has sought the partition meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import KafkaDirectError, TransientBrokerError
from pyspark_kafka_direct.reading._errands import ours
from pyspark_kafka_direct.reading._tail_link import TailLink
from pyspark_kafka_direct.reading._tail_verdicts import is_about, judge_topic
from pyspark_kafka_direct.wire._retry import DENIALS_TO_BELIEVE, Retry, growing
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for
from pyspark_kafka_direct.wire.system import jittered

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pyspark_kafka_direct.errors import TopicNotFoundError
    from pyspark_kafka_direct.reading._errands import Errands
    from pyspark_kafka_direct.reading._tail_partition import TailPartition
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.cluster import Cluster, Node, TopicMetadata
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.fetch import CurrentLeader


class Leaders:
    """The brokers that a tail reads from.

    Args:
        cluster: Knows the leaders, and connects with them.
        fetch: How to fetch.
        errands: Look for leaders, and connect with them, in threads of their own.
        partitions: The partitions of the tail.
        fail: Called with what does not pass by itself, and the partition, if it is about one.
    """

    def __init__(
        self,
        cluster: Cluster,
        fetch: FetchSettings,
        errands: Errands,
        partitions: Collection[TailPartition],
        fail: Callable[[TailPartition | None, KafkaDirectError], None],
    ) -> None:
        self._cluster = cluster
        self._system = cluster.pool.system
        self._fetch = fetch
        self._partitions = partitions
        self._fail = fail
        self._errands = errands
        # The same for all partitions: those that wait together are asked for together, not one long poll later.
        self._jitter = jittered(1.0, self._system)
        self._links: dict[Node, TailLink] = {}
        self._homes: dict[TailPartition, TailLink] = {}  # the broker that each is read from, unless it is looked for
        self._looking = False
        self._max_age = cluster.settings.metadata_max_age_ms / 1000
        self._refresh_at = self._system.monotonic() + self._max_age

    def answered(self) -> Iterator[TailLink]:
        """Yield the brokers whose answers can be taken now."""
        for link in list(self._links.values()):
            if link.idle or not link.can_take:
                continue
            try:
                whole = link.gather()
            except KafkaDirectError as error:
                self.lose(link, error)
                continue
            if whole:
                yield link

    def ask(self) -> None:
        """Send all requests that can be sent now, and start what must come before."""
        now = self._system.monotonic()
        self._look_up(now)
        self._refresh(now)
        for link in list(self._links.values()):
            if not link.idle or link.connecting or link.not_before > now:
                continue
            if not link.partitions:
                link.drop()
                del self._links[link.node]
                continue
            due = [each for each in link.partitions if not each.paused and each.not_before <= now]
            if not due:
                continue
            if link.was_closed:
                link.drop()
            if not link.connected:
                self._connect(link)
                continue
            try:
                link.ask(due)
            except KafkaDirectError as error:
                self.lose(link, error)

    def wait(self, until: float, wake: Collection[int]) -> None:
        """Wait until there is something to do, or a descriptor is readable."""
        now = self._system.monotonic()
        waiting = [link for link in self._links.values() if not link.idle]
        times = [until, *(link.answer_due for link in waiting)]
        times += [each.not_before for each in self._partitions if each.not_before > now and not each.paused]
        times += [link.not_before for link in self._links.values() if link.not_before > now]
        if not self._looking:  # else it waits for that look
            times.append(self._refresh_at)
        descriptors = [self._errands.fileno(), *wake, *(link.connection.fileno() for link in waiting)]
        self._system.wait_readable(descriptors, max(min(times) - now, 0.0))

    def delay(self, partition: TailPartition, error: KafkaDirectError | None = None) -> None:
        """Try a partition again after a pause, a longer one each time; the error is its trouble."""
        settings = self._cluster.settings
        longest = settings.retry_backoff_max_ms / 1000
        pause = growing(settings.retry_backoff_ms / 1000, partition.tries, longest) * self._jitter
        partition.tries += 1
        partition.not_before = self._system.monotonic() + pause
        if error is not None:
            partition.trouble = error

    def moved(self, partition: TailPartition, error: KafkaDirectError, told: CurrentLeader | None = None) -> None:
        """Believe no longer that a broker leads a partition, but that the one does that was told, if any (KIP-951)."""
        self.leave(partition)
        node = None if told is None else self._cluster.nodes.get(told.leader_id)
        if told is not None and node is not None and told.leader_epoch > partition.leader_epoch >= 0:
            partition.trouble = error
            self._assign(partition, node, told.leader_epoch)
        else:
            self.delay(partition, error)

    def lose(self, link: TailLink, error: KafkaDirectError) -> None:
        """Give a broker up; the leaders of its partitions are looked for again."""
        link.drop()
        self._links.pop(link.node, None)
        transient = isinstance(error, TransientBrokerError)
        for partition in link.partitions:
            del self._homes[partition]
            self.delay(partition, error if transient else None)
        link.partitions.clear()
        if not transient:
            self._fail(None, error)

    def leave(self, partition: TailPartition) -> None:
        """Take a partition from its broker; its leader is looked for again, once nothing else is asked about it."""
        link = self._homes.pop(partition, None)
        if link is not None:
            del link.partitions[partition]

    def place(self, partition: TailPartition, topic: TopicMetadata | None) -> None:
        """Give a partition to its leader."""
        denial = judge_topic(partition.name, partition.topic_id, topic)
        if denial is not None:
            self._after_denial(partition, denial)
            return
        assert topic is not None
        partition.denials = 0
        partition.topic_id = topic.topic_id
        metadata = topic.partitions[partition.name.partition]
        node = None if metadata.leader is None else self._cluster.nodes.get(metadata.leader)
        if node is None:
            name, number = partition.name
            code = ErrorCode.LEADER_NOT_AVAILABLE
            self.delay(partition, error_for(code, "looking for its leader", topic=name, partition=number))
        else:
            self._assign(partition, node, metadata.leader_epoch)

    def abandon(self) -> None:
        """Close a forked child's side of the connections."""
        for link in self._links.values():
            link.abandon()

    def close(self) -> None:
        """Give the connections back."""
        for link in self._links.values():
            link.drop()
        self._links.clear()

    def _assign(self, partition: TailPartition, node: Node, epoch: int) -> None:
        link = self._links.get(node)
        if link is None:
            link = self._links[node] = TailLink(self._cluster, node, self._fetch)
        link.partitions[partition] = None
        self._homes[partition] = link
        partition.leader_epoch = epoch
        partition.compare = True

    def _connect(self, link: TailLink) -> None:
        link.connecting = True
        deadline = self._cluster.deadline()

        def found(connection: Connection) -> None:
            link.connecting = False
            if self._links.get(link.node) is not link:
                self._cluster.give_back(connection)
                return
            try:
                link.use(connection)
            except KafkaDirectError as error:
                self._cluster.give_back(connection)
                self.lose(link, error)

        def failed(error: Exception) -> None:
            link.connecting = False
            self.lose(link, ours(error))

        self._errands.start(lambda: self._cluster.connect(link.node, deadline), found, failed, self._cluster.give_back)

    def _look_up(self, now: float) -> None:
        if self._looking:
            return
        due = [
            (each, each.version)
            for each in self._partitions
            if each not in self._homes and not each.asking and not each.paused and each.not_before <= now
        ]
        names = {each.name.topic for each, _ in due}
        if not names:
            return
        self._looking = True

        def found(topics: Mapping[str, TopicMetadata]) -> None:
            self._looking = False
            for partition, version in due:
                if partition.version == version and partition not in self._homes:
                    self.place(partition, topics.get(partition.name.topic))

        def failed(error: Exception) -> None:
            self._looking = False
            self._after_failed_look_up(ours(error), [each for each, version in due if each.version == version])

        self._errands.start(lambda: self._ask_topics(names), found, failed)

    def _refresh(self, now: float) -> None:
        """Look now and then whether others lead by now: one that was cut off may not know, and have nothing new."""
        if now < self._refresh_at or self._looking:
            return
        self._refresh_at = now + self._max_age
        led = dict(self._homes)
        names = {each.name.topic for each in led}
        if not names:
            return
        self._looking = True

        def found(topics: Mapping[str, TopicMetadata]) -> None:
            self._looking = False
            for partition, link in led.items():
                if link.leads(partition) and self._has_moved(partition, link, topics.get(partition.name.topic)):
                    self.leave(partition)

        def failed(error: Exception) -> None:
            self._looking = False
            ours(error)  # those that cannot be read on have trouble of their own

        self._errands.start(lambda: self._ask_topics(names), found, failed)

    def _has_moved(self, partition: TailPartition, link: TailLink, topic: TopicMetadata | None) -> bool:
        if topic is None or judge_topic(partition.name, partition.topic_id, topic) is not None:
            return True
        metadata = topic.partitions[partition.name.partition]
        return metadata.leader not in (None, link.node.id) and metadata.leader_epoch >= partition.leader_epoch

    def _ask_topics(self, names: Collection[str]) -> dict[str, TopicMetadata]:
        """Ask once; the pauses between tries are ours."""
        deadline = self._cluster.deadline()
        return self._cluster.topics(names, deadline=deadline, retry=Retry(deadline, 0, 0.0, 0.0))

    def _after_denial(self, partition: TailPartition, error: TopicNotFoundError) -> None:
        self._cluster.ask_another()
        partition.denials += 1
        if partition.denials < DENIALS_TO_BELIEVE:
            self.delay(partition, error)
            return
        partition.denials = 0
        partition.recreated_as = getattr(error, "topic_id", None)
        self._fail(partition, error)

    def _after_failed_look_up(self, error: KafkaDirectError, due: Collection[TailPartition]) -> None:
        # An error that names a topic is about that one: the others are due still, and looked up at once.
        concerned = [each for each in due if is_about(error, each.name)]
        transient = isinstance(error, TransientBrokerError)
        for partition in concerned:
            self.delay(partition, error if transient else None)
        if not transient:
            self._fail(concerned[0] if concerned and error.topic is not None else None, error)
