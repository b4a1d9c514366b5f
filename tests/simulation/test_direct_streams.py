"""Bugs of direct streams that a history of a few seeds must find, and what a history may contain."""

from __future__ import annotations

import pytest
from tests.simulation.errors import ViolationError
from tests.simulation.planted_direct_streams import BUGS
from tests.simulation.planting import violates_soon
from tests.simulation.scenarios.direct_stream_checks import ResultChecker
from tests.simulation.scenarios.record_truth import RecordTruth, TruthAndOracle
from tests.simulation.scenarios.spark_tasks import TaskRead
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.direct.test_direct_stream_planner import Limit

from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_task import RangeTask, ReadCounts
from pyspark_kafka_direct.direct import ConsumerStrategies, LocationStrategies
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
from pyspark_kafka_direct.direct.direct_stream_planner import StreamPosition, plan_direct_batch
from pyspark_kafka_direct.direct.stream_client import StreamClusterView, create_stream_client
from pyspark_kafka_direct.offsets import TopicPartition


@pytest.mark.parametrize(
    ("name", "found_by"),
    [
        ("replayed batch planned again", 2),
        ("failed generation advances", 44),
        ("position from group", 6),
        ("shared position", 2),
        ("tasks without topic ids", 2),
        ("commits planned ranges", 2),
        ("lowest offset of calls", 2),
    ],
)
def test_planted_bugs_are_found_soon(name: str, found_by: int) -> None:
    bug = next(each for each in BUGS if each.name == name)
    assert violates_soon(bug, found_by, seeds=99)


def test_a_task_reports_a_range_that_ends_after_the_log_of_its_topic() -> None:
    """The metadata of the plan were late: the topic was recreated before its end was fetched, from the same leader."""
    tp = TopicPartition("a", 0)
    with UnitCluster({}) as world:
        truth, oracle = RecordTruth(), world.cluster.oracle
        world.cluster.oracle = TruthAndOracle(truth, oracle)  # type: ignore[assignment]
        world.event("create_topic", topic=tp.topic)
        world.append(tp, 3)
        world.sleep(1)
        position = StreamPosition({tp: 2}, {tp.topic: world.topic_id(tp.topic)})
        params = {"bootstrap.servers": "broker-1:9092", "group.id": "g", "failOnDataLoss": "false"}
        strategy = ConsumerStrategies.Subscribe([tp.topic], params)
        client = create_stream_client(strategy, world.pool)
        spec = StreamSpec(strategy, LocationStrategies.PreferConsistent, Limit(0), 1.0)

        def recreate() -> None:
            world.event("recreate_topic", topic=tp.topic)
            world.append(tp, 8)

        world.before("ListOffsets", recreate)
        plan = plan_direct_batch(position, StreamClusterView(client, spec, None))
        (offsets,), topic_id = plan.ranges, plan.topic_ids[tp.topic]
        assert (offsets.from_offset, offsets.until_offset, topic_id) == (2, 8, position.topic_ids[tp.topic])
        counts, started_at = ReadCounts(), world.now
        connection, fetch = client.parameters.connection, client.parameters.fetch
        rows = list(read_range(connection, fetch, RangeTask(offsets, topic_id), ("value",), counts, pool=world.pool))
        assert (rows, counts.lost) == ([], 6)
        read = TaskRead(offsets, topic_id, started_at, world.now, (), counts)
        checker = ResultChecker({"streams": [{"committed": False}]}, truth, oracle, world.cluster)
        checker.check_read(0, read, fail_on_data_loss=False)
        with pytest.raises(ViolationError, match="beyond the log of its topic"):
            checker.check_read(0, read._replace(counts=ReadCounts()), fail_on_data_loss=False)
