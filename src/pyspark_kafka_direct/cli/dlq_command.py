"""``kafka-direct dlq``: shows dead letters with their errors, and writes them to their topics again."""

from __future__ import annotations

from typing import Final

DESCRIPTION: Final = """\
Dead letters are copies of records that could not be processed, with headers of this package, Kafka Connect, Kafka
Streams or Spring. "show" prints them with their errors, and "replay" writes them to their topics again."""
EXAMPLES: Final = """
help and more examples: kafka-direct dlq SUBCOMMAND --help

examples:
  kafka-direct dlq show flights-dlq -b localhost:9092
  kafka-direct dlq replay flights-dlq -b localhost:9092
"""

SUBCOMMANDS: Final = {
    "show": "print dead letters with their errors, or count them",
    "replay": "write dead letters to their topics again",
}
"""The subcommands and what they do. The module of a subcommand is ``dlq_NAME``."""
