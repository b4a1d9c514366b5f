"""The columns of the Arrow batches of an RDD, and how keys and values are decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.config.payload_settings import ERROR_COLUMN
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.formats.payload_decoder import DecodedColumns

# The columns of the data source without includeHeaders.
_DEFAULT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


class ArrowColumns(NamedTuple):
    """Pickled into tasks, and into the checkpoint of a direct stream."""

    names: tuple[str, ...]
    decoded: DecodedColumns | None = None  # None: keys and values are bytes


def arrow_columns(columns: Sequence[str] | None, payloads: Mapping[str, str | None]) -> ArrowColumns:
    """Validate the arguments of ``KafkaRDD.arrow``; ``payloads`` are those with names of the data source's options."""
    from pyspark_kafka_direct.records.columns import check_columns

    if isinstance(columns, str):
        raise OptionError(f"arrow(columns=...) takes a list of names: [{columns!r}]")
    names = _DEFAULT_COLUMNS if columns is None else tuple(columns)
    try:
        check_columns([name for name in names if name != ERROR_COLUMN])
    except ValueError as error:
        raise OptionError(f"arrow(columns=...): {error}") from None
    if names.count(ERROR_COLUMN) > 1:
        raise OptionError(f"arrow(columns=...): a column is named twice: {', '.join(names)}")
    if ERROR_COLUMN not in names and not any(payloads.values()):
        return ArrowColumns(names)
    from pyspark_kafka_direct.config.payload_parser import parse_payload_arguments
    from pyspark_kafka_direct.spark.payload_schema import decoded_columns

    return ArrowColumns(names, decoded_columns(names, parse_payload_arguments(payloads)))
