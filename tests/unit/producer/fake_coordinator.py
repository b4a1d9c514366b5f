"""A fake cluster with transaction and group coordinators, which records the requests in order."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from tests.unit.producer.fake_cluster import FakeCluster, FakeConnection, FakeResponse

from pyspark_kafka_direct.client.consumer_group import CommittedOffset
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.errors import BrokerUnreachableError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import TypeAlias
    from uuid import UUID

    from pyspark_kafka_direct.client.metadata import Node, PartitionLeader
    from pyspark_kafka_direct.protocol import messages

    Asked: TypeAlias = tuple[Any, ...]

_T = TypeVar("_T")

NO_RESPONSE = -2
"""Among the codes of EndTxn: the connection breaks before its response."""
NEWEST = {22: (0, 5), 24: (0, 5), 26: (0, 5)}


class FakeTransactionalCluster(FakeCluster):
    """Stands in for a ``ClusterClient``; broker 1 is the coordinator of every key.

    Attributes:
        level: The ``transaction.version``.
        requests: The names and relevant fields of the requests, in order.
        codes: Error codes for the next responses, by request.
        producers: The current producer ids, by transactional id.
        committed_offsets: The group's offsets of committed transactions.
        ids: The topic ids.
        witness_ids: The topic ids that several brokers confirm, if they differ.
        configs: The broker configs.
        versions: The API versions of the brokers.
        broker_switches: How often ``use_next_broker`` was called.
        released: The number of released connections.
    """

    def __init__(self, level: int = 2) -> None:
        super().__init__(lambda _: FakeResponse(code=self.code("Produce")))
        self.level = level
        self.requests: list[Asked] = []
        self.codes: dict[str, list[int]] = {}
        self.producers: dict[str, ProducerIdAndEpoch] = {}
        self.committed_offsets: dict[TopicPartition, CommittedOffset] = {}
        self.ids: dict[str, UUID] = {}
        self.witness_ids: dict[str, UUID] | None = None
        self.confirmations = 0
        self.configs: dict[str, str] = {"transaction.max.timeout.ms": "900000"}
        self.versions: Mapping[int, tuple[int, int]] = NEWEST
        self.broker_switches = 0
        self.released = 0
        self._open: dict[str, dict[TopicPartition, Any]] = {}

    def code(self, request: str) -> int:
        codes = self.codes.get(request)
        return codes.pop(0) if codes else 0

    def requests_for(self, request: str) -> list[Asked]:
        return [each for each in self.requests if each[0] == request]

    def take_requests(self) -> list[Asked]:
        """Return the requests since the last call."""
        take_requests, self.requests = self.requests, []
        return take_requests

    def deadline(self) -> Deadline:
        return Deadline.after(60, system=self.system)

    def known_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLeader]:
        return {}

    def note_later_epochs(self, epochs: Mapping[TopicPartition, int], deadline: Deadline) -> None: ...

    def refresh_brokers(self, *, deadline: Deadline | None = None) -> None: ...

    def use_next_broker(self) -> None:
        self.broker_switches += 1

    def topics(self, names: Collection[str], *, deadline: Deadline | None = None) -> dict[str, Any]:
        self.requested_topics += names
        return {name: SimpleNamespace(topic_id=self.ids[name]) for name in names if name in self.ids}

    def confirm_missing(
        self, suspects: Mapping[TopicPartition, UUID | None], *, deadline: Deadline | None = None
    ) -> set[TopicPartition]:
        self.confirmations += 1
        ids = self.ids if self.witness_ids is None else self.witness_ids
        return {tp for tp, topic_id in suspects.items() if tp.topic not in ids or topic_id not in (None, ids[tp.topic])}

    def call_any_broker(self, call: Callable[[Any, Deadline], _T], deadline: Deadline, tries: int = 1) -> _T:
        return call(self.connect(self.nodes[1], deadline), deadline)

    def connect(self, node: Node, deadline: Deadline) -> FakeConnection:
        connection = FakeCoordinatorConnection(self, node.id)
        self.system.connections[connection.fileno()] = connection
        return connection

    def release(self, connection: FakeConnection) -> None:
        self.released += 1

    def respond(self, api: messages.ApiMessageType, values: Mapping[str, Any]) -> Any:
        """Respond to a request other than Produce."""
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
        current = (values["producer_id"], values["producer_epoch"]) if "producer_id" in values else ()
        self.requests.append(("InitProducerId", name, values["transaction_timeout_ms"], *current))
        code = self.code("InitProducerId")
        before = self.producers.get(name)
        if not code:
            number = 7 + len(self.producers)
            self.producers[name] = (
                ProducerIdAndEpoch(number, 3) if before is None else ProducerIdAndEpoch(before.id, before.epoch + 1)
            )
            self._open.pop(name, None)
        now = self.producers.get(name, ProducerIdAndEpoch(-1, -1))
        return SimpleNamespace(error_code=code, producer_id=now.id, producer_epoch=now.epoch)

    def _add(self, values: Mapping[str, Any]) -> Any:
        topics = values["v3_and_below_topics"]
        self.requests.append(
            ("AddPartitionsToTxn", _writer(values, "v3_and_below_"), [(t["name"], t["partitions"]) for t in topics])
        )
        code = self.code("AddPartitionsToTxn")
        results = [
            SimpleNamespace(
                name=topic["name"],
                results_by_partition=[
                    SimpleNamespace(partition_index=number, partition_error_code=code) for number in topic["partitions"]
                ],
            )
            for topic in topics
        ]
        return SimpleNamespace(results_by_topic_v3_and_below=results)

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
        results = self.committed_offsets if names is None else [TopicPartition(*each) for each in sorted(names)]
        topics = [SimpleNamespace(name=tp.topic, partitions=[self._committed_offset(tp)]) for tp in results]
        return SimpleNamespace(error_code=0, topics=topics)

    def _committed_offset(self, tp: TopicPartition) -> Any:
        offset, metadata, epoch = self.committed_offsets.get(tp, CommittedOffset(-1))
        return SimpleNamespace(
            partition_index=tp.partition,
            committed_offset=offset,
            metadata=metadata,
            committed_leader_epoch=epoch,
            error_code=0,
        )

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
        if code == NO_RESPONSE:
            raise BrokerUnreachableError("The connection broke.", broker="b:1")
        if code:
            return SimpleNamespace(error_code=code, producer_id=-1, producer_epoch=-1)
        offsets = self._open.pop(name, {})
        if values["committed"]:
            self.committed_offsets.update(offsets)
        if self.level < 2:
            return SimpleNamespace(error_code=0, producer_id=-1, producer_epoch=-1)
        self.producers[name] = following = ProducerIdAndEpoch(values["producer_id"], values["producer_epoch"] + 1)
        return SimpleNamespace(error_code=0, producer_id=following.id, producer_epoch=following.epoch)


class FakeCoordinatorConnection(FakeConnection):
    """A connection to a broker of the fake cluster."""

    _cluster: FakeTransactionalCluster

    @property
    def api_versions(self) -> Mapping[int, tuple[int, int]]:
        return self._cluster.versions

    def features(self, deadline: Deadline) -> dict[str, int]:
        return {"transaction.version": self._cluster.level}

    def version(self, api: messages.ApiMessageType) -> int:
        return api.versions.highest

    def call(self, api: messages.ApiMessageType, values: Mapping[str, Any], deadline: Deadline) -> Any:
        return self._cluster.respond(api, values)

    def submit(
        self,
        api: messages.ApiMessageType,
        values: Mapping[str, Any],
        deadline: Deadline,
        *,
        version: int,
        expects_response: bool,
    ) -> None:
        super().submit(api, values, deadline, version=version, expects_response=expects_response)
        for number, data in sorted(self._cluster.sent[-1].batches.items()):
            writer = struct.unpack_from(">qh", data, 43)
            (sequence,) = struct.unpack_from(">i", data, 53)
            what = ("Produce", (values["transactional_id"], *writer), number, sequence)
            self._cluster.requests.append(what)


def _writer(values: Mapping[str, Any], prefix: str = "") -> tuple[str, int, int]:
    names = ("transactional_id", "producer_id", "producer_epoch")
    found: tuple[str, int, int] = tuple(values[prefix + name] for name in names)
    return found
