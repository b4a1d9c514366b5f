"""The parameters of a log: those that it applies, accepts silently, rejects or ignores."""

from __future__ import annotations

import re

import pytest
from scripts.option_docs import pages
from tests.settings import parse_client_params

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.config_option import READS_ONLY, WRITES_ONLY, ConfigSource
from pyspark_kafka_direct.options.kafka_params import KafkaBasedLogSettings, parse_log_params
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE
from pyspark_kafka_direct.options.settings import FetchSettings, ProducerSettings
from pyspark_kafka_direct.options.spark_definitions import TOKEN_PROVIDERS_VARIABLE

SERVERS = {"bootstrap.servers": "b:1"}
JAVA = "org.apache.kafka.common.serialization."


def parse(**given: object) -> KafkaBasedLogSettings:
    return parse_log_params({**SERVERS, **{name.replace("_", "."): value for name, value in given.items()}})


def test_defaults() -> None:
    assert parse() == KafkaBasedLogSettings(
        connection=parse_client_params(SERVERS).connection,
        fetch=FetchSettings(isolation_level="read_uncommitted"),
        produce=ProducerSettings(acks=-1, idempotent=True),
    )


def test_settings_of_connections_fetches_and_producers_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_PROVIDERS_VARIABLE, "mine:provider")
    settings = parse_log_params(
        {
            "kafka.bootstrap.servers": "c:2",
            "client.id": "me",
            "isolation.level": "read_committed",
            "fetch.min.bytes": 7,
            "compression.type": "zstd",
            "compression.zstd.level": 5,
            "max.in.flight.requests.per.connection": 1,
            "delivery.timeout.ms": "500",
            "buffer.memory": 1024,
            "maxRecordBatchBytes": 2048,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "oauthTokenProvider": "mine:provider",
        }
    )
    assert (settings.connection.bootstrap_servers, settings.connection.client_id) == ((("c", 2),), "me")
    assert settings.fetch == FetchSettings(
        isolation_level="read_committed", fetch_min_bytes=7, max_record_batch_bytes=2048
    )
    assert settings.produce == ProducerSettings(
        codec="zstd", level=5, max_in_flight=1, delivery_timeout_ms=500, buffer_bytes=1024
    )
    assert settings.warnings == ()


def test_values_that_kafka_connect_sets_cause_no_warning() -> None:
    settings = parse(
        acks="all",
        max_in_flight_requests_per_connection=1,
        key_serializer=f"{JAVA}ByteArraySerializer",
        value_serializer=f"{JAVA}ByteArraySerializer",
        key_deserializer=f"{JAVA}ByteArrayDeserializer",
        value_deserializer="ByteArrayDeserializer",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        allow_auto_create_topics=False,
        retries=2147483647,
        failOnDataLoss="false",
    )
    assert settings.warnings == ()
    assert settings.produce == ProducerSettings(max_in_flight=1)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("transactional.id", "t", "a log writes without transactions, and an offset store configures its own"),
        ("auto.offset.reset", "latest", "a log is always read from its start"),
        ("key.serializer", f"{JAVA}StringSerializer", "the keys and values of a log are bytes"),
        ("value.deserializer", f"{JAVA}StringDeserializer", "the keys and values of a log are bytes"),
        ("interceptor.classes", "x.Y", "Java interceptors cannot run here"),
        ("failOnDataLoss", "true", "a log resumes at the next available record"),
        ("startingOffsets", "latest", "it is a data source option and does not apply to a log"),
        ("deliveryGuarantee", "exactly-once", "it is a data source option and does not apply to a log"),
        ("valueFormat", "json", "it is a data source option and does not apply to a log"),
        ("valueFraming", "confluent", "it is a data source option and does not apply to a log"),
        ("valueSchemaId", "7", "it is a data source option and does not apply to a log"),
        ("enable.gapless.guarantee", "true", "a log continues after a failed record"),
    ],
)
def test_settings_that_contradict_a_log_are_rejected(name: str, value: str, reason: str) -> None:
    with pytest.raises(OptionError, match=f"^the parameter {re.escape(name)} cannot be used here: {reason}"):
        parse(**{name: value})


@pytest.mark.parametrize("acks", ["0", 1])
def test_acks_must_be_all(acks: object) -> None:
    with pytest.raises(OptionError, match=rf"^acks must be all in a log, so that .*, got '{acks}'"):
        parse(acks=acks)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("group.id", "g", "without a consumer group"),
        ("enable.auto.commit", "true", "it commits no offsets"),
        ("max.poll.records", "5", "there is no poll loop"),
        ("linger.ms", "5", "control how records are sent"),
        ("client.rack", "r", "a log reads from partition leaders"),
        ("transaction.timeout.ms", "5", "a log writes without transactions, and an offset store configures its own"),
    ],
)
def test_an_ignored_parameter_causes_one_warning(name: str, value: str, reason: str) -> None:
    (warning,) = parse(**{name: value}).warnings
    assert warning.startswith(f"the parameter {name} is ignored: ")
    assert reason in warning


def test_no_parameter_is_ignored_as_a_read_or_write_option() -> None:
    policies = {
        option.name: option.unsupported_policy("log")
        for option in OPTION_TABLE.options
        if "log" not in option.apis and option.key_in(ConfigSource.PARAMETER)
    }
    assert len(policies) > 50
    assert not [name for name, policy in policies.items() if policy in (READS_ONLY, WRITES_ONLY)]


def test_missing_invalid_and_misspelled_parameters() -> None:
    with pytest.raises(OptionError, match=r"^bootstrap\.servers is missing"):
        parse_log_params({})
    with pytest.raises(OptionError, match="params must be a dict of client settings, got list"):
        parse_log_params([("bootstrap.servers", "b:1")])  # type: ignore[arg-type]
    (warning,) = parse(fetch_min_byte=5).warnings
    assert warning == "the parameter fetch.min.byte is unknown and ignored; did you mean 'fetch.min.bytes'?"


def test_a_secret_is_never_shown() -> None:
    settings = parse(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="u", sasl_password="hunter2"
    )
    assert "hunter2" not in repr(settings)


def test_the_documentation_names_a_log() -> None:
    lines = pages()["options.md"].splitlines()
    assert any(line.startswith("| `buffer.memory` | sink, log | integer | `33554432` |") for line in lines)
    assert any(line.startswith("| *`maxRecordBatchBytes`* | reading, log | integer | `134217728` |") for line in lines)
    reason = "a log writes without transactions, and an offset store configures its own"
    assert f"- `transactional.id` (log): {reason}." in lines
    assert f"- `transaction.two.phase.commit.enable` (log): {reason}. Accepted: `false`." in lines
