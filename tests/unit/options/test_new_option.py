"""A new option needs one definition only: it is parsed, suggested, documented, and rejected or ignored elsewhere."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

import pytest
from scripts.option_docs import pages

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.config_option import (
    APIS,
    READS_ONLY,
    SOURCE_APIS,
    Api,
    ConfigOption,
    ConfigSource,
    SourceKey,
    UnsupportedPolicy,
)
from pyspark_kafka_direct.options.option_parser import (
    OPTION_TABLE,
    OptionTable,
    ParsedConfig,
    format_name,
    parse_config,
)
from pyspark_kafka_direct.options.value_types import Duration, Enum

OPTION = ConfigOption(
    "teapot.brew.ms",
    Duration(1),
    "100",
    role="fetch",
    apis=("stream", "rdd"),
    api_defaults={"rdd": "7"},
    doc="How long tea is brewed.",
    field="teapot_brew",
    is_client=True,
    aliases=("kettle.brew.ms",),
    unsupported={
        **dict.fromkeys(APIS, UnsupportedPolicy("tea is for streams")),
        "batch": UnsupportedPolicy("a batch has no time for tea", reject=True),
    },
    source_keys=(
        SourceKey(ConfigSource.OPTION),
        SourceKey(ConfigSource.PARAMETER),
        SourceKey(ConfigSource.JAAS),
        SourceKey(ConfigSource.SPARK, "spark.streaming.teapot", default_unit="s"),
        SourceKey(ConfigSource.ENVIRONMENT, "TEAPOT"),
    ),
)
EXTENDED = OptionTable((*OPTION_TABLE.options, OPTION))
NAMES = {
    ConfigSource.OPTION: "kafka.teapot.brew.ms",
    ConfigSource.PARAMETER: "teapot.brew.ms",
    ConfigSource.JAAS: "teapot.brew.ms",
    ConfigSource.SPARK: "spark.streaming.teapot",
    ConfigSource.ENVIRONMENT: "TEAPOT",
}


@dataclass(frozen=True)
class TeaSettings:
    """Has the field that the definition names."""

    teapot_brew: float


def parse(api: Api, source: ConfigSource, name: str, value: str, table: OptionTable = EXTENDED) -> ParsedConfig:
    required = {"bootstrap.servers": "b:1"} if source in (ConfigSource.OPTION, ConfigSource.PARAMETER) else {}
    return parse_config({**required, name: value}, api=api, source=source, table=table)


@pytest.mark.parametrize("source", ConfigSource)
@pytest.mark.parametrize("api", APIS)
def test_it_is_parsed_rejected_or_ignored_in_every_api_and_source(api: Api, source: ConfigSource) -> None:
    name = NAMES[source]
    if api == "batch":
        with pytest.raises(OptionError, match=rf"^{source.value} {name}.* cannot be used here: a batch has no time"):
            parse(api, source, name, "5")
    elif api in OPTION.apis:
        parsed = parse(api, source, name, "5")
        assert parsed.warnings == ()
        expected = TeaSettings(5.0 if source is ConfigSource.SPARK else 0.005)
        assert TeaSettings(**parsed.fields_for(TeaSettings, roles=["fetch"])) == expected
        with pytest.raises(OptionError, match=rf"^{name}.* must be a duration greater than 0, such as .*, got 'hot'$"):
            parse(api, source, name, "hot")
    else:
        (warning,) = parse(api, source, name, "5").warnings
        assert re.fullmatch(rf"{source.value} {name}.* is ignored: tea is for streams", warning)


@pytest.mark.parametrize("api", ["stream", "rdd"])
def test_it_has_a_default_for_each_api(api: Api) -> None:
    source = ConfigSource.OPTION if api in SOURCE_APIS else ConfigSource.PARAMETER
    parsed = parse(api, source, "client.id", "x")
    assert parsed.get_double(OPTION.name) == {"stream": 0.1, "rdd": 0.007}[api]


@pytest.mark.parametrize(
    ("source", "name", "meant"),
    [
        (ConfigSource.OPTION, "kafka.teapot.brew", "kafka.teapot.brew.ms"),
        (ConfigSource.OPTION, "kettle.brew_ms", "kafka.kettle.brew.ms"),
        (ConfigSource.PARAMETER, "teapot.brew", "teapot.brew.ms"),
        (ConfigSource.JAAS, "teapot.brew", "teapot.brew.ms"),
    ],
)
def test_it_is_suggested_for_a_misspelled_name(source: ConfigSource, name: str, meant: str) -> None:
    (warning,) = parse("stream", source, name, "5").warnings
    assert warning == f"{source.value} {format_name(source, name)} is unknown and ignored; did you mean {meant!r}?"
    assert meant not in parse("stream", source, name, "5", OPTION_TABLE).warnings[0]


def test_its_names_and_aliases_are_the_same_option() -> None:
    assert parse("stream", ConfigSource.OPTION, "kettle.brew.ms", "1s").get_double(OPTION.name) == 1.0
    with pytest.raises(OptionError, match=r"^kafka\.teapot\.brew\.ms and kettle\.brew\.ms are the same setting, but"):
        parse_config(
            {"kafka.teapot.brew.ms": "1", "kettle.brew.ms": "2"},
            api="stream",
            source=ConfigSource.OPTION,
            table=EXTENDED,
        )


def added_lines(option: ConfigOption) -> list[str]:
    before = pages()["options.md"].splitlines()
    after = pages(OptionTable((*OPTION_TABLE.options, option)))["options.md"].splitlines()
    return [line for line in after if line not in before]


def test_it_is_documented_for_every_api() -> None:
    doc = "How long tea is brewed. Alias: `kettle.brew.ms`."
    assert added_lines(OPTION) == [
        f"| `teapot.brew.ms` | stream, rdd | duration | `100`, rdd `7` | {doc} |",
        f"| `spark.streaming.teapot` (in s) | rdd | duration | `7` | {doc} |",
        "| `TEAPOT` |  | How long tea is brewed. |",
    ]


def test_the_documentation_lists_options_that_no_api_applies() -> None:
    added = added_lines(dataclasses.replace(OPTION, apis=(), source_keys=OPTION.source_keys[:2]))
    assert added == [
        "- `teapot.brew.ms` (batch): a batch has no time for tea.",
        "- `teapot.brew.ms` (stream, continuous, direct, rdd, sink, log): tea is for streams.",
    ]


def test_the_documentation_omits_the_common_policy_of_read_options() -> None:
    unsupported = {**dict.fromkeys(APIS, READS_ONLY), "batch": OPTION.unsupported["batch"]}
    option = dataclasses.replace(OPTION, apis=(), unsupported=unsupported)
    rows = [line for line in added_lines(option) if line.startswith("- ")]
    assert rows == ["- `teapot.brew.ms` (batch): a batch has no time for tea."]
    assert READS_ONLY.reason not in pages()["options.md"]
    (warning,) = parse("sink", ConfigSource.OPTION, "kafka.fetch.min.bytes", "5").warnings
    assert warning == "the option kafka.fetch.min.bytes is ignored: it applies to reads only"


def test_it_is_unknown_without_its_definition() -> None:
    (warning,) = parse("stream", ConfigSource.OPTION, "kafka.teapot.brew.ms", "5", OPTION_TABLE).warnings
    assert "is unknown and ignored" in warning


def test_a_new_data_source_option() -> None:
    tea_leaves = ConfigOption(
        "teaLeaves",
        Enum(("green", "black")),
        "green",
        role="plan",
        apis=("stream",),
        doc="Which.",
        unsupported=dict.fromkeys(APIS, UnsupportedPolicy("only streams drink")),
    )
    table = OptionTable((*OPTION_TABLE.options, tea_leaves))
    assert added_lines(tea_leaves) == ["| *`teaLeaves`* | stream | `green`, `black` | `green` | Which. |"]
    with pytest.raises(OptionError, match="the option tealeave is unknown; did you mean 'teaLeaves'"):
        parse("batch", ConfigSource.OPTION, "tealeave", "black", table)
    (warning,) = parse("sink", ConfigSource.OPTION, "tealeave", "black", table).warnings
    assert warning == "the option tealeave is unknown and ignored; did you mean 'teaLeaves'?"
    assert parse("stream", ConfigSource.OPTION, "TEALEAVES", "BLACK", table).get_string("teaLeaves") == "black"
