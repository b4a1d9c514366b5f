"""What the broker writes to its log: the same in Kafka 4 (Log4j 2) and Kafka 3 (reload4j)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LOG4J_2 = """\
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
"""

_RELOAD4J = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def write_logging(folder: Path, version: str) -> list[str]:
    """Write the logging configuration into ``folder`` and return the JVM's options that make it used."""
    path = folder / "log4j.properties"
    if version.startswith("3."):
        path.write_text(_RELOAD4J)
        return [f"-Dlog4j.configuration={path.as_uri()}"]
    path.write_text(_LOG4J_2)
    return [f"-Dlog4j2.configurationFile={path.as_uri()}"]
