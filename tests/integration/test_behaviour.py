"""The part of the record of behaviour that needs a broker; ``tests/unit/test_behaviour.py`` has the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.behaviour import collected_tests, imports
from tests.behaviour.differences import report
from tests.shards.assignment import COLLECTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.broker import EmbeddedKafka


def test_planning_and_reading_import_what_is_recorded(kafka: EmbeddedKafka, make_topic: Callable[..., str]) -> None:
    found, rows = imports.batch_imports(imports.produce_records(kafka.bootstrap_servers, make_topic()))
    assert rows == imports.ROWS
    assert not (said := report("workers", imports.compare(found))), said


def test_no_test_id_is_gone(request: pytest.FixtureRequest) -> None:
    if not collected_tests.is_full_run(request.config, "tests/integration"):
        pytest.skip("only a run of all integration tests has all ids")
    collected = [item.nodeid for item in request.config.stash[COLLECTED]]
    assert not (said := report("tests", collected_tests.compare_ids(collected, "tests/integration"))), said
