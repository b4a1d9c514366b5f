"""The offset and commit logs of a continuous query, in Spark's layout (``OffsetSeqLog``, ``CommitLog``).

The order of the writes makes a crash at any point safe:

- The start of a query is committed as the empty epoch 0 before anything is read, because "latest" changes.
- An epoch is written to the offset log, then to the commit log.
- No file is overwritten. If a file of the next epoch exists, another query uses the checkpoint, and this one fails.
- A driver that another one has replaced, such as one that was suspended, writes nothing (``fencing_log.py``).
- A planned epoch, which has an entry in the offset log, keeps its end: it is completed, never deleted or replaced.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from py4j.protocol import Py4JJavaError

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.continuous.checkpoint_log_format import (
    OffsetLogEntry,
    format_commit,
    format_metadata,
    format_offset_entry,
    parse_commit,
    parse_metadata,
    parse_offset_entry,
    reject_stateful_query,
)
from pyspark_kafka_direct.continuous.fencing_log import FencingLog
from pyspark_kafka_direct.errors import CheckpointFencedError, InvalidOffsetsError, OptionError
from pyspark_kafka_direct.producer.file_systems import mask_secrets
from pyspark_kafka_direct.spark.checkpoint_files import CheckpointFiles, RetryingFiles
from pyspark_kafka_direct.spark.spark_versions import checkpointing_package

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.spark.checkpoint_files import CheckpointFileManager

_METADATA, _OFFSETS, _COMMITS, _STATE = "metadata", "offsets", "commits", "state"
_RETAIN_CONF: Final = "spark.sql.streaming.minBatchesToRetain"


@dataclass(frozen=True, slots=True)
class CheckpointState:
    committed: int | None = None  # the last committed epoch
    uncommitted: tuple[int, ...] = ()  # later epochs of the offset log, in order

    @property
    def next_epoch(self) -> int:
        return 0 if self.committed is None else self.committed + 1


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """The changes to the logs, in the order of the fields, and where the query resumes."""

    start: Mapping[TopicPartition, int] | None  # None: at the starting offsets, because the query never read
    next_epoch: int
    commit: int | None = None  # an epoch that is in the offset log, and whose output is written
    write: int | None = None  # a new epoch, to both logs, with the offsets of start
    planned_end: Mapping[TopicPartition, int] | None = None  # of next_epoch, if it is in the offset log already


class CheckpointLogs:
    """The logs of one query, used by one thread at a time.

    Call ``query_id``, ``recover``, for a new query ``commit_start``, and then ``commit`` for each epoch.
    """

    def __init__(
        self,
        file_manager: CheckpointFileManager,
        session_conf: Callable[[], Mapping[str, str]],
        retained_epoch_count: int,
        driver: str,  # unique id
        system: System = SYSTEM,
    ) -> None:
        files = RetryingFiles(file_manager, system)
        if files.exists(_STATE):  # the folder in which Spark stores the state of a stateful query
            reject_stateful_query(files.path(_STATE))
        self._files = files
        self.fencing_log = FencingLog(files, driver)
        self._read_session_conf = session_conf
        self._conf: Mapping[str, str] | None = None  # of the logs; None until the recovery or the first write
        self._watermark_ms = 0  # of an earlier micro-batch query, which the commit log preserves
        self._planned_epoch: int | None = None  # that the recovery found without a commit
        self._retained_epoch_count = retained_epoch_count
        self._retained_epochs: set[int] = set()  # that have files
        for folder in (_OFFSETS, _COMMITS):
            files.mkdirs(folder)

    def query_id(self, new_id: str) -> str:
        """Return the stored id of the query, or store ``new_id`` if there is none."""
        text = self._files.read(_METADATA)
        if text is None:
            if self._files.create(_METADATA, format_metadata(new_id)):
                return new_id
            text = self._files.read(_METADATA) or ""  # another driver has created it in between
        return parse_metadata(text, self._files.path(_METADATA))

    def state(self) -> CheckpointState:
        commits = set(self._epochs(_COMMITS))
        while True:
            offsets = self._epochs(_OFFSETS)
            latest_commits = set(self._epochs(_COMMITS))
            if latest_commits == commits:  # no other driver has committed in between
                return checkpoint_state(offsets, commits, self._files.path("").rstrip("/"))
            commits = latest_commits

    def offset_entry(self, epoch: int) -> OffsetLogEntry:
        name = f"{_OFFSETS}/{epoch}"
        text = self._files.read(name)
        if text is None:  # it was listed, and another query that is running has purged it since
            raise self._deleted_error(name)
        return parse_offset_entry(text, self._files.path(name))

    def recover(
        self,
        offsets_ahead: Mapping[TopicPartition, int] | None,
        at_ms: int,
        state: CheckpointState | None = None,
    ) -> RecoveryPlan:
        """Complete the logs after a crash, and return where the query resumes.

        If the recovery crashes, the next call makes the same decision. ``state`` is the state for which
        ``offsets_ahead`` was determined.
        """
        state = self.state() if state is None else state
        logged_epochs = [*([] if state.committed is None else [state.committed]), *state.uncommitted]
        entries = {epoch: self.offset_entry(epoch) for epoch in logged_epochs}
        recovery = plan_recovery(state, entries, offsets_ahead, self._files.path("").rstrip("/"))

        # The new files preserve these values of the existing ones.
        if logged_epochs:
            self._conf = entries[logged_epochs[0]].conf
        if state.committed is not None:
            self._watermark_ms = self._watermark_after(state.committed)

        if recovery.commit is not None:
            self._write_commit(recovery.commit, may_exist=True)  # the fenced driver may have been committing it
        if recovery.write is not None and recovery.start is not None:  # an epoch to write always has a start
            self._write_offsets(recovery.write, recovery.start, at_ms)
            self._write_commit(recovery.write)
        self._planned_epoch = None if recovery.planned_end is None else recovery.next_epoch
        self._retained_epochs = set(self._epochs(_OFFSETS)) | set(self._epochs(_COMMITS))
        return recovery

    def commit_start(self, offsets: Mapping[TopicPartition, int], at_ms: int) -> None:
        """Commit the starting offsets of a new query as epoch 0."""
        self._write_offsets(0, offsets, at_ms, is_start=True)
        self._write_commit(0)

    def commit(self, epoch: int, offsets: Mapping[TopicPartition, int], at_ms: int) -> None:
        """Commit an epoch, whose output has been written."""
        if epoch == self._planned_epoch:
            if not self._files.exists(f"{_OFFSETS}/{epoch}"):
                raise self._deleted_error(f"{_OFFSETS}/{epoch}")
            self._write_commit(epoch, may_exist=True)  # the driver that wrote its output may have been suspended
            return
        # A driver that was suspended for long could rewrite epochs that its successor has already purged. It may have
        # written the commit of the previous epoch after the purge, so only the entry in the offset log shows that.
        previous = f"{_OFFSETS}/{epoch - 1}"
        if not self._files.exists(previous):
            raise self._deleted_error(previous)
        self._write_offsets(epoch, offsets, at_ms)
        self._write_commit(epoch)

    def purge(self, last_committed_epoch: int) -> None:
        """Delete the files of expired epochs."""
        for epoch in epochs_to_purge(self._retained_epochs, last_committed_epoch, self._retained_epoch_count):
            self._files.delete(f"{_OFFSETS}/{epoch}")
            self._files.delete(f"{_COMMITS}/{epoch}")
            self._retained_epochs.discard(epoch)

    def _write_offsets(
        self, epoch: int, offsets: Mapping[TopicPartition, int], at_ms: int, *, is_start: bool = False
    ) -> None:
        if self._conf is None:
            self._conf = self._read_session_conf()
        offset_entry = OffsetLogEntry(
            offsets=offsets,
            timestamp_ms=at_ms,
            watermark_ms=self._watermark_ms,
            conf=self._conf,
            is_start=is_start,
            is_output_written=not is_start,  # this query writes an entry only after the output
        )
        self._create(f"{_OFFSETS}/{epoch}", format_offset_entry(offset_entry))
        self._retained_epochs.add(epoch)

    def _write_commit(self, epoch: int, *, may_exist: bool = False) -> None:
        self._create(f"{_COMMITS}/{epoch}", format_commit(self._watermark_ms), may_exist=may_exist)

    def _create(self, name: str, text: str, *, may_exist: bool = False) -> None:
        if not self._files.create(name, text, self.fencing_log.check_newest) and not may_exist:
            raise CheckpointFencedError(
                f"{self._files.path(name)} already exists: another query writes to the same checkpoint. This query "
                "ends. Give each query its own checkpoint."
            )

    def _deleted_error(self, name: str) -> CheckpointFencedError:
        return CheckpointFencedError(
            f"{self._files.path(name)} was deleted: another query uses the same checkpoint. This query ends. Give each "
            "query its own checkpoint."
        )

    def _watermark_after(self, epoch: int) -> int:
        name = f"{_COMMITS}/{epoch}"
        return parse_commit(self._files.read(name) or "", self._files.path(name))

    def _epochs(self, folder: str) -> list[int]:
        return [int(name) for name in self._files.list_names(folder) if name.isascii() and name.isdigit()]


def open_checkpoint_logs(spark: SparkSession, checkpoint: str, system: System = SYSTEM) -> CheckpointLogs:
    try:
        files = CheckpointFiles(spark, checkpoint, "a continuous query")
        retain = int(spark.conf.get(_RETAIN_CONF) or 100)
        return CheckpointLogs(files, lambda: _session_conf(spark), retain, system.nonce(), system)
    except Py4JJavaError as error:
        message = f"Cannot use checkpointLocation {checkpoint}: {error.java_exception.toString()}"
        raise OptionError(mask_secrets(message, checkpoint)) from error


def checkpoint_state(offsets: Collection[int], commits: Collection[int], path: str) -> CheckpointState:
    """Return the state for the given epochs of both logs."""
    committed = max(commits, default=None)
    if committed is not None and committed not in offsets:
        raise InvalidOffsetsError(
            f"{path} has commits/{committed} but not offsets/{committed}: it is damaged or incomplete. Restore it, or "
            "start with a new checkpoint and startingOffsets."
        )
    uncommitted = tuple(sorted(epoch for epoch in offsets if committed is None or epoch > committed))
    if committed is None and uncommitted and uncommitted != (0,):  # a later epoch begins after the commit of epoch 0
        raise InvalidOffsetsError(
            f"{path} has offsets/{uncommitted[-1]} but no files in commits/: it is damaged or incomplete. Restore it, "
            "or start with a new checkpoint and startingOffsets."
        )
    return CheckpointState(committed, uncommitted)


def epochs_to_purge(epochs: Iterable[int], newest: int, retain: int) -> list[int]:
    """Return the expired epochs in order: all but the newest and ``retain`` epochs before it, at least one."""
    return sorted(epoch for epoch in epochs if epoch < newest - max(retain, 1))


def plan_recovery(
    state: CheckpointState,
    entries: Mapping[int, OffsetLogEntry],
    offsets_ahead: Mapping[TopicPartition, int] | None,
    path: str,
) -> RecoveryPlan:
    """Decide how a query resumes from its logs.

    ``entries`` has the committed and uncommitted epochs of the offset log. ``offsets_ahead`` is ``None`` for
    at-least-once delivery. Otherwise it has the offsets that transactions of this query committed for epochs after
    ``state.committed``, and all earlier writers have been fenced.

    An epoch in both logs is *committed*. The meaning of an epoch in the offset log alone depends on its writer: a
    continuous query has already written the output. A micro-batch query may have written a part. Its end never changes.

        delivery        uncommitted epochs                          recovery
        at least once   any                                         read the first one again, up to its end
        exactly once    one, written by a continuous query or       commit it
                        reached by the transactions
        exactly once    others                                      fail, because the outcome is unknown

    If the transactions are further then, their offsets are the end of one more epoch.
    """
    if state.committed is None:
        return _plan_first_recovery(state, entries, offsets_ahead, path)
    committed_offsets = entries[state.committed].offsets
    if offsets_ahead is None:
        if not state.uncommitted:
            return RecoveryPlan(committed_offsets, state.next_epoch)
        planned_epoch = state.uncommitted[0]
        return RecoveryPlan(committed_offsets, planned_epoch, planned_end=entries[planned_epoch].offsets)
    reached_offsets = {**committed_offsets, **offsets_ahead}
    if not state.uncommitted:
        if reached_offsets == committed_offsets:
            return RecoveryPlan(committed_offsets, state.next_epoch)
        return RecoveryPlan(reached_offsets, state.next_epoch + 1, write=state.next_epoch)
    planned_epoch = state.uncommitted[0]
    planned_offsets = entries[planned_epoch].offsets
    # A new partition may have no committed offset yet.
    is_reached = all(reached_offsets.get(tp, end) >= end for tp, end in planned_offsets.items())
    is_output_written = entries[planned_epoch].is_output_written or is_reached
    if state.uncommitted != (state.next_epoch,) or not is_output_written:
        _reject_unknown_outcome(state.uncommitted, path)
    reached_offsets = {**planned_offsets, **offsets_ahead}
    if reached_offsets == planned_offsets:
        return RecoveryPlan(planned_offsets, planned_epoch + 1, commit=planned_epoch)
    return RecoveryPlan(reached_offsets, planned_epoch + 2, commit=planned_epoch, write=planned_epoch + 1)


def _plan_first_recovery(
    state: CheckpointState,
    entries: Mapping[int, OffsetLogEntry],
    offsets_ahead: Mapping[TopicPartition, int] | None,
    path: str,
) -> RecoveryPlan:
    """Decide for a query without a committed epoch. A continuous query commits its start before it reads."""
    if offsets_ahead:
        raise InvalidOffsetsError(
            f"Transactions have committed offsets for the query of {path}, but its logs are empty, so they were "
            "deleted. Restore them, or start with a new checkpoint and startingOffsets."
        )
    if not state.uncommitted:
        return RecoveryPlan(None, 0)  # nothing was ever written
    if not entries[0].is_start:
        raise InvalidOffsetsError(
            f"{path}: the first batch of a micro-batch query has not completed. Restart that query and stop it after "
            "its first batch; or start with a new checkpoint."
        )
    return RecoveryPlan(entries[0].offsets, 1, commit=0)


def _reject_unknown_outcome(epochs: tuple[int, ...], path: str) -> NoReturn:
    names = ", ".join(f"offsets/{epoch}" for epoch in epochs)
    raise InvalidOffsetsError(
        f"{path} has {names} without a commit, and the transactions of this query have not reached these offsets: a "
        "micro-batch query may have written a part of the batch. Restart that query until it has completed its batch; "
        "or delete these files, and the query writes their records, possibly for the second time."
    )


def _session_conf(spark: SparkSession) -> dict[str, str]:
    """Return the session settings that Spark itself would store for a new query."""
    session: Any = spark
    metadata = checkpointing_package(session._jvm).OffsetSeqMetadata
    conf: dict[str, str | None] = json.loads(metadata.apply(0, 0, session._jsparkSession.conf()).json())["conf"]
    # Some settings have other names within a running query, and have no value here.
    values = {name: spark.conf.get(name, None) if value is None else value for name, value in conf.items()}
    return {name: value for name, value in values.items() if value is not None}
