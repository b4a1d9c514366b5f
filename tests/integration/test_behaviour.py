"""The part of the record of behaviour that needs a broker; ``tests/unit/test_behaviour.py`` has the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.behaviour import imports
from tests.behaviour.differences import report

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.broker import EmbeddedKafka


def test_planning_and_reading_import_what_is_recorded(kafka: EmbeddedKafka, make_topic: Callable[..., str]) -> None:
    found, rows = imports.batch_imports(imports.produce_records(kafka.bootstrap_servers, make_topic()))
    assert rows == imports.ROWS
    assert not (said := report("workers", imports.compare(found))), said
