"""The decision who commits for ``commitGroupId``: the listener of ``enable(spark)``, or else the planner.

The decision is made when a query starts, and holds for the run. Two committers would move the offsets of the group
back and forth, because one learns later than the other which batches are finished. The listener and the planner run in
different processes and exchange files in the shared folder (``listener_files``):

    commit-<query's group>-<run id>.offer            by the listener when a query starts
    commit-<query's group>-<run id>-<n>.accepted     by each planner when it starts

The query's group is a hash of the bootstrap servers and the group's name; n is random. Spark notifies the listener of a
start before it creates the planner. So the planner either finds the offer, or there is none because ``enable`` was not
called with this session, or not yet. The listener commits only if its offer was accepted.

A query with several sources has as many planners. When Spark reruns the last batch of an earlier run, it does not call
those that have nothing in it, so they may start after the first progress report. When all have started, the listener
withdraws its offer, because the planner of another query could not distinguish it from one of its own.

A query that resumes from its checkpoint may find nothing to read for long. So the planner writes the offsets at which
the query resumes into the accepted file, and the listener commits them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import uuid
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.atomic_file import write_atomically
from pyspark_kafka_direct.offsets import partition_offsets_from_json, partition_offsets_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ReadSettings

_log = logging.getLogger("pyspark_kafka_direct.spark")


class CommitGroup(NamedTuple):
    """The consumer group for which a query commits."""

    servers: str  # bootstrap servers in the configured order
    group_id: str

    @property
    def _name(self) -> str:
        return "commit-" + hashlib.sha256(json.dumps(self).encode()).hexdigest()[:32]


def commit_group(settings: ReadSettings) -> CommitGroup | None:
    """Return the group for which a source commits, or ``None`` without ``commitGroupId``."""
    if settings.source.commit_group_id is None:
        return None
    return CommitGroup(settings.connection.bootstrap_string, settings.source.commit_group_id)


class CommitOffer:
    """The listener's offer to commit for a run of a query."""

    def __init__(self, folder: Path, group: CommitGroup, run_id: str) -> None:
        self._folder = folder
        self._name = f"{group._name}-{run_id}"
        self._file = folder / f"{self._name}.offer"
        self._file.touch()

    def is_accepted(self) -> bool:
        return bool(self._accepted_files())

    def withdraw(self) -> None:
        """Prevent further planners from accepting; call it when all planners of the run have started."""
        self._file.unlink(missing_ok=True)

    def resume_offsets(self) -> list[dict[TopicPartition, int]]:
        """Return the offsets at which sources resumed from the checkpoint, as far as planners reported them."""
        offsets = []
        for file in self._accepted_files():
            with contextlib.suppress(FileNotFoundError):
                if text := file.read_text():
                    offsets.append(partition_offsets_from_json(text))
        return offsets

    def close(self) -> None:
        """Remove the files when the run is finished."""
        for file in (self._file, *self._accepted_files()):
            file.unlink(missing_ok=True)

    def _accepted_files(self) -> list[Path]:
        return sorted(self._folder.glob(f"{self._name}-*.accepted"))


class AcceptedCommitOffer:
    """The planner's side of accepted offers: the listener commits. It replaces a ``RunOffsetCommitter``."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._is_first_call = True  # of commit_async: only its offsets are those at which the query resumed
        for file in files:
            file.touch()

    def commit_async(
        self, offsets: Mapping[TopicPartition, int], *, resumed_from: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Report the offsets of a resumed query to the listener, which observes later batches itself."""
        if resumed_from is not None and self._is_first_call:
            try:
                for file in self._files:
                    write_atomically(file, partition_offsets_to_json(offsets))
            except OSError as error:  # the listener then commits only after the first batch
                _log.info("cannot report the offsets of the resumed query to the listener: %s", error)
        self._is_first_call = False

    def wait_for_commit(self) -> None:
        """Return at once: the planner has no commit in flight."""


def accept_commit_offer(folder: Path, group: CommitGroup) -> AcceptedCommitOffer | None:
    """Accept the listener's offers, or return ``None`` if there is none."""
    offers = folder.glob(f"{group._name}-*.offer")
    planner_id = uuid.uuid4().hex
    files = [offer.with_name(f"{offer.stem}-{planner_id}.accepted") for offer in offers]
    return AcceptedCommitOffer(files) if files else None
