"""``kill -9`` of the driver at each point of the commit step: committed readers see each record exactly once.

The application and the fault injection are those of ``make soak-sink``, which kills at random points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.sink.plan import Plan, Round
from tests.soak.sink.run import SinkRun

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.broker import EmbeddedKafka

KILL_POINTS = (
    Round("sink state read before fencing", "driver"),
    Round("after InitProducerId", "driver"),
    Round("sending in the transaction", "driver", skip=2),
    Round("before the sink state", "driver"),
    Round("before EndTxn", "driver"),
    Round("after EndTxn", "driver"),
    Round("committed", "driver"),
)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_each_record_is_written_once_for_each_kill_point(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    plan = Plan(seed=0, delivery="exactly-once", rounds=KILL_POINTS, codec="lz4", staging="files")
    outcome = SinkRun(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.drivers == outcome.faults.total() == len(KILL_POINTS)
    assert outcome.records > 0
    assert outcome.duplicates == 0
    assert outcome.aborted > 0, "no driver was killed within a transaction"
