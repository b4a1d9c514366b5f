"""Progress reports of continuous queries."""

from __future__ import annotations

import threading

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult
from pyspark_kafka_direct.continuous.query_state import QueryInfo, QueryState, epoch_progress
from pyspark_kafka_direct.offsets import TopicPartition

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


def test_threads_that_wait_see_new_offsets() -> None:
    state = QueryState(QueryInfo(id="q", run_id="r", name=None, source="", sink=""), 1, SYSTEM)
    found: list[bool] = []
    waiting = threading.Thread(target=lambda: found.append(state.wait(lambda: state.offsets == {T0: 7}, 120)))
    waiting.start()
    state.set_offsets({T0: 7})
    waiting.join(120)
    assert found == [True]
    state.wait_for_stop(0.0)
    assert not state.stopping
