"""The work of ``kafka-direct checkpoint rewind``: an empty batch that ends at the wanted offsets."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.connection_arguments import cluster_client, has_connection
from pyspark_kafka_direct.cli.main import FOUND_PROBLEM
from pyspark_kafka_direct.cli.output import print_rows, to_stderr
from pyspark_kafka_direct.cli.query_checkpoint import QueryCheckpoint
from pyspark_kafka_direct.cli.rewind_targets import Target, parse_target, wanted_offsets
from pyspark_kafka_direct.cli.rewound_batch import COMMITS, OFFSETS, create_file, rewound_entry, unfinished_files
from pyspark_kafka_direct.offsets import partition_offsets_to_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark_kafka_direct.offsets import TopicPartition

_COLUMNS: Final = ("source", "partition", "end", "to", "again", "expired", "skipped")
_RECENT_SECONDS: Final = 60
_RENAME_SECONDS: Final = 10.0  # that a running query may need to rename a file


def rewind_query(arguments: argparse.Namespace) -> int:
    """Show what would be read again, and append the batch with ``--execute``."""
    target = parse_target(arguments.to_time, arguments.to_offsets)
    checkpoint = QueryCheckpoint(arguments.location)
    last = checkpoint.planned[-1]
    if checkpoint.is_rewound(last) and last not in checkpoint.committed:
        return _complete(arguments, checkpoint, last)
    moves = _moves(arguments, checkpoint, target)
    print_rows([each.row() for each in moves], _COLUMNS, as_json=arguments.json, if_none="No offset would change.")
    if not moves:
        return 0
    ends = _new_ends(checkpoint, moves)
    obstacle = _obstacle_in_log(moves, allow_skip=arguments.allow_skip)
    if obstacle is None and (checkpoint.has_state or checkpoint.batch(last).watermark_ms):
        _print_new_starts({**checkpoint.last_sources(), **ends}, as_json=arguments.json)
        return FOUND_PROBLEM
    obstacle = obstacle or _obstacle_in_checkpoint(checkpoint)
    if obstacle is None and arguments.execute and not arguments.force:
        obstacle = _recent_commit(checkpoint)
    if obstacle is not None:
        to_stderr(f"Nothing was changed. {obstacle}")
        return FOUND_PROBLEM
    if not arguments.execute:
        sink = "" if arguments.file_sink else " If it writes with a file sink of Spark, add --file-sink, too."
        _report(arguments, f"Would append the empty batch {last + 1}. Stop the query, and add --execute.{sink}")
        return 0
    return _append(arguments, checkpoint, ends)


@dataclass(frozen=True, slots=True)
class _Move:
    """A partition whose offset changes."""

    source: str
    partition: TopicPartition
    end: int  # of the last batch
    to: int
    log_start: int | None  # None: unknown, without a connection
    log_end: int | None

    @property
    def expired(self) -> int | None:
        """The number of wanted offsets that are no longer in the log."""
        if self.log_start is None:
            return None
        bound = self.log_start if self.to > self.end else min(self.log_start, self.end)
        return max(0, bound - self.to)

    @property
    def skipped(self) -> int:
        return max(0, self.to - self.end)

    def row(self) -> dict[str, object]:
        return {
            "source": self.source,
            "partition": str(self.partition),
            "end": self.end,
            "to": self.to,
            "again": max(0, self.end - self.to - (self.expired or 0)),
            "expired": self.expired,
            "skipped": self.skipped,
        }


def _moves(arguments: argparse.Namespace, checkpoint: QueryCheckpoint, target: Target) -> list[_Move]:
    """Return the partitions whose offset changes, with the bounds of their logs if there is a connection."""
    sources = checkpoint.last_sources(arguments.source)
    cluster = cluster_client(arguments) if has_connection(arguments) or target.needs_cluster else None
    wanted = wanted_offsets(target, sources, cluster)
    changed = [
        (source, tp, sources[source][tp], offset)
        for source, offsets in wanted.items()
        for tp, offset in sorted(offsets.items())
        if offset != sources[source][tp]
    ]
    partitions = {tp for _, tp, _, _ in changed}
    bounds = cluster.log_bounds(partitions, cluster.deadline()) if cluster else {}
    return [_Move(source, tp, end, to, *bounds.get(tp, (None, None))) for source, tp, end, to in changed]


def _new_ends(checkpoint: QueryCheckpoint, moves: list[_Move]) -> dict[str, dict[TopicPartition, int]]:
    """Return all offsets of the sources that change."""
    sources = checkpoint.last_sources()
    ends = {each.source: dict(sources[each.source]) for each in moves}
    for each in moves:
        ends[each.source][each.partition] = each.to
    return ends


def _print_new_starts(ends: Mapping[str, Mapping[TopicPartition, int]], *, as_json: bool) -> None:
    to_stderr(
        "Nothing was changed. The query has state or a watermark, so it would count records twice or drop them as "
        "late. Start it with a new checkpoint and a new output, and with these startingOffsets:"
    )
    for source, offsets in ends.items():
        text = partition_offsets_to_json(offsets)
        print(json.dumps({"source": source, "startingOffsets": text}) if as_json else f"source {source}: {text}")


def _obstacle_in_log(moves: list[_Move], *, allow_skip: bool) -> str | None:
    """Return why the query could not read from the wanted offsets."""
    if expired := [each for each in moves if each.expired]:
        listed = "; ".join(f"{each.partition}: {each.to} to {each.to + (each.expired or 0) - 1}" for each in expired)
        return f"These offsets have expired, so they cannot be read: {listed}. Choose later ones."
    if beyond := [each for each in moves if each.log_end is not None and each.to > each.log_end]:
        listed = "; ".join(f"{each.partition}: {each.to}, and the log ends at {each.log_end}" for each in beyond)
        return f"These offsets do not exist yet: {listed}."
    if (skips := [each for each in moves if each.skipped]) and not allow_skip:
        listed = "; ".join(f"{each.partition}: {each.end} to {each.to - 1}" for each in skips)
        return f"The query would never read these offsets: {listed}. Add --allow-skip if that is intended."
    return None


def _obstacle_in_checkpoint(checkpoint: QueryCheckpoint) -> str | None:
    """Return why the checkpoint cannot be changed."""
    last = checkpoint.planned[-1]
    if checkpoint.is_continuous:
        return "The checkpoint is that of a continuous query, which would take the batch for one of another driver."
    if last not in checkpoint.committed:
        return (
            f"Batch {last} is planned, but not committed: the query is running, or it failed in this batch. Restart it "
            "until the batch is committed, and stop it."
        )
    if checkpoint.local_path is None:
        return (
            "The checkpoint is not in the local file system. Elsewhere, pyarrow could replace a file that a running "
            "query has just written. Start the query with a new checkpoint."
        )
    if files := unfinished_files(checkpoint.local_path / OFFSETS, last + 1):
        return (
            f"The query is running, or it was killed while it planned batch {last + 1}. Stop it, and delete {files[0]}."
        )
    return None


def _recent_commit(checkpoint: QueryCheckpoint) -> str | None:
    folder = checkpoint.local_path
    assert folder is not None  # _obstacle_in_checkpoint has checked it
    age = max(0.0, time.time() - (folder / COMMITS / str(checkpoint.committed[-1])).stat().st_mtime)
    if age >= _RECENT_SECONDS:
        return None
    return (
        f"The last batch was committed {age:.0f} seconds ago, so the query may be running. Stop it, and wait until "
        f"{_RECENT_SECONDS} seconds have passed, or add --force."
    )


def _append(
    arguments: argparse.Namespace, checkpoint: QueryCheckpoint, ends: Mapping[str, Mapping[TopicPartition, int]]
) -> int:
    folder = checkpoint.local_path
    assert folder is not None  # _obstacle_in_checkpoint has checked it
    last = checkpoint.planned[-1]
    batch = last + 1
    name = f"{OFFSETS}/{last}"
    entry = rewound_entry(checkpoint.text(name), name, ends, int(time.time() * 1000))
    commit = checkpoint.text(f"{COMMITS}/{last}")
    created = create_file(folder / OFFSETS, str(batch), entry)
    if obstacle := _obstacle_to_commit(arguments, folder, batch) if created else _planned_by_query(batch):
        to_stderr(obstacle)
        return FOUND_PROBLEM
    if arguments.file_sink:
        _report(arguments, f"Appended the empty batch {batch}. The query passes it to its sink at the next start.")
        return 0
    create_file(folder / COMMITS, str(batch), commit)  # it exists if a query has just run the batch
    _report(arguments, f"Appended the empty batch {batch}. The next start of the query reads from its offsets.")
    return 0


def _obstacle_to_commit(arguments: argparse.Namespace, folder: Path, batch: int) -> str | None:
    """Return why the appended batch must not be committed: a query has replaced it, or may do so."""
    deadline = time.monotonic() + _RENAME_SECONDS
    while (files := unfinished_files(folder / OFFSETS, batch)) and time.monotonic() < deadline:
        time.sleep(0.01)
    if not QueryCheckpoint(arguments.location).is_rewound(batch):  # read after the query has renamed its file
        return _planned_by_query(batch)
    if files:
        return (
            f"Batch {batch} was appended, but not committed. A running query may replace it by {files[0]}. Stop the "
            "query, delete this file, and run the command again."
        )
    return None


def _planned_by_query(batch: int) -> str:
    return f"Nothing was changed. The query is running: it has planned batch {batch} meanwhile. Stop it."


def _complete(arguments: argparse.Namespace, checkpoint: QueryCheckpoint, batch: int) -> int:
    """Commit the batch of a command that was interrupted."""
    if arguments.file_sink or checkpoint.local_path is None:
        to_stderr(f"Nothing was changed. Batch {batch} is a rewind that the query has not run yet: start the query.")
        return FOUND_PROBLEM
    if not arguments.execute:
        _report(arguments, f"Batch {batch} is a rewind that was interrupted. Add --execute to commit it.")
        return 0
    if obstacle := _obstacle_to_commit(arguments, checkpoint.local_path, batch):
        to_stderr(obstacle)
        return FOUND_PROBLEM
    create_file(checkpoint.local_path / COMMITS, str(batch), checkpoint.text(f"{COMMITS}/{batch - 1}"))
    _report(
        arguments, f"Committed batch {batch}, a rewind that was interrupted. To go elsewhere, run the command again."
    )
    return 0


def _report(arguments: argparse.Namespace, text: str) -> None:
    """Print what was done, apart from JSON."""
    if arguments.json:
        to_stderr(text)
    else:
        print(text)
