"""The digest of a batch's entry in the offset log of a checkpoint, by which batches of one number are told apart.

Spark writes ``offsets/N`` once, before the batch runs, and reads it for a rerun. So two batches with the same id and
different entries are different batches: the checkpoint was copied, or restored from a backup. Without the digest the
second one would be taken for a rerun of the first one, and skipped.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import KafkaDirectError, OptionError, TransactionStateError
from pyspark_kafka_direct.producer.file_systems import arrow_uri, mask_secrets, masked_repr, open_file_system
from pyspark_kafka_direct.spark.checkpoint_files import REWOUND_CONF

if TYPE_CHECKING:
    from pyarrow import fs

DIGEST_PROPERTY: Final = "kafka-direct.offsetsDigest"  # a local property of Spark, for tasks within foreachBatch
_DIGEST_LENGTH: Final = 32  # hexadecimal digits: 128 bits
_OTHER_WAY: Final = (
    "deliveryGuarantee=exactly-once compares the offsets of batches in the checkpoint. Set checkpointLocation, as an "
    "option of the query, to a path or URI that pyarrow.fs supports (file:, s3a:, gs:, hdfs:, abfs:), with its scheme "
    "unless it is on the driver's disk. Or use foreachBatch with foreach_batch_writer, which reads any checkpoint."
)


def digest_of(entry: bytes) -> str:
    """Return the digest of the bytes of an entry."""
    return hashlib.sha256(entry).hexdigest()[:_DIGEST_LENGTH]


def check_checkpoint(checkpoint: str | None) -> None:
    """Raise ``OptionError`` before tasks run if Python cannot read the checkpoint."""
    if not checkpoint:
        raise OptionError(f"checkpointLocation is not an option of the query. {_OTHER_WAY}")
    try:
        files, folder = _open(checkpoint)
        _read(files, f"{folder}/metadata")
    except (OptionError, OSError) as error:
        reason = mask_secrets(str(error), checkpoint)
        raise OptionError(
            f"checkpointLocation {masked_repr(checkpoint)} cannot be read: {reason}. {_OTHER_WAY}"
        ) from None


def offset_log_digest(checkpoint: str, query: str, batch: int) -> str:
    """Return the digest of ``offsets/N`` in the checkpoint of this query."""
    files, folder = _open(checkpoint)
    try:
        owner = _query_of(_read(files, f"{folder}/metadata"))
        if owner == query:
            return digest_of(_read(files, f"{folder}/offsets/{batch}"))
    except FileNotFoundError as error:
        raise TransactionStateError(
            f"checkpointLocation {masked_repr(checkpoint)} has no entry of batch {batch} of query {query}: {error}. "
            "Nothing was sent. Set checkpointLocation to the checkpoint of the query."
        ) from None
    except OSError as error:
        raise KafkaDirectError(
            f"The offsets of batch {batch} in checkpointLocation {masked_repr(checkpoint)} cannot be read: {error}. "
            "Nothing was sent."
        ) from error
    raise TransactionStateError(
        f"checkpointLocation {masked_repr(checkpoint)} is the checkpoint of query {owner}, but query {query} writes. "
        "Nothing was sent. Set it to the checkpoint of this query."
    )


def rewound_before(checkpoint: str, batch: int) -> int:
    """Return the number of batches directly before this one that ``kafka-direct checkpoint rewind`` has added."""
    files, folder = _open(checkpoint)
    first = batch
    try:
        while first > 0 and _is_rewound(_read(files, f"{folder}/offsets/{first - 1}")):
            first -= 1
    except FileNotFoundError:
        pass  # Spark has purged it, as it does with earlier batches that are done
    except OSError as error:
        raise KafkaDirectError(
            f"The batch before batch {batch} in checkpointLocation {masked_repr(checkpoint)} cannot be read: {error}. "
            "Nothing was sent."
        ) from error
    return batch - first


def _open(checkpoint: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a checkpoint, and the checkpoint's path in it."""
    uri = arrow_uri(checkpoint, is_escaped=False)
    files, path = open_file_system(uri if ":" in uri else os.path.abspath(uri))
    return files, path.rstrip("/")


def _read(files: fs.FileSystem, path: str) -> bytes:
    with files.open_input_stream(path) as source:
        return bytes(source.read())


def _is_rewound(entry: bytes) -> bool:
    """Return whether an entry of the offset log has the mark of a rewind."""
    try:
        metadata = json.loads(entry.split(b"\n", 2)[1])
        return REWOUND_CONF in metadata["conf"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return False


def _query_of(metadata: bytes) -> str | None:
    """Return the id of the query that the metadata file names; ``None`` if it names none."""
    try:
        fields = json.loads(metadata)
    except ValueError:
        return None
    return str(fields["id"]) if isinstance(fields, dict) and "id" in fields else None
