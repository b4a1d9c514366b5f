"""Counts and logs the values that cannot be decoded because of their schemas, which may be valid."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.formats.malformed_records import messages

if TYPE_CHECKING:
    from pyspark_kafka_direct.records import MalformedValues

_log = logging.getLogger("pyspark_kafka_direct.formats")

_MAX_LINES: Final = 10  # records can contain any schema ids


class SchemaErrors:
    """Counts values by their schemas, and logs a line for each of them."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()  # by what the values are, and the schema
        self._messages: dict[tuple[str, str], str] = {}

    def add(self, where: str, malformed: MalformedValues) -> None:
        """Count the values whose schemas are at fault; ``where`` says what they are."""
        if malformed.advice is None:
            return
        schemas = malformed.advice
        if malformed.schema_ids is not None:
            ids = malformed.schema_ids.cast(pa.string())
            schemas = pc.if_else(schemas.is_valid(), pc.coalesce(ids, schemas), pa.scalar(None, pa.string()))
        for entry in pc.value_counts(schemas.drop_null()):
            key = (where, entry["values"].as_py())
            self._counts[key] += entry["counts"].as_py()
            if key not in self._messages:
                row = pc.index(schemas, entry["values"]).as_py()
                self._messages[key] = messages(malformed)[row].as_py()

    def log(self, effect: str) -> None:
        """Log a line for each schema, and start again; ``effect`` is what happened to the values."""
        counts, texts = self._counts.most_common(), self._messages
        self._counts, self._messages = Counter(), {}
        for (where, schema), count in counts[:_MAX_LINES]:
            _log.warning(
                "%s: %d values, which may be valid, %s because of their schema: %s.",
                where,
                count,
                effect,
                texts[where, schema],
            )
        if others := counts[_MAX_LINES:]:
            total = sum(count for _, count in others)
            _log.warning("%d more values of %d other schemas %s because of their schemas", total, len(others), effect)
