"""A short ``make soak-log``: writers, tables and brokers fail, and no read of a table completes early."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.shards.brokers import new_kafka
from tests.soak.log.plan import KINDS, Step
from tests.soak.log.run import PROPERTIES, LogRun
from tests.soak.sink.brokers import PROPERTIES as CLUSTER_PROPERTIES
from tests.soak.sink.brokers import Brokers

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


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_no_read_of_a_table_completes_early(tmp_path: Path) -> None:
    with new_kafka(brokers=3, properties=CLUSTER_PROPERTIES | PROPERTIES) as kafka:
        run = LogRun(iter(STEPS), Brokers(kafka), tmp_path / "log", print, writers=5, tables=4)
        outcome = run.run()
    assert outcome.faults.total() == len(STEPS)
    assert outcome.checks > 0
    assert outcome.restarts == 2
    assert outcome.keys > 0
