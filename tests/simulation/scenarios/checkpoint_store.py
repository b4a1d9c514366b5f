"""The checkpoint folder of a query in memory, with faults of its file system, and what Spark requires of its logs."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.errors import ProcessKilled, ViolationError

from pyspark_kafka_direct.continuous.checkpoint_logs import CheckpointLogs
from pyspark_kafka_direct.spark.checkpoint_files import FENCING_LOG_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.environment import Environment
    from tests.simulation.process import SimulatedProcess

FILE_FAULTS: Final = (
    "crash_before_file",  # the process dies before the operation
    "crash_after_file",  # the operation has its effect, then the process dies
    "pause_before_file",  # the process is suspended, and the operation has its effect when it resumes
    "pause_after_file",
    "fail_file",  # the operation fails without an effect
    "fail_after_file",  # the operation fails, but has its effect
    "exists_file",  # the operation creates the file, but reports that it exists
    "outage_file",  # all operations fail for a while
    "slow_file",
)
Offsets = dict[tuple[str, int], int]
_MAX_FENCING_FILES: Final = 3
_ATTEMPTS: Final = 5  # of an operation, by the package


class FileSystemError(Exception):
    """The file system fails."""


class CheckpointStore:
    """What outlives the processes."""

    def __init__(
        self,
        environment: Environment,
        faults: Mapping[int, tuple[str, float]],
        slow: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> None:
        self.files: dict[str, str] = {}
        self.folders: set[str] = set()
        self.planned: dict[int, Offsets] = {}  # the first end of each batch
        self.start: Offsets | None = None  # of the query
        self.fencers: set[str] = set()  # processes that have fenced the drivers of a query that has begun
        self.notes: list[str] = []  # broken rules that matter less than lost and duplicated records
        self.on_pause: Callable[[SimulatedProcess], None] = lambda _: None
        self._fails_from = math.inf  # when an entry of the offset log cannot be written
        self._failed_entries: list[str] = []  # that were written since then
        self._on_failed: Callable[[], None] = lambda: None
        self._creators: list[str] = []  # processes that have created files
        self._committer = ""  # the process that has written the last commit
        self._consecutive_commits = 0  # of this process
        self._late_commits: set[str] = set()  # of purged epochs, by drivers that were suspended
        self._superseded: dict[str, str] = {}  # files of other drivers, by the process that has met them
        self._controllers: list[str] = []  # the processes that have written to the fencing log, the newest last
        self._files_since_fenced: list[str] = []  # processes that were fenced, with a file since then
        self.operations = 0
        self.outage_until = 0.0
        self.faults = dict(faults)  # by the number of the operation
        self.slow = slow  # from when and until when operations are slow, and how many seconds each takes
        self.environment = environment
        self.rng = environment.world.rng("files")

    # What the scenario reads.

    def committed(self) -> int | None:
        return max(self.epochs("commits"), default=None)

    def committed_offsets(self) -> Offsets:
        committed = self.committed()
        return {} if committed is None else self.offsets(committed)

    def files_of_others(self, process: str) -> int:
        """Return how many files other processes have created."""
        return sum(each != process for each in self._creators)

    def last_metadata(self) -> tuple[str, int]:
        """Return the settings of the newest entry of the offset log, and the watermark after the newest commit."""
        epoch, committed = max(self.epochs("offsets")), self.committed()
        watermark = 0 if committed is None else int(_parse_commit(self.files[f"commits/{committed}"]))
        return _settings(self.files[f"offsets/{epoch}"]), watermark

    def epochs(self, folder: str) -> list[int]:
        return sorted(int(name.split("/")[1]) for name in self.files if name.startswith(f"{folder}/"))

    def offsets(self, epoch: int) -> Offsets:
        return parse_offsets(self.files[f"offsets/{epoch}"])

    # Changes.

    def fails_create(self, name: str, text: str) -> bool:
        """Return whether this is the drawn entry of the offset log that cannot be written, at any attempt."""
        if not name.startswith("offsets/") or self.environment.world.now < self._fails_from:
            return False
        self._failed_entries.append(text)
        attempts = self._failed_entries.count(self._failed_entries[0])
        if text == self._failed_entries[0] and attempts == _ATTEMPTS:
            self._on_failed()
        return text == self._failed_entries[0]

    def fail_entry(self, at: float, on_failed: Callable[[], None]) -> None:
        """Let the first entry of the offset log fail that is written from then on; call a function at the last attempt.

        A single failure is no failure for the package, which repeats operations.
        """
        self._fails_from, self._on_failed = at, on_failed

    def create(self, name: str, text: str, process: str) -> bool:
        folder, _, number = name.partition("/")
        if name in self.files:
            if folder == "offsets" and self.files[name] != text:
                self._superseded[process] = name
            return False
        self.files[name] = text
        self._creators.append(process)
        if process in self._superseded:
            self.notes.append(
                f"a driver continues although another one has planned an epoch: {process} writes {name} after "
                f"{self._superseded[process]} existed"
            )
        if folder == FENCING_LOG_FOLDER:
            self._controllers.append(process)
            # Another driver may have died before it deleted earlier files.
            has_deleted = self._controllers[-2:] == [process, process] and not self.faults
            if has_deleted and len(self.epochs(folder)) > _MAX_FENCING_FILES:
                self.notes.append(f"the fencing log has {len(self.epochs(folder))} files")
            self._files_since_fenced.clear()
            if self.committed() is not None:
                self.fencers.add(process)
        else:
            self._check_control(name, process)
        if folder == "offsets":
            self._check_planned(int(number), text, process)
        elif folder == "commits":
            self._check_committed(int(number), process)
        return True

    def delete(self, name: str, process: str) -> None:
        if self.files.pop(name, None) is None:
            return
        folder, _, number = name.partition("/")
        if folder == "offsets" and f"commits/{number}" not in self.files:
            newest = self.committed()
            if newest is None or int(number) > newest:
                self.notes.append(f"a planned batch is deleted: {process} deletes offsets/{number}")
        elif folder == "commits" and int(number) == max([int(number), *self.epochs("commits")]):
            raise ViolationError(f"the newest commit is deleted: {process} deletes {name}")

    def _check_control(self, name: str, process: str) -> None:
        """Check that a driver that another one has fenced ends: it may have read the fencing log just before."""
        if process not in self._controllers[:-1] or process == self._controllers[-1]:
            return
        if process in self._files_since_fenced:
            self.notes.append(f"a replaced driver still writes: {process} writes {name} after {self._controllers[-1]}")
        self._files_since_fenced.append(process)

    def _check_planned(self, epoch: int, text: str, process: str) -> None:
        offsets = parse_offsets(text)
        if self.start is None:
            self.start = offsets
        planned = self.planned.setdefault(epoch, offsets)
        committed = self.committed()
        if committed is not None and epoch <= committed:
            self.notes.append(f"a purged epoch is written again: {process} writes offsets/{epoch}")
        elif planned != offsets:
            self.notes.append(
                f"a planned batch changes: {process} writes offsets/{epoch} with {offsets} instead of {planned}"
            )
        previous, commit = self.files.get(f"offsets/{epoch - 1}"), self.files.get(f"commits/{epoch - 1}")
        if previous is not None and _settings(text) != _settings(previous):
            self.notes.append(f"offsets/{epoch} has the settings {_settings(text)}, and before {_settings(previous)}")
        if commit is not None and json.loads(text.split("\n")[1])["batchWatermarkMs"] != _parse_commit(commit):
            self.notes.append(f"offsets/{epoch} has another watermark than commits/{epoch - 1}: {text!r}")
        if epoch > 0 and f"offsets/{epoch - 1}" not in self.files:
            self.notes.append(f"the offset log has a gap: {process} writes offsets/{epoch} without {epoch - 1}")

    def _check_committed(self, epoch: int, process: str) -> None:
        if epoch < max(self.epochs("commits")):
            self._late_commits.add(f"commits/{epoch}")
            return  # a driver was suspended until the epoch was purged, and nothing reads this file
        if f"offsets/{epoch}" not in self.files:
            self.notes.append(f"the checkpoint is damaged: {process} writes commits/{epoch} without offsets/{epoch}")
        if epoch > 0 and f"commits/{epoch - 1}" not in self.files:
            self.notes.append(f"the commit log has a gap: {process} writes commits/{epoch} without {epoch - 1}")
        self._consecutive_commits = self._consecutive_commits + 1 if process == self._committer else 1
        self._committer = process
        # A recovery commits up to two epochs without purging, and a driver may recover twice.
        if self._consecutive_commits > 5 and (not self.faults or self.environment.is_quiet):
            self._check_purged(epoch - 1, process)

    def _check_purged(self, newest: int, process: str) -> None:
        """Check that a driver has deleted what expired before its last epochs."""
        first = newest - self.environment.plan.parameters.get("retain", newest) - 3
        expired = [
            f"{folder}/{epoch}" for folder in ("offsets", "commits") for epoch in self.epochs(folder) if epoch < first
        ]
        if left := [name for name in expired if name not in self._late_commits]:
            self.notes.append(f"expired epochs are not purged: {process} has committed epoch {newest}, and left {left}")

    def check_logs(self) -> None:
        """Check what Spark requires when a query starts."""
        offsets, commits = self.epochs("offsets"), self.epochs("commits")
        for folder, epochs in (("offsets", offsets), ("commits", commits)):
            if epochs and epochs[-1] > 0 and epochs[-2:] != [epochs[-1] - 1, epochs[-1]]:
                raise ViolationError(f"the log {folder} lacks the epoch before the last one: {epochs}")
        if commits and commits[-1] not in offsets:
            raise ViolationError(f"commits/{commits[-1]} has no offsets")
        if offsets and offsets[-1] > (commits[-1] + 1 if commits else 0):
            raise ViolationError(f"several batches are planned: offsets {offsets}, commits {commits}")


class ProcessFiles:
    """The files as a process sees them; implements ``CheckpointFileManager``."""

    def __init__(self, store: CheckpointStore, process: SimulatedProcess) -> None:
        self._store = store
        self._process = process

    def path(self, name: str) -> str:
        return f"memory:/checkpoint/{name}"

    def read(self, name: str) -> str | None:
        text: str | None = self._operate("read", name, lambda: self._store.files.get(name))
        return text

    def exists(self, name: str) -> bool:
        return bool(self._operate("exists", name, lambda: name in self._store.files or name in self._store.folders))

    def list_names(self, folder: str) -> list[str]:
        prefix = f"{folder}/"
        names: list[str] = self._operate(
            "list",
            folder,
            lambda: sorted(each[len(prefix) :] for each in self._store.files if each.startswith(prefix)),
        )
        return names

    def mkdirs(self, name: str) -> None:
        self._operate("mkdirs", name, lambda: self._store.folders.add(name))

    def create(self, name: str, text: str) -> bool:
        return bool(self._operate("create", name, lambda: self._create(name, text)))

    def _create(self, name: str, text: str) -> bool:
        if self._store.fails_create(name, text):
            raise FileSystemError(f"cannot create {name}")
        return self._store.create(name, text, self._process.name)

    def delete(self, name: str) -> None:
        self._operate("delete", name, lambda: self._store.delete(name, self._process.name))

    def _operate(self, kind: str, name: str, effect: Callable[[], Any]) -> Any:
        store, process = self._store, self._process
        world = process.world
        world.checkpoint()
        number = store.operations
        store.operations += 1
        fault, seconds = store.faults.get(number, (None, 0.0))
        if store.environment.is_quiet:
            fault = None
        if fault is not None:
            world.trace("file fault", number, fault, process.name)
            if fault != "crash_after_file":  # an operation of another thread may complete before the process dies
                world.record_fault(fault, "files", process)
        if fault == "crash_before_file":
            self._kill()
        if fault == "pause_before_file":
            self._pause(seconds)
        since, until, slowness = store.slow
        is_slow = since <= world.now - store.environment.started_at < until
        delay = seconds if fault == "slow_file" else slowness if is_slow else 0.0
        world.block("the file system", delay + 0.0003 + 0.01 * store.rng.random() ** 6)
        if fault == "outage_file":
            store.outage_until = world.now + seconds
        if fault == "fail_file" or (world.now < store.outage_until and not store.environment.is_quiet):
            raise FileSystemError(f"cannot {kind} {name}")
        result = effect()
        if kind in ("create", "delete"):
            world.trace("file", number, process.name, kind, name, result)
        if fault == "fail_after_file":
            raise FileSystemError(f"cannot confirm {kind} {name}")
        if fault == "exists_file" and kind == "create":
            return False
        if fault == "crash_after_file":
            world.record_fault(fault, "files", process)
            self._kill()
        if fault == "pause_after_file":
            self._pause(seconds)
        return result

    def _kill(self) -> None:
        self._process.kill()
        raise ProcessKilled

    def _pause(self, seconds: float) -> None:
        self._store.on_pause(self._process)
        self._process.pause(seconds)
        self._process.world.checkpoint()


def open_logs(store: CheckpointStore, process: SimulatedProcess) -> CheckpointLogs:
    retain = store.environment.plan.parameters["retain"]
    conf = {"spark.sql.shuffle.partitions": "200", "spark.sql.session.timeZone": process.name}
    return CheckpointLogs(ProcessFiles(store, process), lambda: conf, retain, process.nonce(), process)


def _settings(text: str) -> str:
    """Return the session settings of an entry of the offset log."""
    conf = json.loads(text.split("\n")[1])["conf"]
    return json.dumps({name: value for name, value in conf.items() if not name.startswith("pyspark_kafka_direct")})


def _parse_commit(text: str) -> int:
    """Return the watermark of an entry of the commit log."""
    return int(json.loads(text.split("\n")[1])["nextBatchWatermarkMs"])


def parse_offsets(text: str) -> Offsets:
    """Return the offsets of an entry of the offset log; shares no code with the package."""
    lines = text.split("\n")
    if lines[0] != "v1" or len(lines) != 3 or "batchTimestampMs" not in json.loads(lines[1]):
        raise ViolationError(f"Spark cannot read this entry of the offset log: {text!r}")
    return {
        (topic, int(partition)): offset
        for topic, partitions in json.loads(lines[2]).items()
        for partition, offset in partitions.items()
    }
