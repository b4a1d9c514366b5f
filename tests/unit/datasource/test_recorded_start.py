"""The first batch of a streaming query keeps its start, also with other options after a restart."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.settings import read_settings
from tests.unit.planning.fake_offset_reader import FakeClock, FakeOffsetReader, cluster

from pyspark_kafka_direct.datasource.legacy_micro_batch_stream import LegacyKafkaMicroBatchStream
from pyspark_kafka_direct.datasource.micro_batch_planner import MicroBatchPlanner
from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream
from pyspark_kafka_direct.datasource.micro_batch_stream_base import PlanningState
from pyspark_kafka_direct.datasource.read_schema import kafka_schema, read_schema
from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.read_options import parse_stream_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.datasource.micro_batch_stream_base import KafkaMicroBatchStreamBase

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

OTHER_STARTS = [
    {"startingoffsets": '{"t":{"0":50}}'},
    {"startingoffsets": '{"t":{"0":100}}'},
    {"startingoffsets": '{"t":{"0":-1}}'},
    {"startingoffsets": '{"t":{"0":50,"7":0}}'},
    {"startingoffsets": "latest"},
    {"startingoffsets": "committed", "commitgroupid": "g"},
    {"startingtimestamp": "60"},
    {"startingtimestamp": "5000"},
    {"startingoffsetsbytimestamp": '{"t":{"0":60}}'},
]


def run(
    offset_reader: FakeOffsetReader, start: Mapping[str, str], *, legacy: bool = False
) -> KafkaMicroBatchStreamBase:
    """A run of a query, as Spark 4.2 and later or (``legacy``) as Spark 4.0 and 4.1 create it."""
    options = parse_stream_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **start})
    kind = LegacyKafkaMicroBatchStream if legacy else KafkaMicroBatchStream
    reader = kind(options, read_schema(kafka_schema(False)))
    planner_options = read_settings(
        options.source.start, options.source.limits, min_partitions=options.source.min_partitions
    )
    planner = MicroBatchPlanner(planner_options, offset_reader, FakeClock())
    no_leaders: Any = SimpleNamespace(leaders=lambda partitions: {})
    reader._planning_state = PlanningState(planner, no_leaders, None)
    return reader


def checkpointed(offsets: Any) -> dict[str, Any]:
    """Return offsets as Spark passes them back: it stores them as JSON."""
    return cast("dict[str, Any]", json.loads(json.dumps(offsets)))


def first_end(reader: KafkaMicroBatchStreamBase) -> dict[str, Any]:
    if isinstance(reader, LegacyKafkaMicroBatchStream):
        return checkpointed(reader.latestOffset())
    assert isinstance(reader, KafkaMicroBatchStream)
    return next_end(reader, checkpointed(reader.initialOffset()))


def next_end(reader: KafkaMicroBatchStreamBase, start: dict[str, Any]) -> dict[str, Any]:
    if isinstance(reader, LegacyKafkaMicroBatchStream):
        return checkpointed(reader.latestOffset())
    assert isinstance(reader, KafkaMicroBatchStream)
    return checkpointed(reader.latestOffset(start, reader.getDefaultReadLimit()))


def ranges(reader: KafkaMicroBatchStreamBase, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    tasks = cast("Any", reader.partitions(checkpointed(start), checkpointed(end)))
    offsets = [task.task.offsets for task in tasks]
    return [(str(each.topic_partition), each.from_offset, each.until_offset) for each in offsets]


def replay_first_batch(reader: KafkaMicroBatchStreamBase, end: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Plan the first batch of an earlier run again, with the calls of Spark after a restart."""
    if isinstance(reader, LegacyKafkaMicroBatchStream):
        assert ranges(reader, end, end) == []
    return ranges(reader, checkpointed(reader.initialOffset()), end)


LEGACY = pytest.mark.parametrize("legacy", [False, True], ids=["4.2", "4.0"])


