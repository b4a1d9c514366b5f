"""The options of backpressure."""

from __future__ import annotations

import pickle

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.read_options import parse_batch_options, parse_stream_options
from pyspark_kafka_direct.options.settings import BackpressureOptions, PIDGains, ReadSettings

REQUIRED = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}


def parse(**options: str) -> ReadSettings:
    return parse_stream_options({**REQUIRED, **options})


def test_it_is_disabled_by_default() -> None:
    assert parse().source.backpressure is None
    assert parse(backpressure="false").source.backpressure is None
    assert parse().warnings == ()


def test_defaults_are_those_of_spark_streaming() -> None:
    options = parse(backpressure="true")
    assert options.source.backpressure == BackpressureOptions(PIDGains(1.0, 0.2, 0.0, 100), None)
    assert pickle.loads(pickle.dumps(options)) == options


def test_all_options() -> None:
    options = parse(
        backpressure="TRUE",
        backpressureInitialRate="500",
        backpressureMinRate="7",
        backpressureProportional="0.5",
        backpressureIntegral="0",
        backpressureDerived="2.5e-1",
    )
    assert options.source.backpressure == BackpressureOptions(PIDGains(0.5, 0.0, 0.25, 7), 500)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("backpressure", "yes"),
        ("backpressureInitialRate", "0"),
        ("backpressureMinRate", "0"),
        ("backpressureMinRate", "1.5"),
        ("backpressureProportional", "-1"),
        ("backpressureIntegral", "nan"),
        ("backpressureDerived", "1e999"),
        ("backpressureDerived", ""),
    ],
)
def test_invalid_values(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"^{name} must be .*{text!r}"):
        parse(**{"backpressure": "true", name: text})


def test_other_options_without_backpressure_cause_a_warning() -> None:
    assert parse(backpressureMinRate="5", backpressureIntegral="1").warnings == tuple(
        f"the option {name} is ignored: backpressure is not true"
        for name in ("backpressureMinRate", "backpressureIntegral")
    )


def test_a_batch_query_has_none() -> None:
    (warning,) = parse_batch_options({**REQUIRED, "backpressure": "true"}).warnings
    assert warning.startswith("the option backpressure is ignored: it applies to micro-batches")
