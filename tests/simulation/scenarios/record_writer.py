"""Appends the batches that ``drawing`` has drawn to the topics of a history; each record has a value of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.simulation.cluster.topics import SimulatedTopic
    from tests.simulation.environment import Environment

_REPLICATION_SECONDS: Final = 0.5


class RecordWriter:
    """Writes to topics that exist; values are topic, generation, partition and number of the record.

    When the faults stop, it ends all transactions.
    """

    def __init__(self, environment: Environment, topics: Sequence[str]) -> None:
        self._environment = environment
        self._world = environment.world
        self._cluster = environment.cluster
        self._topics = tuple(topics)
        self._records = 0
        self._sequences: dict[tuple[str, int, int, int], int] = {}
        self.scheduled_records = 0  # that will be appended later
        self._open: dict[tuple[str, int, int], int] = {}  # producer ids of open transactions, with generations
        self._written_at = 0.0
        self._world.at(environment.quiet_at, self._end_transactions)

    @property
    def is_finished(self) -> bool:
        """Whether nothing will be appended, no transaction is open, and replicas had time for what was appended."""
        return (
            not self.scheduled_records
            and self._world.now > self._written_at + _REPLICATION_SECONDS
            and not any(True for _ in self._open_transactions())
        )

    def schedule(self, batches: Sequence[Mapping[str, Any]], since: float) -> None:
        """Append batches some seconds after a time."""
        for batch in batches:
            self.scheduled_records += batch["records"]
            self._world.at(since + batch["at"], self._append_scheduled, batch)

    def _append_scheduled(self, batch: Mapping[str, Any]) -> None:
        self.scheduled_records -= batch["records"]
        self.append(batch)

    def append(self, batch: Mapping[str, Any]) -> None:
        self._written_at = self._world.now
        name = self._topics[(batch["partition"] + batch["records"]) % len(self._topics)]
        topic = self._cluster.topics.get(name)
        if topic is None:
            return
        partition = batch["partition"] % len(topic.partitions)
        values = self._new_values(topic, partition, batch["records"])
        keys = [b"k%d" % (each % batch["keys"]) for each in range(len(values))] if batch["keys"] else None
        if batch["transaction"] is None:
            self._cluster.append((name, partition), values, keys=keys)
            return
        producer_id = 900 + batch["producer"]
        key = (name, topic.generation, partition, producer_id)
        sequence = self._sequences.get(key, 0)
        producer = (producer_id, 0, sequence)
        if self._cluster.append((name, partition), values, keys=keys, producer=producer, transactional=True) is None:
            return
        self._sequences[key] = sequence + len(values)
        self._open[name, partition, producer_id] = topic.generation
        if batch["transaction"] != "open":
            self._end_transaction(name, partition, producer_id, commit=batch["transaction"] == "commit")
        elif self._world.now > self._environment.quiet_at:
            self._world.after(1.0, self._end_transactions)

    def append_to(self, name: str, partition: int, records: int) -> None:
        """Append records to a partition, unless it is deleted."""
        topic = self._cluster.topics.get(name)
        if topic is not None and partition < len(topic.partitions):
            self._written_at = self._world.now
            self._cluster.append((name, partition), self._new_values(topic, partition, records))

    def _new_values(self, topic: SimulatedTopic, partition: int, records: int) -> list[bytes]:
        values = []
        for _ in range(records):
            self._records += 1
            values.append(b"%s/%d/%d/%d" % (topic.name.encode(), topic.generation, partition, self._records))
        return values

    def _end_transaction(self, name: str, partition: int, producer_id: int, *, commit: bool) -> None:
        topic = self._cluster.topics.get(name)
        generation = self._open.get((name, partition, producer_id))
        if topic is None or topic.generation != generation:
            self._open.pop((name, partition, producer_id), None)
        elif self._cluster.append_marker((name, partition), producer_id, 0, commit=commit) is not None:
            del self._open[name, partition, producer_id]

    def _end_transactions(self) -> None:
        """End all open transactions of the topics, also those whose marker was truncated."""
        for partition, producer_id in list(self._open_transactions()):
            self._written_at = self._world.now
            self._cluster.append_marker(partition, producer_id, 0, commit=True)
        if self._world.now < self._environment.quiet_at + 30.0:
            self._world.after(1.0, self._end_transactions)

    def _open_transactions(self) -> Iterator[tuple[tuple[str, int], int]]:
        for topic in self._cluster.topics.values():
            for partition in topic.partitions if topic.name in self._topics else ():
                log = partition.leader_log
                for producer_id, entry in () if log is None else sorted(log.producers.items()):
                    if entry.first_open_offset is not None:
                        yield (topic.name, partition.index), producer_id
