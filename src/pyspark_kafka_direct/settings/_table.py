"""The one table of settings: finding a row by what was written, and how a row is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.settings._rows_connect import CONNECT_ROWS
from pyspark_kafka_direct.settings._rows_limits import LIMIT_ROWS
from pyspark_kafka_direct.settings._rows_produce import PRODUCE_ROWS
from pyspark_kafka_direct.settings._rows_read import READ_ROWS
from pyspark_kafka_direct.settings._rows_sasl import SASL_ROWS
from pyspark_kafka_direct.settings._rows_sink import SINK_ROWS
from pyspark_kafka_direct.settings._rows_source import SOURCE_ROWS
from pyspark_kafka_direct.settings._rows_spark import SPARK_ROWS
from pyspark_kafka_direct.settings._rows_tls import TLS_ROWS
from pyspark_kafka_direct.settings.row import Fate, Origin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark_kafka_direct.settings.row import Door, Setting, Written

_PREFIX: Final = "kafka."
_INSIDE: Final = " inside sasl.jaas.config"


class Found(NamedTuple):
    """What a name means.

    Attributes:
        key: The same for all names of one setting.
        shown: The name as messages show it.
        row: The row; ``None``: nobody knows the name.
        way: How the setting is written there; ``None``: it is not to be written there.
    """

    key: str
    shown: str
    row: Setting | None
    way: Written | None = None


class Table:
    """Rows, and the names they are found by.

    Args:
        rows: The rows.
    """

    def __init__(self, rows: Iterable[Setting]) -> None:
        self.rows: Final = tuple(rows)
        self.by_name: Final[Mapping[str, Setting]] = {row.name: row for row in self.rows}
        self._by_any_name = {
            name.lower(): row for row in self.rows for name in (row.name, *row.aliases, *_own_names(row)) if name
        }
        self._in_jaas = {
            way.name: row for row in self.rows for way in row.origins if way.origin is Origin.JAAS and way.name
        }
        own = [row.name.lower() for row in self.rows if not row.client and row.written(Origin.OPTION)]
        # A name with a dot is a client setting, with or without its prefix, but for these groups of the data source's.
        self._own_groups = {name.split(".")[0] for name in own if "." in name}

    def find(self, origin: Origin, written: str) -> Found:
        """Find the row that a name means.

        Args:
            origin: Where it was written.
            written: The name; upper and lower case are the same, and blanks around it do not count.
        """
        name = written.strip().lower()
        bare = name.removeprefix(_PREFIX)
        row = self._in_jaas.get(written) if origin is Origin.JAAS else None
        row = row or self._by_any_name.get(bare)
        if origin is Origin.OPTION and row is not None:
            # "kafka.subscribe" is no option of the data source, and "debug" no client setting: "kafka.debug" is.
            prefixed = name != bare
            row = row if prefixed == row.client or (row.client and "." in name) else None
        if row is None:
            return Found(f"unknown {bare if '.' in bare else name}", name_as_shown(origin, written.strip()), None)
        shown = written.strip()
        if bare == row.name.lower():  # Spark hands options over in lower case
            shown = shown[: len(shown) - len(bare)] + row.name
        way = next((way for way in row.origins if way.origin is origin and _is_so_written(row, way, bare)), None)
        return Found(row.name, name_as_shown(origin, shown), row, way)

    def is_client_name(self, written: str) -> bool:
        """Tell whether an option's name is one of a client setting, known or not."""
        name = written.strip().lower()
        return name.startswith(_PREFIX) or ("." in name and name.split(".")[0] not in self._own_groups)

    def names(self, origin: Origin, *, client: bool | None = None, doors: Collection[Door] = ()) -> list[str]:
        """Return the names that can be written at an origin, without ``kafka.``.

        Args:
            origin: Where.
            client: Only client settings, or only others.
            doors: Only of settings that work at one of these doors; none: of all settings.
        """
        return [
            name
            for row in self.rows
            if (client is None or row.client is client) and (not doors or any(door in row.doors for door in doors))
            for way in row.origins
            if way.origin is origin
            for name in ([way.name] if way.name else [row.name, *row.aliases])
        ]

    def as_written(self, row: Setting, origin: Origin) -> str:
        """Return how a user writes a setting at an origin."""
        way = row.written(origin)
        if way is not None and way.name:
            return name_as_shown(origin, way.name)
        return name_as_shown(origin, _PREFIX + row.name if row.client and origin is Origin.OPTION else row.name)

    def elsewhere(self, row: Setting) -> Fate:
        """Return what to say of a setting that is written where it is not to be written."""
        ways = dict.fromkeys(way.origin for way in row.origins)
        return Fate(why="write it as " + " or ".join(f"{each.value} {self.as_written(row, each)}" for each in ways))


def name_as_shown(origin: Origin, written: str) -> str:
    """Return a name as messages show it."""
    return written + _INSIDE if origin is Origin.JAAS else written


def _is_so_written(row: Setting, way: Written, name: str) -> bool:
    return name == way.name.lower() if way.name else name in (row.name.lower(), *row.aliases)


def _own_names(row: Setting) -> list[str]:
    # Names of a login module's options are short words that mean nothing elsewhere.
    return [way.name for way in row.origins if way.origin is not Origin.JAAS]


TABLE: Final = Table(
    (
        *CONNECT_ROWS,
        *TLS_ROWS,
        *SASL_ROWS,
        *READ_ROWS,
        *PRODUCE_ROWS,
        *SOURCE_ROWS,
        *LIMIT_ROWS,
        *SINK_ROWS,
        *SPARK_ROWS,
    ),
)
