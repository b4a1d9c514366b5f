"""Who commits for the group of ``commitGroupId``: the listener of ``enable(spark)``, or else the planner of the query.

One of the two is chosen when a query starts, for as long as it runs. Two committers would take the group back and
forth, because one learns later than the other what is done. They are processes of their own, and leave each other files
in ``runtime.shared_folder``:

    commit-<query's group>-<run id>.offer            by the listener, when a query starts
    commit-<query's group>-<run id>-<n>.accepted     by the planner, when it begins

where the query's group is a hash of the bootstrap servers and the group's name, and n is the planner's own. Spark
tells the listener of a start before it makes the planner. So either the planner finds the offer, or there is none, as
``enable`` was not called with this session, or not yet. The listener commits only where its offer was accepted.

A query with several sources has as many planners. Spark runs the last batch of an earlier run again without asking
those that have nothing in it, so they may begin after the first report. When all have begun the listener ends its
offer, for the planner of another query could not tell it from one of its own.

A query that goes on from its checkpoint may find nothing to read for long. So the planner writes where that query
stands, as offsets in JSON, into its acceptance, and the listener commits it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import uuid
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.offsets import partition_offsets_from_json, partition_offsets_to_json
from pyspark_kafka_direct.runtime.shared_folder import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.source import StreamOptions

_log = logging.getLogger("pyspark_kafka_direct.runtime")


class QueryGroup(NamedTuple):
    """The group for which a query commits.

    Attributes:
        servers: The bootstrap servers, in the order in which they were given.
        group_id: The group's name.
    """

    servers: str
    group_id: str

    @property
    def _name(self) -> str:
        return "commit-" + hashlib.sha256(json.dumps(self).encode()).hexdigest()[:32]


def group_of(options: StreamOptions) -> QueryGroup | None:
    """Return the group for which a source commits; ``None``: it has no ``commitGroupId``."""
    if options.commit_group_id is None:
        return None
    return QueryGroup(options.connection.bootstrap_text, options.commit_group_id)


class Offer:
    """The listener's side: it will commit for this run of a query, if the planner accepts.

    Args:
        folder: Where to leave it.
        group: The group.
        run_id: The run.
    """

    def __init__(self, folder: Path, group: QueryGroup, run_id: str) -> None:
        self._folder = folder
        self._name = f"{group._name}-{run_id}"
        self._file = folder / f"{self._name}.offer"
        self._file.touch()

    def accepted(self) -> bool:
        """Return whether the listener is to commit."""
        return bool(self._acceptances())

    def end(self) -> None:
        """Let nobody accept any more: by now all planners of the run have begun."""
        self._file.unlink(missing_ok=True)

    def starts(self) -> list[dict[TopicPartition, int]]:
        """Return where the run's sources stood when they went on from the checkpoint, as far as planners have said."""
        found = []
        for file in self._acceptances():
            with contextlib.suppress(FileNotFoundError):
                if text := file.read_text():
                    found.append(partition_offsets_from_json(text))
        return found

    def close(self) -> None:
        """Remove the files: the run is over."""
        for file in (self._file, *self._acceptances()):
            file.unlink(missing_ok=True)

    def _acceptances(self) -> list[Path]:
        return sorted(self._folder.glob(f"{self._name}-*.accepted"))


class Acceptance:
    """The planner's side: the listener commits.

    Args:
        files: To be made, one for each offer.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._told = False
        for file in files:
            file.touch()

    def offer(
        self, offsets: Mapping[TopicPartition, int], *, read_before: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Tell the listener where a query stands that goes on from its checkpoint; it sees later batches for itself.

        Args:
            offsets: Where the query is.
            read_before: Where an earlier run of the query has stopped, if this is the first offer of a later one.
        """
        if read_before is not None and not self._told:
            try:
                for file in self._files:
                    write_text(file, partition_offsets_to_json(offsets))
            except OSError as error:  # the first batch of this run will do
                _log.info("where the query goes on can't be told to the listener: %s", error)
        self._told = True

    def settle(self) -> None:
        """Do nothing: this side has nothing under way."""


def accept(folder: Path, group: QueryGroup) -> Acceptance | None:
    """Accept the listener's offer, when a query's planner begins; ``None``: there is none, so the planner commits."""
    offers = folder.glob(f"{group._name}-*.offer")
    mine = uuid.uuid4().hex
    files = [offer.with_name(f"{offer.stem}-{mine}.accepted") for offer in offers]
    return Acceptance(files) if files else None
