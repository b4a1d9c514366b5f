"""What a continuous query is told."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.planning.positions import Latest
from pyspark_kafka_direct.settings.continuous import DEFAULTS, RunSettings, options_of, output_options, run_settings
from pyspark_kafka_direct.settings.source import parse_continuous_options

READING = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}


def settings(**given: Any) -> RunSettings:
    return run_settings({"checkpointLocation": "/c", **given})


def test_the_defaults() -> None:
    assert settings() == RunSettings(
        checkpoint="/c",
        epoch_interval=1.0,
        name=None,
        tasks_max=None,
        task_start_timeout=60.0,
        epoch_timeout=60.0,
        mark_timeout=121.0,
        max_restarts=3,
        restart_window=600.0,
        discovery_interval=10.0,
        control_port=0,
    )
    assert settings(**dict.fromkeys(set(DEFAULTS) - {"checkpointLocation"})) == settings()


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


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"epochIntervall": 1}, "start() has no setting 'epochIntervall'; did you mean 'epochInterval'?"),
        ({"epochInterval": "soon"}, "epochInterval must be a number of seconds, or a text such as '1 second'"),
        ({"epochInterval": "1 fortnight"}, "epochInterval must be"),
        ({"epochInterval": 0}, "from 0.01 s on, got 0"),
        ({"epochInterval": True}, "epochInterval must be"),
        ({"epochTimeout": float("nan")}, "epochTimeout must be"),
        ({"markTimeout": 1, "epochInterval": 2}, "markTimeout=1 s must not be below epochInterval=2 s"),
        ({"outputMode": "complete"}, "outputMode must be append or update, got 'complete'"),
        ({"tasksMax": 0}, "tasksMax must be a whole number from 1 to 100000, got 0"),
        ({"tasksMax": "2"}, "tasksMax must be a whole number"),
        ({"maxRestarts": -1}, "maxRestarts must be"),
        ({"controlPort": 65_536}, "controlPort must be a whole number from 0 to 65535"),
        ({"queryName": " "}, "queryName must be a text"),
        ({"checkpointLocation": 7}, "checkpointLocation must be a text"),
        ({"checkpointLocation": None}, "checkpointLocation is missing"),
        ({"checkpointLocation": None, "queryName": "q"}, "checkpointLocation is missing"),
    ],
)
def test_what_cannot_be_used(given: dict[str, object], says: str) -> None:
    with pytest.raises(OptionError) as caught:
        settings(**given)
    assert says in str(caught.value)


def test_a_checkpoint_by_the_sessions_default() -> None:
    assert run_settings({"queryName": "q"}, "/all/").checkpoint == "/all/q"
    assert run_settings({"queryName": "q", "checkpointLocation": "/c"}, "/all/").checkpoint == "/c"
    with pytest.raises(OptionError, match="checkpointLocation is missing"):
        run_settings({}, "/all")


def test_limits_of_micro_batches_are_ignored() -> None:
    given = parse_continuous_options({**READING, "maxOffsetsPerTrigger": "5", "minPartitions": "4"})
    assert given.start == Latest()
    assert [note.split(":")[0] for note in given.warnings] == [
        "the option maxOffsetsPerTrigger is ignored",
        "the option minPartitions is ignored",
    ]


def test_options_as_texts() -> None:
    assert options_of({"a": True, "b": 5}, {"c": "x", "d": None}) == {"a": "true", "b": "5", "c": "x"}
    assert options_of(None, {}) == {}
    assert options_of({"a": 1}, {"a": 2}) == {"a": "2"}
    with pytest.raises(OptionError, match="password must be a text, a number or a boolean, got bytes") as caught:
        options_of({"password": b"hunter2"}, {})
    assert "hunter2" not in str(caught.value)
    wrong: Any = "text"
    with pytest.raises(OptionError, match="options must be a mapping"):
        options_of(wrong, {})


class TestOutput:
    def test_it_is_where_the_input_is(self) -> None:
        reading = {
            **READING,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.username": "u",
            "kafka.fetch.min.bytes": "5",
            "startingOffsets": "earliest",
        }
        assert output_options(reading, {"topic": "out"}) == {
            "kafka.bootstrap.servers": "broker:9092",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.username": "u",
            "topic": "out",
        }

    def test_its_own_settings_count(self) -> None:
        reading = {**READING, "kafka.sasl.username": "reader"}
        there = output_options(reading, {"SASL.username": "writer"})
        assert there == {"kafka.bootstrap.servers": "broker:9092", "SASL.username": "writer"}

    @pytest.mark.parametrize("name", ["kafka.bootstrap.servers", "bootstrap.servers", "metadata.broker.list"])
    def test_another_cluster_takes_nothing_over(self, name: str) -> None:
        reading = {**READING, "kafka.sasl.username": "reader"}
        assert output_options(reading, {name: "other:9092"}) == {name: "other:9092"}
