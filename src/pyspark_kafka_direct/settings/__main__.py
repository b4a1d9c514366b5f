"""Write the documentation of all settings: ``python -m pyspark_kafka_direct.settings docs``."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark_kafka_direct.settings.documentation import pages


def main(arguments: list[str]) -> None:
    """Write the pages into a folder.

    Args:
        arguments: The folder.
    """
    if len(arguments) != 1:
        sys.exit("usage: python -m pyspark_kafka_direct.settings FOLDER")
    for name, text in pages().items():
        Path(arguments[0], name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
