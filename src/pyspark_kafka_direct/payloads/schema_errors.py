"""Counts and logs the values that cannot be decoded because of their schemas, which may be valid."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.errors import printable
from pyspark_kafka_direct.payloads.malformed_records import message_of_row

if TYPE_CHECKING:
    from pyspark_kafka_direct.payloads.decoded_values import MalformedValues

_log = logging.getLogger("pyspark_kafka_direct.payloads")

# Records can contain any schema ids.
_MAX_LINES: Final = 10
_MAX_SCHEMAS: Final = 1000  # that are counted by themselves
_MAX_CHARS: Final = 3000


class SchemaErrors:
    """Counts values by their schemas, and logs a line for each of them."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()  # by what the values are, and the schema
        self._messages: dict[tuple[str, str], str] = {}
        self._others = 0  # values of further schemas
        self._logged: Counter[tuple[str, str]] = Counter()  # the counts in the last lines of log_growth

    def add(self, where: str, malformed: MalformedValues) -> None:
        """Count the values whose schemas are at fault; ``where`` says what they are."""
        if malformed.advice is None:
            return
        schemas = malformed.advice  # which names the schema; null if the schema is not at fault
        if malformed.schema_ids is not None:
            ids = malformed.schema_ids.cast(pa.string())
            schemas = pc.if_else(schemas.is_valid(), pc.coalesce(ids, schemas), pa.scalar(None, pa.string()))
        for entry in pc.value_counts(schemas.drop_null()):
            key, count = (where, entry["values"].as_py()), entry["counts"].as_py()
            if key not in self._messages:
                if len(self._messages) >= _MAX_SCHEMAS:  # random ids must not fill the memory
                    self._others += count
                    continue
                first_row = pc.index(schemas, entry["values"]).as_py()
                self._messages[key] = printable(message_of_row(malformed, first_row), _MAX_CHARS)
            self._counts[key] += count

    def log(self, effect: str) -> None:
        """Log a line for each schema, and reset the counts; ``effect`` is what happened to the values."""
        counts = self._counts.most_common()
        for key, count in counts[:_MAX_LINES]:
            self._log_line(key, count, effect)
        others = sum(count for _, count in counts[_MAX_LINES:]) + self._others
        if others:
            _log.warning("%d more values of other schemas %s because of their schemas", others, effect)
        self._counts, self._messages, self._others = Counter(), {}, 0

    def log_growth(self, effect: str) -> None:
        """Log a line for each schema with twice as many values as in its last line, and continue to count."""
        for key, count in self._counts.most_common(_MAX_LINES):
            if count >= 2 * self._logged[key]:
                self._logged[key] = count
                self._log_line(key, count, effect)

    def _log_line(self, key: tuple[str, str], count: int, effect: str) -> None:
        text = "%s: %d values, which may be valid, %s because of their schema: %s."
        _log.warning(text, key[0], count, effect, self._messages[key])
