"""The documentation of settings, made from the table: which door, which default, and what happens elsewhere.

python -m pyspark_kafka_direct.settings docs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.settings._rows import FOR_READING, FOR_WRITING, NOT_OF_A_LOG
from pyspark_kafka_direct.settings._table import TABLE
from pyspark_kafka_direct.settings.row import DOORS, LOG, PARAMETERS, RANGES, READING, SOURCE, WRITING, Kind, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark_kafka_direct.settings._table import Table
    from pyspark_kafka_direct.settings.row import Door, Fate, Setting

_COMMAND: Final = "Made by `python -m pyspark_kafka_direct.settings docs`; a test checks that it is current."

_OPTIONS: Final = f"""\
# Options

{_COMMAND}

Names are case-insensitive. An option in *italics* is ours, the others are those of Spark's own Kafka source and sink,
with their defaults and refusals. A value that cannot be used is refused with the option's name, what was given
and what is allowed. Blanks around a value do not count, but for `subscribePattern`. An option a letter away from one of
these (`startingOffset`), or two from a long one, is refused too, as ignoring it could skip records; any other unknown
option is ignored with a warning. So is an option for reading where something is written, and one for writing where
something is read.

*batch* and *stream* are queries of the data source, *continuous* is what a
[continuous query](continuous.md) reads with `read(...)`; it writes with the options for writing.

Client settings are options too, `kafka.security.protocol` for instance: [client-settings.md](client-settings.md).
"""

_CLIENT: Final = f"""\
# Client settings

{_COMMAND}

Every setting of Kafka 4.3's Java consumer and producer, and librdkafka's names for them. Write them as options of the
data source, with `kafka.` or without: `.option("kafka.fetch.min.bytes", "65536")`; or as `kafkaParams` of the direct
stream, of `createRDD` and of a log. Upper and lower case are the same, and blanks around a value do not count, but for
`sasl.password`. A setting that is ignored or unknown brings one warning; one that is refused, or a value that cannot be
used, is an error before any task starts. An empty text means "not given"; where there is a default it is a value like
any other. How to log in and encrypt: [security.md](security.md). What `kafkaParams` hold beside these:
[kafka-params.md](kafka-params.md).

*batch* and *stream* are queries of the data source that read, *continuous* are [continuous queries](continuous.md),
*direct* is the direct stream, *rdd* is `createRDD`: together they are *reading*. *sink* is the data source where it
writes, and the output of a continuous query. Settings for reading are ignored there, and settings for writing in the
first five, with a warning each; the tables below leave that out. *log* is `KafkaBasedLog`,
which reads and writes: [log-settings.md](log-settings.md).
"""

_PARAMETERS: Final = f"""\
# kafkaParams and the Spark configuration

{_COMMAND}

What the direct stream and `createRDD` are told beside [client settings](client-settings.md). In `kafkaParams` a name
may begin with `kafka.`; values may be texts, numbers, booleans, lists of texts, or classes; `None` means "not given".
Settings for writing are ignored with a warning.

*direct* is the direct stream, *rdd* is `createRDD`.
"""

_LOG: Final = f"""\
# Settings of a log

{_COMMAND}

