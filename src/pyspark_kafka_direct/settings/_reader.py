"""The one reader of settings: what was written at an origin, for a door, becomes values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.planning.hints import did_you_mean, is_misspelt
from pyspark_kafka_direct.settings import _messages
from pyspark_kafka_direct.settings._kinds import read_value
from pyspark_kafka_direct.settings._table import TABLE
from pyspark_kafka_direct.settings.row import READING, WRITING, Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark_kafka_direct.settings._kinds import Value
    from pyspark_kafka_direct.settings._table import Table
    from pyspark_kafka_direct.settings.row import Door, Role, Setting
    from pyspark_kafka_direct.settings.secret import Secret

# Spark hands these over with the options of every data source.
_SPARKS_OWN: Final = frozenset({"path", "paths", "checkpointlocation", "queryname"})


@dataclass(frozen=True, slots=True)
class Read:
    """What settings say at a door.

    Attributes:
        door: What they were read for.
        origin: Where they were written.
        table: The table they were read by.
        values: Values by the table's names, defaults included.
        given: The table's name to the name that was written, of the settings that were given and work here.
        texts: Their texts, by the table's name; they may be secrets.
        notes: One line for each setting that is ignored or unknown; never holds a value.
        unknown: Those of the notes that are on unknown settings.
    """

    door: Door
    origin: Origin
    table: Table
    values: Mapping[str, Value]
    given: Mapping[str, str]
    texts: Mapping[str, str] = dataclasses.field(repr=False)
    notes: tuple[str, ...]
    unknown: tuple[str, ...]

    def name(self, setting: str) -> str:
        """Return a setting as the user wrote it, or would have to write it."""
        return self.given.get(setting) or self.table.as_written(self.table.by_name[setting], self.origin)

    def text(self, setting: str) -> str | None:
        """Return the value of a setting that is a text or a word."""
        return cast("str | None", self.values.get(setting))

    def secret(self, setting: str) -> Secret | None:
        """Return the value of one that is a secret."""
        return cast("Secret | None", self.values.get(setting))

    def number(self, setting: str) -> int | None:
        """Return the value of one that is a whole number."""
        return cast("int | None", self.values.get(setting))

    def whole(self, setting: str) -> int:
        """Return the value of one that is a whole number and has a default."""
        return cast("int", self.values[setting])

    def decimal(self, setting: str) -> float:
        """Return the value of one that is a number or a duration, in seconds, and has a default."""
        return cast("float", self.values[setting])

    def flag(self, setting: str) -> bool:
        """Return the value of one that is true or false, and has a default."""
        return cast("bool", self.values[setting])

    def entries(self, setting: str) -> tuple[str, ...]:
        """Return the value of one that is a list."""
        return cast("tuple[str, ...]", self.values.get(setting, ()))

    def fields(self, kind: type, *roles: Role) -> dict[str, Any]:
        """Return the fields of a typed value that single settings of these roles fill."""
        names = {field.name for field in dataclasses.fields(kind)}
        rows = [row for row in self.table.rows if row.field in names and row.role in roles and self.door in row.doors]
        return {row.field: self.values.get(row.name) for row in rows}


def read(given: Mapping[str, object], *, door: Door, origin: Origin, table: Table = TABLE) -> Read:
    """Read settings.

    Args:
        given: What was written: names to values. ``None`` means "not given".
        door: What they are read for.
        origin: Where they were written.
        table: The settings there are.

    Raises:
        OptionError: A setting is refused, misspelt, missing or given twice, or its value cannot be used.
    """
    rows = [row for row in table.rows if door in row.doors and row.written(origin)]
    values = {row.name: read_value(row, text, row.name) for row in rows if (text := row.doors[door]) is not None}
    written_as: dict[str, tuple[str, str]] = {}
    given_here: dict[str, str] = {}
    texts: dict[str, str] = {}
    notes: list[str] = []
    unknown: dict[str, list[str]] = {}
    for written, value in given.items():
        if value is None:
            continue
        name, text = _name(written), _text(written, value)
        found = table.find(origin, name)
        row, shown = found.row, found.shown
        if row is not None and row.client and not text.strip() and row.doors.get(door) is None:
            continue  # as in a template that was not filled in
        if found.key in written_as:
            first, same = written_as[found.key]
            if text != same:
                raise _messages.given_twice(first, shown)
            continue
        written_as[found.key] = shown, text
        if row is None:
            unknown[shown] = _unknown(table, door, origin, shown, name.strip())
            notes += unknown[shown]
        elif found.way is None or door not in row.doors:
            fate = table.elsewhere(row) if found.way is None else row.fate(door)
            if not fate.is_harmless(text):
                if fate.refuse:
                    raise _messages.refused(origin, shown, fate, text)
                notes.append(_messages.ignored(origin, shown, fate.why))
        else:
            values[row.name] = read_value(row, text, shown, found.way.unit)
            given_here[row.name] = shown
            texts[row.name] = text
    for row in rows:
        if row.required and not values.get(row.name):
            raise _missing(table, origin, row, unknown)
    said = tuple(note for each in unknown.values() for note in each)
    return Read(door, origin, table, values, given_here, texts, tuple(notes), said)


def _name(written: object) -> str:
    # At some origins names can be anything that Python has.
    if not isinstance(written, str) or written.strip().lower() in ("", "kafka."):
        raise OptionError(f"a setting's name must be a text such as bootstrap.servers, got {written!r}")
    return written


def _text(name: str, value: object) -> str:
    """Return the text of a value, which may be what Java's client takes in place of one."""
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case type():
            return value.__name__
        case Sequence() if not isinstance(value, bytes) and all(isinstance(entry, str) for entry in value):
            return ",".join(cast("Sequence[str]", value))
    # The value itself is not shown: it may be a secret.
    raise OptionError(f"{name} must be a text, a number, a boolean or a list of texts, got {type(value).__name__}")


def _unknown(table: Table, door: Door, origin: Origin, shown: str, name: str) -> list[str]:
    """Return what to say of a name that nobody knows.

    Raises:
        OptionError: It can only be an option of the data source, misspelt. Ignoring ``startingOffset=earliest`` would
            read nothing of what is there, and few would see a warning.
    """
    if origin is not Origin.OPTION:
        return [_messages.unknown(origin, shown, did_you_mean(name, table.names(origin)))]
    bare = shown.lower().removeprefix("kafka.")
    if bare == shown.lower():
        working = table.names(origin, client=False, doors=WRITING if door in WRITING else READING)
        if is_misspelt(shown, working):
            raise _messages.misspelt(origin, shown, did_you_mean(shown, working))
    if table.is_client_name(shown):
        hint = did_you_mean(bare, table.names(origin, client=True), "kafka.")
        return [_messages.unknown(origin, shown, hint)]
    if shown.lower() in _SPARKS_OWN:
        return []
    hint = did_you_mean(shown, table.names(origin, client=False))
    return [_messages.unknown(origin, shown, hint or did_you_mean(shown, table.names(origin, client=True), "kafka."))]


def _missing(table: Table, origin: Origin, row: Setting, unknown: Iterable[str]) -> OptionError:
    name = table.as_written(row, origin)
    hint = next((hint for each in unknown if (hint := did_you_mean(each, [name]))), "")
    return _messages.missing(name, row.form.words if row.form else row.kind.value, hint)
