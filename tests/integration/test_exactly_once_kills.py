"""``kill -9`` of the driver at each place of the commit step; each record is there once for a reader that is not ours.

The application, and how it is held and killed, are those of ``make soak-sink``, where the rest is tested by chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.sink.plan import Plan, Round
from tests.soak.sink.run import SinkRun

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.broker import EmbeddedKafka

PLACES = (
    Round("after InitProducerId", "driver"),
    Round("sending in the transaction", "driver", skip=2),
    Round("before the marker", "driver"),
    Round("before EndTxn", "driver"),
    Round("after EndTxn", "driver"),
    Round("committed", "driver"),
)


@pytest.mark.spark_app
@pytest.mark.timeout(900)
def test_each_record_is_there_once_wherever_the_driver_dies(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    plan = Plan(seed=0, delivery="exactly-once", rounds=PLACES, codec="lz4", staging="files")
    outcome = SinkRun(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.drivers == outcome.deeds.total() == len(PLACES)
    assert outcome.records > 0
    assert outcome.doubles == 0
    assert outcome.aborted > 0, "nobody died within a transaction"
