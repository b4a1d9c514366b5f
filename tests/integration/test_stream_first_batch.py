"""``kill -9`` of the driver in batch 0, before which a Python source has nothing in the checkpoint."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.topics import Admin
from tests.soak.driver import Driver, wait_for_orphans

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

APP = Path(__file__).with_name("first_batch_app.py")
DEADLINE = 600  # seconds for a driver to start, on a busy machine
YESTERDAY, TODAY = 1_700_000_000_000, 1_700_086_400_000


@pytest.mark.spark_app
@pytest.mark.timeout(1800)
def test_a_driver_killed_in_batch_0_keeps_its_start(
    kafka: EmbeddedKafka, make_topic: MakeTopic, put: Any, tmp_path: Path, source_runner_variables: dict[str, str]
) -> None:
    latest, timestamp, aged, changed = (make_topic(prefix=f"first-{number}") for number in range(4))
    put(latest, ["old"] * 3)
    put(timestamp, ["old"] * 3, timestamp=YESTERDAY)
    put(timestamp, range(3), timestamp=TODAY)
    for topic in (aged, changed):
        put(topic, range(3))
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    sources = {
        "latest": {"subscribe": latest, "startingOffsets": "latest"},
        "timestamp": {"subscribe": timestamp, "startingTimestamp": str(TODAY)},
        "aged": {"subscribe": aged, "startingOffsets": "earliest"},
        "changed": {"subscribe": changed, "startingOffsets": "earliest"},
    }
    redeployed = {
        **sources,
        "timestamp": {"subscribe": timestamp, "startingOffsets": "earliest"},
        "changed": {"subscribe": changed, "startingOffsets": json.dumps({changed: {"0": 2}})},
    }

    def options(run: dict[str, dict[str, str]]) -> dict[str, str]:
        return {name: json.dumps({**servers, **source}) for name, source in run.items()}

    driver = Driver(tmp_path, options(sources), app=APP)
    try:
        until = time.monotonic() + DEADLINE
        while not all((tmp_path / f"{name}-in-0").exists() for name in sources):
            assert driver.alive, driver.log_tail()
            assert time.monotonic() < until, driver.log_tail()
            time.sleep(0.05)
    finally:
        driver.kill()
    assert wait_for_orphans(driver.orphans) == []
    first_ends = {name: offsets(tmp_path, name, 0) for name in sources}
    assert first_ends == {
        "latest": {latest: {"0": 3}, "(start)": {}},
        "timestamp": {timestamp: {"0": 3}, "(start)": {}},
        **{
            name: {topic: {"0": 3}, f'(start){{"{topic}":{{"0":0}}}}': {}}
            for name, topic in (("aged", aged), ("changed", changed))
        },
    }
    assert not list(tmp_path.glob("*-checkpoint/commits/[0-9]*"))

    for topic in (latest, timestamp, aged, changed):
        put(topic, range(3, 6), timestamp=YESTERDAY if topic == timestamp else TODAY)
    Admin(kafka.bootstrap_servers).delete_records(aged, 2)  # retention, while the query was down
    driver = Driver(tmp_path, options(redeployed), to_the_end=True, app=APP, environment=source_runner_variables)
    try:
        assert driver.wait(DEADLINE) == 0, driver.log_tail()
    finally:
        driver.kill()
    assert {name: offsets(tmp_path, name, 0) for name in sources} == first_ends
    assert output(tmp_path, "latest") == [[], ["3", "4", "5"]], "from its first start"
    assert output(tmp_path, "timestamp") == [[], ["0", "1", "2", "3", "4", "5"]]
    assert output(tmp_path, "changed") == [["0", "1", "2"], ["3", "4", "5"]], "with other options, from its first start"
    assert output(tmp_path, "aged") == [["2"], ["3", "4", "5"]], "what is left, and no error: docs/guarantees.md"


def offsets(folder: Path, name: str, batch: int) -> dict[str, dict[str, int]]:
    """The end of a batch in the checkpoint."""
    lines = (folder / f"{name}-checkpoint" / "offsets" / str(batch)).read_text().splitlines()
    found: dict[str, dict[str, int]] = json.loads(lines[2])
    return found


def output(folder: Path, name: str) -> list[list[str]]:
    """The values of each batch."""
    files = sorted(folder.glob(f"{name}-batch-*.json"), key=lambda file: int(file.stem.rpartition("-")[2]))
    return [sorted(json.loads(file.read_text())) for file in files]
