"""The decision whether the listener or the planner commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.offsets import TopicPartition, partition_offsets_from_json
from pyspark_kafka_direct.options.read_options import parse_stream_options
from pyspark_kafka_direct.spark.commit_offer import (
    CommitGroup,
    CommitOffer,
    accept_commit_offer,
    commit_group,
)

if TYPE_CHECKING:
    from pathlib import Path

PARTITION = TopicPartition("t", 0)
SHOP = CommitGroup("b:1", "shop")


def test_the_listener_commits_if_the_planner_accepted_its_offer(tmp_path: Path) -> None:
    offers = [CommitOffer(tmp_path, SHOP, run_id) for run_id in ("run", "another")]
    assert accept_commit_offer(tmp_path, SHOP) is not None
    for offer in offers:
        assert offer.is_accepted()
        assert offer.is_accepted(), "permanently"


def test_the_planner_commits_without_an_offer(tmp_path: Path) -> None:
    assert accept_commit_offer(tmp_path, SHOP) is None
    offer = CommitOffer(tmp_path, SHOP, "run")  # too late: enable() was called while the query ran
    assert not offer.is_accepted()


@pytest.mark.parametrize("other", [CommitGroup("b:1", "other"), CommitGroup("c:1", "shop")])
def test_offers_for_other_groups_and_clusters_are_ignored(tmp_path: Path, other: CommitGroup) -> None:
    offer = CommitOffer(tmp_path, other, "run")
    assert accept_commit_offer(tmp_path, SHOP) is None
    assert not offer.is_accepted()


def test_a_withdrawn_offer_cannot_be_accepted(tmp_path: Path) -> None:
    """Otherwise a query of another session with the same group could accept it later."""
    offer = CommitOffer(tmp_path, SHOP, "run")
    assert accept_commit_offer(tmp_path, SHOP) is not None
    offer.withdraw()
    assert offer.is_accepted()
    assert accept_commit_offer(tmp_path, SHOP) is None


def test_the_listener_gets_the_offsets_at_which_sources_resume(tmp_path: Path) -> None:
    offers = [CommitOffer(tmp_path, SHOP, run_id) for run_id in ("run", "another")]
    one, two = accept_commit_offer(tmp_path, SHOP), accept_commit_offer(tmp_path, SHOP)
    assert one is not None
    assert two is not None
    assert [offer.resume_offsets() for offer in offers] == [[], []]
    one.commit_async({PARTITION: 5}, resumed_from={PARTITION: 5})
    assert [offer.resume_offsets() for offer in offers] == [[{PARTITION: 5}]] * 2
    two.commit_async({PARTITION: 4}, resumed_from={PARTITION: 4})
    one.commit_async({PARTITION: 9}, resumed_from={PARTITION: 9})
    for offer in offers:
        assert sorted(each[PARTITION] for each in offer.resume_offsets()) == [4, 5], "only the first offsets"
        offer.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", range(3))
def test_offsets_of_the_other_sources_count_if_one_file_vanishes(tmp_path: Path, number: int) -> None:
    """The query may end while the listener reads the files."""
    offer = CommitOffer(tmp_path, SHOP, "run")
    for offset in range(3):
        planner = accept_commit_offer(tmp_path, SHOP)
        assert planner is not None
        planner.commit_async({PARTITION: offset}, resumed_from={PARTITION: offset})
    file = sorted(tmp_path.glob("*.accepted"))[number]
    removed = partition_offsets_from_json(file.read_text())[PARTITION]
    file.unlink()
    file.symlink_to(tmp_path / "missing")  # it is listed, and cannot be read
    assert sorted(each[PARTITION] for each in offer.resume_offsets()) == sorted({0, 1, 2} - {removed})


def test_a_new_query_reports_no_resume_offsets(tmp_path: Path) -> None:
    offer = CommitOffer(tmp_path, SHOP, "run")
    planner = accept_commit_offer(tmp_path, SHOP)
    assert planner is not None
    planner.commit_async({PARTITION: 5})
    planner.commit_async({PARTITION: 9}, resumed_from={PARTITION: 9})
    assert offer.resume_offsets() == []


def test_a_missing_folder_fails_no_batch(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    offer = CommitOffer(folder, SHOP, "run")
    planner = accept_commit_offer(folder, SHOP)
    assert planner is not None
    offer.close()
    folder.rmdir()
    planner.commit_async({PARTITION: 5}, resumed_from={PARTITION: 5})
    planner.wait_for_commit()
    assert offer.resume_offsets() == []


def test_the_group_of_a_source() -> None:
    options = {"kafka.bootstrap.servers": "b:1,c:2", "subscribe": "t"}
    assert commit_group(parse_stream_options(options)) is None
    assert commit_group(parse_stream_options({**options, "commitgroupid": "shop"})) == CommitGroup("b:1,c:2", "shop")


def test_the_servers_of_a_group_may_use_the_librdkafka_property() -> None:
    options = {"kafka.metadata.broker.list": " b:1, c:2", "subscribe": "t", "commitgroupid": "shop"}
    assert commit_group(parse_stream_options(options)) == CommitGroup("b:1,c:2", "shop")
