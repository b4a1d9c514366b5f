"""``kafka-direct checkpoint``: what is in the checkpoint of a streaming query, of this package or of Spark."""

from __future__ import annotations

from typing import Final

DESCRIPTION: Final = """\
Inspect, compare or rewind the checkpoint of a streaming query, of this package or of Spark's own Kafka source. The
checkpoint can be in any file system of pyarrow (file:, s3:, gs:, hdfs:, abfs:)."""
EXAMPLES: Final = """
help and more examples: kafka-direct checkpoint SUBCOMMAND --help

examples:
  kafka-direct checkpoint show flights.checkpoint
  kafka-direct checkpoint diff flights.checkpoint flights.checkpoint
"""

SUBCOMMANDS: Final = {
    "show": "show the offsets, the unfinished batch and the lag",
    "rewind": "let a query read records again",
    "diff": "compare the offsets of two checkpoints",
    "preflight": "show what a query with other options or another format would read",
}
"""The subcommands and what they do. The module of a subcommand is ``checkpoint_NAME``."""
