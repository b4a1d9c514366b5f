"""Short forms of ``make soak``: a query that is killed reads each record exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.plan import Plan, Round
from tests.soak.stream_run import SoakQuery

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.broker import EmbeddedKafka

LATER = Round("later", batches=1, delay=0.2, extra="task worker", extra_delay=0.3)
ONE_KILL = Plan(seed=0, start="latest", rounds=(LATER,), grows=0, deletes=0)
THREE_KILLS = Plan(
    seed=0,
    start="latest",
    rounds=(
        Round("in batch 0", batches=0, delay=0.05, extra="none", extra_delay=0),
        LATER,
        Round("later", batches=2, delay=0.5, extra="none", extra_delay=0),
    ),
    grows=1,
    deletes=2,
)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(ONE_KILL, marks=pytest.mark.smoke, id="one"),
        pytest.param(THREE_KILLS, id="three"),
    ],
)
@pytest.mark.soak  # test_stream_first_batch.py and test_dead_letters.py kill a query in other tests, too
@pytest.mark.timeout(600)
def test_each_record_is_read_once_after_kills(kafka: EmbeddedKafka, tmp_path: Path, plan: Plan) -> None:
    outcome = SoakQuery(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.kills.total() == len(plan.rounds)
    assert outcome.extras == {"task worker": 1}
    assert outcome.changes == {"created": 1, "deleted and recreated": 1}
    assert outcome.records > 0
