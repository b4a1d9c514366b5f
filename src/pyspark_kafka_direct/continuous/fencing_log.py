"""The log of the drivers that have run a query: a file in its checkpoint for each run.

    transactions/7     {"v":1,"driver":"Zk3xPq0aL8w...","host":"node-1","process":4711,
                        "cluster":"MkU3OEVBNTcwNTJENDM2Qg","prefix":"alerts","tasks":4}

A driver whose file is not the newest is fenced: it must not write to the query's logs any more. ``tasks`` is the number
of transactional ids that this or any earlier run has used. It is written before they are used, so that the next driver
can fence all of them. A run with at-least-once delivery has no prefix of its own, and keeps an earlier one.

InitProducerId succeeds for any driver. A driver that was considered dead and resumes could therefore fence its
successor. So each driver checks the log before and after it acquires the ids: the newest file must be its own. The
second check is needed because the driver may be suspended in between. A successor that appends later also acquires the
ids later. No file is overwritten, so of two concurrent drivers one fails; if the file system cannot guarantee that, the
driver id in the file decides.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import CheckpointFencedError, InvalidOffsetsError, OptionError
from pyspark_kafka_direct.spark.checkpoint_files import FENCING_LOG_FOLDER

if TYPE_CHECKING:
    from pyspark_kafka_direct.spark.checkpoint_files import CheckpointFileManager

_FENCING_ENTRY_VERSION: Final = 1
_RETAINED_ENTRIES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingEntry:
    """Written when a driver starts a run."""

    driver: str  # unique id
    cluster: str | None = None  # id of the cluster with the transactions
    prefix: str | None = None  # transactionalIdPrefix; None: no run had one
    tasks: int = 0  # transactional ids used by this and all earlier runs
    host: str = ""
    process: int = 0
    recovered: bool = False  # not a run: the logs contain all committed offsets, so the prefix may change


class FencingLog:
    """The fencing log of one query, used by one driver."""

    def __init__(self, files: CheckpointFileManager, driver: str) -> None:
        self._files = files
        self._driver = driver
        self._own_entry_number: int | None = None  # of the newest entry of this driver

    def append(self, cluster: str | None = None, prefix: str | None = None, tasks: int = 0) -> FencingEntry:
        """Append an entry for a new run; its ``tasks`` are all transactional ids to acquire.

        Without a prefix, which means at-least-once delivery, it keeps that of the last exactly-once run.
        """
        newest_number = self._newest_number()
        self._check_own_entry_is_newest(newest_number)
        previous = None if newest_number is None else self._read(newest_number)
        if prefix is not None:
            if previous is not None and not previous.recovered:
                path = self._files.path(f"{FENCING_LOG_FOLDER}/{newest_number}")
                _check_prefix_unchanged(previous, cluster, prefix, path)
                tasks = max(tasks, previous.tasks)
            entry = FencingEntry(driver="", cluster=cluster, prefix=prefix, tasks=tasks)
        elif previous is not None:
            entry = previous
        else:
            entry = FencingEntry(driver="", recovered=True)  # without transactions, any prefix may follow
        entry = replace(entry, driver=self._driver, host=socket.gethostname(), process=os.getpid())
        self._write(entry, 0 if newest_number is None else newest_number + 1)
        return entry

    def check_newest(self) -> None:
        """Check that no other driver has appended an entry after this one, at the cost of listing a folder."""
        if self._own_entry_number is not None:
            self._check_own_entry_is_newest(self._newest_number())

    def check_not_fenced(self) -> None:
        """Check this also by the content of the file, because two drivers may both have created it.

        Call it after ``append``, when the ids are acquired.
        """
        assert self._own_entry_number is not None, "call append first"
        self.check_newest()
        if self._read(self._own_entry_number).driver != self._driver:
            raise self._fenced_error(self._own_entry_number)

    def record_recovery(self) -> None:
        """Record that the checkpoint's logs contain everything that the transactions committed."""
        assert self._own_entry_number is not None, "call append first"
        self._check_own_entry_is_newest(self._newest_number())
        self._write(replace(self._read(self._own_entry_number), recovered=True), self._own_entry_number + 1)

    def _newest_number(self) -> int | None:
        return max(self._entry_numbers(), default=None)

    def _entry_numbers(self) -> list[int]:
        return [int(name) for name in self._files.list_names(FENCING_LOG_FOLDER) if name.isascii() and name.isdigit()]

    def _check_own_entry_is_newest(self, newest_number: int | None) -> None:
        if self._own_entry_number is not None and newest_number != self._own_entry_number:
            raise self._fenced_error(newest_number)

    def _write(self, entry: FencingEntry, entry_number: int) -> None:
        if entry_number == 0:
            self._files.mkdirs(FENCING_LOG_FOLDER)
        is_created = self._files.create(f"{FENCING_LOG_FOLDER}/{entry_number}", _to_json(entry))
        # If this driver was suspended, it may have recreated a file that its successor had removed.
        if not is_created or self._newest_number() != entry_number:
            raise self._fenced_error(self._newest_number())
        self._own_entry_number = entry_number
        for earlier_number in self._entry_numbers():
            if earlier_number <= entry_number - _RETAINED_ENTRIES:
                self._files.delete(f"{FENCING_LOG_FOLDER}/{earlier_number}")

    def _read(self, entry_number: int) -> FencingEntry:
        path = self._files.path(f"{FENCING_LOG_FOLDER}/{entry_number}")
        text = self._files.read(f"{FENCING_LOG_FOLDER}/{entry_number}")
        if text is None:
            raise self._fenced_error(entry_number)  # a successor has removed it
        try:
            return _from_json(text)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidOffsetsError(
                f"Cannot parse {path}: {text!r}. The file is damaged or was written by a newer version of this "
                "package. Without it, the open transactions of the query are unknown."
            ) from None

    def _fenced_error(self, newest_number: int | None) -> CheckpointFencedError:
        text = None if newest_number is None else self._files.read(f"{FENCING_LOG_FOLDER}/{newest_number}")
        other_driver = "another driver"
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):  # the file cannot be parsed
            other = _from_json(text or "")
            other_driver = f"process {other.process} on host {other.host}"
        return CheckpointFencedError(
            f"{self._files.path(FENCING_LOG_FOLDER)}: {other_driver} has taken control of the query, so this driver "
            "can no longer commit. Stop one of the drivers, or give each query its own checkpoint."
        )