The parameters of `KafkaBasedLog`: [client settings](client-settings.md) under their Java names, with `kafka.` or
without. Values may be texts, numbers, booleans, lists of texts, or classes; `None` means "not given". Here is what a
log has beside the settings for reaching the cluster, which are the same everywhere. Options of the data source are
ignored with a warning, but for those in *italics*. `acks` must be `all`: what is acknowledged is to stay in the log.
"""

_SAID_OF_ALL: Final = (FOR_READING, FOR_WRITING, NOT_OF_A_LOG)


def pages(table: Table = TABLE) -> dict[str, str]:
    """Render the pages, by file name.

    Args:
        table: The settings there are.
    """
    return {
        "options.md": _options(table),
        "client-settings.md": _client_settings(table),
        "kafka-params.md": _kafka_params(table),
        "log-settings.md": _log_settings(table),
    }


def _options(table: Table) -> str:
    rows = [row for row in table.rows if row.written(Origin.OPTION) and (not row.client or row.required)]
    here = [row for row in rows if _doors(row, SOURCE)]
    return _page(
        _OPTIONS,
        "## Reading",
        _table(
            ("option", "for", "value", "default", "meaning"),
            ((_own_name(table, row), _listed(_doors(row, SOURCE)), *_value(row, SOURCE), row.about) for row in here),
        ),
        "## Writing",
        "In batches and streams alike.",
        _table(
            ("option", "value", "default", "meaning"),
            ((_own_name(table, row), *_value(row, WRITING), row.about) for row in rows if _doors(row, WRITING)),
        ),
        "## Where an option does not apply",
        _table(("option", ""), _elsewhere(table, rows, Origin.OPTION, SOURCE)),
    )


def _client_settings(table: Table) -> str:
    rows = sorted((row for row in table.rows if row.client), key=lambda row: row.name)
    return _page(
        _CLIENT,
        "## Applied",
        _table(
            ("setting", "for", "default", "meaning", "also as"),
            (
                (f"`{row.name}`", _listed(row.doors), _default(row, DOORS), row.about, _quoted(row.aliases))
                for row in rows
                if row.doors
            ),
        ),
        "## Refused",
        _table(
            ("setting", "for", "what to write instead", "accepted all the same"),
            _fates(rows, lambda fate: fate.refuse),
        ),
        "## Ignored",
        _table(("setting", "for", "why", "in silence"), _fates(rows, lambda fate: not fate.refuse)),
        "## Inside `sasl.jaas.config`",
        "Options of the log-in module. `ssl.*` are those of OAUTHBEARER's token endpoint, not of the brokers.",
        _table(
            ("setting", "inside"),
            ((f"`{row.name}`", f"`{way.name}`") for row in rows if (way := row.written(Origin.JAAS)) and way.name),
        ),
    )


def _kafka_params(table: Table) -> str:
    written = [row for row in table.rows if row.written(Origin.PARAMETER)]
    shared = [row for row in written if row.client and _doors(row, RANGES) == list(RANGES)]
    own = [row for row in written if _doors(row, PARAMETERS) and row not in shared]
    options = [row for row in written if not row.client]
    spark = [row for row in table.rows if row.written(Origin.SPARK)]
    return _page(
        _PARAMETERS,
        "## Parameters",
        _table(
            ("parameter", "for", "value", "default", "meaning"),
            ((f"`{row.name}`", _listed(_doors(row, PARAMETERS)), *_value(row, PARAMETERS), row.about) for row in own),
        ),
        "## Options of the data source that are no parameters",
        _table(("option", ""), _elsewhere(table, options, Origin.PARAMETER, PARAMETERS)),
        "## The Spark configuration",
        "The first name that is set counts. A duration may have a unit (`ms`, `s`, `m`, `h`, `d`).",
        _table(
            ("setting", "for", "value", "default", "meaning"),
            (
                (_spark_names(row), _listed(_doors(row, PARAMETERS)), *_value(row, PARAMETERS), row.about)
                for row in spark
            ),
        ),
        "## The environment",
        _table(
            ("variable", "value", "meaning"),
            (
                (f"`{way.name}`", _quoted(row.allowed), row.about)
                for row in table.rows
                if (way := row.written(Origin.ENVIRONMENT))
            ),
        ),
    )


def _log_settings(table: Table) -> str:
    rows = sorted((row for row in table.rows if row.written(Origin.PARAMETER)), key=lambda row: row.name)
    here = [row for row in rows if "log" in row.doors and (row.role != "connect" or not row.client or row.required)]
    return _page(
        _LOG,
        "## Applied",
        _table(
            ("parameter", "value", "default", "meaning"),
            ((f"`{row.name}`" if row.client else f"*`{row.name}`*", *_value(row, LOG), row.about) for row in here),
        ),
        "## Refused",
        _table(("parameter", "why", "accepted all the same"), _log_fates(rows, refuse=True)),
        "## Ignored",
        _table(("parameter", "why", "in silence"), _log_fates(rows, refuse=False)),
    )


def _log_fates(rows: Iterable[Setting], *, refuse: bool) -> Iterable[Sequence[str]]:
    for row in rows:
        for fate, _ in _by_fate(row, LOG):
            if row.role != "connect" and fate.refuse is refuse:
                yield f"`{row.name}`", fate.why, _quoted(fate.harmless)


def _elsewhere(
    table: Table, rows: Iterable[Setting], origin: Origin, doors: tuple[Door, ...]
) -> Iterable[Sequence[str]]:
    for row in rows:
        for fate, at in _by_fate(row, doors):
            outcome = "Refused" if fate.refuse else "Ignored with a warning"
            where = "" if at == list(doors) else f" ({_listed(at)})"
            yield f"`{table.as_written(row, origin)}`", f"{outcome}{where}: {fate.why}."


def _fates(rows: Iterable[Setting], wanted: Callable[[Fate], bool]) -> Iterable[Sequence[str]]:
    for row in rows:
        for fate, at in _by_fate(row, DOORS):
            if wanted(fate):
                harmless = [word for word in fate.harmless if not word.startswith("kafkashaded.")]
                yield f"`{row.name}`", _listed(at), fate.why, _quoted(harmless)


def _by_fate(row: Setting, doors: tuple[Door, ...]) -> list[tuple[Fate, list[Door]]]:
    """Return the doors where it does not work, together where the same happens, but for what the pages say of all."""
    found: list[tuple[Fate, list[Door]]] = []
    for door in doors:
        fate = row.fate(door) if door not in row.doors else None
        if fate is None or fate in _SAID_OF_ALL:
            continue
        same = next((at for other, at in found if other == fate), None)
        if same is None:
            found.append((fate, [door]))
        else:
            same.append(door)
    return found


def _doors(row: Setting, doors: tuple[Door, ...]) -> list[Door]:
    return [door for door in doors if door in row.doors]


def _own_name(table: Table, row: Setting) -> str:
    name = f"`{table.as_written(row, Origin.OPTION)}`"
    return name if row.spark else f"*{name}*"


def _spark_names(row: Setting) -> str:
    ways = [way for way in row.origins if way.origin is Origin.SPARK]
    units = row.kind is Kind.DURATION
    return ", else ".join(f"`{way.name}`" + (f" (in {way.unit})" if units else "") for way in ways)


def _value(row: Setting, doors: tuple[Door, ...]) -> tuple[str, str]:
    return row.kind.value, _default(row, doors)


def _default(row: Setting, doors: tuple[Door, ...]) -> str:
    """Return the default at the first of the doors, and at others where it is another."""
    given = [(door, row.doors[door]) for door in doors if row.doors.get(door)]
    if not given:
        return ""
    first = given[0][1]
    return ", ".join([f"`{first}`", *(f"{door} `{text}`" for door, text in given if text != first)])


def _listed(doors: Iterable[Door]) -> str:
    there = [door for door in DOORS if door in frozenset(doors)]
    if there == list(DOORS):
        return "all"
    if not set(READING) <= set(there):
        return ", ".join(there)
    return ", ".join(["reading", *(door for door in there if door not in READING)])


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words if word)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_line(head), "|" + "---|" * len(head)]
    return "\n".join([*lines, *(_line([cell.replace("|", r"\|") for cell in row]) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _page(*parts: str) -> str:
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"
