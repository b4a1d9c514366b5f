"""Version negotiation and the oldest supported broker; kafka-python has the versions of each release."""

from __future__ import annotations

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS, infer_broker_version_from_api_versions

from pyspark_kafka_direct.client.api_versions import check_supported_broker, kafka_release, negotiate_version
from pyspark_kafka_direct.errors import UnsupportedBrokerError
from pyspark_kafka_direct.protocol import description_messages, messages
from pyspark_kafka_direct.protocol.messages import ApiMessageType

APIS = [
    each
    for each in (*vars(messages).values(), *vars(description_messages).values())
    if isinstance(each, ApiMessageType)
]


@pytest.mark.parametrize(
    ("broker_range", "supported", "expected"),
    [((0, 13), (4, 13), 13), ((0, 99), (4, 13), 13), ((0, 9), (4, 13), 9), ((0, 13), (4, 7), 7), ((4, 4), (4, 13), 4)],
)
def test_highest_common_version_is_chosen(
    broker_range: tuple[int, int], supported: tuple[int, int], expected: int
) -> None:
    assert negotiate_version(3, "Metadata", supported, {3: broker_range}, "b:1") == expected


@pytest.mark.parametrize("broker_range", [(0, 3), (14, 20)])
def test_missing_common_version_raises_with_both_ranges(broker_range: tuple[int, int]) -> None:
    lowest, highest = broker_range
    with pytest.raises(UnsupportedBrokerError, match=f"supports 4 to 13, the broker {lowest} to {highest}"):
        negotiate_version(3, "Metadata", (4, 13), {3: broker_range}, "b:1")


def test_unsupported_request_raises() -> None:
    with pytest.raises(UnsupportedBrokerError, match="does not support the request Metadata") as caught:
        negotiate_version(3, "Metadata", (4, 13), {}, "b:1")
    assert caught.value.broker == "b:1"


@pytest.mark.parametrize("version", [version for version in BROKER_API_VERSIONS if version >= (0, 11)])
def test_brokers_from_0_11_on_are_accepted(version: tuple[int, ...]) -> None:
    check_supported_broker(BROKER_API_VERSIONS[version], "b:1", needs_sasl=False)


@pytest.mark.parametrize("version", [version for version in BROKER_API_VERSIONS if (0, 10) <= version < (0, 11)])
def test_older_brokers_are_rejected_with_their_release(version: tuple[int, ...]) -> None:
    name = ".".join(map(str, version))
    with pytest.raises(UnsupportedBrokerError, match=rf"appears to be Kafka {name} .*oldest .*0\.11\.0 "):
        check_supported_broker(BROKER_API_VERSIONS[version], "b:1", needs_sasl=False)


def test_sasl_requires_1_0() -> None:
    with pytest.raises(UnsupportedBrokerError, match="SaslAuthenticate"):
        check_supported_broker(BROKER_API_VERSIONS[(0, 11)], "b:1", needs_sasl=True)
    check_supported_broker(BROKER_API_VERSIONS[(1, 0)], "b:1", needs_sasl=True)


@pytest.mark.parametrize("version", [version for version in BROKER_API_VERSIONS if version >= (0, 10)])
def test_kafka_release_identifies_each_release(version: tuple[int, ...]) -> None:
    table = BROKER_API_VERSIONS[version]
    assert kafka_release(table) == ".".join(map(str, infer_broker_version_from_api_versions(table)))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_supported_brokers_support_each_request(api: ApiMessageType) -> None:
    """From 1.0 on, the oldest release with SASL; other releases introduced some requests."""
    releases = {
        messages.CREATE_TOPICS: (2, 5),
        messages.DESCRIBE_CONFIGS: (2, 5),
        description_messages.DESCRIBE_CLUSTER: (2, 8),
        description_messages.DESCRIBE_QUORUM: (4, 0),
        messages.DESCRIBE_PRODUCERS: (2, 8),
        messages.DESCRIBE_TRANSACTIONS: (3, 0),
        messages.LIST_TRANSACTIONS: (3, 0),
        messages.WRITE_TXN_MARKERS: (2, 8),
        messages.CREATE_DELEGATION_TOKEN: (2, 0),
        messages.RENEW_DELEGATION_TOKEN: (2, 0),
        messages.DESCRIBE_DELEGATION_TOKEN: (2, 0),
    }
    oldest = releases.get(api, (1, 0))
    for version in sorted(version for version in BROKER_API_VERSIONS if version >= oldest):
        assert negotiate_version(api.key, api.name, api.versions, BROKER_API_VERSIONS[version], "b:1") in range(99)


def test_negotiation_with_oldest_broker() -> None:
    oldest = BROKER_API_VERSIONS[(0, 11)]
    metadata, offsets = messages.METADATA, messages.LIST_OFFSETS
    assert negotiate_version(metadata.key, metadata.name, metadata.versions, oldest, "b:1") == 4
    assert negotiate_version(offsets.key, offsets.name, offsets.versions, oldest, "b:1") == 2


@pytest.mark.parametrize("name", ["Fetch", "ListOffsets", "Metadata"])
def test_a_broker_that_lacks_one_required_version_is_rejected(name: str) -> None:
    """Proxies support some requests of a release only."""
    oldest = BROKER_API_VERSIONS[(0, 11)]
    newer = BROKER_API_VERSIONS[(0, 10, 2)]
    api_key = next(each.key for each in APIS if each.name == name)
    with pytest.raises(UnsupportedBrokerError, match=name):
        check_supported_broker({**oldest, api_key: newer[api_key]}, "b:1", needs_sasl=False)