@LEGACY
@pytest.mark.parametrize("other_start", OTHER_STARTS)
def test_an_unfinished_first_batch_keeps_its_start_under_other_options(
    legacy: bool, other_start: dict[str, str]
) -> None:
    offset_reader = cluster(100)
    offset_reader.group_offsets = {T0: 70}
    end = first_end(run(offset_reader, {"startingoffsets": "earliest"}, legacy=legacy))
    offset_reader.logs[T0] = (0, 130)
    restarted = run(offset_reader, other_start, legacy=legacy)
    assert replay_first_batch(restarted, end) == [("t-0", 0, 100)]
    following = next_end(restarted, end)
    assert following == {"t": {"0": 130}}, "the start is in the first batch's end only"
    assert ranges(restarted, end, following) == [("t-0", 100, 130)]


@LEGACY
def test_a_first_batch_from_an_offset_keeps_it(legacy: bool) -> None:
    end = first_end(run(cluster(100), {"startingoffsets": '{"t":{"0":50}}'}, legacy=legacy))
    for other_start in (*OTHER_STARTS, {"startingoffsets": "earliest"}):
        assert replay_first_batch(run(cluster(130), other_start, legacy=legacy), end) == [("t-0", 50, 100)], other_start


@LEGACY
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_an_empty_first_batch_keeps_its_start(legacy: bool, start: str) -> None:
    offset_reader = cluster(0)
    end = first_end(run(offset_reader, {"startingoffsets": start}, legacy=legacy))
    assert end == {"t": {"0": 0}, "(start)": {}}
    offset_reader.logs[T0] = (0, 100)
    for other_start in OTHER_STARTS:
        restarted = run(offset_reader, other_start, legacy=legacy)
        assert replay_first_batch(restarted, end) == []
        following = next_end(restarted, end)
        assert ranges(restarted, end, following) == [("t-0", 0, 100)], other_start


@LEGACY
def test_an_end_without_a_start_keeps_the_rule_of_other_sources(legacy: bool) -> None:
    end = {"t": {"0": 100}}
    assert replay_first_batch(run(cluster(130), {"startingoffsets": "earliest"}, legacy=legacy), end) == [
        ("t-0", 0, 100)
    ]
    assert replay_first_batch(run(cluster(130), {"startingtimestamp": "60"}, legacy=legacy), end) == [("t-0", 60, 100)]
    with pytest.raises(OptionError, match="Its start is not known"):
        replay_first_batch(run(cluster(130), {"startingoffsets": "latest"}, legacy=legacy), end)


@LEGACY
def test_an_idle_query_after_its_first_batch_returns_the_end_unchanged(legacy: bool) -> None:
    """Spark compares offsets as strings: any difference would start a batch. A stateful query may run one without."""
    offset_reader = cluster(100)
    reader = run(offset_reader, {"startingoffsets": "earliest"}, legacy=legacy)
    end = first_end(reader)
    assert ranges(reader, reader.initialOffset(), end) == [("t-0", 0, 100)]
    assert json.dumps(next_end(reader, end)) == json.dumps(end)
    restarted = run(offset_reader, {"startingoffsets": '{"t":{"0":50}}'}, legacy=legacy)
    assert ranges(restarted, end, end) == [], "a later batch without records, planned again"
    assert json.dumps(next_end(restarted, end)) == json.dumps(end)


def test_the_recorded_start_is_split_and_limited_like_any_other() -> None:
    options = {"startingoffsets": "earliest", "maxoffsetspertrigger": "60"}
    end = first_end(run(cluster(100), options))
    assert end["t"] == {"0": 60}
    changed = {"startingoffsets": "latest", "maxoffsetspertrigger": "5", "minpartitions": "2"}
    assert replay_first_batch(run(cluster(100), changed), end) == [("t-0", 0, 30), ("t-0", 30, 60)]


