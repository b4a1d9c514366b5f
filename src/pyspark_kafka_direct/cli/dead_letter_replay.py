"""``kafka-direct dlq replay``: writes dead letters to their topics again, each once, and continues after a kill.

Each transaction contains some dead letters, and the offsets behind them as offsets of a consumer group. The
transactional id follows from the group and the topic, so a second replay at the same time fences the first one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from pyspark_kafka_direct.arrow.reader import read_arrow
from pyspark_kafka_direct.cli.dead_letter import COLUMNS, read_letters
from pyspark_kafka_direct.cli.main import FOUND_PROBLEM
from pyspark_kafka_direct.cli.output import print_rows, to_stderr
from pyspark_kafka_direct.cli.slice_arguments import open_slice, parse_bounds
from pyspark_kafka_direct.client.admin import describe_topic_config
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup, list_group_ids
from pyspark_kafka_direct.errors import KafkaDirectError, OptionError, TopicNotFoundError, printable
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.hints import did_you_mean, listed
from pyspark_kafka_direct.options.sink_options import parse_write_arguments
from pyspark_kafka_direct.options.subscription import is_legal_topic
from pyspark_kafka_direct.payloads.write_rows import HEADERS
from pyspark_kafka_direct.producer.row_writer import RowWriter, with_half_buffer
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from pyspark_kafka_direct.cli.dead_letter import DeadLetter
    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.options.settings import WriteSettings

_COLUMNS: Final = ("target", "letters", "partitions", "first", "last")
_TRANSACTION_BYTES: Final = 16 << 20  # about; they are in memory
_KEPT_BYTES: Final = 16 << 20  # of dead letters that are not read again to be written
_LETTER_BYTES: Final = 1_000  # about, of a dead letter in memory without its key, value and headers
_ABORT_SECONDS: Final = 30.0
_MAX_GROUPS: Final = 200  # of a cluster, whose offsets are requested one after the other
_READ_OPTIONS: Final = ("isolation.level", "failOnDataLoss")


def replay(arguments: argparse.Namespace, settings: Mapping[str, str]) -> int:
    """Show what a replay writes, and write it with ``--execute``; return the exit code."""
    if arguments.to == arguments.topic:
        raise OptionError(f"--to {arguments.to}: this is the topic of the dead letters; choose another one")
    written = {name: value for name, value in settings.items() if name not in _READ_OPTIONS}
    write_settings = parse_write_arguments(written, None, in_transaction=True)
    cluster = ClusterClient(write_settings.connection)
    replayed = _Replay(
        cluster,
        settings,
        topic=arguments.topic,
        topic_id=_topic_id(cluster, arguments.topic),
        group=ConsumerGroup(cluster, arguments.group or f"kafka-direct-replay.{arguments.topic}"),
        to=arguments.to,
        max_attempts=arguments.max_attempts,
    )
    survey = replayed.survey(replayed.plan(arguments.offset), arguments.num)
    rows = [target.row(name) for name, target in sorted(survey.targets.items())]
    print_rows(rows, _COLUMNS, as_json=arguments.json, if_none="There are no dead letters to replay.")
    for note in survey.notes(arguments.max_attempts):
        to_stderr(note)
    if survey.problems:
        for problem in survey.problems:
            to_stderr(problem)
        to_stderr("Nothing was written.")
        return FOUND_PROBLEM
    if survey.is_empty:
        return 0
    if not arguments.execute:
        to_stderr("Nothing was written. Add --execute to write them.")
    else:
        sent = replayed.execute(write_settings, survey, arguments.transaction_size)
        to_stderr(f"{sent} dead letters were written.")
    return FOUND_PROBLEM if survey.capped else 0


@dataclass
class _Target:
    """The dead letters for one topic."""

    letters: int = 0
    partitions: set[int] = field(default_factory=set)  # of the topic of dead letters
    first: str = ""
    last: str = ""

    def add(self, letter: DeadLetter) -> None:
        self.letters += 1
        self.partitions.add(letter.partition)
        self.first = self.first or letter.place
        self.last = letter.place

    def row(self, name: str) -> dict[str, object]:
        return {
            "target": name,
            "letters": self.letters,
            "partitions": len(self.partitions),
            "first": self.first,
            "last": self.last,
        }


@dataclass
class _Survey:
    """The dead letters of a replay before anything is written, because each of them may be a reason against it."""

    ranges: Sequence[OffsetRange]
    letters: list[DeadLetter] | None = field(default_factory=list)  # None: too large to keep, so they are read again
    targets: dict[str, _Target] = field(default_factory=dict)
    capped: int = 0  # were replayed too often before
    broker_times: int = 0  # the original time was replaced by that of a broker
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    _left: int = field(default_factory=lambda: _KEPT_BYTES, init=False)

    def keep(self, letter: DeadLetter) -> None:
        """Keep a dead letter for ``execute`` while all of them fit into the memory for it."""
        self._left -= letter.size + _LETTER_BYTES
        if self._left < 0:
            self.letters = None
        elif self.letters is not None:
            self.letters.append(letter)

    @property
    def is_empty(self) -> bool:
        return not self.targets and not self.capped

    def notes(self, max_attempts: int) -> Iterator[str]:
        if self.capped:
            yield (
                f"{self.capped} dead letters were replayed {max_attempts} times before. With --execute, they are "
                "skipped, also by later replays of this group; see dlq show, and raise --max-attempts to write them"
            )
        if self.broker_times:
            yield (
                f"{self.broker_times} dead letters have the time at which they were written "
                "(message.timestamp.type=LogAppendTime of their topic), not that of the original record"
            )
        yield from self.warnings


class _Transaction(NamedTuple):
    letters: list[DeadLetter]
    progress: dict[TopicPartition, int]  # the next offsets to read


class _Replay:
    def __init__(
        self,
        cluster: ClusterClient,
        settings: Mapping[str, str],  # for reading
        *,
        topic: str,
        topic_id: UUID | None,
        group: ConsumerGroup,
        to: str | None,
        max_attempts: int,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._topic = topic
        self._topic_id = topic_id
        self._group = group
        self._to = to
        self._max_attempts = max_attempts
        self._starts: dict[TopicPartition, int] = {}  # of partitions without progress

    def plan(self, offset: str | None) -> list[OffsetRange]:
        """Return the ranges to replay: from the progress, or else from the given position on."""
        bounds = parse_bounds(offset or "start")
        found = open_slice([self._topic], self._settings, bounds, columns=("offset",))
        # The transaction of a replay that was killed is open until `execute` ends it: this does not wait for it.
        progress = self._progress([each.topic_partition for each in found.ranges], require_stable=False)
        if progress and offset is not None:
            raise OptionError(
                f"-o: the group {self._group.group_id} has the progress of an earlier replay, which continues without "
                "-o; choose another group with --group to replay dead letters again"
            )
        self._starts = {tp: each.from_offset for each in found.ranges if (tp := each.topic_partition) not in progress}
        return _behind(found.ranges, progress)

    def survey(self, ranges: Sequence[OffsetRange], limit: int | None) -> _Survey:
        """Read the first dead letters, and return what would be written and what cannot be written."""
        survey = _Survey(ranges)
        without_topic: list[DeadLetter] = []
        ends: dict[TopicPartition, int] = {}
        for letter in self._read(ranges, limit):
            ends[_partition_of(letter)] = letter.offset + 1
            survey.keep(letter)
            target = self._target(letter)
            if self._is_capped(letter):
                survey.capped += 1
            elif target is None:
                without_topic.append(letter)
            else:
                survey.targets.setdefault(target, _Target()).add(letter)
                survey.broker_times += letter.has_broker_time
        if limit is not None:
            survey.ranges = [
                replace(each, until_offset=ends[each.topic_partition])
                for each in ranges
                if each.topic_partition in ends
            ]
        if without_topic:
            survey.problems.append(
                f"{len(without_topic)} dead letters do not name their topic, the first one at "
                f"{without_topic[0].place}: set --to TOPIC"
            )
        self._check_targets(survey)
        survey.warnings += self._other_groups(survey.targets)
        return survey

    def execute(self, settings: WriteSettings, survey: _Survey, size: int) -> int:
        """Write the dead letters in transactions; return how many."""
        transactional_id = f"{self._group.group_id}.{self._topic}"
        ranges = survey.ranges
        sent = 0
        with TransactionalProducer(
            self._cluster, transactional_id, settings.transaction_timeout_ms, with_half_buffer(settings.produce)
        ) as producer:
            producer.init_transactions()
            # A replay that was running until now may have written some of them.
            progress = self._progress([*{each.topic_partition for each in ranges} | self._starts.keys()])
            left = _behind(ranges, progress)
            # The first transaction records the start of each partition, from which a later replay without -o continues.
            starts = {tp: start for tp, start in self._starts.items() if tp not in progress}
            partitions: dict[str, int] = {}  # their number, by topic
            try:
                for transaction in self._transactions(left, survey.letters, size):
                    writer = RowWriter(self._cluster, settings.produce, producer.send)
                    if transaction.letters:
                        writer.write(self._rows(transaction.letters, partitions))
                    writer.flush()
                    producer.flush()
                    done = {**starts, **transaction.progress}
                    starts = {}
                    producer.send_offsets_to_transaction(self._group, self._with_topic_id(done))
                    producer.commit()
                    sent += len(transaction.letters)
            except BaseException:
                with suppress(KafkaDirectError):
                    producer.abort(self._cluster.deadline(_ABORT_SECONDS))
                raise
        return sent

    def _progress(
        self, partitions: Sequence[TopicPartition], *, require_stable: bool = True
    ) -> dict[TopicPartition, int]:
        """Return the next offsets of the group, without those of a topic that was recreated since."""
        committed = self._group.committed_with_metadata(partitions, require_stable=require_stable)
        ids = ("", str(self._topic_id))
        return {tp: each.offset for tp, each in committed.items() if each.metadata in ids}

    def _with_topic_id(self, progress: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommittedOffset]:
        metadata = "" if self._topic_id is None else str(self._topic_id)
        return {tp: CommittedOffset(offset, metadata) for tp, offset in progress.items()}

    def _read(self, ranges: Sequence[OffsetRange], limit: int | None = None) -> Iterator[DeadLetter]:
        if not ranges:
            return
        letters = read_arrow(ranges, self._settings, columns=COLUMNS, limit=limit)
        yield from read_letters(letters)
        for loss in letters.losses:
            to_stderr(f"{loss.topic}-{loss.partition}: {loss.offsets} offsets were skipped ({loss.cause})")

    def _transactions(
        self, ranges: Sequence[OffsetRange], kept: Sequence[DeadLetter] | None, size: int
    ) -> Iterator[_Transaction]:
        """Yield the dead letters in groups, each with the next offsets to read; the last one has the ends."""
        letters = self._read(ranges) if kept is None else _within(kept, ranges)
        while chunk := _chunk(letters, size):
            progress = {}
            for letter in chunk:
                progress[_partition_of(letter)] = letter.offset + 1
            yield _Transaction([letter for letter in chunk if not self._is_capped(letter)], progress)
        if ranges:
            yield _Transaction([], {each.topic_partition: each.until_offset for each in ranges})

    def _target(self, letter: DeadLetter) -> str | None:
        return self._to or letter.original_topic or None

    def _is_capped(self, letter: DeadLetter) -> bool:
        return letter.replays >= self._max_attempts

    def _check_targets(self, survey: _Survey) -> None:
        """Add what is wrong with the topics to write to."""
        legal = [name for name in survey.targets if is_legal_topic(name)]
        existing = self._cluster.topics(legal) if legal else {}
        for name in sorted(survey.targets):
            if name not in legal:
                first = survey.targets[name].first
                survey.problems.append(
                    f"the dead letter {first} names a topic that cannot exist, {printable(name, 100)!r}: set --to TOPIC"
                )
            elif name in existing and existing[name].internal:
                survey.problems.append(f"{name} is an internal topic of Kafka: set --to TOPIC")
            elif name == self._topic:
                survey.problems.append(f"{name} is the topic of the dead letters itself: set --to TOPIC")
            elif name not in existing:
                hint = did_you_mean(name, self._cluster.all_topics())
                survey.problems.append(f"the topic {name} does not exist: create it, or set --to TOPIC{hint}")
            elif self._has_broker_times(name):
                survey.warnings.append(
                    f"{name} has message.timestamp.type=LogAppendTime: the records get the time of the replay"
                )

    def _other_groups(self, targets: Collection[str]) -> Iterator[str]:
        """Yield a warning for each topic with consumer groups, which read the records again, and some for good."""
        deadline = self._cluster.deadline()
        readers: dict[str, list[str]] = {}
        try:
            for group in list_group_ids(self._cluster, deadline)[:_MAX_GROUPS] if targets else ():
                committed = ConsumerGroup(self._cluster, group).committed_with_metadata(
                    require_stable=False, deadline=deadline
                )
                for topic in {tp.topic for tp in committed}:
                    readers.setdefault(topic, []).append(group)
        except KafkaDirectError as error:
            yield f"The consumer groups of the topics are unknown: {error}"
        for topic in sorted(targets):
            if topic in readers:
                yield f"{topic} is also read by {listed(readers[topic])}: these consumer groups get the records, too"

    def _has_broker_times(self, topic: str) -> bool:
        setting = "message.timestamp.type"
        try:
            return describe_topic_config(self._cluster, topic, [setting]).get(setting) == "LogAppendTime"
        except KafkaDirectError:  # for example, the principal may not describe it
            return False

    def _rows(self, letters: Sequence[DeadLetter], partitions: dict[str, int]) -> pa.RecordBatch:
        """Return the rows for the producer. To its topic, a record goes in its partition, otherwise by its key."""
        targets = [self._target(letter) or "" for letter in letters]
        for name in {*targets} - partitions.keys():
            metadata = self._cluster.topics([name]).get(name)
            if metadata is None:
                raise TopicNotFoundError(
                    f"the topic {name} was deleted during the replay: create it, and start the replay again"
                )
            partitions[name] = len(metadata.partitions)
        chosen = [
            _original_partition(letter, name, partitions[name]) for letter, name in zip(letters, targets, strict=True)
        ]
        now_ms = int(self._cluster.pool.system.wall_time() * 1000)
        times = [now_ms if letter.timestamp_ms is None else letter.timestamp_ms for letter in letters]
        return pa.RecordBatch.from_pydict(
            {
                "topic": pa.array(targets, pa.string()),
                "key": pa.array([letter.key for letter in letters], pa.binary()),
                "value": pa.array([letter.value for letter in letters], pa.binary()),
                "headers": _header_column([letter.replayed_headers() for letter in letters]),
                "partition": pa.array(chosen, pa.int32()),
                "timestamp": pa.array(times, pa.int64()),
            }
        )


def _chunk(letters: Iterator[DeadLetter], size: int) -> list[DeadLetter]:
    """Return the next dead letters, fewer than ``size`` if they are large."""
    chunk, left = [], _TRANSACTION_BYTES
    for letter in islice(letters, size):
        chunk.append(letter)
        left -= letter.size
        if left <= 0:
            break
    return chunk


def _topic_id(cluster: ClusterClient, topic: str) -> UUID | None:
    found = cluster.topics([topic]).get(topic)
    return None if found is None else found.topic_id  # without it, reading raises the error


def _partition_of(letter: DeadLetter) -> TopicPartition:
    return TopicPartition(letter.topic, letter.partition)


def _original_partition(letter: DeadLetter, target: str, partitions: int) -> int | None:
    """Return the partition of the original record, if the dead letter returns to its topic."""
    partition = letter.original_partition
    is_known = target == letter.original_topic and partition is not None and 0 <= partition < partitions
    return partition if is_known else None


def _behind(ranges: Iterable[OffsetRange], progress: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Return the parts of the ranges that are not done."""
    starts = [(each, max(each.from_offset, progress.get(each.topic_partition, 0))) for each in ranges]
    return [replace(each, from_offset=start) for each, start in starts if start < each.until_offset]


def _within(letters: Iterable[DeadLetter], ranges: Iterable[OffsetRange]) -> Iterator[DeadLetter]:
    """Yield the dead letters from the starts of the ranges on, which end where the dead letters do."""
    starts = {each.topic_partition: each.from_offset for each in ranges}
    for letter in letters:
        start = starts.get(_partition_of(letter))
        if start is not None and letter.offset >= start:
            yield letter


def _header_column(lists: Sequence[Sequence[tuple[bytes, bytes | None]]]) -> pa.ListArray:
    """Return headers as the encoder takes them; the bytes of names are kept, also if they are not UTF-8."""
    ends = [0]
    for headers in lists:
        ends.append(ends[-1] + len(headers))
    pairs = [pair for headers in lists for pair in headers]
    names = pa.array([name for name, _ in pairs], pa.binary()).view(pa.string())
    values = pa.array([value for _, value in pairs], pa.binary())
    fields = list(HEADERS.value_type)
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), pa.StructArray.from_arrays([names, values], fields=fields)
    )
