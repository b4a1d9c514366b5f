"""The short form of ``make soak``: a query that is killed three times reads each record exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.plan import Plan, Round
from tests.soak.stream_run import SoakQuery

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.broker import EmbeddedKafka

ROUNDS = (
    Round("in batch 0", batches=0, delay=0.05, extra="none", extra_delay=0),
    Round("later", batches=1, delay=0.2, extra="task worker", extra_delay=0.3),
    Round("later", batches=2, delay=0.5, extra="none", extra_delay=0),
)


@pytest.mark.smoke
@pytest.mark.spark_app
@pytest.mark.timeout(600)
def test_each_record_is_read_once_after_three_kills(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    plan = Plan(seed=0, start="latest", rounds=ROUNDS, grows=1, deletes=2)
    outcome = SoakQuery(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.kills.total() == len(ROUNDS)
    assert outcome.extras == {"task worker": 1}
    assert outcome.changes == {"created": 1, "deleted and recreated": 1}
    assert outcome.records > 0
