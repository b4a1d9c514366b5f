"""An empty batch that goes back: its two files in a checkpoint, which a running query cannot overlook or tear.

    offsets/8   as offsets/7, with other offsets, which the key "(rewound)" marks, and a mark in ``conf``
    commits/8   as commits/7

Each file is created whole, and never replaces one. A query that runs also creates ``offsets/8``, before it reads batch
8. If the query is first, the rewind changes nothing. If the rewind is first, Spark ends the query before batch 8.

On a local disk, Spark writes a temporary file, checks that ``offsets/8`` does not exist, and renames its file, which
may replace a file that was created after the check. So ``commits/8`` is created only if Spark has no temporary file
after ``offsets/8`` was created: each later check of Spark finds ``offsets/8``.

``offsets/8`` is created first. With ``commits/8`` alone, Spark would not repeat a batch 8 that failed.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import REWOUND, partition_offsets_to_json
from pyspark_kafka_direct.spark.checkpoint_files import OFFSET_LOG_V2, REWOUND_CONF, parse_offset_seq

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark_kafka_direct.offsets import TopicPartition

OFFSETS: Final = "offsets"
COMMITS: Final = "commits"


def rewound_entry(entry: str, location: str, ends: Mapping[str, Mapping[TopicPartition, int]], time_ms: int) -> str:
    """Return the entry of the offset log that follows ``entry``, with other ends of some sources."""
    parsed = parse_offset_seq(entry.removesuffix("\n"), location)
    lines = entry.removesuffix("\n").split("\n")
    metadata = _json_object(lines[1] or "{}", location)
    metadata["batchTimestampMs"] = time_ms
    metadata["conf"] = {**metadata.get("conf", {}), REWOUND_CONF: "true"}
    sources = [
        (f"{name}:" if parsed.version == OFFSET_LOG_V2 else "") + _marked(ends[name]) if name in ends else line
        for name, line in zip(parsed.names_or_numbers, lines[2:], strict=True)
    ]
    return "\n".join([lines[0], _to_json(metadata), *sources])


def create_file(folder: Path, name: str, text: str) -> bool:
    """Create a file of a log in the local file system; return false if it exists.

    Raises:
        OptionError: The file system cannot do it atomically, or the user may not write there.
    """
    temporary_file = folder / f".rewind.{name}.{uuid.uuid4()}.tmp"  # Spark ignores hidden files
    try:
        with temporary_file.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if not (folder / name).exists():
            # Without the file, its checksum is that of a deleted file, and Hadoop would reject the new one.
            (folder / f".{name}.crc").unlink(missing_ok=True)
        os.link(temporary_file, folder / name)
    except FileExistsError:
        return False
    except OSError as error:
        raise OptionError(
            f"{folder / name} cannot be created: {error.strerror or error}. The file system must support hard links, "
            "because a rename could replace a file of a running query"
        ) from None
    finally:
        temporary_file.unlink(missing_ok=True)
    return True


def unfinished_files(folder: Path, batch: int) -> list[Path]:
    """Return the temporary files that Spark may rename to the file of a batch."""
    return sorted(folder.glob(f".{batch}.*.tmp"))


def _marked(offsets: Mapping[TopicPartition, int]) -> str:
    return _to_json({**json.loads(partition_offsets_to_json(offsets)), REWOUND: {}})


def _json_object(text: str, location: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("conf", {}), dict):
        raise InvalidOffsetsError(f"{location} must have a JSON object in its second line, got {text!r}")
    return value


def _to_json(value: object) -> str:
    """Return compact JSON without escapes, as Spark writes it, except for halves of surrogate pairs."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)
