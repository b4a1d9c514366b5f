"""Which requests a broker speaks and in which versions, and whether that is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import UnsupportedBrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Versions a broker must reach for this package to be correct, by API key, and the Kafka release that brought them:
#   Fetch 4         message format v2 and the isolation level (KIP-98)                                          0.11.0
#   ListOffsets 2   isolation level: without it the end of a read_committed range would be wrong (KIP-98)       0.11.0
#   Metadata 4      allow_auto_topic_creation: without it asking for a missing topic creates it (KIP-204)       0.11.0
# With SASL also SaslAuthenticate (KIP-152), which came with 1.0.0.
OLDEST_BROKER: Final = "0.11.0 (1.0.0 with SASL)"
_REQUIRED: Final = {1: ("Fetch", 4), 2: ("ListOffsets", 2), 3: ("Metadata", 4)}
_SASL_AUTHENTICATE: Final = 36

# What tells a release from the one before it: an API key, and a version that is new there.
_RELEASES: Final = (
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


def intersect(
    api_key: int, name: str, ours: tuple[int, int], api_versions: Mapping[int, tuple[int, int]], broker: str
) -> int:
    """Return the highest version of ``ours`` (lowest, highest) that the broker speaks too.

    Args:
        api_key: The request.
        name: Its name, for the error.
        ours: Lowest and highest version spoken here.
        api_versions: What the broker answered to ApiVersions: API key to lowest and highest version.
        broker: ``host:port``, for the error.

    Raises:
        UnsupportedBrokerError: The ranges do not meet, or the broker does not know the API.
    """
    if api_key not in api_versions:
        raise UnsupportedBrokerError(f"The broker does not know the request {name}.", broker=broker)
    lowest, highest = api_versions[api_key]
    version = min(ours[1], highest)
    if version < max(ours[0], lowest):
        raise UnsupportedBrokerError(
            f"No version of the request {name} suits both sides: this package speaks {ours[0]} to {ours[1]}, "
            f"the broker {lowest} to {highest} (it looks like Kafka {release(api_versions)}).",
            broker=broker,
        )
    return version


def check_broker(api_versions: Mapping[int, tuple[int, int]], broker: str, *, sasl: bool) -> None:
    """Refuse a broker that is too old, by name.

    Raises:
        UnsupportedBrokerError: A request that cannot be done without is missing or too old.
    """
    lacking = [
        f"{name} {version}" for key, (name, version) in _REQUIRED.items() if api_versions.get(key, (0, -1))[1] < version
    ]
    if sasl and _SASL_AUTHENTICATE not in api_versions:
        lacking.append("SaslAuthenticate 0")
    if lacking:
        raise UnsupportedBrokerError(
            f"The broker is too old: it looks like Kafka {release(api_versions)} and lacks {', '.join(lacking)}. "
            f"Kafka {OLDEST_BROKER} is the oldest that works.",
            broker=broker,
        )


def release(api_versions: Mapping[int, tuple[int, int]]) -> str:
    """Return the newest release of Kafka whose versions these can be, such as ``"4.3"``; for messages only."""
    for name, key, version in _RELEASES:
        lowest, highest = api_versions.get(key, (0, -1))
        if lowest <= version <= highest:
            return name
    return "0.10.0"
