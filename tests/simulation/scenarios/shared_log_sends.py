"""A record that a shared log was asked to send, and what its callback got."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tests.simulation.scenarios.shared_log_checks import Sent, TopicTruth
    from tests.simulation.scenarios.shared_log_session import LogSession

    from pyspark_kafka_direct.producer.async_producer import RecordMetadata


class Send:
    """A record that was sent, and what its callback got."""

    def __init__(self, member: LogSession, record: Sent) -> None:
        self._member = member
        self.record = record
        self.sent_at = member.environment.world.now
        self._positions = member.view.positions()  # when it was sent
        self.calls = 0
        self.metadata: RecordMetadata | None = None
        self.error: BaseException | None = None

    @property
    def shows_truncation(self) -> bool:
        """Whether it was written where its log had read another record."""
        partition = TopicPartition(self._member.topic, -1 if self.metadata is None else self.metadata.partition)
        return self.metadata is not None and self.metadata.offset < self._positions.get(partition, 0)

    def on_future(self, future: Future[RecordMetadata]) -> None:
        error = future.exception()
        self.on_done(None if error is not None else future.result(), error)

    def on_done(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        self.calls += 1
        self.metadata, self.error = metadata, error

    def check_outcome(self, truth: TopicTruth) -> None:
        value = self.record.value
        violations = self._member.view.violations
        if self.metadata is not None and not truth.was_appended(self.metadata.partition, self.metadata.offset, value):
            violations.append(f"a record was acknowledged that is not at its offset: {self.metadata}")
        if self.metadata is not None and not truth.was_recreated:
            newest = truth.environment.oracle.truth((truth.topic, self.metadata.partition)).epoch()
            if self.metadata.leader_epoch > newest:
                violations.append(f"a record was acknowledged with an epoch after {newest}: {self.metadata}")
        written = None
        if self.metadata is not None and value is not None:
            written = truth.environment.oracle.attributes.get((truth.topic, self.metadata.partition, value))
        if self.metadata is not None and written is not None:
            found = (self.record.key, self.metadata.timestamp, self.metadata.topic)
            if found != (written.key, written.timestamp, truth.topic):
                violations.append(f"the metadata of a record is {self.metadata}, and it was written with {written}")
        # A late Produce request, which has no topic id before version 13, writes to a topic that was recreated.
        is_same_topic = truth.exists and truth.created_at <= self.sent_at
        if value is not None and is_same_topic and (count := truth.count_in_log(value)) > 1:
            violations.append(f"a record was written {count} times")
        if value is not None and "were not written" in str(self.error) and truth.exists and truth.count_in_log(value):
            violations.append(f"a record was written, and the error is: {self.error!r}")
