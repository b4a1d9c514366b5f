"""The offsets that ``kafka-direct audit`` does not compare, because their records expired before it read them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.arrow.slice_cluster import SliceCluster

from pyspark_kafka_direct.cli.audit_input import InputArguments, plan_input, read_records
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[SliceCluster]:
    with SliceCluster(monkeypatch) as cluster:
        yield cluster


def write_checkpoint(folder: Path, start: dict[str, int], *ends: dict[str, int]) -> str:
    """Write the checkpoint of a query of the topic ``t`` with committed batches."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True)
    (folder / "sources/0/0").write_text("\0v1\n" + json.dumps({"t": start}))
    for batch, end in enumerate(ends):
        (folder / f"offsets/{batch}").write_text("v1\n{}\n" + json.dumps({"t": end}))
        (folder / f"commits/{batch}").write_text("v1\n{}")
    return str(folder)


def test_offsets_that_expire_before_and_after_the_plan_add_up(cluster: SliceCluster, tmp_path: Path) -> None:
    for tp in (T0, T1):
        cluster.append_each(tp, 20)
        cluster.delete_records(tp, 2)
    checkpoint = write_checkpoint(tmp_path, {"0": 0, "1": 1}, {"0": 5}, {"0": 18, "1": 10})
    broker = cluster.cluster.brokers[1]
    settings = {"bootstrap.servers": f"{broker.host}:{broker.port}"}
    topic = plan_input(InputArguments("t", None, None, checkpoint, None), settings, cluster.client())
    assert topic.expired == {T0: 2, T1: 1}
    cluster.delete_records(T0, 7)
    cluster.delete_records(T1, 4)
    partitions = read_records(topic, cluster.client(), {T0: 20, T1: 20})
    assert topic.expired == {T0: 7, T1: 3}
    assert {number: each.records for number, each in partitions.items()} == {0: 11, 1: 6}
