"""Documented configurations of JVM clients have the results that their table lists, in all APIs."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest
from tests.jvm_configurations.table import CONFIGURATIONS, PAGE, table, with_table

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.kafka_params import parse_kafka_params, parse_log_params
from pyspark_kafka_direct.options.read_options import (
    parse_batch_options,
    parse_continuous_options,
    parse_slice_arguments,
    parse_stream_options,
)
from pyspark_kafka_direct.options.security_settings import DelegationTokenLogin
from pyspark_kafka_direct.options.sink_options import parse_sink_options, parse_write_arguments
from pyspark_kafka_direct.options.subscription import SubscribeStrategy
from pyspark_kafka_direct.options.token_cluster_parser import parse_token_clusters

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.jvm_configurations.configuration import JvmConfiguration

    Options = dict[str, str]

BY_NAME = {each.name: each for each in CONFIGURATIONS}
WITH_TOKENS = [each for each in CONFIGURATIONS if each.has_tokens]
WITHOUT_TOKENS = [each for each in CONFIGURATIONS if not each.has_tokens]


def unprefixed(options: Options) -> Options:
    return {name.removeprefix("kafka."): value for name, value in options.items()}


def plain(markdown: str) -> str:
    return markdown.replace("`", "")


def batch(options: Options) -> tuple[str, ...]:
    return parse_batch_options({**options, "subscribe": "t"}).warnings


PARSERS: dict[str, Callable[[Options], object]] = {
    "batch": batch,
    "stream": lambda options: parse_stream_options({**options, "subscribe": "t"}),
    "continuous": lambda options: parse_continuous_options({**options, "subscribe": "t"}),
    "sink": lambda options: parse_sink_options(options, streaming=True),
    "direct": lambda options: parse_kafka_params(unprefixed(options)),
    "rdd": lambda options: parse_kafka_params(unprefixed(options), "rdd"),
    "log": lambda options: parse_log_params(unprefixed(options)),
    "read_arrow": lambda options: parse_slice_arguments(
        unprefixed(options), SubscribeStrategy(("t",)), "earliest", "latest"
    ),
    "write_arrow": lambda options: parse_write_arguments(unprefixed(options), "t", in_transaction=False),
}


@pytest.mark.parametrize("api", PARSERS)
@pytest.mark.parametrize("configuration", WITHOUT_TOKENS, ids=lambda each: each.name)
def test_each_api_accepts_or_rejects_it(
    configuration: JvmConfiguration, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in configuration.environment.items():
        monkeypatch.setenv(name, value)
    if configuration.rejected:
        with pytest.raises(OptionError) as caught:
            PARSERS[api](configuration.options())
        text = caught.value.message
        assert plain(configuration.rejected).replace("kafka.", "") in text.replace("kafka.", "")
    else:
        PARSERS[api](configuration.options())


@pytest.mark.parametrize(
    "configuration", [each for each in WITHOUT_TOKENS if not each.rejected], ids=lambda each: each.name
)
def test_a_query_logs_only_the_documented_warnings(
    configuration: JvmConfiguration, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in configuration.environment.items():
        monkeypatch.setenv(name, value)
    warnings = batch(configuration.options())
    assert len(warnings) == len(configuration.warnings)
    assert [part for part in configuration.warnings if not any(plain(part) in warning for warning in warnings)] == []


@pytest.mark.parametrize("configuration", WITH_TOKENS, ids=lambda each: each.name)
def test_queries_of_an_application_use_its_delegation_token(configuration: JvmConfiguration) -> None:
    clusters = [config.cluster for config in parse_token_clusters(configuration.spark, "app", [])]
    options = configuration.options()
    reads = {**options, "subscribe": "t"}
    connections = [
        parse_batch_options(reads, clusters).connection,
        parse_stream_options(reads, clusters).connection,
        parse_continuous_options(reads, clusters).connection,
        parse_sink_options(options, clusters, streaming=True).connection,
        parse_kafka_params(unprefixed(options), token_clusters=clusters).connection,
        parse_kafka_params(unprefixed(options), "rdd", clusters).connection,
    ]
    for connection in connections:
        assert connection.security.protocol == "SASL_SSL"
        assert connection.security.sasl is not None
        assert connection.security.sasl.token_login == DelegationTokenLogin("app", "production")


def test_the_page_has_the_table() -> None:
    """If this fails, review the changes and write the table: ``python -m tests.jvm_configurations``."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page


def test_the_table_says_which_configurations_were_not_compared_with_the_page() -> None:
    cells = [row.split(" | ") for row in table().splitlines()[2:]]
    no = {cell[0].removeprefix("| ") for cell in cells if cell[2] == "no"}
    assert no == {each.name for each in CONFIGURATIONS if not each.compared}
    assert 0 < len(no) < len(CONFIGURATIONS) / 4


def test_names_and_pages() -> None:
    assert len(BY_NAME) == len(CONFIGURATIONS)
    assert len(CONFIGURATIONS) > 30
    assert [each.url for each in CONFIGURATIONS if not each.url.startswith("https://")] == []


def test_needed_extras_exist() -> None:
    extras = tomllib.loads((PAGE.parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {name for each in CONFIGURATIONS for name in re.findall(r"the extra `(\w+)`", each.needs)}
    assert named
    assert named <= extras["optional-dependencies"].keys()
