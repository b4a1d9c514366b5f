"""What a shared log has delivered, and what it must have delivered when a read to its end completes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.errors import ViolationError
from tests.simulation.oracle import READ_COMMITTED, READ_UNCOMMITTED
from tests.simulation.record_attributes import RecordAttributes

from pyspark_kafka_direct.errors import KafkaDirectError, TopicRecreatedError, TruncatedError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.simulation.environment import Environment
    from tests.simulation.oracle import Entry, PartitionTruth

    from pyspark_kafka_direct.log import LogRecord
    from pyspark_kafka_direct.options.settings import IsolationLevel

_FAR = 1 << 62


class Sent(NamedTuple):
    """A record that a log has sent."""

    key: bytes | None
    value: bytes | None


class VisibleEnds(NamedTuple):
    """The records of a topic that were acknowledged at a time: those before an offset of each partition."""

    at: float
    generation: int
    ends: Mapping[int, int]


class TopicTruth:
    """What the oracle says about a topic, as a log with an isolation level has to see it."""

    def __init__(
        self, environment: Environment, topic: str, isolation: IsolationLevel, *, only_even: bool = False
    ) -> None:
        self.environment = environment
        self.topic = topic
        self.isolation = READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED
        self._only_even = only_even

    def reads(self, partition: int) -> bool:
        """Return whether the log reads a partition."""
        return not (self._only_even and partition % 2)

    @property
    def now(self) -> float:
        return self.environment.world.now

    @property
    def exists(self) -> bool:
        return self.topic in self.environment.cluster.topics

    @property
    def was_recreated(self) -> bool:
        return self.environment.oracle.generations.get(self.topic, 0) > 1

    @property
    def detects_truncations(self) -> bool:
        return self.environment.cluster.settings.leader_epochs and self.environment.cluster.settings.topic_ids

    @property
    def may_have_lost_records(self) -> bool:
        """Whether the topic was recreated or truncated, which a log notices with a delay."""
        generation = self.environment.oracle.generations[self.topic]
        return self.was_recreated or any(len(truth.epochs) > 1 for _, truth in self.partitions(generation))

    @property
    def was_changed(self) -> bool:
        """Whether acknowledged records were lost with a leader or with the topic, or keys are in other partitions."""
        return (
            not self.exists
            or self.was_recreated
            or self.partition_count > self.environment.plan.parameters["partitions"]
            or any(truth.truncations() for _, truth in self.partitions(self.generation))
        )

    def committed(self) -> Iterator[tuple[int, Entry, float]]:
        """Return the committed records of the newest log in order, with their partitions and times of commit."""
        for index, truth in self.partitions(self.generation):
            path = truth.path(truth.epoch())
            markers: dict[int, Entry] = {}  # the next one of each producer
            found: list[tuple[int, Entry, float]] = []
            for entry in reversed(path):
                if entry.commit is not None:
                    markers[entry.producer_id] = entry
                elif not entry.is_transactional:
                    found.append((index, entry, entry.appended_at))
                elif (marker := markers.get(entry.producer_id)) is not None and marker.commit:
                    found.append((index, entry, marker.appended_at))
            yield from reversed(found)

    def visible_ends(self) -> VisibleEnds:
        if not self.exists:
            return VisibleEnds(self.now, 0, {})
        generation = self.environment.oracle.generations[self.topic]
        ends = {index: _acknowledged_end(truth) for index, truth in self.partitions(generation)}
        return VisibleEnds(self.now, generation, ends)

    def visible_ends_at(self, at: float) -> VisibleEnds:
        """Return what a client could have read at an earlier time; only for a log that has lost no records."""
        ends = {index: truth.end_offset(self.isolation, at) for index, truth in self.partitions(self.generation)}
        return VisibleEnds(at, self.generation, ends)

    @property
    def created_at(self) -> float:
        return self.environment.oracle.created_at[self.topic, self.generation]

    @property
    def generation(self) -> int:
        return self.environment.oracle.generations[self.topic]

    @property
    def partition_count(self) -> int:
        return sum(1 for _ in self.partitions(self.generation))

    @property
    def highest_partition_count(self) -> int:
        return max(sum(1 for _ in self.partitions(each)) for each in range(1, self.generation + 1))

    def partitions(self, generation: int) -> Iterator[tuple[int, PartitionTruth]]:
        truths = self.environment.oracle.truths
        index = 0
        while (self.topic, generation, index) in truths:
            if self.reads(index):
                yield index, truths[self.topic, generation, index]
            index += 1

    def required(self, visible: VisibleEnds) -> Iterator[tuple[int, Entry]]:
        """Return the records that were visible then and that no event has removed since."""
        for index, truth in self._comparable(visible):
            end = visible.ends.get(index, 0)
            for lost in truth.truncations():
                if lost.at >= visible.at:
                    end = min(end, lost.first)
            for entry in truth.records(0, end, self.isolation, self.now):
                if entry.appended_at <= visible.at:
                    yield index, entry

    def undecided(self, visible: VisibleEnds) -> Iterator[tuple[int, int]]:
        """Return the offsets that were visible then whose transactions are still open."""
        for index, truth in self._comparable(visible):
            start = truth.log_start()
            if truth.truncations():
                continue
            for offset, outcome in truth.outcomes(truth.epoch()).items():
                if outcome is None and start <= offset < visible.ends.get(index, 0):
                    yield index, offset

    def _comparable(self, visible: VisibleEnds) -> Iterator[tuple[int, PartitionTruth]]:
        """Return the partitions whose leaders every client has found since."""
        if not self.exists or self.environment.oracle.generations[self.topic] != visible.generation:
            return
        # Without leader epochs no client can see that a leader was deposed.
        has_epochs = self.environment.cluster.settings.leader_epochs
        if not has_epochs and self.environment.oracle.was_deposed(self.topic, visible.at, self.now):
            return
        for index, truth in self.partitions(visible.generation):
            if not self._is_leader_hidden(index):
                yield index, truth

    def _is_leader_hidden(self, index: int) -> bool:
        """Return whether a deposed leader that is cut off reports that the broker of the leader is down."""
        cluster = self.environment.cluster
        target = cluster.partition((self.topic, index))
        images = [broker.image for broker in cluster.brokers.values()]
        return target is not None and any(
            image.version < cluster.image.version and target.leader not in image.live_brokers for image in images
        )

    def was_appended(self, partition: int, offset: int, value: bytes | None) -> bool:
        """Whether a partition of any generation ever had this value at an offset."""
        for generation in range(1, self.environment.oracle.generations[self.topic] + 1):
            truth = self.environment.oracle.truths.get((self.topic, generation, partition))
            for batches in () if truth is None else truth.batches.values():
                for batch, _ in batches:
                    if batch.base_offset <= offset <= batch.last_offset and offset in batch.offsets:
                        index = batch.offsets.index(offset)
                        if batch.values[index] == value and batch.commit is None:
                            return True
        return False

    def was_committed(self, partition: int, offset: int, value: bytes | None) -> bool:
        """Whether some log of the partition had this value as a committed record."""
        for generation in range(1, self.environment.oracle.generations[self.topic] + 1):
            truth = self.environment.oracle.truths.get((self.topic, generation, partition))
            for started in () if truth is None else truth.epochs:
                assert truth is not None
                entry = _entry_at(truth, started.epoch, offset)
                if (
                    entry is not None
                    and entry.value == value
                    and (not entry.is_transactional or truth.outcomes(started.epoch).get(offset))
                ):
                    return True
        return False

    def count_in_log(self, value: bytes) -> int:
        """Return how many records of the newest log have a value."""
        generation = self.environment.oracle.generations[self.topic]
        return sum(
            entry.value == value
            for _, truth in self.partitions(generation)
            for entry in truth.path(truth.epoch())
            if entry.commit is None
        )

    def is_in_several_partitions(self, key: bytes) -> bool:
        found = 0
        for _, truth in self.partitions(self.environment.oracle.generations[self.topic]):
            found += any(entry.key == key for entry in truth.path(truth.epoch()))
        return found > 1


class View:
    """What one log passed to its callbacks; violations are collected, because callbacks must not raise them."""

    def __init__(self, truth: TopicTruth) -> None:
        self.truth = truth
        self.opened_at = truth.now
        self.positions: Callable[[], Mapping[TopicPartition, int]] = dict  # of the log
        self.delivered: dict[int, dict[int, bytes | None]] = {}  # by partition and offset, since the last reset
        self.violations: list[str] = []
        self.reset_at = self.opened_at
        self.resets = 0
        self._truncated: set[int] = set()  # partitions whose truncation was reported
        self._truncated_at: dict[int, float] = {}  # when that was, by partition
        self._next: dict[int, int] = {}
        self._all: dict[tuple[int, int, bytes | None], LogRecord] = {}
        self.errors: list[KafkaDirectError] = []  # that on_error got
        self._changes: dict[bytes, list[bytes]] = {}  # the values of a table that were reported, by key
        self.reported: dict[bytes, bytes] = {}  # the table by its reports

    def change(self, key: bytes, value: bytes | None) -> None:
        if self.reported.get(key) == value:
            self.violations.append(f"a change of {key!r} is reported, and its value was {value!r} before")
        if value is None:
            self.reported.pop(key, None)
        else:
            self._changes.setdefault(key, []).append(value)
            self.reported[key] = value

    def deliver(self, record: LogRecord) -> None:
        partition, offset = record.partition, record.offset
        if offset < self._next.get(partition, 0):
            self.violations.append(
                f"a record is delivered twice or out of order: offset {offset} of partition {partition} "
                f"after {self._next[partition] - 1}"
            )
        self._next[partition] = offset + 1
        self.delivered.setdefault(partition, {})[offset] = record.value
        self._all[partition, offset, record.value] = record

    def reset(self, error: KafkaDirectError, *, reread: bool) -> None:
        self.reset_at = self.truth.now
        self.resets += 1
        self._check_reset(error)
        if reread or not isinstance(error, TruncatedError):
            self._truncated.clear()
            self._next.clear()
            self.delivered.clear()
            return
        assert error.partition is not None
        self._truncated.add(error.partition)
        self._truncated_at[error.partition] = self.truth.now
        first = 0 if error.truncated_to is None else error.truncated_to
        self._next[error.partition] = first
        kept = self.delivered.get(error.partition, {})
        self.delivered[error.partition] = {offset: value for offset, value in kept.items() if offset < first}

    def is_reported(self, error: TruncatedError, since: float) -> bool:
        """Return whether the only truncation of a partition was reported before a time; no broker has the old log."""
        reported_at = self._truncated_at.get(-1 if error.partition is None else error.partition, _FAR)
        if reported_at >= since or not self.truth.detects_truncations or self.truth.was_recreated:
            return False
        truth = self.truth.environment.oracle.truth((self.truth.topic, error.partition or 0))
        return len(truth.epochs) == 2 and truth.served_until(truth.epochs[-1].epoch) < reported_at

    def check_complete(self, visible: VisibleEnds) -> None:
        """Check that everything that was visible before a read to the end has been delivered."""
        for index, entry in self.truth.required(visible):
            value = self.delivered.get(index, {}).get(entry.offset, b"missing")
            if (
                value != entry.value
                and not self.may_be_replaced(index, entry.offset)
                and not self._was_aborted(index, entry)
            ):
                self.violations.append(
                    f"read_to_end completed early: offset {entry.offset} of partition "
                    f"{index} was visible {self.truth.now - visible.at:.3f} s before, and {value!r} was delivered"
                )
                return
        if self.truth.isolation == READ_COMMITTED:
            self._check_decided(visible)

    def _check_decided(self, visible: VisibleEnds) -> None:
        for index, offset in self.truth.undecided(visible):
            if self.may_be_replaced(index, offset):
                continue
            self.violations.append(
                f"read_to_end completed early: the transaction of offset {offset} of partition {index} is open"
            )
            return

    def may_be_replaced(self, partition: int, offset: int) -> bool:
        """Whether a truncation that the log cannot know of, or has not noticed, put another record there."""
        detects = self.truth.detects_truncations
        if not detects and self.truth.was_recreated:
            return True
        truth = self.truth.environment.oracle.truth((self.truth.topic, partition))
        if not detects:
            # The deposed leader, until it stops serving, passes its old records also to logs that are opened later.
            return any(
                truth.served_until(lost.epoch) >= self.opened_at and lost.first <= offset
                for lost in truth.truncations()
            )
        return any(
            lost.at >= self.opened_at and lost.first <= offset and self._position(partition) > offset
            for lost in truth.truncations()
        )

    def check_delivered(self) -> None:
        """Check that everything that was ever delivered was a record of the topic, and committed if it has to be."""
        for (partition, offset, value), record in self._all.items():
            self._check_attributes(record)
            if not self.truth.was_appended(partition, offset, value):
                self.violations.append(
                    f"a record is delivered that never was: {value!r} at offset {offset} of partition {partition}"
                )
            elif self.truth.isolation == READ_COMMITTED and not self.truth.was_committed(partition, offset, value):
                self.violations.append(
                    f"a record is delivered that was not committed: offset {offset} of partition {partition}"
                )

        if self._changes and not self.truth.was_changed:
            self._check_changes()

    def _check_attributes(self, record: LogRecord) -> None:
        """Check that a record has the key, the timestamp and the headers with which it was written."""
        written = None
        if record.value:  # several tables write an empty one
            attributes = self.truth.environment.oracle.attributes
            written = attributes.get((self.truth.topic, record.partition, record.value))
        headers = tuple((name.encode(), content) for name, content in record.headers)
        found = RecordAttributes(record.key, record.timestamp, headers)
        if record.topic != self.truth.topic or (written is not None and found != written):
            self.violations.append(f"a record is delivered as {record}, and was written with {written}")

    def _check_changes(self) -> None:
        """Check that no key of a table ever got an earlier value."""
        offsets: dict[tuple[bytes | None, bytes | None], int] = {}
        for _, truth in self.truth.partitions(self.truth.generation):
            offsets |= {(each.key, each.value): each.offset for each in truth.path(truth.epoch())}
        for key, values in self._changes.items():
            found = [offsets.get((key, value), -1) for value in values]
            if found != sorted(found):
                self.violations.append(f"a table went backward: {key!r} had the values {values} of offsets {found}")

    def differences(self, visible: VisibleEnds) -> list[str]:
        """Return what the log lacks of the topic, and what it has although it was truncated."""
        found: list[str] = []
        generation = self.truth.environment.oracle.generations[self.truth.topic]
        for index, truth in self.truth.partitions(generation):
            delivered = self.delivered.get(index, {})
            if not self.truth.detects_truncations and (self.truth.was_recreated or truth.truncations()):
                continue
            for entry in truth.records(0, visible.ends.get(index, 0), self.truth.isolation, self.truth.now):
                if delivered.get(entry.offset, b"missing") != entry.value and not self._was_aborted(index, entry):
                    found.append(
                        f"a record is missing at the end: offset {entry.offset} of partition {index}, "
                        f"{delivered.get(entry.offset)!r} instead of {entry.value!r}"
                    )
                    break
            path = {entry.offset: entry.value for entry in truth.path(truth.epoch())}
            # If a log that replaced the delivered records expired beyond them, a reader sees only that records expired.
            first = 0 if index in self._truncated else truth.log_start()
            for offset, value in delivered.items():
                if offset >= first and (offset not in path or path[offset] != value):
                    found.append(f"a record that was lost was not taken back: offset {offset} of partition {index}")
                    break
        return found

    def _was_aborted(self, partition: int, entry: Entry) -> bool:
        """Return whether a record that was not delivered was aborted in the log of an earlier leader.

        A fetch response names aborted transactions whose marker lies further on. If an unclean election loses the
        marker before it is read, nothing that was read is lost: a reader cannot know that the transaction ends
        otherwise.
        """
        if self.truth.isolation != READ_COMMITTED or entry.offset in self.delivered.get(partition, {}):
            return False
        truth = self.truth.environment.oracle.truth((self.truth.topic, partition))
        return any(truth.outcomes(each.epoch).get(entry.offset) is False for each in truth.epochs[:-1])

    def _position(self, partition: int) -> int:
        return self.positions().get(TopicPartition(self.truth.topic, partition), 0)

    def _check_reset(self, error: KafkaDirectError) -> None:
        oracle = self.truth.environment.oracle
        if isinstance(error, TopicRecreatedError):
            if not self.truth.was_recreated:
                self.violations.append(f"the topic was not recreated, but on_reset is called: {error!r}")
        elif not self.truth.was_recreated and error.partition is not None:
            truncations = oracle.truth((self.truth.topic, error.partition)).truncations()
            if not truncations and not self._has_lost_unacknowledged(error.partition):
                self.violations.append(f"nothing was truncated, but on_reset is called: {error!r}")

    def _has_lost_unacknowledged(self, partition: int) -> bool:
        truth = self.truth.environment.oracle.truth((self.truth.topic, partition))
        return any(truth.path_end(each.parent) > each.start for each in truth.epochs if each.parent >= 0)


def find_missing_keys(
    values: Mapping[bytes, bytes], view: View, visible: VisibleEnds, *, cause: str = "read_to_end completed early"
) -> list[str]:
    """Return for which key a table does not have the newest value that was visible, or a later one."""
    newest: dict[bytes, tuple[int, Entry]] = {}
    for index, entry in view.truth.required(visible):
        if entry.key is not None:
            newest[entry.key] = (index, entry)
    # The topic got partitions before the table was opened. Which record is the newest is unknown, and the table warns.
    newest = {key: found for key, found in newest.items() if not view.truth.is_in_several_partitions(key)}
    for key, (index, entry) in newest.items():
        found = values.get(key)
        if found == entry.value or view.may_be_replaced(index, entry.offset):
            continue
        truth = view.truth.environment.oracle.truth((view.truth.topic, index))
        later = [
            each.value
            for started in truth.epochs
            for each in truth.path(started.epoch)
            if each.key == key and each.offset > entry.offset
        ]
        if found not in later:
            message = f"the table has {found!r} for {key!r}, not {entry.value!r} of"
            return [f"{cause}: {message} offset {entry.offset} of partition {index}"]
    return []


def find_lost_keys(values: Mapping[bytes, bytes], view: View) -> list[str]:
    """Return which value of a table is not in the newest log."""
    truth = view.truth
    existing = {
        (entry.key, entry.value) for _, each in truth.partitions(truth.generation) for entry in each.path(each.epoch())
    }
    for key, value in values.items():
        if (key, value) not in existing:
            return [f"a record that was lost was not taken back: the table has {value!r} for {key!r}"]
    return []


def raise_first(violations: list[str]) -> None:
    if violations:
        raise ViolationError(violations[0])


def _acknowledged_end(truth: PartitionTruth) -> int:
    """Return the offset before which all records of the newest log were visible at some time."""
    # The scenario appends without requests, also in an epoch that no replica knows yet. No client could do that: a
    # broker acknowledges nothing before it knows that it leads.
    known = max((epoch for applied in truth.applied.values() for _, epoch in applied), default=-1)
    starts = {each.epoch: each for each in truth.epochs}
    epoch, end = truth.epoch(), 0
    # Until a replica knows the newest epoch, clients read an earlier log, which may lack records of the newest one.
    known_epoch = max((each for each in starts if each <= known), default=-1)
    limit = _FAR if epoch <= known else truth.common_end(epoch, known_epoch)
    while epoch in starts:
        if epoch <= known:
            end = max(end, min(truth.visible.get(epoch, 0), limit))
        limit = min(limit, starts[epoch].start)
        epoch = starts[epoch].parent
    return end


def _entry_at(truth: PartitionTruth, epoch: int, offset: int) -> Entry | None:
    return next((each for each in truth.path(epoch) if each.offset == offset and each.commit is None), None)
