"""A cluster with coordinators of transactions and groups beside its leaders: it keeps what it was asked, in order."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from tests.unit.writing.brokers import Answer, Brokers, Line

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.groups import CommittedOffset

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import TypeAlias
    from uuid import UUID

    from pyspark_kafka_direct.wire import messages
    from pyspark_kafka_direct.wire.metadata import Node

    Asked: TypeAlias = tuple[Any, ...]

_T = TypeVar("_T")

NEWEST = {22: (0, 5), 24: (0, 5), 26: (0, 5)}


class Coordinated(Brokers):
    """Stands in for a ``Cluster``; the coordinator of every key is broker 1.

    Attributes:
        level: ``transaction.version``.
        requests: What the cluster was asked, in order: the request, and what matters in it.
        codes: Error codes that the next answers to a request have.
        producers: Who writes next, by transactional id.
        noted: The offsets of the group, as transactions have them that were committed.
        ids: Ids of the topics.
        configs: What the brokers are configured with.
        versions: The versions that its brokers speak.
        others_asked: How often another of them was to be asked.
        given_back: How many connections came back.
    """

    def __init__(self, level: int = 2) -> None:
        super().__init__(lambda _: Answer(code=self.code("Produce")))
        self.level = level
        self.requests: list[Asked] = []
        self.codes: dict[str, list[int]] = {}
        self.producers: dict[str, ProducerId] = {}
        self.noted: dict[TopicPartition, CommittedOffset] = {}
        self.ids: dict[str, UUID] = {}
        self.configs: dict[str, str] = {"transaction.max.timeout.ms": "900000"}
        self.versions: Mapping[int, tuple[int, int]] = NEWEST
        self.others_asked = 0
        self.given_back = 0
        self._open: dict[str, dict[TopicPartition, Any]] = {}

    def code(self, request: str) -> int:
        codes = self.codes.get(request)
        return codes.pop(0) if codes else 0

    def named(self, request: str) -> list[Asked]:
        return [each for each in self.requests if each[0] == request]

    def taken(self) -> list[Asked]:
        """Return what was asked since the last time."""
        taken, self.requests = self.requests, []
        return taken

    def deadline(self) -> Deadline:
        return Deadline.after(60, system=self.world)

    def reach(self, *, deadline: Deadline | None = None) -> None: ...

    def ask_another(self) -> None:
        self.others_asked += 1

    def topics(self, names: Collection[str], *, deadline: Deadline | None = None) -> dict[str, Any]:
        self.asked += names
        return {name: SimpleNamespace(topic_id=self.ids[name]) for name in names if name in self.ids}

    def ask_any(self, ask: Callable[[Any, Deadline], _T], deadline: Deadline, tries: int = 1) -> _T:
        return ask(self.connect(self.nodes[1], deadline), deadline)

    def connect(self, node: Node, deadline: Deadline) -> Line:
        line = CoordinatorLine(self, node.id)
        self.world.lines[line.fileno()] = line
        return line

    def give_back(self, connection: Line) -> None:
        self.given_back += 1

    def answer(self, api: messages.Api, values: Mapping[str, Any]) -> Any:
        """Answer what is no Produce request."""
        return {
            "FindCoordinator": self._find,
            "InitProducerId": self._init,
            "AddPartitionsToTxn": self._add,
            "AddOffsetsToTxn": self._add_group,
            "TxnOffsetCommit": self._note,
            "OffsetFetch": self._fetch,
            "EndTxn": self._end,
            "DescribeConfigs": self._describe,
        }[api.name](values)

    def _find(self, values: Mapping[str, Any]) -> Any:
        return SimpleNamespace(error_code=0, node_id=1, host="b", port=1)

    def _init(self, values: Mapping[str, Any]) -> Any:
        name = values["transactional_id"]
        self.requests.append(("InitProducerId", name, values["transaction_timeout_ms"]))
        code = self.code("InitProducerId")
        before = self.producers.get(name)
        if not code:
            number = 7 + len(self.producers)
            self.producers[name] = ProducerId(number, 3) if before is None else ProducerId(before.id, before.epoch + 1)
            self._open.pop(name, None)
        now = self.producers.get(name, ProducerId(-1, -1))
        return SimpleNamespace(error_code=code, producer_id=now.id, producer_epoch=now.epoch)

    def _add(self, values: Mapping[str, Any]) -> Any:
        topics = values["v3_and_below_topics"]
        self.requests.append(
            ("AddPartitionsToTxn", _writer(values, "v3_and_below_"), [(t["name"], t["partitions"]) for t in topics])
        )
        code = self.code("AddPartitionsToTxn")
        told = [
            SimpleNamespace(
                name=topic["name"],
                results_by_partition=[
                    SimpleNamespace(partition_index=number, partition_error_code=code) for number in topic["partitions"]
                ],
            )
            for topic in topics
        ]
        return SimpleNamespace(results_by_topic_v3_and_below=told)

    def _add_group(self, values: Mapping[str, Any]) -> Any:
        self.requests.append(("AddOffsetsToTxn", _writer(values), values["group_id"]))
        return SimpleNamespace(error_code=self.code("AddOffsetsToTxn"))

    def _note(self, values: Mapping[str, Any]) -> Any:
        offsets = {
            TopicPartition(topic["name"], each["partition_index"]): CommittedOffset(
                each["committed_offset"], each["committed_metadata"]
            )
            for topic in values["topics"]
            for each in topic["partitions"]
        }
        code = self.code("TxnOffsetCommit")
        self.requests.append(("TxnOffsetCommit", _writer(values), values["group_id"], offsets))
        if not code:
            self._open.setdefault(values["transactional_id"], {}).update(offsets)
        topics = [
            SimpleNamespace(name=tp.topic, partitions=[SimpleNamespace(partition_index=tp.partition, error_code=code)])
            for tp in offsets
        ]
        return SimpleNamespace(topics=topics)

    def _fetch(self, values: Mapping[str, Any]) -> Any:
        wanted = values["topics"]
        names = wanted and {(each["name"], number) for each in wanted for number in each["partition_indexes"]}
        self.requests.append(
            ("OffsetFetch", values["group_id"], names and sorted(names), bool(values.get("require_stable")))
        )
        told = self.noted if names is None else [TopicPartition(*each) for each in sorted(names)]
        topics = [SimpleNamespace(name=tp.topic, partitions=[self._noted(tp)]) for tp in told]
        return SimpleNamespace(error_code=0, topics=topics)

    def _noted(self, tp: TopicPartition) -> Any:
        offset, metadata = self.noted.get(tp, CommittedOffset(-1, ""))
        return SimpleNamespace(partition_index=tp.partition, committed_offset=offset, metadata=metadata, error_code=0)

    def _describe(self, values: Mapping[str, Any]) -> Any:
        (wanted,) = values["resources"]
        self.requests.append(("DescribeConfigs", wanted["resource_name"]))
        configs = [
            SimpleNamespace(name=name, value=self.configs[name])
            for name in wanted["configuration_keys"]
            if name in self.configs
        ]
        result = SimpleNamespace(
            resource_name=wanted["resource_name"], error_code=0, error_message=None, configs=configs
        )
        return SimpleNamespace(results=[result])

    def _end(self, values: Mapping[str, Any]) -> Any:
        name = values["transactional_id"]
        self.requests.append(("EndTxn", _writer(values), "commit" if values["committed"] else "abort"))
        code = self.code("EndTxn")
        if code:
            return SimpleNamespace(error_code=code, producer_id=-1, producer_epoch=-1)
        offsets = self._open.pop(name, {})
        if values["committed"]:
            self.noted.update(offsets)
        if self.level < 2:
            return SimpleNamespace(error_code=0, producer_id=-1, producer_epoch=-1)
        self.producers[name] = following = ProducerId(values["producer_id"], values["producer_epoch"] + 1)
        return SimpleNamespace(error_code=0, producer_id=following.id, producer_epoch=following.epoch)


class CoordinatorLine(Line):
    """A connection with one of them."""

    _brokers: Coordinated

    @property
    def api_versions(self) -> Mapping[int, tuple[int, int]]:
        return self._brokers.versions

    def features(self, deadline: Deadline) -> dict[str, int]:
        return {"transaction.version": self._brokers.level}

    def version(self, api: messages.Api) -> int:
        return api.versions.highest

    def call(self, api: messages.Api, values: Mapping[str, Any], deadline: Deadline) -> Any:
        return self._brokers.answer(api, values)

    def submit(
        self, api: messages.Api, values: Mapping[str, Any], deadline: Deadline, *, version: int, answered: bool
    ) -> None:
        super().submit(api, values, deadline, version=version, answered=answered)
        for number, data in sorted(self._brokers.sent[-1].batches.items()):
            writer = struct.unpack_from(">qh", data, 43)
            (sequence,) = struct.unpack_from(">i", data, 53)
            what = ("Produce", (values["transactional_id"], *writer), number, sequence)
            self._brokers.requests.append(what)


def _writer(values: Mapping[str, Any], prefix: str = "") -> tuple[str, int, int]:
    names = ("transactional_id", "producer_id", "producer_epoch")
    found: tuple[str, int, int] = tuple(values[prefix + name] for name in names)
    return found
