"""The columns a Kafka record has in Spark, as Arrow types.

Names and types are those of Spark's Kafka source (``KafkaRecordToRowConverter``), in Arrow as Spark's
``to_arrow_schema`` maps them; ``leaderEpoch`` is ours, null where the batch carries none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
    "leaderEpoch",
)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, in this order.

    Raises:
        ValueError: A column is unknown or named twice.
    """
    import pyarrow as pa

    check_columns(columns)
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
        "leaderEpoch": pa.int32(),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])


def check_columns(columns: Sequence[str]) -> None:
    """Check that each column exists and is named once.

    Raises:
        ValueError: Otherwise.
    """
    for name in columns:
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name!r}; a Kafka record has {', '.join(COLUMNS)}")
    if len(set(columns)) != len(columns):
        raise ValueError(f"a column is named twice: {', '.join(columns)}")
