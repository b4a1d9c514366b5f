"""The short form of ``make soak-continuous``: a worker, an executor and the driver of a continuous query are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.continuous.plan import Plan, Round
from tests.soak.continuous.run import ContinuousRun

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.mark.spark_app
@pytest.mark.timeout(600)
def test_nothing_is_lost_and_only_the_last_epoch_comes_again(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    plan = Plan(seed=0, delivery="at-least-once", rounds=(Round("worker"), Round("driver")))
    outcome = ContinuousRun(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.deeds.total() == len(plan.rounds)
    assert outcome.doubles > 0, "what was written since the last epoch is written again"


@pytest.mark.spark_app
@pytest.mark.timeout(600)
def test_each_record_is_there_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    rounds = (Round("executor"), Round("driver"))
    plan = Plan(seed=0, delivery="exactly-once", rounds=rounds, cluster=True)
    outcome = ContinuousRun(plan, kafka.bootstrap_servers, tmp_path / "query", None, print).run()
    assert outcome.deeds.total() == len(plan.rounds)
    assert outcome.aborted > 0, "what was written since the last epoch was never committed"
