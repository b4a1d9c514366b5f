"""The parameters and options of continuous queries."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafka_direct.continuous.query_builder import ContinuousQueryBuilder
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.continuous_query import (
    START_PARAMETERS,
    ContinuousSettings,
    options_as_strings,
    parse_start_options,
    with_input_connection,
)
from pyspark_kafka_direct.options.offset_specs import AT_LATEST
from pyspark_kafka_direct.options.read_options import parse_continuous_options

DOCS = Path(__file__).parents[3] / "docs" / "continuous.md"
INPUT = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}


def settings(**given: Any) -> ContinuousSettings:
    return parse_start_options({"checkpointLocation": "/c", **given})


def test_the_defaults() -> None:
    assert settings() == ContinuousSettings(
        checkpoint="/c",
        epoch_interval=1.0,
        name=None,
        tasks_max=None,
        max_records_per_second=None,
        task_start_timeout=60.0,
        task_setup_timeout=600.0,
        epoch_timeout=60.0,
        heartbeat_timeout=10.0,
        max_restarts=3,
        restart_window=600.0,
        discovery_interval=10.0,
        control_port=0,
    )
    assert settings(**dict.fromkeys(set(START_PARAMETERS) - {"checkpointLocation"})) == settings()


def test_start_and_its_documentation_have_every_parameter() -> None:
    signature = inspect.signature(ContinuousQueryBuilder.start)
    assert set(signature.parameters) - {"self", "unknown"} == set(START_PARAMETERS)
    section = DOCS.read_text(encoding="utf-8").split("## `start(...)`")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(START_PARAMETERS)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1 second", 1),
        ("2 Seconds", 2),
        ("100 milliseconds", 0.1),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        (" 3 min ", 180),
        ("interval 1 hour", 3600),
        (0.05, 0.05),
        (7, 7),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    assert settings(epochInterval=text).epoch_interval == pytest.approx(seconds)


def test_every_unit_of_spark() -> None:
    """Those of its intervals, which a processing time of a trigger may have."""
    units = {
        "ms msec msecs millisecond milliseconds": 0.001,
        "s sec secs second seconds": 1,
        "m min mins minute minutes": 60,
        "h hour hours": 3600,
        "d day days": 86_400,
    }
    for names, seconds in units.items():
        for unit in names.split():
            for text in (f"20{unit}", f"20 {unit.upper()}", f"interval 20.5 {unit}"):
                number = 20.5 if "20.5" in text else 20
                assert settings(epochInterval=text).epoch_interval == pytest.approx(number * seconds), text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochIntervall": 1}, "start() has no parameter 'epochIntervall'; did you mean 'epochInterval'?"),
        ({"epochInterval": "soon"}, "epochInterval must be a number of seconds, or a string such as '1 second'"),
        ({"epochInterval": "1 fortnight"}, "epochInterval must be"),
        ({"epochInterval": 0}, "from 0.01 s to 366 days, got 0"),
        ({"epochTimeout": "367 days"}, "from 0.1 s to 366 days, got '367 days'"),
        ({"epochInterval": True}, "epochInterval must be"),
        ({"epochTimeout": float("nan")}, "epochTimeout must be"),
        ({"heartbeatTimeout": 0}, "heartbeatTimeout must be"),
        ({"outputMode": "complete"}, "outputMode must be append or update, got 'complete'"),
        ({"tasksMax": 0}, "tasksMax must be an integer from 1 to 100000, got 0"),
        ({"maxRecordsPerSecond": 0}, "maxRecordsPerSecond must be an integer from 1 to 1000000000, got 0"),
        ({"taskSetupTimeout": 0}, "taskSetupTimeout must be"),
        ({"tasksMax": "2"}, "tasksMax must be an integer"),
        ({"maxRestarts": -1}, "maxRestarts must be"),
        ({"controlPort": 65_536}, "controlPort must be an integer from 0 to 65535"),
        ({"queryName": " "}, "queryName must be a non-empty string"),
        ({"checkpointLocation": 7}, "checkpointLocation must be a non-empty string"),
        ({"checkpointLocation": None}, "checkpointLocation is missing"),
        ({"checkpointLocation": None, "queryName": "q"}, "checkpointLocation is missing"),
    ],
)
def test_errors(given: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        settings(**given)
    assert message in str(caught.value)


def test_a_checkpoint_in_the_default_location_of_the_session() -> None:
    assert parse_start_options({"queryName": "q"}, "/all/").checkpoint == "/all/q"
    assert parse_start_options({"queryName": "q", "checkpointLocation": "/c"}, "/all/").checkpoint == "/c"
    with pytest.raises(OptionError, match="checkpointLocation is missing"):
        parse_start_options({}, "/all")


def test_limits_of_micro_batches_are_ignored() -> None:
    options = parse_continuous_options({**INPUT, "maxOffsetsPerTrigger": "5", "minPartitions": "4"})
    assert options.source.start == AT_LATEST
    assert [warning.split(":")[0] for warning in options.warnings] == [
        "the option maxOffsetsPerTrigger is ignored",
        "the option minPartitions is ignored",
    ]


def test_options_as_strings() -> None:
    assert options_as_strings({"a": True, "b": 5}, {"c": "x", "d": None}) == {"a": "true", "b": "5", "c": "x"}
    assert options_as_strings({"a": 1, "b": 2}, {"a": None}) == {"b": "2"}
    assert options_as_strings(None, {}) == {}
    assert options_as_strings({"a": 1}, {"a": 2}) == {"a": "2"}
    with pytest.raises(OptionError, match="password must be a string, a number or a boolean, got bytes") as caught:
        options_as_strings({"password": b"hunter2"}, {})
    assert "hunter2" not in str(caught.value)
    wrong: Any = "text"
    with pytest.raises(OptionError, match="options must be a mapping"):
        options_as_strings(wrong, {})


class TestOutput:
    def test_it_inherits_the_connection_of_the_input(self) -> None:
        input_options = {
            **INPUT,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.username": "u",
            "kafka.fetch.min.bytes": "5",
            "startingOffsets": "earliest",
        }
        assert with_input_connection(input_options, {"topic": "out"}) == {
            "kafka.bootstrap.servers": "broker:9092",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.username": "u",
            "topic": "out",
        }

    def test_its_own_options_take_precedence(self) -> None:
        input_options = {**INPUT, "kafka.sasl.username": "reader"}
        output_options = with_input_connection(input_options, {"SASL.username": "writer"})
        assert output_options == {"kafka.bootstrap.servers": "broker:9092", "SASL.username": "writer"}

    @pytest.mark.parametrize("name", ["kafka.bootstrap.servers", "bootstrap.servers", "metadata.broker.list"])
    def test_it_inherits_nothing_in_another_cluster(self, name: str) -> None:
        input_options = {**INPUT, "kafka.sasl.username": "reader"}
        output_options = {"topic": "out", name: "other:9092"}
        assert with_input_connection(input_options, output_options) == output_options
