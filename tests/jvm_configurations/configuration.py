"""A documented configuration of a JVM client, and what this package does with it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class JvmConfiguration:
    """A configuration of public documentation. Hosts replace placeholders that no client accepts."""

    name: str
    title: str
    """Title of the documentation's page."""
    url: str
    properties: str
    """In the format of Java's ``Properties``, as documented; the names may have the prefix ``kafka.``."""
    compared: str = ""
    """What was compared with the page, or with its source in a repository of the vendor. Empty: nothing was."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Properties of Spark's configuration."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the driver."""
    warnings: tuple[str, ...] = ()
    """A part of each warning."""
    rejected: str = ""
    """A part of the error."""
    needs: str = ""
    """What else the user has to do, although the options are accepted."""
    is_run: bool = False
    """Whether a test reads records from a local broker with it."""

    def options(self) -> dict[str, str]:
        """Return the options of a Spark query."""
        return {f"kafka.{name.removeprefix('kafka.')}": value for name, value in _parse(self.properties).items()}

    @property
    def has_tokens(self) -> bool:
        """Whether the application obtains delegation tokens."""
        return any(name.startswith("spark.kafka.clusters.") for name in self.spark)

    def result(self) -> str:
        """Return what the table says."""
        if self.rejected:
            return f"rejected: {self.rejected}"
        noun = "a warning" if len(self.warnings) == 1 else "warnings"
        warned = f", with {noun}: {'; '.join(self.warnings)}" if self.warnings else ""
        if self.needs:
            return f"needs {self.needs}{warned}"
        return f"works{warned}" if warned else "works unchanged"


def documented(source: tuple[str, str], name: str, properties: str, **more: Any) -> JvmConfiguration:
    """Return a configuration of a page, whose title and address are ``source``."""
    title, url = source
    return JvmConfiguration(name=name, title=title, url=url, properties=properties, **more)


def _parse(text: str) -> dict[str, str]:
    r"""Parse Java's format: ``\`` continues a line, without the indentation of the next, and ``\n`` is a line end."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    pairs = [line.partition("=") for line in lines if line]
    return {name.strip(): value.strip().replace(r"\n", "\n") for name, _, value in pairs}
