"""The logs of a continuous query: its epochs in the checkpoint, in Spark's own layout and format.

``_log_format.py`` has the format, ``_log_state.py`` the decisions; here the files are read and written, in the one
order that a crash may cut anywhere:

- the start of a query is epoch 0, empty, and committed before anything is read: "latest" is another offset tomorrow;
- an epoch is written to the offset log, then to the commit log;
- no file is written twice. Who finds an epoch written shares the checkpoint with another query, and ends.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from py4j.protocol import Py4JJavaError

from pyspark_kafka_direct.continuous._log_format import (
    Entry,
    format_commit,
    format_metadata,
    format_offsets,
    parse_commit,
    parse_metadata,
    parse_offsets,
    refuse_state,
)
from pyspark_kafka_direct.continuous._log_state import log_state, settle, to_purge
from pyspark_kafka_direct.errors import CheckpointTakenError, OffsetPlanError, OptionError
from pyspark_kafka_direct.runtime.checkpoint_files import CheckpointFiles
from pyspark_kafka_direct.runtime.spark_versions import checkpointing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.continuous._log_state import LogState, Settlement
    from pyspark_kafka_direct.offsets import TopicPartition

_METADATA, _OFFSETS, _COMMITS, _STATE = "metadata", "offsets", "commits", "state"
_RETAIN: Final = "spark.sql.streaming.minBatchesToRetain"


class Files(Protocol):
    """What is asked of the files of a checkpoint; ``CheckpointFiles`` are the real ones."""

    def place(self, name: str) -> str:
        """Return the full name of a file, for messages."""

    def text(self, name: str) -> str | None:
        """Return what is in a file; ``None`` if there is no such file."""

    def exists(self, name: str) -> bool:
        """Tell whether there is a file or folder of this name."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder."""

    def make_folder(self, name: str) -> None:
        """Make a folder and those above it, where they are not there."""

    def create(self, name: str, text: str) -> bool:
        """Write a new file; ``False`` if there is one of this name."""

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""


