"""Names of the columns of Arrow batches that a caller asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.payload_settings import ERROR_COLUMN
from pyspark_kafka_direct.records.columns import check_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

# The columns of the data source without includeHeaders.
_DEFAULT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def checked_columns(columns: Sequence[str] | None, argument: str) -> tuple[str, ...]:
    """Return the columns of an argument, by default those of the data source."""
    if columns is None:
        return _DEFAULT_COLUMNS
    if isinstance(columns, str):
        raise OptionError(f"{argument} takes a list of names: [{columns!r}]")
    names = tuple(columns)
    try:
        # A Kafka record has no column for errors: the payload decoder adds it.
        check_columns([name for name in names if name != ERROR_COLUMN])
    except ValueError as error:
        raise OptionError(f"{argument}: {error}") from None
    if names.count(ERROR_COLUMN) > 1:
        raise OptionError(f"{argument}: a column is named twice: {', '.join(names)}")
    return names
