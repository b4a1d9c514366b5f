"""Where the runs of a continuous query start."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.settings import read_settings
from tests.unit.planning.fake_offset_reader import FakeOffsetReader

from pyspark_kafka_direct.continuous.continuous_start_planner import ContinuousStartPlanner
from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.offset_specs import Latest
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def planner(cluster: FakeOffsetReader, *, strict: bool = True, read_committed: bool = False) -> ContinuousStartPlanner:
    return ContinuousStartPlanner(read_settings(fail_on_data_loss=strict, read_committed=read_committed), cluster)


def test_a_new_query() -> None:
    cluster = FakeOffsetReader({A0: (2, 9), A1: (0, 4)})
    assert planner(cluster).initial_offsets() == {A0: 2, A1: 0}
    assert ContinuousStartPlanner(read_settings(Latest()), cluster).initial_offsets() == {A0: 9, A1: 4}


def test_missing_metadata_of_a_new_topic_is_retried() -> None:
    cluster = FakeOffsetReader({}, on_wait=lambda reader: reader.logs.update({A0: (0, 3)}))
    assert planner(cluster).initial_offsets() == {A0: 0}
    nowhere = FakeOffsetReader({})
    with pytest.raises(TopicNotFoundError):
        planner(nowhere).initial_offsets()
    assert (nowhere.refreshes, nowhere.waits) == (3, 2)


def test_a_query_resumes_at_the_end_of_the_last_epoch() -> None:
    cluster = FakeOffsetReader({A0: (0, 9), A1: (0, 4)})
    assert planner(cluster).resume_offsets({A0: 5, A1: 4}) == {A0: 5, A1: 4}
    assert cluster.waits == 0


def test_new_partitions_start_at_their_log_start() -> None:
    cluster = FakeOffsetReader({A0: (0, 9), A1: (0, 4)})
    assert planner(cluster).resume_offsets({A0: 5}) == {A0: 5, A1: 0}


@pytest.mark.parametrize(
    ("logs", "message", "lenient"),
    [
        ({A0: (0, 9)}, "do not exist any more", {A0: 5}),
        ({A0: (0, 3), A1: (0, 4)}, "offset was changed from 5 to 3", {A0: 3, A1: 4}),
        ({A0: (0, 9), A1: (0, 4), B0: (2, 4)}, "the added partition b-0 starts from offset 2", {A0: 5, A1: 4, B0: 2}),
    ],
    ids=["missing", "offset changed", "added late"],
)
def test_data_loss_fails_or_warns(
    logs: dict[TopicPartition, tuple[int, int]], message: str, lenient: dict[TopicPartition, int]
) -> None:
    end_offsets = {A0: 5, A1: 4}
    with pytest.raises(DataLossError, match=message):
        planner(FakeOffsetReader(dict(logs))).resume_offsets(end_offsets)
    cluster = FakeOffsetReader(dict(logs))
    assert planner(cluster, strict=False).resume_offsets(end_offsets) == lenient
    assert [message in warning for warning in cluster.warnings] == [True]


def test_a_topic_recreated_while_the_query_ran_is_data_loss() -> None:
    cluster = FakeOffsetReader({A0: (0, 9)}, {"a": UUID(int=1)})
    lenient = planner(cluster, strict=False)
    assert lenient.resume_offsets({A0: 5}) == {A0: 5}
    lenient.retain_topic_ids(lenient.current_topic_ids)
    cluster.ids["a"] = UUID(int=2)
    assert lenient.resume_offsets({A0: 7}) == {A0: 0}
    lenient.retain_topic_ids(lenient.current_topic_ids)
    assert lenient.resume_offsets({A0: 0}) == {A0: 0}, "reported once"
    assert len(cluster.warnings) == 1
    strict = planner(cluster)
    assert strict.resume_offsets({A0: 5}) == {A0: 5}
    strict.retain_topic_ids(strict.current_topic_ids)
    cluster.ids["a"] = UUID(int=3)
    with pytest.raises(DataLossError, match="was deleted and recreated"):
        strict.resume_offsets({A0: 5})


def test_a_recreated_topic_is_reported_until_its_start_was_committed() -> None:
    """Otherwise, after a failure in between, the query would skip the first records of the new topic."""
    cluster = FakeOffsetReader({A0: (0, 3)}, {"a": UUID(int=1)})
    lenient = planner(cluster, strict=False)
    lenient.initial_offsets()
    lenient.retain_topic_ids(lenient.current_topic_ids)
    cluster.recreate("a", 2, [9, 9])
    assert lenient.resume_offsets({A0: 3}) == {A0: 0, A1: 0}
    assert lenient.resume_offsets({A0: 3}) == {A0: 0, A1: 0}
    assert lenient.current_topic_ids == {A0: UUID(int=2), A1: UUID(int=2)}


def test_a_recreated_topic_that_tasks_have_detected_is_not_read_again() -> None:
    """Per partition: one task may have detected it, and the other one not yet."""
    cluster = FakeOffsetReader({A0: (0, 3), A1: (0, 3)}, {"a": UUID(int=1)})
    lenient = planner(cluster, strict=False)
    lenient.initial_offsets()
    lenient.retain_topic_ids(lenient.current_topic_ids)
    cluster.recreate("a", 2, [9, 9])
    lenient.retain_topic_ids({A0: UUID(int=2)})
    assert lenient.resume_offsets({A0: 8, A1: 3}) == {A0: 8, A1: 0}
    lenient.retain_topic_ids(lenient.current_topic_ids)
    assert lenient.resume_offsets({A0: 8, A1: 2}) == {A0: 8, A1: 2}


def test_offsets_of_transactions_belong_to_the_topic_that_they_were_committed_for() -> None:
    """The topic may be recreated again between the metadata request for the transactions and that of the planner."""
    cluster = FakeOffsetReader({A0: (0, 3)}, {"a": UUID(int=1)})
    lenient = planner(cluster, strict=False)
    lenient.initial_offsets()
    lenient.retain_topic_ids(lenient.current_topic_ids)
    cluster.recreate("a", 2, [9])
    lenient.replace_topic_ids({A0: UUID(int=2)})
    assert lenient.resume_offsets({A0: 8}) == {A0: 8}
    cluster.recreate("a", 3, [9])
    assert lenient.resume_offsets({A0: 8}) == {A0: 0}
    lenient.replace_topic_ids({A0: None})
    assert lenient.resume_offsets({A0: 8}) == {A0: 8}


def test_a_loss_that_a_retry_does_not_confirm_is_ignored() -> None:
    cluster = FakeOffsetReader({A0: (0, 3)}, on_wait=lambda reader: reader.logs.update({A0: (0, 9)}))
    assert planner(cluster).resume_offsets({A0: 5}) == {A0: 5}
    assert cluster.waits == 1


def test_an_offset_beyond_the_last_stable_offset_is_no_loss() -> None:
    cluster = FakeOffsetReader({A0: (0, 9)}, last_stable_offsets={A0: 3})
    assert planner(cluster, read_committed=True).resume_offsets({A0: 5}) == {A0: 5}


def test_an_outdated_topic_id_of_a_new_query_is_no_recreated_topic() -> None:
    """The first metadata comes from a broker that lags; requests for offsets refresh it."""
    cluster = FakeOffsetReader({A0: (0, 9)}, {"a": UUID(int=99)}, on_offsets=lambda r: r.ids.update(a=UUID(int=1)))
    starts = planner(cluster)
    assert starts.initial_offsets() == {A0: 0}
    assert starts.current_topic_ids == {A0: UUID(int=1)}


def test_a_log_that_is_truncated_twice_is_counted_twice() -> None:
    cluster = FakeOffsetReader({A0: (0, 3)})
    starts = planner(cluster, strict=False)
    for _ in range(2):
        for _ in range(2):  # the first run fails before it commits
            assert starts.resume_offsets({A0: 5}) == {A0: 3}
        starts.retain_topic_ids({})
    assert cluster.losses == [(DataLossCause.BEYOND_END, {A0: 0})] * 2
