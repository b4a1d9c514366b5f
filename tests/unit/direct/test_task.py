"""What a task asks of the reading room."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark_kafka_direct import OffsetRange
from pyspark_kafka_direct.direct._task import CountRecords, ReadArrow, ReadRecords
from pyspark_kafka_direct.runtime.range_task import RangeTask, Reading
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.metadata import Node, PartitionLeader

if TYPE_CHECKING:
    import pytest

TASK = RangeTask(OffsetRange("t", 1, 5, 9), UUID(int=7), PartitionLeader(Node(3, "broker", 9092), 2))
SETTINGS = connection_settings({"bootstrap.servers": "broker:9092"})


def test_what_is_requested() -> None:
    reading = Reading(*SETTINGS, 7.5, fail_on_data_loss=False, max_batch_bytes=70_000)
    *settings, request = reading.prepare(TASK, ("value",))
    assert settings == [*SETTINGS]
    assert (request.offsets, request.topic_id, request.leader) == (TASK.offsets, TASK.topic_id, TASK.leader)
    assert (request.columns, request.poll_timeout, request.fail_on_data_loss) == (("value",), 7.5, False)
    assert request.max_batch_bytes == 70_000


def test_the_executors_rack(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(*SETTINGS, 1.0, rack_environment_variable="RACK_OF_A_TEST")
    assert reading.prepare(TASK, ())[1].client_rack == ""
    monkeypatch.setenv("RACK_OF_A_TEST", "rack-1")
    assert reading.prepare(TASK, ())[1].client_rack == "rack-1"


def test_an_empty_range_opens_nothing() -> None:
    """The address does not exist: whoever tried to connect would fail."""
    reading = Reading(*connection_settings({"bootstrap.servers": "no-such-host.invalid:9092"}), 1.0)
    empty = [RangeTask(OffsetRange("t", 0, 3, 3))]
    assert list(ReadRecords(reading, None, None)(0, empty)) == []
    assert list(ReadArrow(reading, ("value",))(0, empty)) == []
    assert list(CountRecords(reading)(0, empty)) == []


def test_a_task_is_small_and_the_password_travels_beside_it() -> None:
    """As docs/security.md says: an executor logs in by itself, so what reads has the password, and shows it nowhere."""
    secret = connection_settings(
        {
            "bootstrap.servers": "broker:9092",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "swordfish",
        }
    )
    assert len(pickle.dumps(TASK)) < 600
    assert pickle.loads(pickle.dumps(TASK)) == TASK
    reads = ReadRecords(Reading(*secret, 1.0), None, None)
    assert b"swordfish" in pickle.dumps(reads)
    assert "swordfish" not in repr(reads)
    assert "swordfish" not in repr(Reading(*secret, 1.0))
    page = " ".join((Path(__file__).parents[3] / "docs" / "security.md").read_text("utf-8").split())
    assert "Settings do travel to the executors inside Spark's tasks, in clear" in page
