"""The state of a table: its contents, the contents that are loaded aside, and changes that are not reported yet."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import IllegalLogStateError
from pyspark_kafka_direct.records.columns import binary_values

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from pyspark_kafka_direct.log.log_topic import LogTopic
    from pyspark_kafka_direct.offsets import TopicPartition

_log = logging.getLogger("pyspark_kafka_direct.log")


class TableContents:
    """The value of each key. One thread applies records, others read without a lock.

    A lock would be held in a forked child if the parent's thread held it at the fork. Each step replaces one dictionary
    or changes it in one call, which the interpreter does at once.
    """

    def __init__(self) -> None:
        self._by_partition: dict[int, dict[bytes, bytes]] = {}
        self._all: tuple[dict[bytes, bytes], ...] = ()

    def find(self, key: object) -> bytes | None:
        """Return the value of a key; ``None`` if the table does not have it."""
        for values in self._all:
            value = values.get(key)  # type: ignore[call-overload]
            if value is not None:
                return value  # type: ignore[no-any-return]
        return None

    def __len__(self) -> int:
        return sum(map(len, self._all))

    def copy(self) -> dict[bytes, bytes]:
        """Return all keys and values."""
        contents: dict[bytes, bytes] = {}
        for values in self._all:
            contents.update(values)
        return contents

    def changed_keys(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> list[bytes]:
        """Return the keys whose values records would change."""
        latest = dict(zip(binary_values(keys), binary_values(values), strict=True))
        return [key for key, value in latest.items() if key is not None and self.find(key) != value]

    def apply(self, partition: int, keys: pa.BinaryArray, values: pa.BinaryArray) -> bytes | None:
        """Apply records of a partition; return a key that another partition has, too."""
        latest: dict[bytes | None, bytes | None] = dict(zip(binary_values(keys), binary_values(values), strict=True))
        latest.pop(None, None)  # records without a key are ignored
        deleted = [key for key, value in latest.items() if value is None] if values.null_count else []
        own = self._by_partition.get(partition)
        if own is None:
            own = self._by_partition[partition] = {}
            self._all = (*self._all, own)
        # Other partitions that have some of the keys: Kafka does not order their records and these.
        others = [each for each in self._all if each is not own and not latest.keys().isdisjoint(each)]
        shared = next((key for each in others for key in latest if key in each), None)
        if not deleted:
            own.update(latest)  # type: ignore[arg-type]
        else:
            own.update({key: value for key, value in latest.items() if value is not None})  # type: ignore[misc]
            for key in deleted:
                own.pop(key, None)  # type: ignore[arg-type]
        for each in others:  # the record that was read last counts, although their order is unknown
            for key in latest:
                each.pop(key, None)  # type: ignore[arg-type]
        return shared


class TableState:
    """The state of a table, which the log's thread changes."""

    def __init__(
        self,
        topic: str,
        required_partitions: int | None,
        on_change: Callable[[bytes, bytes | None], None] | None = None,
    ) -> None:
        self.contents = TableContents()
        self.partition_error: IllegalLogStateError | None = None
        self._topic = topic
        self._required_partitions = required_partitions
        self._known_topic: LogTopic | None = None  # as it was found first
        self._on_change = on_change
        self._reloaded: TableContents | None = None  # while the table is read again
        # Keys that may have changed. A dict would take longer for each first key, the more it has lost already.
        self._unreported: OrderedDict[bytes, None] = OrderedDict()
        self._has_warned = False

    def apply(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Apply records with the columns ``key`` and ``value``, and report the changes."""
        contents = self.contents if self._reloaded is None else self._reloaded
        if self._on_change is not None and self._reloaded is None:
            # Before the contents change: if memory does not suffice for that, the reload reports these keys.
            self._unreported.update(dict.fromkeys(contents.changed_keys(*rows.columns)))
        key = contents.apply(partition.partition, *rows.columns)
        if key is not None and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "topic %s has records of a key in several partitions (%s is one of them). Their order is unknown: the "
                "table may have an old value of the key, and a deleted key may come back. Programs that write to the "
                "topic need the same partitioner (Java's default, murmur2), and the number of partitions must never "
                "change. Copy the table to a new topic, preferably with one partition.",
                partition.topic,
                partition,
            )
        if self._reloaded is None:
            self._report_changes()

    def cleanup_policy_error(self, cleanup_policy: str) -> IllegalLogStateError:
        """Return the error for a topic whose records expire."""
        return IllegalLogStateError(
            f"The topic of a table needs cleanup.policy=compact, and this one has cleanup.policy={cleanup_policy}: "
            "keys that are not written for long would disappear. Alter the topic's configuration (kafka-configs.sh "
            "--alter --add-config cleanup.policy=compact), or use KafkaBasedLog.",
            topic=self._topic,
        )

    def check_partition_count(self, topic: LogTopic) -> None:
        """Raise an error if the topic has another number of partitions than before."""
        count, required = topic.partition_count, self._required_partitions
        if required is None:
            # A recreated topic may have any number of partitions.
            if self._known_topic is None or topic.topic_id != self._known_topic.topic_id:
                self._known_topic = topic
            required = self._known_topic.partition_count
        if count == required:
            self.partition_error = None
            return
        self.partition_error = IllegalLogStateError(
            f"The topic has {count} partitions, and the table was made for {required}. Kafka's clients choose the "
            "partition of a key by the number of partitions, so a key may have records in several partitions now, and "
            "their order is unknown: values may be old, and deleted keys may come back. Copy the table to a new topic, "
            "whose number of partitions never changes.",
            topic=self._topic,
        )
        raise self.partition_error

    def begin_reload(self) -> None:
        """Load the records that follow aside: they are those of the log's beginning."""
        self._reloaded = TableContents()

    def end_reload(self) -> None:
        """Replace the contents at once, and report the differences."""
        reloaded, self._reloaded = self._reloaded, None
        if reloaded is None:
            return
        earlier, self.contents = self.contents, reloaded
        if self._on_change is not None:
            old, new = earlier.copy(), reloaded.copy()
            self._unreported.update((key, None) for key in old.keys() | new.keys() if old.get(key) != new.get(key))
            self._report_changes()

    def _report_changes(self) -> None:
        """Report each change once, also if the callback raises an error: the contents have it already."""
        while self._unreported:
            key, _ = self._unreported.popitem(last=False)
            assert self._on_change is not None
            try:
                self._on_change(key, self.contents.find(key))
            except BaseException:
                _log.exception("on_change of the table of topic %s raised an error; the table is correct", self._topic)
