"""The tasks of a KafkaRDD: their requests, and their pickled form."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark_kafka_direct import OffsetRange
from pyspark_kafka_direct.client.metadata import Node, PartitionLeader
from pyspark_kafka_direct.config.client_parser import parse_client_params
from pyspark_kafka_direct.direct.kafka_rdd import CountRecords, ReadArrow, ReadRecords
from pyspark_kafka_direct.spark.range_task import RangeTask, RangeTaskReader

if TYPE_CHECKING:
    import pytest

TASK = RangeTask(OffsetRange("t", 1, 5, 9), UUID(int=7), PartitionLeader(Node(3, "broker", 9092), 2))
SETTINGS = parse_client_params({"bootstrap.servers": "broker:9092"})


def test_the_request_of_a_task() -> None:
    reader = RangeTaskReader(*SETTINGS, 7.5, fail_on_data_loss=False, max_batch_bytes=70_000)
    *settings, request = reader.prepare(TASK, ("value",))
    assert settings == [*SETTINGS]
    assert (request.offsets, request.topic_id, request.leader) == (TASK.offsets, TASK.topic_id, TASK.leader)
    assert (request.columns, request.poll_timeout, request.fail_on_data_loss) == (("value",), 7.5, False)
    assert request.max_batch_bytes == 70_000


def test_the_rack_of_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = RangeTaskReader(*SETTINGS, 1.0, rack_environment_variable="RACK_OF_A_TEST")
    assert reader.prepare(TASK, ())[1].client_rack == ""
    monkeypatch.setenv("RACK_OF_A_TEST", "rack-1")
    assert reader.prepare(TASK, ())[1].client_rack == "rack-1"


def test_an_empty_range_opens_no_connection() -> None:
    """The host does not exist, so a connection would fail."""
    reader = RangeTaskReader(*parse_client_params({"bootstrap.servers": "no-such-host.invalid:9092"}), 1.0)
    empty = [RangeTask(OffsetRange("t", 0, 3, 3))]
    assert list(ReadRecords(reader, None, None)(0, empty)) == []
    assert list(ReadArrow(reader, ("value",))(0, empty)) == []
    assert list(CountRecords(reader)(0, empty)) == []


def test_a_task_is_small_and_does_not_contain_the_password() -> None:
    """As documented in docs/security.md: executors authenticate themselves, so the reader contains the password."""
    client_params = parse_client_params(
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
    read_records = ReadRecords(RangeTaskReader(*client_params, 1.0), None, None)
    assert b"swordfish" in pickle.dumps(read_records)
    assert "swordfish" not in repr(read_records)
    assert "swordfish" not in repr(RangeTaskReader(*client_params, 1.0))
    page = " ".join((Path(__file__).parents[3] / "docs" / "security.md").read_text("utf-8").split())
    assert "Settings do travel to the executors inside Spark's tasks, in clear" in page
