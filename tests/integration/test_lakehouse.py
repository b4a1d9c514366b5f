"""The queries of docs/lakehouse.md: kills around MERGE lose and repeat no row of a Delta or Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.lakehouse.run import Format, Kill, LakehouseRun, fits

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.broker import EmbeddedKafka

# The second driver repeats the batch that the first one has merged, the third one that of which the second was killed.
KILLS = (Kill("after the MERGE", batches=1), Kill("in the MERGE", batches=0, delay=0.3))


@pytest.mark.soak
@pytest.mark.smoke  # Iceberg has jars only for Spark 4.0 and 4.1
@pytest.mark.timeout(900)
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_table_after_kills_around_merge(kafka: EmbeddedKafka, tmp_path: Path, table_format: Format) -> None:
    if not fits(table_format):
        pytest.skip(f"docs/lakehouse.md names no jar of {table_format} for this version of PySpark")
    outcome = LakehouseRun(table_format, KILLS, kafka.bootstrap_servers, tmp_path / "query", print).run()
    assert outcome.kills["after the MERGE"] >= 1
    assert outcome.kills.total() == len(KILLS)
