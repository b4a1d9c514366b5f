"""Write the documentation pages of all options into a folder: ``python -m pyspark_kafka_direct.config docs``."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark_kafka_direct.config.option_docs import pages


def main(arguments: list[str]) -> None:
    """Write the pages into the folder that is the only argument."""
    if len(arguments) != 1:
        sys.exit("usage: python -m pyspark_kafka_direct.config FOLDER")
    for name, page in pages().items():
        Path(arguments[0], name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
