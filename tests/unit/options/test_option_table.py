"""The table of options: every definition is complete, and options and typed settings match."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafka_direct.options.config_option import (
    APIS,
    ConfigSource,
    UnsupportedPolicy,
)
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE, parse_value
from pyspark_kafka_direct.options.settings import (
    COMPRESSION_TYPE_IDS,
    ConnectionSettings,
    FetchSettings,
    ProducerSettings,
)
from pyspark_kafka_direct.options.value_types import MAX_INT64, MIN_INT64, Enum, Integer

SOURCE = Path(__file__).parents[3] / "src" / "pyspark_kafka_direct"


def test_every_option_is_applied_or_has_a_policy_in_every_api() -> None:
    for option in OPTION_TABLE.options:
        for api in APIS:
            assert api in option.apis or option.unsupported_policy(api).reason, option.name
            assert api in option.apis or not option.unsupported_policy(api).reason.endswith("."), option.name
        assert option.doc or not option.apis, option.name


def test_ignored_client_settings_have_at_most_five_reasons() -> None:
    reasons: dict[str, set[str]] = {}
    for option in OPTION_TABLE.options:
        policies = {api: option.unsupported_policy(api) for api in APIS if option.is_client and not option.apis}
        if policies and not policies["batch"].reject and option.role is None:
            reasons[option.name] = {policy.reason for policy in policies.values() if not policy.reject}
    assert len(reasons) > 80
    assert all(len(of_setting) == 1 for of_setting in reasons.values())
    assert len(set.union(*reasons.values())) <= 5


def test_read_options_have_one_policy_in_apis_that_do_not_read() -> None:
    new_api: Any = "a new API"
    roles = ("fetch", "group", "plan")
    options = [
        option
        for option in OPTION_TABLE.options
        if option.apis and option.role in roles and option.key_in(ConfigSource.OPTION)
    ]
    policies = {option.name: option.unsupported_policy(new_api) for option in options}
    assert policies == {option.name: UnsupportedPolicy(reason="it applies to reads only") for option in options}
    assert {"startingOffsets", "failOnDataLoss", "group.id", "auto.offset.reset", "fetch.min.bytes"} <= policies.keys()


def test_defaults_are_valid_and_limits_match_the_type() -> None:
    for option in OPTION_TABLE.options:
        for api in option.apis:
            default = option.default_in(api)
            if default is not None:
                parse_value(option, default, option.name)
                assert not option.secret, option.name
        assert set(option.api_defaults) <= set(option.apis), option.name
        if isinstance(option.value_type, Enum):
            assert option.allowed, option.name
        if isinstance(option.value_type, Integer):
            assert MIN_INT64 <= option.value_type.low <= option.value_type.high <= MAX_INT64, option.name


def test_names_are_unique() -> None:
    names = list(itertools.chain.from_iterable((option.name, *option.aliases) for option in OPTION_TABLE.options))
    assert len({name.lower() for name in names}) == len(names)
    assert all(option.name == option.name.lower() for option in OPTION_TABLE.options if option.is_client)
    for source in ConfigSource:
        names = OPTION_TABLE.names(source)
        assert len(set(names)) == len(names), source


@pytest.mark.parametrize(
    ("settings_class", "role"),
    [(ConnectionSettings, "connect"), (FetchSettings, "fetch"), (ProducerSettings, "produce")],
)
def test_options_and_typed_settings_have_the_same_defaults(settings_class: type, role: str) -> None:
    fields = {field.name: field.default for field in dataclasses.fields(settings_class)}
    derived = {"bootstrap_servers", "security", "acks", "idempotent", "level"}
    options = {
        option.field: option
        for option in OPTION_TABLE.options
        if option.role == role and option.apis and option.field in fields
    }
    assert options.keys() == fields.keys() - derived
    for name, option in options.items():
        defaults = {default for api in option.apis if (default := option.default_in(api)) is not None}
        assert {parse_value(option, default, option.name) for default in defaults} == {fields[name]} - {None}, name


def test_failing_on_data_loss_is_declared_once() -> None:
    field = re.compile(r"^    fail_on_data_loss: [^,]+$", re.MULTILINE)  # parameters end with a comma
    files = [file for file in SOURCE.rglob("*.py") for _ in field.findall(file.read_text(encoding="utf-8"))]
    assert [file.name for file in files] == ["settings.py"]


def test_compression_types_have_the_ids_of_the_record_format() -> None:
    assert COMPRESSION_TYPE_IDS == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def test_every_option_is_found_by_each_of_its_names() -> None:
    for option in OPTION_TABLE.options:
        for source_key in option.source_keys:
            names = [source_key.name] if source_key.name else [option.name, *option.aliases]
            for name in names:
                prefix = "kafka." if option.is_client and source_key.source is ConfigSource.OPTION else ""
                assert OPTION_TABLE.find(source_key.source, prefix + name).option is option, name
                assert OPTION_TABLE.find(source_key.source, prefix + name).source_key == source_key, name
