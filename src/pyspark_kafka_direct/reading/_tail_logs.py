"""Asks the leaders of a tail's partitions about their logs, as errands: why an offset was refused, what is a hole."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import ProtocolError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST
from pyspark_kafka_direct.planning.loss import LogState
from pyspark_kafka_direct.reading._errands import ours
from pyspark_kafka_direct.reading._replica import EARLIEST_LOCAL
from pyspark_kafka_direct.reading._tail_partition import UNKNOWN_EPOCH
from pyspark_kafka_direct.reading._tail_verdicts import judge_refusal, judge_topic
from pyspark_kafka_direct.wire._retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.reading._errands import Errands
    from pyspark_kafka_direct.reading._tail_leaders import Leaders
    from pyspark_kafka_direct.reading._tail_partition import TailPartition
    from pyspark_kafka_direct.wire.cluster import Cluster, TopicMetadata

# How often in a row a leader of before Kafka 2.2 must say that its log ends before the position (as with ranges: right
# after its election it says so even of a log that has the records).
_SHORT_ENDS_TO_BELIEVE = 5

# How often in a row the leader must refuse an offset that its log has, before the epoch of what was read is no longer
# named (as with ranges: a broker whose record of epochs is lost refuses so for ever).
_REFUSALS_OF_EPOCH = 5


class _Refused(NamedTuple):
    partition: TailPartition
    version: int
    error: KafkaDirectError
    end_may_lag: bool


class _Told(NamedTuple):
    topics: dict[str, TopicMetadata]
    logs: dict[TopicPartition, LogState]


class Logs:
    """Asks what the logs of partitions hold.

    Args:
        cluster: Knows the leaders.
        errands: Ask in threads of their own.
        leaders: Gets partitions back, to be read on.
        fail: Called with what is lost.
    """

    def __init__(
        self,
        cluster: Cluster,
        errands: Errands,
        leaders: Leaders,
        fail: Callable[[TailPartition, KafkaDirectError], None],
    ) -> None:
        self._cluster = cluster
        self._errands = errands
        self._leaders = leaders
        self._fail = fail
        self._waiting: list[_Refused] = []
        self._asking = False

    def after_refusal(self, partition: TailPartition, error: KafkaDirectError, *, end_may_lag: bool) -> None:
        """Ask the leader, looked up anew, which offsets its log has, as it refused ours.

        Args:
            partition: The partition.
            error: What the leader said.
            end_may_lag: Whether a leader of this age tells too low an end right after it was elected.
        """
        self._leaders.leave(partition)
        partition.trouble = error
        partition.asking = True
        self._waiting.append(_Refused(partition, partition.version, error, end_may_lag))

    def ask(self) -> None:
        """Start what waits to be asked; partitions that are refused together are asked about together."""
        if self._asking or not self._waiting:
            return
        refused, self._waiting = self._waiting, []
        self._asking = True

        def found(told: _Told) -> None:
            self._asking = False
            for each in refused:
                if each.partition.version == each.version:
                    each.partition.asking = False
                    self._decide(each, told)

        def failed(error: Exception) -> None:
            self._asking = False
            trouble = ours(error)
            for each in refused:
                if each.partition.version == each.version:
                    each.partition.asking = False
                    self._leaders.delay(each.partition, trouble)

        self._errands.start(lambda: self._look(refused), found, failed)

    def after_silence(self, partition: TailPartition, error: KafkaDirectError, believe: Callable[[], None]) -> None:
        """Have a hole believed, unless the leader has yet to bring the records from tiered storage (KIP-405).

        Args:
            partition: Where the leader sends nothing, although its log goes on.
            error: Says so.
            believe: Called if nothing is to come.
        """
        version, position = partition.version, partition.fetch_from
        self._leaders.leave(partition)
        partition.trouble = error
        partition.asking = True

        def found(local_start: int) -> None:
            if partition.version == version:
                partition.asking = False
                if position < local_start:
                    self._leaders.delay(partition, error)
                else:
                    believe()

        def failed(trouble: Exception) -> None:
            if partition.version == version:
                partition.asking = False
                self._leaders.delay(partition, ours(trouble))

        self._errands.start(lambda: self._local_start(partition.name), found, failed)

    def _look(self, refused: Sequence[_Refused]) -> _Told:
        deadline = self._cluster.deadline()
        names = {each.partition.name.topic for each in refused}
        topics = self._cluster.topics(names, deadline=deadline, retry=Retry(deadline, 0, 0.0, 0.0))
        there = [
            each.partition.name
            for each in refused
            if judge_topic(each.partition.name, each.partition.topic_id, topics.get(each.partition.name.topic)) is None
        ]
        # Uncommitted, so that the end of the log is the high watermark: an open transaction is no loss.
        starts = self._cluster.offsets(dict.fromkeys(there, EARLIEST), deadline=deadline)
        ends = self._cluster.offsets(dict.fromkeys(there, LATEST), deadline=deadline)
        return _Told(topics, {name: LogState(starts[name], ends[name]) for name in there})

    def _decide(self, refused: _Refused, told: _Told) -> None:
        partition = refused.partition
        log = told.logs.get(partition.name)
        if log is None:
            self._leaders.place(partition, told.topics.get(partition.name.topic))
            return
        position = partition.fetch_from
        if position > log.end and refused.end_may_lag and partition.short_ends < _SHORT_ENDS_TO_BELIEVE:
            partition.short_ends += 1
            self._leaders.delay(partition, refused.error)
            return
        verdict = judge_refusal(partition.name, position, log, confirmed=partition.confirmed)
        if verdict is not None:
            self._fail(partition, verdict)
            return
        partition.refusals += 1
        if partition.refusals >= _REFUSALS_OF_EPOCH:
            partition.last_epoch = UNKNOWN_EPOCH
        self._leaders.delay(partition, refused.error)

    def _local_start(self, name: TopicPartition) -> int:
        try:
            return self._cluster.offsets({name: EARLIEST_LOCAL}, deadline=self._cluster.deadline())[name]
        except (ProtocolError, UnsupportedBrokerError):
            return 0  # no such storage, or none that it tells of
