"""Staging in files, wherever ``pyarrow.fs`` reaches: a folder that driver and executors share, an object store.

A file has the frames of one task attempt and nothing else. Its name has the run, the batch, the task and the attempt;
its folder is that of the transactional id. It counts only once a task's message names it, with size and checksum, so it
is written under its name at once.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from pyspark_kafka_direct.errors import CorruptRecordError, KafkaDirectError, OptionError
from pyspark_kafka_direct.wire.system import SYSTEM
from pyspark_kafka_direct.writing._frames import Sum, frames
from pyspark_kafka_direct.writing.staging import InFile, Staged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import Any

    from pyspark_kafka_direct.records import EncodedBatch
    from pyspark_kafka_direct.wire.system import System

_log = logging.getLogger("pyspark_kafka_direct.writing")

_SUFFIX: Final = ".staged"
_PROBE: Final = "driver.probe"
_CHUNK: Final = 1 << 20

_HOUR = 3600.0
AGE_OF_SUPERSEDED: Final = _HOUR
"""Seconds after which what a superseded run left is removed: nobody will commit it, a late task may still write."""

AGE_OF_OTHERS: Final = 7 * 24 * _HOUR
"""Seconds after which whatever else was left is removed: that of a run that was killed before its first commit."""


class FileLocation:
    """A folder for staged batches.

    Args:
        uri: What ``pyarrow.fs.FileSystem.from_uri`` takes, or an absolute path.
        transactional_id: Under which the batches will be sent: each has a folder of its own.
        run: The run that stages and commits.
        probe: What the driver has found in the folder (``prepare``); ``None`` where that does not matter.

    Raises:
        OptionError: There is no such file system.
    """

    def __init__(self, uri: str, transactional_id: str, run: str, probe: str | None = None) -> None:
        from pyarrow import fs

        self.uri = uri
        self._run = run
        try:
            self._files, base = fs.FileSystem.from_uri(uri)
        except (ValueError, OSError, NotImplementedError) as error:
            raise OptionError(
                f"stagingLocation {uri!r} cannot be opened: {error}. It is an absolute path or a URI that pyarrow.fs "
                "knows (file:, s3:, gs:, hdfs:, abfs:), or topic:NAME."
            ) from None
        self._folder = f"{base.rstrip('/')}/{quote(transactional_id, safe='')}"
        self._probe = f"{self._folder}/{_PROBE}"
        self._expected = probe

    def prepare(self, system: System = SYSTEM) -> str:
        """Check, on the driver, that files can be written and read; return by what executors recognise the folder.

        The first call leaves a file with a text that nobody can guess, later ones find it there.

        Args:
            system: Makes the text.

        Raises:
            OptionError: They cannot.
        """
        try:
            self._expected = self._probe_there()
            if not self._expected:
                self._files.create_dir(self._folder, recursive=True)
                with self._files.open_output_stream(self._probe) as out:
                    out.write(system.nonce().encode())
                self._expected = self._probe_there()
        except OSError as error:
            raise OptionError(
                f"stagingLocation {self.uri!r} cannot be written to or read by the driver: {error}"
            ) from None
        if not self._expected:
            raise OptionError(f"stagingLocation {self.uri!r} does not give back what was written to it.")
        return self._expected

    def check(self) -> None:
        """Check, in a task, that this is the folder that the driver sees.

        Raises:
            OptionError: It is not.
        """
        try:
            found = self._probe_there()
        except OSError as error:
            raise OptionError(f"stagingLocation {self.uri!r} cannot be read by this executor: {error}") from None
        if found != self._expected:
            raise OptionError(
                f"stagingLocation {self.uri!r} is not the folder that the driver sees: its probe is not there. It has "
                "to be shared by the driver and all executors, such as a network mount or an object store, or be "
                "topic:NAME."
            )

    def spill(self, name: str) -> _FileSpill:
        """See ``Location``."""
        self.check()
        path = f"{self._folder}/{_quoted(self._run)}.{quote(name, safe='')}{_SUFFIX}"
        try:
            return _FileSpill(self._files, path, self.uri)
        except OSError as error:
            raise _unwritable(self.uri, error) from None

    def read(self, staged: Staged) -> Iterator[tuple[str, EncodedBatch]]:
        """See ``Location``."""
        assert isinstance(staged, InFile)
        yield from frames(self._chunks(staged.path), staged.sum, staged.path)

    def discard(self, staged: Sequence[Staged]) -> None:
        """See ``Location``."""
        for each in staged:
            if isinstance(each, InFile):
                self._remove(each.path)

    def sweep(self, superseded: Collection[str], system: System) -> int:
        """See ``Location``. Other transactional ids have other folders."""
        from pyarrow import fs

        removed = 0
        with contextlib.suppress(OSError):
            now = system.wall_time()
            for info in self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True)):
                if info.type != fs.FileType.File or not info.base_name.endswith(_SUFFIX) or info.mtime_ns is None:
                    continue
                run = unquote(info.base_name.partition(".")[0])
                age = now - info.mtime_ns / 1e9
                if age > (AGE_OF_SUPERSEDED if run in superseded and run != self._run else AGE_OF_OTHERS):
                    removed += self._remove(info.path)
        return removed

    def _probe_there(self) -> str | None:
        try:
            with self._files.open_input_stream(self._probe) as source:
                return bytes(source.read()).decode(errors="replace")
        except FileNotFoundError:
            return None

    def _chunks(self, path: str) -> Iterator[bytes]:
        try:
            with self._files.open_input_stream(path) as source:
                while chunk := source.read(_CHUNK):
                    yield chunk
        except FileNotFoundError:
            raise CorruptRecordError(
                f"Staged records are not there any more: {path} in stagingLocation {self.uri!r} was removed before it "
                "was sent."
            ) from None
        except OSError as error:
            raise KafkaDirectError(f"Staged records in stagingLocation {self.uri!r} cannot be read: {error}") from error

    def _remove(self, path: str) -> bool:
        try:
            self._files.delete_file(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            _log.warning("%s could not be removed from the stagingLocation, a sweep will: %s", path, error)
            return False
        return True


class _FileSpill:
    """A file that is being written."""

    def __init__(self, files: Any, path: str, uri: str) -> None:
        self._files = files
        self._path = path
        self._uri = uri
        self._out = files.open_output_stream(path)

    def write(self, data: bytes) -> None:
        try:
            self._out.write(data)
        except OSError as error:
            raise _unwritable(self._uri, error) from None

    def finish(self, sum: Sum, records: int) -> InFile:
        try:
            self._out.close()
        except OSError as error:
            raise _unwritable(self._uri, error) from None
        return InFile(self._path, sum, records)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._out.close()
        with contextlib.suppress(OSError):
            self._files.delete_file(self._path)


def _quoted(run: str) -> str:
    return quote(run, safe="").replace(".", "%2E")


def _unwritable(uri: str, error: OSError) -> KafkaDirectError:
    return KafkaDirectError(
        f"Staged records cannot be written to stagingLocation {uri!r}: {error}. Is there room, and may one write there?"
    )
