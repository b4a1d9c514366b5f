"""Negotiates API versions, and checks that a broker is new enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import UnsupportedBrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Versions that a broker must support for correct results, by API key, and the Kafka release that introduced them:
#   Fetch 4         message format v2 and the isolation level (KIP-98)                                          0.11.0
#   ListOffsets 2   isolation level: without it the end of a read_committed range would be wrong (KIP-98)       0.11.0
#   Metadata 4      allow_auto_topic_creation: without it the request creates missing topics (KIP-204)           0.11.0
# SASL also requires SaslAuthenticate (KIP-152), introduced by 1.0.0.
OLDEST_BROKER: Final = "0.11.0 (1.0.0 with SASL)"
_REQUIRED_VERSIONS: Final = {1: ("Fetch", 4), 2: ("ListOffsets", 2), 3: ("Metadata", 4)}
_SASL_AUTHENTICATE: Final = 36

# Release, API key, and a version of it that is new in this release.
_RELEASES: Final = (
    ("4.4", 18, 5),
    ("4.3", 35, 5),
    ("4.2", 2, 11),
    ("4.1", 0, 13),
    ("4.0", 2, 10),
    ("3.9", 1, 17),
    ("3.8", 0, 11),
    ("3.7", 1, 16),
    ("3.6", 24, 4),
    ("3.5", 1, 15),
    ("3.4", 4, 7),
    ("3.3", 29, 3),
    ("3.2", 11, 9),
    ("3.1", 1, 13),
    ("3.0", 2, 7),
    ("2.8", 0, 9),
    ("2.7", 1, 12),
    ("2.6", 48, 0),
    ("2.5", 29, 2),
    ("2.4", 0, 8),
    ("2.3", 1, 11),
    ("2.2", 2, 5),
    ("2.1", 1, 10),
    ("2.0", 1, 8),
    ("1.1", 1, 7),
    ("1.0", 3, 5),
    ("0.11", 3, 4),
    ("0.10.2", 9, 2),
    ("0.10.1", 3, 2),
)


def negotiate_version(
    api_key: int, name: str, client_versions: tuple[int, int], api_versions: Mapping[int, tuple[int, int]], broker: str
) -> int:
    """Return the highest of the ``client_versions`` (lowest, highest) that the broker supports too."""
    if api_key not in api_versions:
        raise UnsupportedBrokerError(f"The broker does not support the request {name}.", broker=broker)
    client_lowest, client_highest = client_versions
    broker_lowest, broker_highest = api_versions[api_key]
    version = min(client_highest, broker_highest)
    if version < max(client_lowest, broker_lowest):
        raise UnsupportedBrokerError(
            f"This package and the broker have no version of {name} in common: this package supports "
            f"{client_lowest} to {client_highest}, the broker {broker_lowest} to {broker_highest}; it appears to be "
            f"Kafka {kafka_release(api_versions)}.",
            broker=broker,
        )
    return version


def newest_version(api_versions: Mapping[int, tuple[int, int]], api_key: int) -> int:
    """Return the newest version of an API that the broker supports, or -1."""
    return api_versions[api_key][1] if api_key in api_versions else -1


def check_supported_broker(api_versions: Mapping[int, tuple[int, int]], broker: str, *, needs_sasl: bool) -> None:
    """Raise ``UnsupportedBrokerError`` if a required request is missing or too old."""
    missing_requests = [
        f"{name} {version}"
        for key, (name, version) in _REQUIRED_VERSIONS.items()
        if newest_version(api_versions, key) < version
    ]
    if needs_sasl and _SASL_AUTHENTICATE not in api_versions:
        missing_requests.append("SaslAuthenticate 0")
    if missing_requests:
        raise UnsupportedBrokerError(
            f"The broker is too old: it appears to be Kafka {kafka_release(api_versions)} and lacks "
            f"{', '.join(missing_requests)}. The oldest supported release is Kafka {OLDEST_BROKER}.",
            broker=broker,
        )


def kafka_release(api_versions: Mapping[int, tuple[int, int]]) -> str:
    """Return the newest Kafka release that introduced one of these versions, such as ``"4.3"``; for messages only."""
    for release, api_key, version in _RELEASES:
        lowest, highest = api_versions.get(api_key, (0, -1))  # without the API, an empty range
        if lowest <= version <= highest:
            return release
    return "0.10.0"
