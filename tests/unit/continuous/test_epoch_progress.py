"""Progress reports of continuous queries."""

from __future__ import annotations

from pyspark_kafka_direct.continuous.query_state import QueryInfo, epoch_progress
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.continuous_epochs import EpochResult

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