class Logs:
    """The logs of one query.

    They are used by one thread at a time: ``query_id``, ``settle``, where that finds nothing ``start``, then ``commit``
    for each epoch.

    Args:
        files: Of the checkpoint.
        conf: Returns the settings that a new query keeps for good.
        retain: How many epochs are kept before the newest one.

    Raises:
        OptionError: The checkpoint is of a query with state.
    """

    def __init__(self, files: Files, conf: Callable[[], Mapping[str, str]], retain: int) -> None:
        if files.exists(_STATE):
            refuse_state(files.place(_STATE))
        self._files = files
        self._new_conf = conf
        self._conf: Mapping[str, str] | None = None
        self._watermark = 0
        self._retain = retain
        self._kept: set[int] = set()
        for folder in (_OFFSETS, _COMMITS):
            files.make_folder(folder)

    def query_id(self, fresh: str) -> str:
        """Return the id of the query.

        Args:
            fresh: A UUID for a query that is new.

        Raises:
            OffsetPlanError: The file is damaged.
        """
        text = self._files.text(_METADATA)
        if text is None:
            if self._files.create(_METADATA, format_metadata(fresh)):
                return fresh
            text = self._files.text(_METADATA) or ""
        return parse_metadata(text, self._files.place(_METADATA))

    def state(self) -> LogState:
        """Return which epochs the logs have.

        Raises:
            OffsetPlanError: The logs do not belong together.
        """
        return log_state(self._epochs(_OFFSETS), self._epochs(_COMMITS), self._files.place("").rstrip("/"))

    def entry(self, epoch: int) -> Entry:
        """Return where an epoch ends.

        Raises:
            OffsetPlanError: It is not there, or not understood.
            OptionError: It is of a query that cannot go on as a continuous one.
        """
        place = self._files.place(f"{_OFFSETS}/{epoch}")
        text = self._files.text(f"{_OFFSETS}/{epoch}")
        if text is None:
            raise OffsetPlanError(f"There is no {place} any more: is another query removing it?")
        return parse_offsets(text, place)

    def settle(
        self, reached: Mapping[TopicPartition, int] | None, at_ms: int, state: LogState | None = None
    ) -> Settlement:
        """Make the logs whole, and return where the query goes on.

        A crash in the middle of it is no harm: the next call decides the same by what is there.

        Args:
            reached: As ``_log_state.settle`` has it.
            at_ms: Milliseconds since 1970.
            state: What ``state`` returned when ``reached`` was looked up; without it that is looked up now.

        Raises:
            CheckpointTakenError: Another query writes to the checkpoint.
            OffsetPlanError: The logs are damaged, or whether records were published is not known.
            OptionError: The logs are of a query that cannot go on as a continuous one.
        """
        state = self.state() if state is None else state
        known = [*([] if state.committed is None else [state.committed]), *state.unfinished]
        entries = {epoch: self.entry(epoch) for epoch in known}
        settlement = settle(state, entries, reached, self._files.place("").rstrip("/"))
        for epoch in settlement.remove:
            self._files.delete(f"{_OFFSETS}/{epoch}")
        if known:
            self._conf = entries[known[0]].conf
        if state.committed is not None:
            self._watermark = self._watermark_after(state.committed)
        if settlement.write is not None and settlement.begin is not None:
            self._write_offsets(settlement.write, settlement.begin, at_ms)
        if settlement.commit is not None:
            # A driver that was fenced just now may be about to commit the same epoch: then that is done.
            self._write_commit(settlement.commit, may_be_there=settlement.commit in state.unfinished)
        self._kept = set(self._epochs(_OFFSETS)) | set(self._epochs(_COMMITS))
        return settlement

    def start(self, offsets: Mapping[TopicPartition, int], at_ms: int) -> None:
        """Keep where a new query starts, as epoch 0.

        Args:
            offsets: The starting position.
            at_ms: Milliseconds since 1970.

        Raises:
            CheckpointTakenError: Another query writes to the checkpoint.
        """
        self._write_offsets(0, offsets, at_ms, is_start=True)
        self._write_commit(0)

    def commit(self, epoch: int, offsets: Mapping[TopicPartition, int], at_ms: int) -> None:
        """Keep where an epoch has ended, whose records are all out.

        Args:
            epoch: The one after that which was committed last.
            offsets: The next offset to read of each partition.
            at_ms: Milliseconds since 1970.

        Raises:
            CheckpointTakenError: Another query writes to the checkpoint.
        """
        before = f"{_COMMITS}/{epoch - 1}"
        if not self._files.exists(before):
            # Who has slept for that long would write epochs again that another one has written and removed since.
            raise CheckpointTakenError(
                f"{self._files.place(before)} is gone, which this query has written: another query goes on at the same "
                "checkpoint. This one ends; give each query a checkpoint of its own."
            )
        self._write_offsets(epoch, offsets, at_ms)
        self._write_commit(epoch)

    def purge(self, newest: int) -> None:
        """Remove epochs that are not kept any longer.

        Args:
            newest: The one that was committed last.
        """
        for epoch in to_purge(self._kept, newest, self._retain):
            self._files.delete(f"{_OFFSETS}/{epoch}")
            self._files.delete(f"{_COMMITS}/{epoch}")
            self._kept.discard(epoch)

    def _write_offsets(
        self, epoch: int, offsets: Mapping[TopicPartition, int], at_ms: int, is_start: bool = False
    ) -> None:
        if self._conf is None:
            self._conf = self._new_conf()
        entry = Entry(offsets, at_ms, self._watermark, self._conf, is_start)
        self._create(f"{_OFFSETS}/{epoch}", format_offsets(entry))
        self._kept.add(epoch)

    def _write_commit(self, epoch: int, *, may_be_there: bool = False) -> None:
        self._create(f"{_COMMITS}/{epoch}", format_commit(self._watermark), may_be_there=may_be_there)

    def _create(self, name: str, text: str, *, may_be_there: bool = False) -> None:
        if not self._files.create(name, text) and not may_be_there:
            raise CheckpointTakenError(
                f"{self._files.place(name)} is there already: another query writes to the same checkpoint. This one "
                "ends; give each query a checkpoint of its own."
            )

    def _watermark_after(self, epoch: int) -> int:
        name = f"{_COMMITS}/{epoch}"
        return parse_commit(self._files.text(name) or "", self._files.place(name))

    def _epochs(self, folder: str) -> list[int]:
        return [int(name) for name in self._files.names(folder) if name.isascii() and name.isdigit()]


def open_logs(spark: SparkSession, checkpoint: str) -> Logs:
    """Return the logs of a query.

    Args:
        spark: The session; its settings are those that a new query keeps.
        checkpoint: The query's ``checkpointLocation``.

    Raises:
        OptionError: The session is one of Spark Connect, or the checkpoint is of a query with state, or cannot be
            written to.
    """
    try:
        files = CheckpointFiles(spark, checkpoint, "a continuous query")
        return Logs(files, lambda: _conf_to_keep(spark), int(spark.conf.get(_RETAIN) or 100))
    except Py4JJavaError as error:
        said = str(error.java_exception.toString())
        raise OptionError(f"checkpointLocation {checkpoint} cannot be used: {said}") from error


def _conf_to_keep(spark: SparkSession) -> dict[str, str]:
    """Return what Spark itself would keep of the settings of this session."""
    session: Any = spark
    metadata = checkpointing(session._jvm).OffsetSeqMetadata
    conf: dict[str, str | None] = json.loads(metadata.apply(0, 0, session._jsparkSession.conf()).json())["conf"]
    # Some are known by other names within a running query, and come without a value here.
    values = {name: spark.conf.get(name, None) if value is None else value for name, value in conf.items()}
    return {name: value for name, value in values.items() if value is not None}
