"""The short form of ``make soak-sink``: three deaths of a query that writes, and each record is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.sink.plan import Plan, Round
from tests.soak.sink.run import SinkRun

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.broker import EmbeddedKafka

AT_LEAST_ONCE = (
    Round("acknowledged", "process"),
    Round("sending", "process", batches=1, skip=2),
    Round("sent", "driver", batches=1),
)
EXACTLY_ONCE = (
    Round("staged", "process"),
    Round("before EndTxn", "zombie", batches=1),
    Round("after EndTxn", "driver"),
)


@pytest.mark.spark_app
@pytest.mark.timeout(600)
def test_no_record_is_lost_by_three_deaths(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    plan = Plan(seed=0, delivery="at-least-once", rounds=AT_LEAST_ONCE, codec="lz4")
    outcome = SinkRun(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.deeds.total() == len(AT_LEAST_ONCE)
    assert outcome.records > 0
    assert outcome.doubles > 0, "the tasks that died had written, and wrote again"


@pytest.mark.spark_app
@pytest.mark.timeout(600)
def test_each_record_is_there_once_after_three_deaths(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    plan = Plan(seed=0, delivery="exactly-once", rounds=EXACTLY_ONCE, codec="zstd")
    outcome = SinkRun(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.deeds.total() == len(EXACTLY_ONCE)
    assert outcome.records > 0
    assert outcome.aborted > 0, "the zombie had sent records, and could not commit them"