def test_available_now_reads_the_first_batch_of_an_earlier_run() -> None:
    end = first_end(run(cluster(100), {"startingoffsets": "earliest"}))
    restarted = run(cluster(130), {"startingoffsets": '{"t":{"0":120}}'})
    assert isinstance(restarted, KafkaMicroBatchStream)
    restarted.prepareForTriggerAvailableNow()
    assert replay_first_batch(restarted, end) == [("t-0", 0, 100)]
    following = next_end(restarted, end)
    assert ranges(restarted, end, following) == [("t-0", 100, 130)]


def test_partitions_and_topics_that_changed_since() -> None:
    offset_reader = cluster(100)
    offset_reader.logs[U0] = (0, 10)
    end = first_end(run(offset_reader, {"startingoffsets": "earliest"}))
    offset_reader.logs[T1] = (0, 5)
    offset_reader.unselected = {U0}
    restarted = run(offset_reader, {"startingoffsets": "latest"})
    assert replay_first_batch(restarted, end) == [("t-0", 0, 100), ("u-0", 0, 10)], "without the added partition"
    offset_reader.unselected = set()
    following = next_end(restarted, end)
    assert ranges(restarted, end, following) == [("t-1", 0, 5)]
    assert offset_reader.warnings == []


@pytest.mark.parametrize(
    ("start", "first_offset"),
    [("earliest", 8), ('{"t":"earliest"}', 8), ('{"t":{"0":-2}}', 8), ('{"t":{"0":8}}', 3), ("latest", 3)],
)
def test_retention_is_no_loss_while_the_query_starts_at_earliest(start: str, first_offset: int) -> None:
    """With another start the tasks find the loss."""
    offset_reader = cluster(100)
    offset_reader.logs[T0] = (3, 100)
    end = first_end(run(offset_reader, {"startingoffsets": "earliest"}))
    offset_reader.logs[T0] = (8, 100)
    assert replay_first_batch(run(offset_reader, {"startingoffsets": start}), end) == [("t-0", first_offset, 100)]
    skipped = "offsets [3, 8) of t-0 were removed by retention since the first batch was planned"
    assert [skipped in warning for warning in offset_reader.warnings] == [True] * (first_offset == 8)


def test_a_damaged_start_is_rejected() -> None:
    with pytest.raises(InvalidOffsetsError, match="offsets must look like"):
        replay_first_batch(run(cluster(100), {}), {"t": {"0": 100}, "(start){": {}})


def test_the_start_of_many_partitions_fits_into_the_keys_of_sparks_json_reader() -> None:
    largest = (1 << 31) - 1
    partitions = [TopicPartition(f"{number:t>249}", largest) for number in range(3000)]
    offset_reader = FakeOffsetReader({tp: ((1 << 61) + tp.partition, 1 << 62) for tp in partitions})
    end = first_end(run(offset_reader, {"startingoffsets": "earliest"}))
    assert max(map(len, end)) < 50_000
    assert replay_first_batch(run(offset_reader, {"startingoffsets": "latest"}), end) == [
        (str(tp), log_start, 1 << 62) for tp, (log_start, _) in sorted(offset_reader.logs.items())
    ]


@pytest.mark.parametrize("other_start", ["earliest", '{"t":{"0":3}}', "latest"])
def test_a_first_batch_of_a_topic_that_was_created_after_the_start_was_resolved(other_start: str) -> None:
    """A pattern may match no topic at first."""
    offset_reader = FakeOffsetReader({T0: (0, 0)}, unselected={T0})
    first = run(offset_reader, {"startingoffsets": "earliest"})
    assert isinstance(first, KafkaMicroBatchStream)
    start = checkpointed(first.initialOffset())
    assert start == {}
    offset_reader.unselected = set()
    offset_reader.logs[T0] = (0, 5)
    end = next_end(first, start)
    assert ranges(first, start, end) == [("t-0", 0, 5)]
    restarted = run(offset_reader, {"startingoffsets": other_start})
    assert replay_first_batch(restarted, end) == [("t-0", 0, 5)]
