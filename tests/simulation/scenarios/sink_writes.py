"""How queries and applications write with the exactly-once sink, and what identifies each write."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from pyspark_kafka_direct.datasource.write_task import BatchWriteJob, WriteTaskContext

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

KINDS: Final = ("stream", "foreach", "job", "unnamed")
"""Micro-batches; batch writes within ``foreachBatch``; batch jobs with a ``jobId``, and without one."""


class SinkWrite(NamedTuple):
    """One batch of one run: what identifies it to the sink."""

    kind: str
    query: str  # the name of a job
    run: str
    batch: int
    digest: str | None
    job: BatchWriteJob | None

    @classmethod
    def of(cls, kind: str, query: str, run: str, batch: int, content: str, nonce: str) -> SinkWrite:
        """Return the write of a batch; ``content`` stands for its entry of the offset log."""
        if kind in ("stream", "foreach"):
            job = None if kind == "stream" else BatchWriteJob(nonce, from_option=False)
            return cls(kind, query, run, batch, content, job)
        name = f"{query} job.{batch}" if kind == "job" else nonce
        return cls("job", name, name, 0, None, BatchWriteJob(name, from_option=kind == "job"))

    def context(self, run: str, *, partition: int, attempt: int, has_checkpoint: bool) -> WriteTaskContext:
        """Return what a task knows of its write."""
        if self.kind == "job":
            return WriteTaskContext(partition, attempt, job_group=run)
        return WriteTaskContext(
            partition,
            attempt,
            query_id=self.query,
            batch_id=self.batch,
            run_id=run,
            offsets_digest=None if has_checkpoint and self.kind == "stream" else self.digest,
        )

    @property
    def state(self) -> dict[str, Any]:
        """The fields of the sink state record, without its ticket."""
        names = ("kind", "query", "run", "batch", "digest")
        return {name: getattr(self, name) for name in names}


class Checkpoint:
    """The files of a query's checkpoint that the sink reads."""

    def __init__(self, folder: str, query: str) -> None:
        self.path = folder
        self._folder = Path(folder)
        (self._folder / "offsets").mkdir(parents=True)
        (self._folder / "metadata").write_text(json.dumps({"id": query}))

    def write_offsets(self, batch: int, content: str) -> str:
        """Write a batch's entry of the offset log, and return its digest."""
        entry = f"v1\n{{}}\n{content}".encode()
        (self._folder / "offsets" / str(batch)).write_bytes(entry)
        return hashlib.sha256(entry).hexdigest()[:32]


def draw_kinds(rng: random.Random, batches: int) -> dict[str, Any]:
    """Draw how queries write: ``kinds`` of three queries, ``skipped`` batches, and ``second_writes`` of a batch."""
    kinds = [rng.choice(KINDS) if rng.random() < 0.4 else "stream" for _ in range(3)]
    return {
        "kinds": kinds,
        "skipped": [batch for batch in range(1, batches) if rng.random() < 0.15],  # by a function of foreachBatch
        "second_writes": [batch for batch in range(batches) if rng.random() < 0.2],
    }


def kind_of(parameters: Mapping[str, Any], number: int) -> str:
    kinds = parameters.get("kinds", ())
    return str(kinds[number]) if number < len(kinds) else "stream"


def uuid_of(number: int) -> str:
    return str(UUID(int=number, version=4))
