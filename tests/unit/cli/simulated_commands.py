"""Commands of ``kafka-direct`` with a simulated cluster."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from tests.unit.arrow.slice_cluster import SliceCluster

from pyspark_kafka_direct.cli.main import main
from pyspark_kafka_direct.client import cluster_client
from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.payloads.write_rows import HEADERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pytest

    from pyspark_kafka_direct.offsets import TopicPartition

Header = tuple[str, bytes | None]


class Output(NamedTuple):
    """The result of a command."""

    code: int
    text: str
    errors: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The objects that ``--json`` prints."""
        return [json.loads(line) for line in self.text.splitlines()]


class Pipe:
    """The output of a command for a program, which sees what the command has flushed."""

    def __init__(self, *, is_terminal: bool = False) -> None:
        self._written = io.BytesIO()
        self._read = 0
        self.stream = _Stream(io.BufferedWriter(self._written), is_terminal)

    def read(self) -> str:
        """Return what was flushed since the last call."""
        start, self._read = self._read, len(self._written.getvalue())
        return self._written.getvalue()[start:].decode()


class _Stream(io.TextIOWrapper):
    def __init__(self, buffer: Any, is_terminal: bool) -> None:
        super().__init__(buffer)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


class CommandCluster(SliceCluster):
    """Runs commands with its brokers: topic ``t`` has two partitions, ``u`` has one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **cluster: Any) -> None:
        super().__init__(monkeypatch, **cluster)
        monkeypatch.setattr(cluster_client, "POOL", self.pool)
        self._capsys = capsys

    @property
    def servers(self) -> str:
        broker = self.cluster.brokers[1]
        return f"{broker.host}:{broker.port}"

    def run(self, *arguments: str) -> Output:
        """Run a command."""
        self._capsys.readouterr()
        code = main([*arguments, "-b", self.servers])
        output = self._capsys.readouterr()
        return Output(code, output.out, output.err)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a consumer group."""
        ConsumerGroup(self.client(), group).commit(offsets)

    def write_headers(
        self, topic: str, rows: Sequence[Sequence[Header]], partition: int = 0, *, times_ms: Sequence[int] = ()
    ) -> None:
        """Write a record with each of the lists of headers, and perhaps with these timestamps."""
        headers = pa.array([[{"key": key, "value": value} for key, value in row] for row in rows], HEADERS)
        numbers = pa.array([partition] * len(rows), pa.int32())
        columns = {"value": [b"x"] * len(rows), "headers": headers, "partition": numbers}
        if times_ms:
            columns["timestamp"] = pa.array([each * 1000 for each in times_ms], pa.timestamp("us", "UTC"))
        self.write(topic, pa.table(columns))


def write_checkpoint(
    folder: Path,
    batches: Sequence[Sequence[Mapping[str, object] | None]],
    committed: int,
    *,
    times_ms: Sequence[int] = (),
    starts: Mapping[int, Mapping[str, object]] | None = None,
) -> str:
    """Write the checkpoint of a query; return its path.

    Args:
        folder: The checkpoint, whose name is the query id.
        batches: The end offsets of the sources of each batch; None if a source has none yet.
        committed: The number of committed batches.
        times_ms: When the batches were planned.
        starts: The start offsets of sources, as Spark's own source keeps them.
    """
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": folder.name}))
    for number, sources in enumerate(batches):
        metadata = json.dumps({"batchTimestampMs": times_ms[number]} if times_ms else {})
        lines = ["-" if each is None else json.dumps(each) for each in sources]
        (folder / f"offsets/{number}").write_text("\n".join(["v1", metadata, *lines]))
    for number in range(committed):
        (folder / f"commits/{number}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    for source, offsets in (starts or {}).items():
        (folder / f"sources/{source}").mkdir(parents=True, exist_ok=True)
        (folder / f"sources/{source}/0").write_text("\0v1\n" + json.dumps(offsets))
    return str(folder)
