"""The record of requests: the bytes that are sent, by version.

``data/requests.json`` has for every request, with fixed contents, the frame in hex by the one version that the broker
speaks, or what the user is told where none is sent; and the version chosen for a broker that speaks them all.
The bytes are taken from a socket, so the record does not care how they came about. ``{version}`` in a frame stands for
this package's own, which ApiVersions tells.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from tests.behaviour import peer
from tests.behaviour.peer import TOPIC, Peer
from tests.behaviour.store import DATA, Differences

from pyspark_kafka_direct import __version__
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.connection import Connection
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.fetch import FetchChannel
from pyspark_kafka_direct.wire.groups import Group
from pyspark_kafka_direct.wire.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.settings.client import ClientSettings


FILE = DATA / "requests.json"

# Beyond every version there is; one more than the newest must be harmless.
_VERSIONS = range(21)
_SECONDS = 60

_TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
_ONE, _TWO = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 2)

Record = dict[str, dict[str, str]]
"""Frames in hex, or what was told instead, by request and version."""


class Request(NamedTuple):
    """A request with fixed contents.

    Attributes:
        api_key: Its API.
        ask: Sends it.
        settings: Client settings for it.
    """

    api_key: int
    ask: Callable[[ClientSettings], object]
    settings: Mapping[str, str]


def record() -> Record:
    """What is sent today."""
    found: Record = {}
    for name, request in _REQUESTS.items():
        frames = {str(version): _sent(request, (version, version)) for version in _VERSIONS}
        frames["newest"] = _sent(request, (0, max(_VERSIONS)))
        found[name] = frames
    found["ApiVersions"] = {
        "first": _sent(_API_VERSIONS, (0, 4)),
        "second": _sent(_API_VERSIONS, (0, 0), old=True),
    }
    return found


def write() -> None:
    """Make the record."""
    grouped = {name: _grouped(frames) for name, frames in record().items()}
    FILE.write_text(json.dumps(grouped, indent=1) + "\n", "utf-8")


def compare() -> Differences:
    """What is sent otherwise than recorded."""
    before = {name: _single(frames) for name, frames in json.loads(FILE.read_text("utf-8")).items()}
    now = record()
    return {
        f"{name} {version}": f"\n      was {frames[version]}\n      is  {now.get(name, {}).get(version)}"
        for name, frames in before.items()
        for version in frames
        if frames[version] != now.get(name, {}).get(version)
    }


def _sent(request: Request, versions: tuple[int, int], *, old: bool = False) -> str:
    with Peer(request.api_key, versions, old=old) as broker:
        address = f"127.0.0.1:{broker.port}"
        settings = connection_settings({"bootstrap.servers": address, "client.id": "me", **request.settings})
        told = ""
        try:
            request.ask(settings)
        except KafkaDirectError as error:
            told = f"{type(error).__name__}: {error}".replace(address, "{broker}")
            told = told.replace(f"the broker {versions[0]} to {versions[0]}", "the broker another")
        finally:
            POOL.clear()
    frames = [frame.hex().replace(__version__.encode().hex(), "{version}") for frame in broker.frames]
    # How it ends is the peer's doing, once the request is out. Which release it looks like is a guess by a table.
    return " ".join(frames) or re.sub(r"looks like Kafka [\d.]+", "looks like Kafka ?", told)


def _grouped(frames: Mapping[str, str]) -> dict[str, str]:
    """Versions with the same outcome together: ``4 5 6``."""
    versions: dict[str, list[str]] = {}
    for version, outcome in frames.items():
        versions.setdefault(outcome, []).append(version)
    return {" ".join(names): outcome for outcome, names in versions.items()}


def _single(grouped: Mapping[str, str]) -> dict[str, str]:
    return {version: outcome for names, outcome in grouped.items() for version in names.split()}


def _open(settings: ClientSettings) -> Connection:
    host, port = settings.connection.bootstrap_servers[0]
    return Connection.open(settings.connection, host, port, Deadline.after(_SECONDS))


def _log_in(settings: ClientSettings) -> None:
    _open(settings).close()


def _fetch(topic_id: UUID | None, **more: Any) -> Callable[[ClientSettings], None]:
    def ask(settings: ClientSettings) -> None:
        with contextlib.closing(_open(settings)) as connection:
            channel = FetchChannel(connection, topic=TOPIC, topic_id=topic_id, partition=2, settings=settings.fetch)
            channel.request(1234, **more)
            channel.response(Deadline.after(_SECONDS))

    return ask


def _offsets(settings: ClientSettings) -> None:
    wanted = {_ONE: -2, _TWO: 1_700_000_000_000}
    Cluster(settings.connection).offsets(wanted, isolation_level=settings.fetch.isolation_level)


_PASSWORD = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "in wonderland",
}
_COMMITTED = {"isolation.level": "read_committed"}
_FETCHING = {**_COMMITTED, "client.rack": "r", "fetch.min.bytes": "7", "fetch.max.wait.ms": "8", "fetch.max.bytes": "9"}

_API_VERSIONS = Request(peer.API_VERSIONS, _log_in, {})
_REQUESTS: dict[str, Request] = {
    "Metadata, one topic": Request(peer.METADATA, lambda settings: Cluster(settings.connection).topics([TOPIC]), {}),
    "Metadata, two topics": Request(
        peer.METADATA, lambda settings: Cluster(settings.connection).topics(["é", TOPIC]), {}
    ),
    "Metadata, all topics": Request(peer.METADATA, lambda settings: Cluster(settings.connection).all_topics(), {}),
    "ListOffsets": Request(peer.LIST_OFFSETS, _offsets, {}),
    "ListOffsets, committed": Request(peer.LIST_OFFSETS, _offsets, {**_COMMITTED, "request.timeout.ms": "1234"}),
    "FindCoordinator": Request(
        peer.FIND_COORDINATOR, lambda settings: Group(Cluster(settings.connection), "my group").committed([_ONE]), {}
    ),
    "OffsetFetch": Request(
        peer.OFFSET_FETCH, lambda settings: Group(Cluster(settings.connection), "my group").committed([_ONE, _TWO]), {}
    ),
    "OffsetCommit": Request(
        peer.OFFSET_COMMIT,
        lambda settings: Group(Cluster(settings.connection), "my group").commit({_ONE: 5, _TWO: 2**40}),
        {},
    ),
    "SaslHandshake": Request(peer.SASL_HANDSHAKE, _log_in, _PASSWORD),
    "SaslAuthenticate": Request(peer.SASL_AUTHENTICATE, _log_in, _PASSWORD),
    "Fetch": Request(peer.FETCH, _fetch(None), {}),
    "Fetch, by topic id": Request(peer.FETCH, _fetch(_TOPIC_ID), {}),
    "Fetch, everything": Request(
        peer.FETCH,
        _fetch(_TOPIC_ID, leader_epoch=3, max_bytes=100, last_fetched_epoch=2, max_wait_ms=6),
        _FETCHING,
    ),
}
