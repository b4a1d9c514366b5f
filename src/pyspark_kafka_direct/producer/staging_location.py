"""The folder for staged batches (``stagingLocation``), in any file system of pyarrow.fs."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from pyspark_kafka_direct.client.system import SYSTEM, start_call
from pyspark_kafka_direct.errors import CorruptRecordError, KafkaDirectError, OptionError
from pyspark_kafka_direct.producer.file_systems import mask_secrets, masked_repr, open_file_system
from pyspark_kafka_direct.producer.staged_frames import StagedFile, StagedOutput, decode_frames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future
    from typing import Any

    from pyarrow.fs import FileSystem

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.records import EncodedBatch, WritableBytes

_log = logging.getLogger("pyspark_kafka_direct.producer")

_STAGED_SUFFIX: Final = ".staged"
_PROBE_FILE: Final = "driver.probe"
_PROBE_ATTEMPTS, _PROBE_PAUSE = 10, 0.1  # seconds, for another driver that has created the file to write it

_HOUR = 3600.0
SUPERSEDED_RETENTION_SECONDS: Final = _HOUR  # a run that has ended cannot commit, but its late tasks may still write
ORPHAN_RETENTION_SECONDS: Final = 7 * 24 * _HOUR  # of all other files

# Of the runs of batch jobs, which end independently of the queries and jobs with the same prefix.
JOB_RUN_PREFIX: Final = "job:"

_RANGE_BYTES: Final = 8 << 20
_RANGES: Final = 8  # in memory
_THREAD_NAME: Final = "pyspark-kafka-direct-staging"


class _Range(NamedTuple):
    path: str
    offset: int
    size: int


class _Read(NamedTuple):
    part: _Range
    buffer: bytearray
    future: Future[int]  # of the number of bytes in the buffer


class ReadAhead:
    """Reads files in a given order. Reading starts at once, in threads, up to ``_RANGES`` ranges ahead."""

    def __init__(
        self,
        file_system: FileSystem,
        staged: Sequence[StagedFile],
        system: System,
        timeout: float,  # of a range, in seconds
    ) -> None:
        self._file_system = file_system
        self._system = system
        self._timeout = timeout
        self._pending = deque(
            _Range(file.path, offset, min(_RANGE_BYTES, file.size - offset))
            for file in staged
            for offset in range(0, file.size, _RANGE_BYTES)
        )
        self._reads: deque[_Read] = deque()
        self._free_buffers: list[bytearray] = []  # page faults of new ones would cost more than reading local files
        self._start_reads()

    def chunks(self, path: str) -> Iterator[memoryview]:
        """Yield the content of the next non-empty file, which must have this path; a chunk is valid until the next.

        Raises:
            OSError: The file cannot be read, or not in time.
        """
        while self._reads and self._reads[0].part.path == path:
            _, buffer, future = self._reads[0]
            self._system.wait_for_future(future, self._timeout)
            if not future.done():
                raise TimeoutError(f"no response within {self._timeout:g} s (kafka.delivery.timeout.ms)")
            received_bytes = future.result()
            self._reads.popleft()
            self._start_reads()
            yield memoryview(buffer)[:received_bytes]
            self._free_buffers.append(buffer)

    def _start_reads(self) -> None:
        while self._pending and len(self._reads) < _RANGES:
            part = self._pending.popleft()
            buffer = self._free_buffers.pop() if self._free_buffers else bytearray(part.size)
            if len(buffer) < part.size:  # it was made for the end of a file
                buffer = bytearray(part.size)
            future = start_call(self._system, partial(self._read, part, buffer), _THREAD_NAME)
            self._reads.append(_Read(part, buffer, future))

    def _read(self, part: _Range, buffer: bytearray) -> int:
        """Read a range into a buffer; return how many bytes the file has of it."""
        with self._file_system.open_input_file(part.path) as source:
            source.seek(part.offset)
            received_bytes = 0
            with memoryview(buffer)[: part.size] as view:
                while received_bytes < part.size and (count := source.readinto(view[received_bytes:])):
                    received_bytes += count
        return received_bytes


class StagingLocation:
    """A folder for staged batches, shared by the driver and the executors, with a subfolder per transactional id.

    Each task attempt writes its frames to one file, whose name contains the run, batch, task and attempt. The file
    needs no temporary name: readers ignore it until a commit message contains its name and size.
    """

    def __init__(
        self,
        uri: str,
        transactional_id: str,
        run: str,
        probe: str | None = None,  # in tasks: what `prepare` has returned on the driver
        *,
        is_default: bool = False,  # the user has not set stagingLocation
    ) -> None:
        self._uri = uri
        self._run = run
        # For messages.
        self._subject = f"stagingLocation {'is not set, and its default ' if is_default else ''}{masked_repr(uri)}"
        self._advice = (
            f"{'Set stagingLocation to' if is_default else 'Use'} a folder that the driver and all executors share, "
            "such as a network mount or an object store."
        )
        self._files, base = open_file_system(uri, subject=self._subject)
        self._folder = f"{base.rstrip('/')}/{quote(transactional_id, safe='')}"
        self._probe_path = f"{self._folder}/{_PROBE_FILE}"
        self._expected_probe = probe

    def prepare(self, system: System = SYSTEM) -> str:
        """Check on the driver that files can be written and read, and return the probe.

        The probe is a random string in a file of the folder. The first call writes it. Tasks compare it to check that
        they use the same folder as the driver.
        """
        try:
            probe = self._read_probe()
            if not probe:
                _create_private_folder(self._files, self._folder)
                self._write_probe(system)
                probe = self._read_probe()
        except OSError as error:
            raise OptionError(
                self._masked(f"{self._subject} cannot be written to or read by the driver: {error}. {self._advice}")
            ) from None
        if not probe:
            raise OptionError(self._masked(f"{self._subject} does not return what was written to it. {self._advice}"))
        self._expected_probe = probe
        return probe

    def check(self) -> None:
        """Check in a task that this is the folder that the driver uses."""
        try:
            probe = self._read_probe()
        except OSError as error:
            raise OptionError(
                self._masked(f"{self._subject} cannot be read by this executor: {error}. {self._advice}")
            ) from None
        if probe != self._expected_probe:
            raise OptionError(
                self._masked(
                    f"{self._subject} is not the same folder on this executor and on the driver: the driver's probe "
                    f"was not found in it. {self._advice}"
                )
            )

    def open_spill(self, name: str) -> StagingFileWriter:
        """Open a file for a task attempt with a unique name."""
        self.check()
        path = f"{self._folder}/{_quote_run(self._run)}.{quote(name, safe='')}{_STAGED_SUFFIX}"
        try:
            return StagingFileWriter(self._files, path, self._uri)
        except OSError as error:
            raise _write_error(self._uri, error) from None

    def read_ahead(self, staged: Sequence[StagedFile], timeout: float, system: System = SYSTEM) -> ReadAhead:
        """Start reading files, which ``read`` returns in this order."""
        return ReadAhead(self._files, staged, system, timeout)

    def read(self, staged: StagedFile, source: ReadAhead) -> Iterator[tuple[str, EncodedBatch]]:
        """Yield the topics and record batches of one task's file."""
        yield from decode_frames(self._read_chunks(staged.path, source), staged.size, staged.path)

    def delete(self, staged: Sequence[StagedOutput]) -> None:
        """Delete the files of these outputs; ``delete_expired`` retries those that cannot be deleted."""
        for output in staged:
            if isinstance(output, StagedFile):
                self._delete_file(output.path)

    def delete_expired(self, system: System, *, committed_batch: int, other_runs_ended: bool) -> int:
        """Delete this transactional id's files that cannot be committed any more, and return their number.

        Those are files of failed and killed task attempts, and of killed drivers.
        """
        from pyarrow import fs

        deleted_count = 0
        # Best effort, because the batch is committed: the next call retries. Another program's names may not be UTF-8.
        with contextlib.suppress(OSError, UnicodeError):
            now = system.wall_time()
            for info in self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True)):
                is_staged = info.type == fs.FileType.File and info.base_name.endswith(_STAGED_SUFFIX)
                if not is_staged or info.mtime_ns is None:
                    continue
                retention = self._retention(
                    info.base_name, committed_batch=committed_batch, other_runs_ended=other_runs_ended
                )
                if now - info.mtime_ns / 1e9 > retention:
                    deleted_count += self._delete_file(info.path)
        return deleted_count

    def _retention(self, file_name: str, *, committed_batch: int, other_runs_ended: bool) -> float:
        """Return for how many seconds after its last write a staged file is retained."""
        # `open_spill` names it RUN.BATCH-..., with a quoted run.
        quoted_run, _, rest = file_name.partition(".")
        run, batch = unquote(quoted_run), rest.partition("-")[0]
        if run != self._run:
            has_ended = other_runs_ended and not run.startswith(JOB_RUN_PREFIX)
            return SUPERSEDED_RETENTION_SECONDS if has_ended else ORPHAN_RETENTION_SECONDS
        if batch.isdecimal() and int(batch) < committed_batch:
            return -math.inf  # delete it at once: no message of a task of this batch is accepted any more
        return ORPHAN_RETENTION_SECONDS

    def _write_probe(self, system: System) -> None:
        """Write the probe, unless another driver does so at this moment."""
        for attempt in range(_PROBE_ATTEMPTS + 1):
            # The last attempt replaces a file that has stayed empty: its driver was killed before it wrote.
            existing_flag = os.O_EXCL if attempt < _PROBE_ATTEMPTS else os.O_TRUNC
            try:
                with _open_private_file(self._files, self._probe_path, existing_flag) as out:
                    out.write(system.nonce().encode())
                return
            except FileExistsError:
                if self._read_probe():
                    return
                system.sleep(_PROBE_PAUSE)

    def _masked(self, message: str) -> str:
        return mask_secrets(message, self._uri)

    def _read_probe(self) -> str | None:
        try:
            with self._files.open_input_stream(self._probe_path) as source:
                return bytes(source.read()).decode(errors="replace")
        except FileNotFoundError:
            return None

    def _read_chunks(self, path: str, source: ReadAhead) -> Iterator[memoryview]:
        try:
            yield from source.chunks(path)
        except FileNotFoundError:
            raise CorruptRecordError(
                self._masked(
                    f"Staged records are missing: {path} in {masked_repr(self._uri)} was deleted before it was sent."
                )
            ) from None
        except OSError as error:
            raise KafkaDirectError(
                self._masked(f"Staged records in {masked_repr(self._uri)} cannot be read: {error}")
            ) from None

    def _delete_file(self, path: str) -> bool:
        """Delete a file, and return whether this has deleted it; errors are only logged."""
        try:
            self._files.delete_file(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            _log.warning(
                "%s in stagingLocation could not be deleted; a later batch tries again: %s",
                path,
                self._masked(str(error)),
            )
            return False
        return True


class StagingFileWriter:
    """Writes the batches of one task attempt that are too large for its commit message."""

    def __init__(self, files: Any, path: str, uri: str) -> None:
        self._files = files
        self.path = path
        self._uri = uri
        self._out = _open_private_file(files, path)

    def write(self, data: bytes | WritableBytes) -> None:
        try:
            self._out.write(data)
        except OSError as error:
            raise _write_error(self._uri, error) from None

    def finish(self, size: int, records: int) -> StagedFile:
        try:
            self._out.close()
        except OSError as error:
            raise _write_error(self._uri, error) from None
        return StagedFile(self.path, size, records)

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._out.close()
        with contextlib.suppress(OSError):
            self._files.delete_file(self.path)


def _create_private_folder(files: Any, path: str) -> None:
    """Create a folder and its parents; on a local file system only this user can use the folder."""
    from pyarrow import fs

    if isinstance(files, fs.LocalFileSystem):
        os.makedirs(path, mode=0o700, exist_ok=True)
    else:
        files.create_dir(path, recursive=True)


def _open_private_file(
    files: Any,
    path: str,
    existing_flag: int = os.O_EXCL,  # an existing local file is an error; O_TRUNC replaces its content
) -> Any:
    """Open a file for writing; on a local file system only this user can read it."""
    from pyarrow import fs

    if not isinstance(files, fs.LocalFileSystem):
        return files.open_output_stream(path)
    # Another user may be able to write in the folder, so no link is followed.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | existing_flag
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def _quote_run(run: str) -> str:
    return quote(run, safe="").replace(".", "%2E")  # a dot ends the run in the name of a file


def _write_error(uri: str, error: OSError) -> KafkaDirectError:
    message = (
        f"Staged records cannot be written to {masked_repr(uri)} (stagingLocation): {error}. Check its free space and "
        "permissions."
    )
    return KafkaDirectError(mask_secrets(message, uri))
