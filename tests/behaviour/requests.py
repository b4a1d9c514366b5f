"""The record of requests: the bytes that are sent, by version.

``data/requests.json`` has the hex frame of each request, with fixed contents, for each version as the only one that the
broker supports, or the error if none is sent. ``newest`` is the frame for a broker that supports every version. The
bytes are captured from a socket. ``{version}`` in a frame stands for the version of this package.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from tests.behaviour import fake_broker
from tests.behaviour.differences import DATA, Differences
from tests.behaviour.fake_broker import TOPIC, FakeBroker
from tests.partition_channel import PartitionChannel
from tests.settings import TaskSettings, parse_client_params

from pyspark_kafka_direct import __version__
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


FILE = DATA / "requests.json"

_VERSIONS = range(21)  # beyond the newest version of every API
_TIMEOUT_S = 600

_TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
_PARTITION_0, _PARTITION_2 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 2)

Record = dict[str, dict[str, str]]
"""Hex frames or error messages, by request and version."""


class Request(NamedTuple):
    """A request with fixed contents."""

    api_key: int
    send: Callable[[TaskSettings], object]
    settings: Mapping[str, str]


def sent_requests() -> Record:
    sent: Record = {}
    for name, request in _REQUESTS.items():
        frames = {str(version): _sent(request, (version, version)) for version in _VERSIONS}
        frames["newest"] = _sent(request, (0, max(_VERSIONS)))
        sent[name] = frames
    sent["ApiVersions"] = {
        "first": _sent(_API_VERSIONS, (0, 4)),
        "second": _sent(_API_VERSIONS, (0, 0), old=True),
    }
    return sent


def write() -> None:
    grouped = {name: _grouped(frames) for name, frames in sent_requests().items()}
    FILE.write_text(json.dumps(grouped, indent=1) + "\n", "utf-8")


def compare() -> Differences:
    recorded = {name: _ungrouped(frames) for name, frames in json.loads(FILE.read_text("utf-8")).items()}
    sent = sent_requests()
    return {
        f"{name} {version}": f"\n      was {frames[version]}\n      is  {sent.get(name, {}).get(version)}"
        for name, frames in recorded.items()
        for version in frames
        if frames[version] != sent.get(name, {}).get(version)
    }


def _sent(request: Request, versions: tuple[int, int], *, old: bool = False) -> str:
    with FakeBroker(request.api_key, versions, old=old) as broker:
        address = f"127.0.0.1:{broker.port}"
        settings = parse_client_params({"bootstrap.servers": address, "client.id": "me", **request.settings})
        message = ""
        try:
            request.send(settings)
        except KafkaDirectError as error:
            message = f"{type(error).__name__}: {error}".replace(address, "{broker}")
            message = message.replace(f"the broker {versions[0]} to {versions[0]}", "the broker another")
        finally:
            POOL.clear()
    frames = [frame.hex().replace(__version__.encode().hex(), "{version}") for frame in broker.frames]
    # Once the request is sent, the error depends on the fake broker. The release is guessed from a table.
    return " ".join(frames) or re.sub(r"appears to be Kafka [\d.]+", "appears to be Kafka ?", message)


def _grouped(frames: Mapping[str, str]) -> dict[str, str]:
    """Versions with the same outcome together: ``4 5 6``."""
    versions: dict[str, list[str]] = {}
    for version, outcome in frames.items():
        versions.setdefault(outcome, []).append(version)
    return {" ".join(names): outcome for outcome, names in versions.items()}


def _ungrouped(grouped: Mapping[str, str]) -> dict[str, str]:
    return {version: outcome for names, outcome in grouped.items() for version in names.split()}


def _open(settings: TaskSettings) -> Connection:
    host, port = settings.connection.bootstrap_servers[0]
    return Connection.open(settings.connection, host, port, Deadline.after(_TIMEOUT_S))


def _log_in(settings: TaskSettings) -> None:
    _open(settings).close()


def _fetch(topic_id: UUID | None, **fields: Any) -> Callable[[TaskSettings], None]:
    def send(settings: TaskSettings) -> None:
        with contextlib.closing(_open(settings)) as connection:
            channel = PartitionChannel(connection, topic=TOPIC, topic_id=topic_id, partition=2, settings=settings.fetch)
            channel.request(1234, **fields)
            channel.response(Deadline.after(_TIMEOUT_S))

    return send


def _offsets(settings: TaskSettings) -> None:
    timestamps = {_PARTITION_0: -2, _PARTITION_2: 1_700_000_000_000}
    ClusterClient(settings.connection).offsets(timestamps, isolation_level=settings.fetch.isolation_level)


_PASSWORD = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "in wonderland",
}
_COMMITTED = {"isolation.level": "read_committed"}
_FETCHING = {**_COMMITTED, "client.rack": "r", "fetch.min.bytes": "7", "fetch.max.wait.ms": "8", "fetch.max.bytes": "9"}

_API_VERSIONS = Request(fake_broker.API_VERSIONS, _log_in, {})
_REQUESTS: dict[str, Request] = {
    "Metadata, one topic": Request(
        fake_broker.METADATA, lambda settings: ClusterClient(settings.connection).topics([TOPIC]), {}
    ),
    "Metadata, two topics": Request(
        fake_broker.METADATA, lambda settings: ClusterClient(settings.connection).topics(["é", TOPIC]), {}
    ),
    "Metadata, all topics": Request(
        fake_broker.METADATA, lambda settings: ClusterClient(settings.connection).all_topics(), {}
    ),
    "ListOffsets": Request(fake_broker.LIST_OFFSETS, _offsets, {}),
    "ListOffsets, committed": Request(fake_broker.LIST_OFFSETS, _offsets, {**_COMMITTED, "request.timeout.ms": "1234"}),
    "FindCoordinator": Request(
        fake_broker.FIND_COORDINATOR,
        lambda settings: ConsumerGroup(ClusterClient(settings.connection), "my group").committed([_PARTITION_0]),
        {},
    ),
    "OffsetFetch": Request(
        fake_broker.OFFSET_FETCH,
        lambda settings: ConsumerGroup(ClusterClient(settings.connection), "my group").committed(
            [_PARTITION_0, _PARTITION_2]
        ),
        {},
    ),
    "OffsetCommit": Request(
        fake_broker.OFFSET_COMMIT,
        lambda settings: ConsumerGroup(ClusterClient(settings.connection), "my group").commit(
            {_PARTITION_0: 5, _PARTITION_2: 2**40}
        ),
        {},
    ),
    "SaslHandshake": Request(fake_broker.SASL_HANDSHAKE, _log_in, _PASSWORD),
    "SaslAuthenticate": Request(fake_broker.SASL_AUTHENTICATE, _log_in, _PASSWORD),
    "Fetch": Request(fake_broker.FETCH, _fetch(None), {}),
    "Fetch, by topic id": Request(fake_broker.FETCH, _fetch(_TOPIC_ID), {}),
    "Fetch, everything": Request(
        fake_broker.FETCH,
        _fetch(_TOPIC_ID, leader_epoch=3, max_bytes=100, last_fetched_epoch=2, max_wait_ms=6),
        _FETCHING,
    ),
}
