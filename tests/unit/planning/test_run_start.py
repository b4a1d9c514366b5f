"""Where the runs of a continuous query begin, on a made-up cluster."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.unit.planning.stream_clusters import Cluster

from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.positions import Earliest, Latest
from pyspark_kafka_direct.planning.run_start import StartPlanner, StartTuning

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def planner(cluster: Cluster, *, strict: bool = True, read_committed: bool = False) -> StartPlanner:
    return StartPlanner(StartTuning(Earliest(), strict, read_committed), cluster)


def test_a_new_query() -> None:
    cluster = Cluster({A0: (2, 9), A1: (0, 4)})
    assert planner(cluster).first() == {A0: 2, A1: 0}
    assert StartPlanner(StartTuning(Latest()), cluster).first() == {A0: 9, A1: 4}


def test_a_topic_that_not_all_brokers_know_yet() -> None:
    cluster = Cluster({}, on_wait=lambda there: there.logs.update({A0: (0, 3)}))
    assert planner(cluster).first() == {A0: 0}
    nowhere = Cluster({})
    with pytest.raises(TopicNotFoundError):
        planner(nowhere).first()
    assert (nowhere.looks, nowhere.waits) == (3, 2)


def test_it_goes_on_where_it_was() -> None:
    cluster = Cluster({A0: (0, 9), A1: (0, 4)})
    assert planner(cluster).resume({A0: 5, A1: 4}) == {A0: 5, A1: 4}
    assert cluster.waits == 0


def test_new_partitions_begin_at_their_start() -> None:
    cluster = Cluster({A0: (0, 9), A1: (0, 4)})
    assert planner(cluster).resume({A0: 5}) == {A0: 5, A1: 0}


@pytest.mark.parametrize(
    ("logs", "says", "lenient"),
    [
        ({A0: (0, 9)}, "are gone", {A0: 5}),
        ({A0: (0, 3), A1: (0, 4)}, "offset was changed from 5 to 3", {A0: 3, A1: 4}),
        ({A0: (0, 9), A1: (0, 4), B0: (2, 4)}, "the added partition b-0 starts from offset 2", {A0: 5, A1: 4, B0: 2}),
    ],
    ids=["gone", "went back", "added late"],
)
def test_losses(logs: dict[TopicPartition, tuple[int, int]], says: str, lenient: dict[TopicPartition, int]) -> None:
    ended = {A0: 5, A1: 4}
    with pytest.raises(DataLossError, match=says):
        planner(Cluster(dict(logs))).resume(ended)
    cluster = Cluster(dict(logs))
    assert planner(cluster, strict=False).resume(ended) == lenient
    assert [says in warning for warning in cluster.warnings] == [True]


def test_a_topic_that_was_created_anew_while_the_query_ran() -> None:
    cluster = Cluster({A0: (0, 9)}, {"a": UUID(int=1)})
    lenient = planner(cluster, strict=False)
    assert lenient.resume({A0: 5}) == {A0: 5}
    lenient.keep(lenient.found_ids)
    cluster.ids["a"] = UUID(int=2)
    assert lenient.resume({A0: 7}) == {A0: 0}
    lenient.keep(lenient.found_ids)
    assert lenient.resume({A0: 0}) == {A0: 0}, "told once, known from then on"
    assert len(cluster.warnings) == 1
    strict = planner(cluster)
    assert strict.resume({A0: 5}) == {A0: 5}
    strict.keep(strict.found_ids)
    cluster.ids["a"] = UUID(int=3)
    with pytest.raises(DataLossError, match="was deleted and created again"):
        strict.resume({A0: 5})


def test_a_topic_that_was_created_anew_is_told_until_its_start_was_written_down() -> None:
    """Else a failure in between would let the query go on at the old offset, behind the new topic's first records."""
    cluster = Cluster({A0: (0, 3)}, {"a": UUID(int=1)})
    lenient = planner(cluster, strict=False)
    lenient.first()
    lenient.keep(lenient.found_ids)
    cluster.recreate("a", 2, [9, 9])
    assert lenient.resume({A0: 3}) == {A0: 0, A1: 0}
    assert lenient.resume({A0: 3}) == {A0: 0, A1: 0}
    assert lenient.found_ids == {A0: UUID(int=2), A1: UUID(int=2)}


def test_a_topic_that_the_tasks_have_found_created_anew_is_not_read_again() -> None:
    """Partition by partition: one task may have found it, and the other one not yet."""
    cluster = Cluster({A0: (0, 3), A1: (0, 3)}, {"a": UUID(int=1)})
    lenient = planner(cluster, strict=False)
    lenient.first()
    lenient.keep(lenient.found_ids)
    cluster.recreate("a", 2, [9, 9])
    lenient.keep({A0: UUID(int=2)})
    assert lenient.resume({A0: 8, A1: 3}) == {A0: 8, A1: 0}
    lenient.keep(lenient.found_ids)
    assert lenient.resume({A0: 8, A1: 2}) == {A0: 8, A1: 2}


def test_what_transactions_have_reached_is_of_the_topic_of_now() -> None:
    cluster = Cluster({A0: (0, 3)}, {"a": UUID(int=1)})
    lenient = planner(cluster, strict=False)
    lenient.first()
    lenient.keep(lenient.found_ids)
    cluster.recreate("a", 2, [9])
    lenient.forget([A0])
    assert lenient.resume({A0: 8}) == {A0: 8}


def test_a_loss_that_is_none_at_a_second_look() -> None:
    cluster = Cluster({A0: (0, 3)}, on_wait=lambda there: there.logs.update({A0: (0, 9)}))
    assert planner(cluster).resume({A0: 5}) == {A0: 5}
    assert cluster.waits == 1


def test_beyond_the_last_stable_offset_is_no_loss() -> None:
    cluster = Cluster({A0: (0, 9)}, stable={A0: 3})
    assert planner(cluster, read_committed=True).resume({A0: 5}) == {A0: 5}
