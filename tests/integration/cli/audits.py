"""Runs of ``kafka-direct audit``, and outputs for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from pyspark_kafka_direct import write_arrow
from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

Position: TypeAlias = tuple[object, object, object]  # topic, partition and offset of the source


class Audit(NamedTuple):
    """The result of a run with ``--json``."""

    code: int
    rows: list[dict[str, Any]]  # of partitions
    outputs: list[dict[str, Any]]
    stderr: str

    @property
    def problems(self) -> list[tuple[list[int], list[int], list[int]]]:
        """The first missing, duplicate and unknown offsets of each partition."""
        return [(row["first_missing"], row["first_duplicates"], row["first_unknown"]) for row in self.rows]


class Auditor:
    """Runs the command with a broker."""

    def __init__(self, servers: str, capsys: pytest.CaptureFixture[str] | None = None) -> None:
        self.servers = servers
        self._capsys = capsys

    def run(self, topic: str, *arguments: str) -> Audit:
        code, out, err = self._run(topic, "--json", *arguments)
        objects = [json.loads(line) for line in out.splitlines()]
        return Audit(
            code, [each for each in objects if "partition" in each], [each for each in objects if "output" in each], err
        )

    def text(self, topic: str, *arguments: str) -> tuple[int, str]:
        """Run it for people."""
        code, out, _ = self._run(topic, *arguments)
        return code, out

    def _run(self, topic: str, *arguments: str) -> tuple[int, str, str]:
        assert self._capsys is not None
        self._capsys.readouterr()
        code = main(["audit", topic, "-b", self.servers, *arguments])
        output = self._capsys.readouterr()
        return code, output.out, output.err

    def write(self, output: str, positions: Iterable[Position]) -> None:
        """Write records with headers of these positions, and JSON values that have them, too."""
        named = [dict(zip(("topic", "partition", "offset"), position, strict=True)) for position in positions]
        headers = [
            [(f"source.{name}", None if value is None else str(value).encode()) for name, value in row.items()]
            for row in named
        ]
        self.write_headers(output, headers, [json.dumps(row) for row in named])

    def write_headers(
        self, output: str, rows: Sequence[Sequence[tuple[str, bytes | None]]], values: Sequence[str] | None = None
    ) -> None:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        headers = pa.array([[{"key": key, "value": value} for key, value in row] for row in rows], kind)
        table = pa.table({"value": values or ["x"] * len(rows), "headers": headers})
        write_arrow(output, table, self.parameters)

    @property
    def parameters(self) -> dict[str, str]:
        return {"bootstrap.servers": self.servers}


def source_rows(topic: str, partition: int, offsets: Iterable[int]) -> list[Position]:
    """Return the positions of records."""
    return [(topic, partition, offset) for offset in offsets]
