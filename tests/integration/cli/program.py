"""The program ``kafka-direct`` with the sources of this tree, in another process."""

from __future__ import annotations

import sys
from typing import Final

PROGRAM: Final = "import sys; from pyspark_kafka_direct.cli.main import main; sys.exit(main())"
"""What the installed command runs."""

START: Final = [sys.executable, "-c", PROGRAM]
"""The beginning of a command line."""
