"""Which brokers are accepted, and in which versions they are spoken to; kafka-python knows what each release speaks."""

from __future__ import annotations

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS, infer_broker_version_from_api_versions

from pyspark_kafka_direct.errors import UnsupportedBrokerError
from pyspark_kafka_direct.wire import messages
from pyspark_kafka_direct.wire._versions import check_broker, intersect, release
from pyspark_kafka_direct.wire.messages import Api

APIS = [each for each in vars(messages).values() if isinstance(each, Api)]


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [((0, 13), (4, 13), 13), ((0, 99), (4, 13), 13), ((0, 9), (4, 13), 9), ((0, 13), (4, 7), 7), ((4, 4), (4, 13), 4)],
)
def test_the_highest_version_both_sides_speak_is_chosen(
    theirs: tuple[int, int], ours: tuple[int, int], expected: int
) -> None:
    assert intersect(3, "Metadata", ours, {3: theirs}, "b:1") == expected


@pytest.mark.parametrize("theirs", [(0, 3), (14, 20)])
def test_no_common_version_is_an_error_that_names_both_ranges(theirs: tuple[int, int]) -> None:
    with pytest.raises(UnsupportedBrokerError, match=rf"speaks 4 to 13, the broker {theirs[0]} to {theirs[1]}"):
        intersect(3, "Metadata", (4, 13), {3: theirs}, "b:1")


def test_an_unknown_request_is_an_error() -> None:
    with pytest.raises(UnsupportedBrokerError, match="does not know the request Metadata") as caught:
        intersect(3, "Metadata", (4, 13), {}, "b:1")
    assert caught.value.broker == "b:1"


@pytest.mark.parametrize("version", [version for version in BROKER_API_VERSIONS if version >= (0, 11)])
def test_brokers_from_0_11_on_are_accepted(version: tuple[int, ...]) -> None:
    check_broker(BROKER_API_VERSIONS[version], "b:1", sasl=False)


@pytest.mark.parametrize("version", [version for version in BROKER_API_VERSIONS if (0, 10) <= version < (0, 11)])
def test_older_brokers_are_refused_by_name(version: tuple[int, ...]) -> None:
    name = ".".join(map(str, version))
    with pytest.raises(UnsupportedBrokerError, match=rf"looks like Kafka {name} .*0\.11\.0 .*oldest"):
        check_broker(BROKER_API_VERSIONS[version], "b:1", sasl=False)


def test_with_sasl_the_oldest_is_1_0() -> None:
    with pytest.raises(UnsupportedBrokerError, match="SaslAuthenticate"):
        check_broker(BROKER_API_VERSIONS[(0, 11)], "b:1", sasl=True)
    check_broker(BROKER_API_VERSIONS[(1, 0)], "b:1", sasl=True)


@pytest.mark.parametrize("version", [version for version in BROKER_API_VERSIONS if version >= (0, 10)])
def test_releases_are_told_apart(version: tuple[int, ...]) -> None:
    table = BROKER_API_VERSIONS[version]
    assert release(table) == ".".join(map(str, infer_broker_version_from_api_versions(table)))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_accepted_broker_speaks_each_request(api: Api) -> None:
    """From 1.0 on, which is the oldest with SASL. Requests of a login are not known to brokers before it.

    Only markers need topics to be made and looked at, and they need 2.5.
    """
    for_markers = (messages.CREATE_TOPICS, messages.DESCRIBE_CONFIGS)
    oldest = (2, 5) if api in for_markers else (1, 0)
    for version in sorted(version for version in BROKER_API_VERSIONS if version >= oldest):
        assert intersect(api.key, api.name, api.versions, BROKER_API_VERSIONS[version], "b:1") in range(99)


def test_the_oldest_broker_is_spoken_to_in_its_versions() -> None:
    oldest = BROKER_API_VERSIONS[(0, 11)]
    metadata, offsets = messages.METADATA, messages.LIST_OFFSETS
    assert intersect(metadata.key, metadata.name, metadata.versions, oldest, "b:1") == 4
    assert intersect(offsets.key, offsets.name, offsets.versions, oldest, "b:1") == 2
