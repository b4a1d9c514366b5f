"""Progress reports of continuous queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult
from pyspark_kafka_direct.continuous.query_state import QueryInfo, QueryState, epoch_progress
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_latest_offset_is_never_below_the_end_of_the_epoch() -> None:
    """The ends are those of the last check of the partitions, and the query has read more since."""
    progress = epoch_progress(
        QueryInfo(id="q", run_id="r", name=None, source="", sink=""),
        EpochResult(epoch=3, offsets={T0: 9, T1: 4}, rows=2, bytes=20, flush_ms=0.0),
        start_offsets={T0: 7, T1: 4},
        latest={T0: 7, T1: 8},
        ended_at=0.0,
        seconds=1.0,
        commit_ms=0.0,
    )
    source = progress["sources"][0]
    assert (source["endOffset"], source["latestOffset"]) == ({"t": {"0": 9, "1": 4}}, {"t": {"0": 9, "1": 8}})


def test_a_report_has_the_fields_of_spark() -> None:
    progress = epoch_progress(
        QueryInfo(id="q", run_id="r", name="copies", source="KafkaDirect[Subscribe[t]]", sink="Kafka[topic u]"),
        EpochResult(epoch=3, offsets={T0: 9}, rows=4, bytes=20, flush_ms=7.4, rows_read=5),
        start_offsets={T0: 4},
        latest={},
        ended_at=1_700_000_000.25,
        seconds=2.5,
        commit_ms=3.6,
    )
    rates = {"numInputRows": 5, "inputRowsPerSecond": 2.0, "processedRowsPerSecond": 2.0}
    source = {
        "description": "KafkaDirect[Subscribe[t]]",
        "startOffset": {"t": {"0": 4}},
        "endOffset": {"t": {"0": 9}},
        "latestOffset": None,
    }
    assert progress == {
        "id": "q",
        "runId": "r",
        "name": "copies",
        "timestamp": "2023-11-14T22:13:20.250Z",
        "batchId": 3,
        **rates,
        "durationMs": {"addBatch": 7, "commitOffsets": 4, "triggerExecution": 2500},
        "sources": [{**source, **rates}],
        "sink": {"description": "Kafka[topic u]", "numOutputRows": 4},
    }


@pytest.mark.parametrize(
    ("change", "is_seen"),
    [
        (lambda state: state.set_offsets({T0: 7}), lambda state: state.offsets == {T0: 7}),
        (lambda state: state.add_progress({}, {T0: 7}), lambda state: state.offsets == {T0: 7}),
        (lambda state: state.stop(), lambda state: state.stopping),
        (lambda state: state.end(None), lambda state: state.ended),
    ],
    ids=["offsets", "progress", "stop", "end"],
)
def test_all_threads_that_wait_see_a_change_at_once(
    change: Callable[[QueryState], None], is_seen: Callable[[QueryState], bool]
) -> None:
    with UnitCluster({}) as cluster:
        state = QueryState(QueryInfo(id="q", run_id="r", name=None, source="", sink=""), 1, cluster.process)
        seen_at: list[float] = []

        def wait() -> None:
            assert state.wait(lambda: is_seen(state), 100)
            seen_at.append(cluster.now)

        for _ in range(2):
            cluster.process.spawn("wait", wait)
        cluster.sleep(5)
        state.wait_for_stop(0.0)
        assert not state.stopping
        assert seen_at == []
        changed_at = cluster.now
        change(state)
        cluster.sleep(1)
        assert seen_at == [pytest.approx(changed_at, abs=0.1)] * 2
