"""The short form of ``make soak-sink``: a writing query is killed three times, and no record is lost."""

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


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_no_record_is_lost_in_three_kills(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    plan = Plan(seed=0, delivery="at-least-once", rounds=AT_LEAST_ONCE, codec="lz4")
    outcome = SinkRun(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.faults.total() == len(AT_LEAST_ONCE)
    assert outcome.records > 0
    assert outcome.duplicates > 0, "killed tasks had written records, and wrote them again"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_each_record_is_written_once_in_three_kills(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    plan = Plan(seed=0, delivery="exactly-once", rounds=EXACTLY_ONCE, codec="zstd")
    outcome = SinkRun(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.faults.total() == len(EXACTLY_ONCE)
    assert outcome.records > 0
    assert outcome.aborted > 0, "the zombie had sent records but could not commit them"
