"""Misspelled names are errors if ignoring them would change results, in each place where options are given."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.log import KafkaBasedLog, KafkaOffsetStore, KafkaTable
from pyspark_kafka_direct.options.config_option import APIS, PARAMS_APIS, Api, ConfigSource
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE, ParsedConfig, parse_config

# Documented by Kafka for its brokers, tools and streams, by librdkafka, by kafka-python or by vendors.
NAMES_OF_OTHERS = (
    "confluent.monitoring.interceptor.bootstrap.servers",
    "confluent.ssl.truststore.location",
    "confluent.value.schema.validation",
    "partitioner_cb",
    "sasl.enabled.mechanisms",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.oauthbearer.metadata.authentication.type",
    "sasl.server.callback.handler.class",
    "security.inter.broker.protocol",
    "source.cluster.security.protocol",
    "ssl.client.auth",
    "ssl.keystore.certificate.alias",
    "ssl.principal.mapping.rules",
    "ssl.truststore.location.default",
    "ssl_ca",
    "ssl_certificate",
    "ssl_key",
    "ssl_cafile",
    "transaction.max.timeout.ms",
)


def parse(api: Api, name: str, value: str = "x", *, prefix: str = "kafka.") -> ParsedConfig:
    is_param = api in (*PARAMS_APIS, "log")
    source = ConfigSource.PARAMETER if is_param else ConfigSource.OPTION
    return parse_config(
        {"bootstrap.servers": "broker:9092", ("" if is_param else prefix) + name: value}, api=api, source=source
    )


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("isolation.levle", "isolation.level"),
        ("isolation_level", None),
        ("isolationlevel", None),
        ("secruity.protocol", "security.protocol"),
        ("security.protcol", "security.protocol"),
        ("ssl.truststore.certificate", "ssl.truststore.certificates"),
        ("ssl.truststore.locaton", "ssl.truststore.location"),
        ("ssl.endpoint.identification.algorithms", "ssl.endpoint.identification.algorithm"),
        ("sasl.mechanismus", "sasl.mechanisms"),
        ("sasl.mechansm", "sasl.mechanism"),
        ("ssl.endpoint.identification.algo", None),
        ("sasl.jaas.conf", "sasl.jaas.config"),
        ("auto.ofset.reset", "auto.offset.reset"),
        ("fetch.min.byte", None),
        ("colour", None),
    ],
)
def test_a_misspelled_client_setting(api: Api, name: str, meant: str | None) -> None:
    if api == "sink" and meant in ("isolation.level", "auto.offset.reset"):
        meant = None  # a write ignores what applies to reads
    if meant is None:
        assert "is unknown and ignored" in parse(api, name).warnings[0]
        return
    prefix = "" if api in (*PARAMS_APIS, "log") else "kafka."
    with pytest.raises(OptionError, match=rf"{prefix}{name} is unknown; did you mean '{prefix}{meant}'\?"):
        parse(api, name)


@pytest.mark.parametrize("api", ["sink", "log"])
@pytest.mark.parametrize("name", ["enable.idempotance", "partitioner.ignore.key", "transactionl.id"])
def test_a_misspelled_setting_of_a_producer(api: Api, name: str) -> None:
    with pytest.raises(OptionError, match="is unknown; did you mean"):
        parse(api, name)
    assert "is unknown and ignored" in parse("batch", name).warnings[0]


@pytest.mark.parametrize("api", APIS)
def test_names_that_others_document_are_never_errors(api: Api) -> None:
    for name in NAMES_OF_OTHERS:
        assert "is unknown and ignored" in parse(api, name).warnings[0], name
    for option in OPTION_TABLE.options:
        for name in (option.name, *option.aliases) if option.is_client else ():
            with suppress(OptionError):  # about the value, or because it is rejected
                assert not any("unknown" in warning for warning in parse(api, name).warnings)


def test_a_misspelled_data_source_option_in_parameters() -> None:
    for api in PARAMS_APIS:
        with pytest.raises(OptionError, match="startingTimestmp is unknown; did you mean 'startingTimestamp'"):
            parse(api, "startingTimestmp", "1")
    with pytest.raises(OptionError, match="did you mean 'maxRecordBatchBytes'"):
        parse("log", "maxRecordBatchByte", "1")
    assert "startingTimestmp is unknown and ignored" in parse("log", "startingTimestmp", "1").warnings[0]


@pytest.mark.parametrize("open_", [lambda p: KafkaTable("t", p), lambda p: KafkaBasedLog("t", p, on_record=print),
                                   lambda p: KafkaOffsetStore("t", "q", p)])  # fmt: skip
def test_logs_reject_a_misspelled_name(open_: Any) -> None:
    with pytest.raises(OptionError, match=r"isolation\.levle is unknown; did you mean 'isolation\.level'"):
        open_({"bootstrap.servers": "localhost:1", "isolation.levle": "read_committed"})


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("prefix", ["", "kafka."])
def test_the_prefix_of_a_client_setting_with_a_dot_is_optional(api: Api, prefix: str) -> None:
    source = ConfigSource.PARAMETER if api in (*PARAMS_APIS, "log") else ConfigSource.OPTION
    given = {prefix + "bootstrap.servers": "broker:9092", prefix + "ssl.truststore.location": "/ca.pem"}
    parsed = parse_config(given, api=api, source=source)
    assert parsed.get_list("bootstrap.servers") == ("broker:9092",)
    assert parsed.get_string("ssl.truststore.location") == "/ca.pem"
    assert parsed.warnings == ()
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers and bootstrap\.servers are the same setting"):
        parse_config({"kafka.bootstrap.servers": "a:1", "bootstrap.servers": "b:1"}, api=api, source=source)
