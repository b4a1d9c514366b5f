"""The locations that ``stagingLocation`` can name: a folder in any file system of pyarrow.fs, or a topic."""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from pyspark_kafka_direct.client.admin import describe_topic_config
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.config.client_settings import FetchSettings, ProducerSettings
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerError,
    CorruptRecordError,
    KafkaDirectError,
    OptionError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.producer.batch_producer import BatchProducer
from pyspark_kafka_direct.producer.compacted_partition import keyed_rows, values_with_key
from pyspark_kafka_direct.producer.staging import (
    FramesChecksum,
    StagedFile,
    StagedOutput,
    StagedTopicRange,
    decode_frames,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import Any

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.producer.staging import StagingLocation
    from pyspark_kafka_direct.records import EncodedBatch

_log = logging.getLogger("pyspark_kafka_direct.producer")

_TOPIC_PREFIX: Final = "topic:"
_MAX_RECORD_BYTES: Final = 512 << 10  # well below the default max.message.bytes of 1 MiB

_STAGED_SUFFIX: Final = ".staged"
_PROBE_FILE: Final = "driver.probe"
_CHUNK_BYTES: Final = 1 << 20

_HOUR = 3600.0
SUPERSEDED_RETENTION_SECONDS: Final = _HOUR  # a superseded run cannot commit, but its late tasks may still write
ORPHAN_RETENTION_SECONDS: Final = 7 * 24 * _HOUR  # of all other files, such as those of a run killed before any commit


def open_staging_location(
    value: str, cluster: ClusterClient, *, transactional_id: str, run: str, probe: str | None = None
) -> StagingLocation:
    """Return the location for an option value: ``topic:NAME``, an absolute path, or a URI that pyarrow.fs supports."""
    if not value.startswith(_TOPIC_PREFIX):
        return FileStagingLocation(value, transactional_id, run, probe)
    if value == _TOPIC_PREFIX:
        raise OptionError("stagingLocation is topic: without a name. Set it to topic:NAME.")
    return TopicStagingLocation(cluster, value.removeprefix(_TOPIC_PREFIX))


class FileStagingLocation:
    """A folder for staged batches, shared by the driver and the executors, with a subfolder per transactional id.

    Each task attempt writes its frames to one file, whose name contains the run, batch, task and attempt. The file
    needs no temporary name: readers ignore it until a commit message contains its name, size and checksum.
    """

    def __init__(
        self,
        uri: str,
        transactional_id: str,
        run: str,
        probe: str | None = None,  # in tasks the result of `prepare` on the driver
    ) -> None:
        from pyarrow import fs

        self.uri = uri
        self._run = run
        try:
            self._files, base = fs.FileSystem.from_uri(uri)
        except (ValueError, OSError, NotImplementedError) as error:
            raise OptionError(
                f"stagingLocation {uri!r} cannot be opened: {error}. Set it to an absolute path, to a URI that "
                "pyarrow.fs supports (file:, s3:, gs:, hdfs:, abfs:), or to topic:NAME."
            ) from None
        self._folder = f"{base.rstrip('/')}/{quote(transactional_id, safe='')}"
        self._probe = f"{self._folder}/{_PROBE_FILE}"
        self._expected_probe = probe

    def prepare(self, system: System = SYSTEM) -> str:
        """Check on the driver that files can be written and read, and return the probe.

        The probe is a random string in a file of the folder. The first call writes it. Tasks compare it to check that
        they use the same folder as the driver.
        """
        try:
            self._expected_probe = self._read_probe()
            if not self._expected_probe:
                _create_private_folder(self._files, self._folder)
                with _open_private_file(self._files, self._probe, existing=os.O_TRUNC) as out:
                    out.write(system.nonce().encode())
                self._expected_probe = self._read_probe()
        except OSError as error:
            raise OptionError(
                f"stagingLocation {self.uri!r} cannot be written to or read by the driver: {error}"
            ) from None
        if not self._expected_probe:
            raise OptionError(
                f"stagingLocation {self.uri!r} does not return what was written to it. Use another file system."
            )
        return self._expected_probe

    def check(self) -> None:
        """Check in a task that this is the folder that the driver uses."""
        try:
            probe = self._read_probe()
        except OSError as error:
            raise OptionError(f"stagingLocation {self.uri!r} cannot be read by this executor: {error}") from None
        if probe != self._expected_probe:
            raise OptionError(
                f"stagingLocation {self.uri!r} is not the same folder on this executor and on the driver: the driver's "
                "probe was not found in it. Use a folder that the driver and all executors share, such as a network "
                "mount or an object store, or topic:NAME."
            )

    def open_spill(self, name: str) -> _FileSpillWriter:
        """Open a file for a task attempt with a unique name."""
        self.check()
        path = f"{self._folder}/{_quote_run(self._run)}.{quote(name, safe='')}{_STAGED_SUFFIX}"
        try:
            return _FileSpillWriter(self._files, path, self.uri)
        except OSError as error:
            raise _write_error(self.uri, error) from None

    def read(self, staged: StagedOutput) -> Iterator[tuple[str, EncodedBatch]]:
        """Yield the topics and record batches of one task's file."""
        assert isinstance(staged, StagedFile)
        yield from decode_frames(self._read_chunks(staged.path), staged.checksum, staged.path)

    def delete(self, staged: Sequence[StagedOutput]) -> None:
        """Delete the files of these outputs; ``delete_expired`` retries those that cannot be deleted."""
        for output in staged:
            if isinstance(output, StagedFile):
                self._delete_file(output.path)

    def delete_expired(self, superseded_runs: Collection[str], system: System) -> int:
        """Delete this transactional id's old files, and return their number.

        Files of superseded runs, which cannot commit, are deleted sooner.
        """
        from pyarrow import fs

        deleted_count = 0
        with contextlib.suppress(OSError):  # best effort: the next call retries
            now = system.wall_time()
            for info in self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True)):
                if (
                    info.type != fs.FileType.File
                    or not info.base_name.endswith(_STAGED_SUFFIX)
                    or info.mtime_ns is None
                ):
                    continue
                run = unquote(info.base_name.partition(".")[0])
                is_superseded = run in superseded_runs and run != self._run  # tasks of this run may still commit
                retention = SUPERSEDED_RETENTION_SECONDS if is_superseded else ORPHAN_RETENTION_SECONDS
                if now - info.mtime_ns / 1e9 > retention:
                    deleted_count += self._delete_file(info.path)
        return deleted_count

    def _read_probe(self) -> str | None:
        try:
            with self._files.open_input_stream(self._probe) as source:
                return bytes(source.read()).decode(errors="replace")
        except FileNotFoundError:
            return None

    def _read_chunks(self, path: str) -> Iterator[bytes]:
        try:
            with self._files.open_input_stream(path) as source:
                while chunk := source.read(_CHUNK_BYTES):
                    yield chunk
        except FileNotFoundError:
            raise CorruptRecordError(
                f"Staged records are missing: {path} in stagingLocation {self.uri!r} was deleted before it was sent."
            ) from None
        except OSError as error:
            raise KafkaDirectError(f"Staged records in stagingLocation {self.uri!r} cannot be read: {error}") from error

    def _delete_file(self, path: str) -> bool:
        try:
            self._files.delete_file(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            _log.warning("%s in stagingLocation could not be deleted; a later batch tries again: %s", path, error)
            return False
        return True


class _FileSpillWriter:
    def __init__(self, files: Any, path: str, uri: str) -> None:
        self._files = files
        self._path = path
        self._uri = uri
        self._out = _open_private_file(files, path)

    def write(self, frame: bytes) -> None:
        try:
            self._out.write(frame)
        except OSError as error:
            raise _write_error(self._uri, error) from None

    def finish(self, checksum: FramesChecksum, records: int) -> StagedFile:
        try:
            self._out.close()
        except OSError as error:
            raise _write_error(self._uri, error) from None
        return StagedFile(self._path, checksum, records)

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._out.close()
        with contextlib.suppress(OSError):
            self._files.delete_file(self._path)


class TopicStagingLocation:
    """A topic for staged batches, which deletes them by its retention.

    A task attempt writes its frames to one partition, as values of records whose key is the attempt's name. Records of
    other tasks may lie between them. The topic must not be compacted, because compaction retains one record per key.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        topic: str,
        settings: ProducerSettings | None = None,
        poll_timeout: float = 60.0,  # seconds without progress after which reading fails
    ) -> None:
        self.topic = topic
        self._cluster = cluster
        self._settings = settings or ProducerSettings()
        self._poll_timeout = poll_timeout

    def prepare(self) -> None:
        """Check that the topic exists and is not compacted."""
        if self.topic not in self._cluster.topics([self.topic]):
            raise OptionError(
                f"stagingLocation is topic:{self.topic}, but this topic does not exist. Create it with "
                "cleanup.policy=delete, a retention longer than any batch takes, and about as many partitions as tasks "
                "run at the same time."
            )
        with contextlib.suppress(AuthorizationError):
            policy = describe_topic_config(self._cluster, self.topic, ["cleanup.policy"]).get("cleanup.policy")
            if policy is not None and "compact" in policy:
                raise OptionError(
                    f"stagingLocation is topic:{self.topic}, which is compacted and so loses records before they are "
                    "sent. Set its cleanup.policy to delete, or use another topic."
                )

    def check(self) -> None:
        """Do nothing: the topic is the same for all processes."""

    def open_spill(self, name: str) -> _TopicSpillWriter:
        """Open a producer for a task attempt with a unique name, which determines the partition."""
        topics = self._cluster.topics([self.topic])
        if self.topic not in topics:
            raise TopicNotFoundError(
                "The topic of stagingLocation does not exist or is not visible. Create it, or grant the principal "
                "DESCRIBE, READ and WRITE on it.",
                topic=self.topic,
            )
        key = name.encode()
        partition = zlib.crc32(key) % len(topics[self.topic].partitions)
        return _TopicSpillWriter(
            BatchProducer(self._cluster, self._settings),
            TopicPartition(self.topic, partition),
            key,
            self._cluster.pool.system,
        )

    def read(self, staged: StagedOutput) -> Iterator[tuple[str, EncodedBatch]]:
        """Yield the topics and record batches of one task's records."""
        assert isinstance(staged, StagedTopicRange)
        where = f"{staged.topic}-{staged.partition} at offsets {staged.from_offset} to {staged.until_offset - 1}"
        yield from decode_frames(self._read_values(staged), staged.checksum, where)

    def delete(self, staged: Sequence[StagedOutput]) -> None:
        """Do nothing: the topic's retention deletes the records."""

    def delete_expired(self, superseded_runs: Collection[str], system: System) -> int:
        """Do nothing: the topic's retention deletes the records."""
        return 0

    def _read_values(self, staged: StagedTopicRange) -> Iterator[bytes]:
        from pyspark_kafka_direct.consumer.range_reader import read_range
        from pyspark_kafka_direct.consumer.range_request import RangeRequest

        request = RangeRequest(
            offsets=OffsetRange(staged.topic, staged.partition, staged.from_offset, staged.until_offset),
            columns=("key", "value"),
            poll_timeout=self._poll_timeout,
        )
        cluster = self._cluster
        batches = read_range(cluster.settings, FetchSettings(), request, pool=cluster.pool)
        for value in values_with_key(staged.key, batches):
            yield value or b""


class _TopicSpillWriter:
    def __init__(self, producer: BatchProducer, partition: TopicPartition, key: bytes, system: System) -> None:
        from pyspark_kafka_direct.records import create_encoder

        self._producer = producer
        self._partition = partition
        self._key = key
        self._system = system
        self._encoder = create_encoder(
            topic=partition.topic,
            partitions=partition.partition + 1,
            batch_bytes=_MAX_RECORD_BYTES,
            max_record_bytes=2 * _MAX_RECORD_BYTES,
        )

    def write(self, frame: bytes) -> None:
        starts = range(0, len(frame), _MAX_RECORD_BYTES)
        parts = [(self._key, frame[start : start + _MAX_RECORD_BYTES]) for start in starts]
        rows = keyed_rows(parts, self._partition.partition, self._system)
        for batch in self._encoder.add(rows):
            self._producer.send(self._partition.topic, batch)

    def finish(self, checksum: FramesChecksum, records: int) -> StagedTopicRange:
        for batch in self._encoder.flush():
            self._producer.send(self._partition.topic, batch)
        written = self._producer.flush()[self._partition]
        self._producer.close()
        if written.first_offset < 0 or written.next_offset < 0:
            raise BrokerError(
                "The broker did not return the offsets of the staged records. Spark can retry the task.",
                topic=self._partition.topic,
                partition=self._partition.partition,
            )
        return StagedTopicRange(
            *self._partition, written.first_offset, written.next_offset, self._key, checksum, records
        )

    def abort(self) -> None:
        self._producer.close()


def _create_private_folder(files: Any, path: str) -> None:
    """Create a folder and its parents; on a local file system only this user can use the folder."""
    from pyarrow import fs

    if isinstance(files, fs.LocalFileSystem):
        os.makedirs(path, mode=0o700, exist_ok=True)
    else:
        files.create_dir(path, recursive=True)


def _open_private_file(files: Any, path: str, existing: int = os.O_EXCL) -> Any:
    """Open a file for writing; on a local file system only this user can read it.

    Another user may be able to write in the folder, so no link is followed, and the default flag for an ``existing``
    file is that it is an error.
    """
    from pyarrow import fs

    if not isinstance(files, fs.LocalFileSystem):
        return files.open_output_stream(path)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | existing, 0o600), "wb")


def _quote_run(run: str) -> str:
    return quote(run, safe="").replace(".", "%2E")


def _write_error(uri: str, error: OSError) -> KafkaDirectError:
    return KafkaDirectError(
        f"Staged records cannot be written to stagingLocation {uri!r}: {error}. Check its free space and permissions."
    )
