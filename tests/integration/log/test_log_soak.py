"""The short form of ``make soak-log``: writers, tables and brokers are hurt, and no table is read to its end early."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.log.plan import KINDS, Step
from tests.soak.log.run import PROPERTIES, LogRun
from tests.soak.sink.brokers import PROPERTIES as OF_THREE
from tests.soak.sink.brokers import Brokers

from pyspark_kafka_direct.broker import EmbeddedKafka

if TYPE_CHECKING:
    from pathlib import Path

STEPS = (
    Step("kill writer", KINDS.index("transactions"), 1.0),
    Step("move leaders", 1, 1.0),
    Step("restart table", 0, 0.5),
    Step("kill writer", KINDS.index("log"), 0.5),
    Step("stop broker", 2, 1.0),
    Step("restart table", 3, 0.5),
    Step("kill writer", KINDS.index("table"), 0.5),
)


@pytest.mark.timeout(600)
def test_no_table_is_read_to_its_end_early(tmp_path: Path) -> None:
    with EmbeddedKafka(3, reuse_running=False, properties=OF_THREE | PROPERTIES) as kafka:
        run = LogRun(iter(STEPS), Brokers(kafka), tmp_path / "log", print, writers=5, tables=4)
        outcome = run.run()
    assert outcome.deeds.total() == len(STEPS)
    assert outcome.checks > 0
    assert outcome.restarts == 2
    assert outcome.keys > 0
