"""LocationStrategies: singletons, equality, and what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from pyspark_kafka_direct import OptionError, TopicPartition
from pyspark_kafka_direct.direct import LocationStrategies
from pyspark_kafka_direct.direct.locations import preferred_hosts
from pyspark_kafka_direct.wire.metadata import Node, PartitionLeader

ONE = TopicPartition("t", 1)


def test_location_strategy_constructors() -> None:
    """JavaLocationStrategySuite: two singletons, and a strategy that is its map."""
    for singleton in (LocationStrategies.PreferConsistent, LocationStrategies.PreferBrokers):
        assert pickle.loads(pickle.dumps(singleton)) is singleton
        assert copy.deepcopy(singleton) is singleton
    assert LocationStrategies.PreferConsistent != LocationStrategies.PreferBrokers
    fixed = LocationStrategies.PreferFixed({ONE: "host"})
    assert fixed == LocationStrategies.PreferFixed({("t", 1): "host"})  # type: ignore[dict-item]
    assert hash(fixed) == hash(LocationStrategies.PreferFixed({ONE: "host"}))
    assert fixed != LocationStrategies.PreferFixed({ONE: "other"})


def test_the_map_is_copied() -> None:
    hosts = {ONE: "host"}
    fixed = LocationStrategies.PreferFixed(hosts)
    hosts[ONE] = "other"
    assert fixed.hosts == {ONE: "host"}


@pytest.mark.parametrize(
    "strategy",
    [
        LocationStrategies.PreferConsistent,
        LocationStrategies.PreferBrokers,
        LocationStrategies.PreferFixed({ONE: "host"}),
    ],
    ids=repr,
)
def test_they_pickle(strategy: Any) -> None:
    again = pickle.loads(pickle.dumps(strategy))
    assert again == strategy
    assert again is strategy or isinstance(strategy, LocationStrategies.PreferFixed)


@pytest.mark.parametrize(
    "hosts",
    [
        None,
        [ONE],
        {"t": "host"},
        {ONE: 1},
        {ONE: ""},
        {("t", 1, 2): "host"},
        {("t", "1"): "host"},
        {("t", -1): "host"},
        {("t", True): "host"},
        {(3, 1): "host"},
    ],
)
def test_a_map_that_cannot_be_used_is_refused(hosts: Any) -> None:
    with pytest.raises(OptionError, match="PreferFixed takes a mapping"):
        LocationStrategies.PreferFixed(hosts)


def test_the_hosts_of_each_strategy() -> None:
    leaders = {ONE: PartitionLeader(Node(3, "broker-3", 9092), 0)}
    assert preferred_hosts(LocationStrategies.PreferConsistent, leaders) is None
    assert preferred_hosts(LocationStrategies.PreferBrokers, leaders) == {ONE: "broker-3"}
    assert preferred_hosts(LocationStrategies.PreferFixed({ONE: "host"}), leaders) == {ONE: "host"}
    with pytest.raises(OptionError, match="PreferConsistent"):
        preferred_hosts("PreferBrokers", leaders)  # type: ignore[arg-type]
