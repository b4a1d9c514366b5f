"""LocationStrategies: singletons, equality, and invalid arguments."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from pyspark_kafka_direct import OptionError, TopicPartition
from pyspark_kafka_direct.client.metadata import Node, PartitionLeader
from pyspark_kafka_direct.direct import LocationStrategies
from pyspark_kafka_direct.direct.location_strategies import preferred_hosts

PARTITION = TopicPartition("t", 1)


def test_location_strategy_constructors() -> None:
    """JavaLocationStrategySuite: two singletons, and a strategy that is equal if its mapping is."""
    for singleton in (LocationStrategies.PreferConsistent, LocationStrategies.PreferBrokers):
        assert pickle.loads(pickle.dumps(singleton)) is singleton
        assert copy.deepcopy(singleton) is singleton
    assert LocationStrategies.PreferConsistent != LocationStrategies.PreferBrokers
    fixed = LocationStrategies.PreferFixed({PARTITION: "host"})
    assert fixed == LocationStrategies.PreferFixed({("t", 1): "host"})  # type: ignore[dict-item]
    assert hash(fixed) == hash(LocationStrategies.PreferFixed({PARTITION: "host"}))
    assert fixed != LocationStrategies.PreferFixed({PARTITION: "other"})


@pytest.mark.parametrize("strategy", [LocationStrategies.PreferConsistent, LocationStrategies.PreferBrokers], ids=repr)
def test_a_strategy_may_be_called_as_in_sparks_guides(strategy: Any) -> None:
    assert strategy() is strategy


def test_the_mapping_is_copied() -> None:
    hosts = {PARTITION: "host"}
    fixed = LocationStrategies.PreferFixed(hosts)
    hosts[PARTITION] = "other"
    assert fixed.hosts == {PARTITION: "host"}


@pytest.mark.parametrize(
    "strategy",
    [
        LocationStrategies.PreferConsistent,
        LocationStrategies.PreferBrokers,
        LocationStrategies.PreferFixed({PARTITION: "host"}),
    ],
    ids=repr,
)
def test_strategies_are_pickled(strategy: Any) -> None:
    unpickled = pickle.loads(pickle.dumps(strategy))
    assert unpickled == strategy
    assert unpickled is strategy or isinstance(strategy, LocationStrategies.PreferFixed)


@pytest.mark.parametrize(
    "hosts",
    [
        None,
        [PARTITION],
        {"t": "host"},
        {PARTITION: 1},
        {PARTITION: ""},
        {("t", 1, 2): "host"},
        {("t", "1"): "host"},
        {("t", -1): "host"},
        {("t", True): "host"},
        {(3, 1): "host"},
    ],
)
def test_an_invalid_mapping_is_rejected(hosts: Any) -> None:
    with pytest.raises(OptionError, match="PreferFixed takes a mapping"):
        LocationStrategies.PreferFixed(hosts)


def test_the_preferred_hosts_of_each_strategy() -> None:
    other = PARTITION._replace(partition=PARTITION.partition + 1)
    leaders = {
        PARTITION: PartitionLeader(Node(3, "broker-3", 9092), 0),
        other: PartitionLeader(Node(4, "broker-4", 9092), 0),
    }
    assert preferred_hosts(LocationStrategies.PreferConsistent, leaders) is None
    assert preferred_hosts(LocationStrategies.PreferBrokers, leaders) == {PARTITION: "broker-3", other: "broker-4"}
    assert preferred_hosts(LocationStrategies.PreferFixed({PARTITION: "host"}), leaders) == {PARTITION: "host"}
    with pytest.raises(OptionError, match="PreferConsistent"):
        preferred_hosts("PreferBrokers", leaders)  # type: ignore[arg-type]
