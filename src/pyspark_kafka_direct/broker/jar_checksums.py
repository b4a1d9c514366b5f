"""SHA-256 checksums of the jars of Apache Kafka, in a file for each version, as ``sha256sum`` writes them.

The jars come from Maven Central or a mirror of it, and their code runs as this user. Jars that were damaged, replaced
or added, by the network, by a mirror or in the cache, are not run. For a new version, run it once with
``verify_jars=False``, and write the file in its folder of the cache:

    sha256sum *.jar | grep -v ' scala-library-' > .../broker/kafka-4.4.0.sha256
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from pyspark_kafka_direct.errors import BrokerError, OptionError

_FILES: Final = {path.stem.removeprefix("kafka-"): path for path in Path(__file__).parent.glob("kafka-*.sha256")}
_MAX_NAMES: Final = 5  # in a message

# Copied from the installed PySpark (see ivy.py). Ivy puts the organization and `_` before the names of other jars.
_SCALA_LIBRARY: Final = re.compile(r"scala-library-2\.13\.\d+\.jar")


def check_version(version: str) -> None:
    """Raise ``OptionError`` for a version without checksums."""
    if version not in _FILES:
        raise OptionError(
            f"version is {version!r}: only the jars of {' and '.join(sorted(_FILES))} can be verified; use one, "
            "or accept unverified jars with verify_jars=False (on the command line: --unverified-jars)"
        )


def verify_jars(folder: Path, version: str) -> None:
    """Raise ``BrokerError`` unless each jar in the folder has the checksum of that version's jar."""
    lines = _FILES[version].read_text(encoding="ascii").splitlines()
    checksums = {name: checksum for checksum, name in (line.split() for line in lines)}
    wrong = [
        jar.name
        for jar in sorted(folder.iterdir())
        if jar.suffix.lower() == ".jar"  # Java's class path FOLDER/* also contains *.JAR
        and _SCALA_LIBRARY.fullmatch(jar.name) is None
        and checksums.get(jar.name) != _checksum(jar)
    ]
    if wrong:
        names = ", ".join(wrong[:_MAX_NAMES]) + (f" and {len(wrong) - _MAX_NAMES} more" if wrong[_MAX_NAMES:] else "")
        raise BrokerError(
            f"Jars of Apache Kafka {version} in {folder} do not have the checksums that this package expects: {names}. "
            "They are damaged, or were replaced or added. Delete the folder to download them again; if that fails, "
            "check the mirror or proxy that they come from."
        )


def _checksum(jar: Path) -> str:
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
