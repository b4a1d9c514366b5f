"""``kafka-direct transactions``: open transactions, and which one holds back readers of committed records."""

from __future__ import annotations

from typing import Final

DESCRIPTION: Final = """\
Show or end open transactions. With read_committed, a partition can be read up to its last stable offset, which is
before the first open transaction."""
EXAMPLES: Final = """
help and more examples: kafka-direct transactions SUBCOMMAND --help

examples:
  kafka-direct transactions list -b localhost:9092
  kafka-direct transactions describe flights-writer -b localhost:9092
"""

SUBCOMMANDS: Final = {
    "list": "show the open transactions of partitions",
    "describe": "show the latest transaction of transactional ids",
    "abort": "end a transaction, also a hanging one",
}
"""The subcommands and what they do. The module of a subcommand is ``transactions_NAME``."""