def _check_prefix_unchanged(previous: FencingEntry, cluster: str | None, prefix: str, path: str) -> None:
    """Reject another prefix or cluster, because the committed offsets are in the group of the previous ones."""
    advice = (
        "Use the previous options; or call recover_checkpoint with the previous options, and then start the query with "
        "the new ones."
    )
    if previous.prefix != prefix:
        raise OptionError(
            f"transactionalIdPrefix is {prefix!r}, but the previous run of the query used {previous.prefix!r} "
            f"({path}), and its committed offsets belong to that prefix. {advice}"
        )
    if previous.cluster != cluster:
        raise OptionError(
            f"The query writes to cluster {cluster}, but its previous run wrote to {previous.cluster} ({path}), which "
            f"stores its committed offsets. {advice}"
        )


def _to_json(entry: FencingEntry) -> str:
    fields = {name: getattr(entry, name) for name in FencingEntry.__slots__}
    return json.dumps({"v": _FENCING_ENTRY_VERSION, **fields}, separators=(",", ":"))


def _from_json(text: str) -> FencingEntry:
    """Parse an entry; the errors for other text have no messages, because callers replace them."""
    fields: dict[str, Any] = json.loads(text)
    if fields.pop("v") != _FENCING_ENTRY_VERSION:
        raise ValueError
    entry = FencingEntry(**fields)
    if not isinstance(entry.tasks, int) or entry.tasks < 0 or not isinstance(entry.prefix, str | None):
        raise ValueError
    return entry
