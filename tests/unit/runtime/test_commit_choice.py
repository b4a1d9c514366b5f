"""Who commits: the two halves of the choice, in one folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.runtime.commit_choice import Offer, QueryGroup, accept, group_of
from pyspark_kafka_direct.settings.source import parse_stream_options

if TYPE_CHECKING:
    from pathlib import Path

A = TopicPartition("t", 0)
SHOP = QueryGroup("b:1", "shop")


def test_the_listener_commits_if_it_offered_and_the_planner_accepted(tmp_path: Path) -> None:
    offer = Offer(tmp_path, SHOP, "run")
    assert accept(tmp_path, SHOP) is not None
    assert offer.accepted()
    assert offer.accepted(), "and so it stays"


def test_the_planner_commits_if_nobody_offered(tmp_path: Path) -> None:
    assert accept(tmp_path, SHOP) is None
    offer = Offer(tmp_path, SHOP, "run")  # later: enable() was called while the query ran
    assert not offer.accepted()


@pytest.mark.parametrize("other", [QueryGroup("b:1", "other"), QueryGroup("c:1", "shop")])
def test_an_offer_for_another_group_or_cluster_is_none(tmp_path: Path, other: QueryGroup) -> None:
    offer = Offer(tmp_path, other, "run")
    assert accept(tmp_path, SHOP) is None
    assert not offer.accepted()


def test_an_offer_ends_when_the_planners_have_begun(tmp_path: Path) -> None:
    """A query of another session, started for the same group later, must not take it for its own."""
    offer = Offer(tmp_path, SHOP, "run")
    assert accept(tmp_path, SHOP) is not None
    offer.end()
    assert offer.accepted()
    assert accept(tmp_path, SHOP) is None


def test_where_sources_go_on_is_handed_over(tmp_path: Path) -> None:
    offer = Offer(tmp_path, SHOP, "run")
    one, two = accept(tmp_path, SHOP), accept(tmp_path, SHOP)
    assert one is not None
    assert two is not None
    assert offer.starts() == []
    one.offer({A: 5}, read_before={A: 5})
    assert offer.starts() == [{A: 5}]
    two.offer({A: 4}, read_before={A: 4})
    one.offer({A: 9}, read_before={A: 9})
    assert sorted(each[A] for each in offer.starts()) == [4, 5], "only where they have begun"
    offer.close()
    assert list(tmp_path.iterdir()) == []


def test_where_a_new_query_is_after_its_first_batch_the_listener_sees(tmp_path: Path) -> None:
    offer = Offer(tmp_path, SHOP, "run")
    planner = accept(tmp_path, SHOP)
    assert planner is not None
    planner.offer({A: 5})
    planner.offer({A: 9}, read_before={A: 9})
    assert offer.starts() == []


def test_a_folder_that_is_gone_fails_no_batch(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    offer = Offer(folder, SHOP, "run")
    planner = accept(folder, SHOP)
    assert planner is not None
    offer.close()
    folder.rmdir()
    planner.offer({A: 5}, read_before={A: 5})
    planner.settle()
    assert offer.starts() == []


def test_the_group_of_a_source() -> None:
    given = {"kafka.bootstrap.servers": "b:1,c:2", "subscribe": "t"}
    assert group_of(parse_stream_options(given)) is None
    assert group_of(parse_stream_options({**given, "commitgroupid": "shop"})) == QueryGroup("b:1,c:2", "shop")


def test_the_servers_of_a_group_may_be_written_as_librdkafka_does() -> None:
    given = {"kafka.metadata.broker.list": " b:1, c:2", "subscribe": "t", "commitgroupid": "shop"}
    assert group_of(parse_stream_options(given)) == QueryGroup("b:1,c:2", "shop")
