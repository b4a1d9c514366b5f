"""Who drives a query, by files on a disk that is a dictionary: successors, and two at the same moment."""

from __future__ import annotations

import json

import pytest
from tests.unit.continuous.test_logs import Disk

from pyspark_kafka_direct.continuous._takeovers import Takeovers
from pyspark_kafka_direct.errors import CheckpointTakenError, OffsetPlanError, OptionError


def test_a_run_is_written_down_with_all_ids_that_were_ever_used() -> None:
    disk = Disk()
    mine = Takeovers(disk, "me")
    assert mine.begin("c", "p", 4).tasks == 4
    assert mine.begin("c", "p", 2).tasks == 4
    assert Takeovers(disk, "other").begin("c", "p", 6).tasks == 6
    assert Takeovers(disk, "third").begin("c", "p", 1).tasks == 6
    told = json.loads(disk.there["transactions/3"])
    assert {name: told[name] for name in ("v", "driver", "cluster", "prefix", "tasks", "settled")} == {
        "v": 1,
        "driver": "third",
        "cluster": "c",
        "prefix": "p",
        "tasks": 6,
        "settled": False,
    }
    assert sorted(disk.there) == ["transactions/2", "transactions/3"], "older ones are removed"


def test_a_driver_that_was_superseded_takes_nothing_back() -> None:
    disk = Disk()
    first, second = Takeovers(disk, "one"), Takeovers(disk, "two")
    first.begin("c", "p", 1)
    for _ in range(3):
        second.begin("c", "p", 1)
        before = dict(disk.there)
        with pytest.raises(CheckpointTakenError, match=r"disk:/transactions: process \d+ on host .* has taken"):
            first.begin("c", "p", 1)
        with pytest.raises(CheckpointTakenError):
            first.settled()
        assert disk.there == before


def test_of_two_at_the_same_moment_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    Takeovers(disk, "before").begin("c", "p", 1)
    first, second = Takeovers(disk, "one"), Takeovers(disk, "two")
    create = disk.create

    def late(name: str, text: str) -> bool:
        monkeypatch.setattr(disk, "create", create)
        second.begin("c", "p", 1)
        return create(name, text)

    monkeypatch.setattr(disk, "create", late)
    with pytest.raises(CheckpointTakenError):
        first.begin("c", "p", 1)
    second.begin("c", "p", 1)


def test_one_that_comes_so_late_that_its_number_is_free_again_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    first, second = Takeovers(disk, "one"), Takeovers(disk, "two")
    create = disk.create

    def late(name: str, text: str) -> bool:
        monkeypatch.setattr(disk, "create", create)
        for _ in range(4):
            second.begin("c", "p", 1)
        return create(name, text)

    monkeypatch.setattr(disk, "create", late)
    with pytest.raises(CheckpointTakenError):
        first.begin("c", "p", 1)


def test_who_has_slept_since_it_began_is_told() -> None:
    disk = Disk()
    first, second = Takeovers(disk, "one"), Takeovers(disk, "two")
    first.begin("c", "p", 1)
    first.check()
    second.begin("c", "p", 1)
    with pytest.raises(CheckpointTakenError, match=r"process \d+ on host .* has taken"):
        first.check()
    second.check()


def test_where_both_could_write_the_file_the_first_one_is_told() -> None:
    """A local disk, and S3 without conditional writes, only look beforehand whether it is there."""
    disk = Disk()
    first, second = Takeovers(disk, "one"), Takeovers(disk, "two")
    first.begin("c", "p", 1)
    del disk.there["transactions/0"]  # the second one has looked before
    second.begin("c", "p", 1)
    with pytest.raises(CheckpointTakenError):
        first.check()
    second.check()


def test_another_prefix_or_cluster_is_refused_until_it_was_settled() -> None:
    disk = Disk()
    Takeovers(disk, "me").begin("c", "p", 3)
    with pytest.raises(OptionError, match=r"transactionalIdPrefix is 'q', and .* under 'p' \(disk:/transactions/0\)"):
        Takeovers(disk, "me").begin("c", "q", 1)
    with pytest.raises(OptionError, match="to the cluster d, and was delivered to c"):
        Takeovers(disk, "me").begin("d", "p", 1)
    settling = Takeovers(disk, "settling")
    assert settling.begin("c", "p", 0).tasks == 3
    settling.settled()
    assert Takeovers(disk, "me").begin("d", "q", 1).tasks == 1
    with pytest.raises(OptionError):
        Takeovers(disk, "me").begin("c", "p", 1)


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"v":2}', '{"v":1}', '{"v":1,"driver":"d","cluster":"c","prefix":"p","tasks":"x"}']
)
def test_a_damaged_file_is_an_error(text: str) -> None:
    disk = Disk()
    disk.there["transactions/4"] = text
    with pytest.raises(OffsetPlanError, match="disk:/transactions/4 cannot be read"):
        Takeovers(disk, "me").begin("c", "p", 1)
    assert list(disk.there) == ["transactions/4"]
