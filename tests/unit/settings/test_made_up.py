"""A setting that nobody has is one row: parsed, hinted at, documented, and refused or ignored everywhere else."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._reader import Read, read
from pyspark_kafka_direct.settings._rows import FOR_READING
from pyspark_kafka_direct.settings._table import TABLE, Table, name_as_shown
from pyspark_kafka_direct.settings.documentation import pages
from pyspark_kafka_direct.settings.row import DOORS, SOURCE, Door, Fate, Kind, Origin, Setting, Written

ROW = Setting(
    name="teapot.brew.ms",
    role="fetch",
    doors={"stream": "100", "rdd": "7"},
    about="How long tea is brewed.",
    kind=Kind.DURATION,
    field="teapot_brew",
    client=True,
    aliases=("kettle.brew.ms",),
    low=1,
    elsewhere={"batch": Fate(why="a batch has no time for tea", refuse=True), "*": Fate(why="tea is for streams")},
    origins=(
        Written(Origin.OPTION),
        Written(Origin.PARAMETER),
        Written(Origin.JAAS),
        Written(Origin.SPARK, "spark.streaming.teapot", unit="s"),
        Written(Origin.ENVIRONMENT, "TEAPOT"),
    ),
)
EXTENDED = Table((*TABLE.rows, ROW))
NAMES = {
    Origin.OPTION: "kafka.teapot.brew.ms",
    Origin.PARAMETER: "teapot.brew.ms",
    Origin.JAAS: "teapot.brew.ms",
    Origin.SPARK: "spark.streaming.teapot",
    Origin.ENVIRONMENT: "TEAPOT",
}


@dataclass(frozen=True)
class Tea:
    """A typed value with the field that the row names."""

    teapot_brew: float


def given(door: Door, origin: Origin, name: str, text: str, table: Table = EXTENDED) -> Read:
    needed = {"bootstrap.servers": "b:1"} if origin in (Origin.OPTION, Origin.PARAMETER) else {}
    return read({**needed, name: text}, door=door, origin=origin, table=table)


@pytest.mark.parametrize("origin", Origin)
@pytest.mark.parametrize("door", DOORS)
def test_it_is_parsed_refused_or_ignored_by_every_door_and_origin(door: Door, origin: Origin) -> None:
    name = NAMES[origin]
    if door == "batch":
        with pytest.raises(OptionError, match=rf"^{origin.value} {name}.* cannot be used here: a batch has no time"):
            given(door, origin, name, "5")
    elif door in ROW.doors:
        found = given(door, origin, name, "5")
        assert found.notes == ()
        assert Tea(**found.fields(Tea, "fetch")) == Tea(5.0 if origin is Origin.SPARK else 0.005)
        with pytest.raises(OptionError, match=rf"^{name}.* must be a duration above 0 such as .*, got 'hot'$"):
            given(door, origin, name, "hot")
    else:
        (note,) = given(door, origin, name, "5").notes
        assert re.fullmatch(rf"{origin.value} {name}.* is ignored: tea is for streams", note)


@pytest.mark.parametrize("door", ["stream", "rdd"])
def test_it_has_a_default_at_each_door(door: Door) -> None:
    origin = Origin.OPTION if door in SOURCE else Origin.PARAMETER
    found = given(door, origin, "client.id", "x")
    assert found.decimal(ROW.name) == {"stream": 0.1, "rdd": 0.007}[door]


@pytest.mark.parametrize(
    ("origin", "name", "meant"),
    [
        (Origin.OPTION, "kafka.teapot.brew", "kafka.teapot.brew.ms"),
        (Origin.OPTION, "kettle.brew_ms", "kafka.kettle.brew.ms"),
        (Origin.PARAMETER, "teapot.brew", "teapot.brew.ms"),
        (Origin.JAAS, "teapot.brew", "teapot.brew.ms"),
    ],
)
def test_it_is_hinted_at_on_a_typo(origin: Origin, name: str, meant: str) -> None:
    (note,) = given("stream", origin, name, "5").notes
    assert note == f"{origin.value} {name_as_shown(origin, name)} is unknown and ignored; did you mean {meant!r}?"
    assert meant not in given("stream", origin, name, "5", TABLE).notes[0]


def test_it_has_aliases_and_is_one_setting_under_all_names() -> None:
    assert given("stream", Origin.OPTION, "kettle.brew.ms", "1s").decimal(ROW.name) == 1.0
    with pytest.raises(OptionError, match=r"^kafka\.teapot\.brew\.ms and kettle\.brew\.ms: one setting is given twice"):
        read({"kafka.teapot.brew.ms": "1", "kettle.brew.ms": "2"}, door="stream", origin=Origin.OPTION, table=EXTENDED)


def test_it_is_documented_for_every_door() -> None:
    now, then = pages(), pages(EXTENDED)
    added = {name: [line for line in then[name].splitlines() if line not in now[name].splitlines()] for name in now}
    assert added["client-settings.md"] == [
        "| `teapot.brew.ms` | stream, rdd | `100`, rdd `7` | How long tea is brewed. | `kettle.brew.ms` |",
        "| `teapot.brew.ms` | batch | a batch has no time for tea |  |",
        "| `teapot.brew.ms` | continuous, direct, sink, log | tea is for streams |  |",
    ]
    assert added["kafka-params.md"] == [
        "| `teapot.brew.ms` | rdd | duration | `7` | How long tea is brewed. |",
        "| `spark.streaming.teapot` (in s) | rdd | duration | `7` | How long tea is brewed. |",
        "| `TEAPOT` |  | How long tea is brewed. |",
    ]
    assert added["log-settings.md"] == ["| `teapot.brew.ms` | tea is for streams |  |"]
    assert added["options.md"] == []


def test_what_is_said_of_all_that_is_for_reading_is_not_said_again() -> None:
    for_reading = dataclasses.replace(ROW, elsewhere={"batch": ROW.elsewhere["batch"], "*": FOR_READING})
    added = set(pages(Table((*TABLE.rows, for_reading)))["client-settings.md"].splitlines()) - set(
        pages()["client-settings.md"].splitlines()
    )
    assert added == {
        "| `teapot.brew.ms` | stream, rdd | `100`, rdd `7` | How long tea is brewed. | `kettle.brew.ms` |",
        "| `teapot.brew.ms` | batch | a batch has no time for tea |  |",
    }
    (note,) = given("sink", Origin.OPTION, "kafka.fetch.min.bytes", "5").notes
    assert note == "the option kafka.fetch.min.bytes is ignored: it is a setting for reading"


def test_nobody_knows_it_without_its_row() -> None:
    assert "is unknown and ignored" in given("stream", Origin.OPTION, "kafka.teapot.brew.ms", "5", TABLE).notes[0]


def test_one_of_our_own_is_documented_among_the_options() -> None:
    own = Setting(
        name="teaLeaves",
        role="plan",
        doors={"stream": "green"},
        about="Which.",
        kind=Kind.WORD,
        allowed=("green", "black"),
        elsewhere={"*": Fate(why="only streams drink")},
    )
    table = Table((*TABLE.rows, own))
    page = pages(table)["options.md"]
    assert "| *`teaLeaves`* | stream | word | `green` | Which. |" in page
    assert "| `teaLeaves` | Ignored with a warning (batch, continuous): only streams drink. |" in page
    assert "| `teaLeaves` | Ignored with a warning: only streams drink. |" in pages(table)["kafka-params.md"]
    with pytest.raises(OptionError, match="the option tealeave is unknown; did you mean 'teaLeaves'"):
        given("batch", Origin.OPTION, "tealeave", "black", table)
    (note,) = given("sink", Origin.OPTION, "tealeave", "black", table).notes
    assert note == "the option tealeave is unknown and ignored; did you mean 'teaLeaves'?"
    assert given("stream", Origin.OPTION, "TEALEAVES", "BLACK", table).text("teaLeaves") == "black"
