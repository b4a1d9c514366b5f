"""An entry of the offset log of a checkpoint, as far as every reader needs it: its lines.

Before a batch runs Spark writes its end to the checkpoint:

    <checkpoint>/offsets/7      v1
                                {"batchWatermarkMs":0,"batchTimestampMs":1795346400000,...}
                                {"flights":{"0":123,"1":98}}

After the two first lines there is one for each source of the query, ``-`` where it has no offset; in ``v2`` with a
name and a colon before it. Sources that are not Kafka's write other JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_kafka_direct.errors import OffsetPlanError

PLAIN: Final = "v1"
NAMED: Final = "v2"
NO_OFFSET: Final = "-"


@dataclass(frozen=True, slots=True)
class OffsetLines:
    """The lines of an entry.

    Attributes:
        version: ``v1`` or ``v2``.
        metadata: The JSON of the second line; empty if there is none.
        sources: What each source has said, without its name; ``None``: no offset.
    """

    version: str
    metadata: str
    sources: tuple[str | None, ...]


def read_lines(text: str, place: str) -> OffsetLines:
    """Return the lines of an entry of the offset log.

    Args:
        text: The entry.
        place: Where it is, for errors.

    Raises:
        OffsetPlanError: It is of another version.
    """
    version, *lines = text.split("\n")
    if version not in (PLAIN, NAMED):
        raise OffsetPlanError(
            f"{place} is of version {version!r}, and {PLAIN} and {NAMED} are understood: leave "
            "spark.sql.streaming.offsetLog.formatVersion as it is"
        )
    offsets = [line.partition(":")[2] if version == NAMED else line for line in lines[1:]]
    return OffsetLines(
        version, lines[0] if lines else "", tuple(None if line == NO_OFFSET else line for line in offsets)
    )
