"""Who drives a query that delivers by transactions, and under which ids: a file in its checkpoint for each run.

    transactions/7     {"v":1,"driver":"Zk3xPq0aL8w...","host":"node-1","process":4711,
                        "cluster":"MkU3OEVBNTcwNTJENDM2Qg","prefix":"alerts","tasks":4}

``tasks`` is how many transactional ids this or any earlier run has used, and it is written before they are: whoever
comes next takes them all over, and nothing that a task of an earlier run may still do is published.

InitProducerId asks no one. So a driver that was thought dead, wakes up and starts its tasks again would take the ids
back from its successor. It looks here before: the newest file must be its own. And it looks here when it has taken the
ids over, for it may have slept just then: a successor that has written its file later takes them over later, too. As
no file is written twice, one of two that come at the same moment is told as well; where the file system only looks
beforehand whether a file is there, by whose id is in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import CheckpointTakenError, OffsetPlanError, OptionError

if TYPE_CHECKING:
    from pyspark_kafka_direct.continuous._logs import Files

FOLDER: Final = "transactions"

_VERSION: Final = 1
_KEPT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """What is written when a driver begins a run.

    Attributes:
        driver: The id of the driver, which no other has.
        cluster: The id of the cluster that has the transactions.
        prefix: The ``transactionalIdPrefix``.
        tasks: How many transactional ids were ever used.
        host: Where the driver is.
        process: Its process.
        settled: Whether it was no run, and the logs of the checkpoint say all: the next one may have another prefix.
    """

    driver: str
    cluster: str | None
    prefix: str
    tasks: int
    host: str = ""
    process: int = 0
    settled: bool = False


class Takeovers:
    """The files of one query. Used by one thread at a time.

    Args:
        files: Of the checkpoint.
        driver: The id of this driver.
    """

    def __init__(self, files: Files, driver: str) -> None:
        self._files = files
        self._driver = driver
        self._own: int | None = None

    def begin(self, cluster: str | None, prefix: str, tasks: int) -> Takeover:
        """Write that a run begins.

        Args:
            cluster: The id of the cluster that has the transactions.
            prefix: The ``transactionalIdPrefix``.
            tasks: How many tasks the run has.

        Returns:
            What was written; its ``tasks`` are all those whose ids have to be taken over.

        Raises:
            CheckpointTakenError: Another driver has taken the query over.
            OptionError: The query was delivered under another prefix, or to another cluster.
            OffsetPlanError: A file is damaged.
        """
        newest = self._newest()
        self._check_own(newest)
        before = None if newest is None else self._read(newest)
        if before is not None and not before.settled:
            _check_same(before, cluster, prefix, self._files.place(f"{FOLDER}/{newest}"))
            tasks = max(tasks, before.tasks)
        host, process = socket.gethostname(), os.getpid()
        new = Takeover(driver=self._driver, cluster=cluster, prefix=prefix, tasks=tasks, host=host, process=process)
        self._write(new, 0 if newest is None else newest + 1)
        return new

    def check(self) -> None:
        """Look whether this driver is still the last one; after ``begin``, when the ids were taken over.

        Raises:
            CheckpointTakenError: Another driver has taken the query over.
            OffsetPlanError: A file is damaged.
        """
        assert self._own is not None, "begin comes first"
        self._check_own(self._newest())
        if self._read(self._own).driver != self._driver:
            raise self._taken(self._own)

    def settled(self) -> None:
        """Write that the logs of the checkpoint say all that the transactions do; after ``begin``.

        Raises:
            CheckpointTakenError: Another driver has taken the query over.
        """
        assert self._own is not None, "begin comes first"
        self._check_own(self._newest())
        self._write(replace(self._read(self._own), settled=True), self._own + 1)

    def _newest(self) -> int | None:
        return max(self._numbers(), default=None)

    def _numbers(self) -> list[int]:
        return [int(name) for name in self._files.names(FOLDER) if name.isascii() and name.isdigit()]

    def _check_own(self, newest: int | None) -> None:
        if self._own is not None and newest != self._own:
            raise self._taken(newest)

    def _write(self, takeover: Takeover, number: int) -> None:
        if number == 0:
            self._files.make_folder(FOLDER)
        written = self._files.create(f"{FOLDER}/{number}", _to_json(takeover))
        # One that was removed since is written again by who comes late.
        if not written or self._newest() != number:
            raise self._taken(self._newest())
        self._own = number
        for old in self._numbers():
            if old <= number - _KEPT:
                self._files.delete(f"{FOLDER}/{old}")

    def _read(self, number: int) -> Takeover:
        place = self._files.place(f"{FOLDER}/{number}")
        text = self._files.text(f"{FOLDER}/{number}")
        if text is None:
            raise self._taken(number)  # removed meanwhile, as older ones are
        try:
            return _from_json(text)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise OffsetPlanError(
                f"{place} cannot be read: {text!r}. It is damaged, or was written by a newer version of this package; "
                "without it nobody knows which transactions may still be open."
            ) from None

    def _taken(self, newest: int | None) -> CheckpointTakenError:
        text = None if newest is None else self._files.text(f"{FOLDER}/{newest}")
        who = "another driver"
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            other = _from_json(text or "")
            who = f"process {other.process} on host {other.host}"
        return CheckpointTakenError(
            f"{self._files.place(FOLDER)}: {who} has taken the query over, and this driver publishes nothing any more: "
            "stop it, or give each query a checkpoint of its own."
        )


def _check_same(before: Takeover, cluster: str | None, prefix: str, place: str) -> None:
    """Refuse another group: the offsets that count are in the one that was used before."""
    advice = (
        "Start the query as before; or call settle with the options of before, and then start it with the new ones."
    )
    if before.prefix != prefix:
        raise OptionError(
            f"transactionalIdPrefix is {prefix!r}, and the query was delivered under {before.prefix!r} ({place}): how "
            f"far it has got is known there. {advice}"
        )
    if before.cluster != cluster:
        raise OptionError(
            f"The query is to be delivered to the cluster {cluster}, and was delivered to {before.cluster} ({place}): "
            f"how far it has got is known there. {advice}"
        )


def _to_json(takeover: Takeover) -> str:
    fields = {name: getattr(takeover, name) for name in Takeover.__slots__}
    return json.dumps({"v": _VERSION, **fields}, separators=(",", ":"))


def _from_json(text: str) -> Takeover:
    fields: dict[str, Any] = json.loads(text)
    if fields.pop("v") != _VERSION:
        raise ValueError
    takeover = Takeover(**fields)
    if not isinstance(takeover.tasks, int) or takeover.tasks < 0 or not isinstance(takeover.prefix, str):
        raise ValueError
    return takeover
