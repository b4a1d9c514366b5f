"""A short ``make soak-continuous``: kills a worker, an executor and the driver of a continuous query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.continuous.plan import Plan, Round
from tests.soak.continuous.run import ContinuousSoakRun

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_at_least_once_repeats_only_the_last_epoch(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    plan = Plan(seed=0, delivery="at-least-once", rounds=(Round("worker"), Round("driver")))
    outcome = ContinuousSoakRun(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.faults.total() == len(plan.rounds)
    assert outcome.duplicates > 0, "records after the last epoch are written again"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_exactly_once_writes_each_record_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    rounds = (Round("executor"), Round("driver"))
    plan = Plan(seed=0, delivery="exactly-once", rounds=rounds, cluster=True)
    outcome = ContinuousSoakRun(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.faults.total() == len(plan.rounds)
    assert outcome.aborted > 0, "records after the last epoch were aborted"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_database_gets_each_record_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """The sink is that of examples/continuous_sqlite.py."""
    rounds = (Round("worker"), Round("driver"), Round("worker"), Round("driver"))
    plan = Plan(seed=0, delivery="database", rounds=rounds)
    outcome = ContinuousSoakRun(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.faults.total() == len(plan.rounds)
    assert outcome.records > 0
