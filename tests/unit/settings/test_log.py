"""The parameters of a log: what works, what Kafka Connect's own class would set, what is refused or ignored."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._rows import FOR_READING, FOR_WRITING
from pyspark_kafka_direct.settings._table import TABLE
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.settings.documentation import pages
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.settings.log import LogSettings, parse_log_params
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.settings.row import Origin

SERVERS = {"bootstrap.servers": "b:1"}
DOCS = Path(__file__).parents[3] / "docs" / "log-settings.md"
JAVA = "org.apache.kafka.common.serialization."


def parse(**given: object) -> LogSettings:
    return parse_log_params({**SERVERS, **{name.replace("_", "."): value for name, value in given.items()}})


def test_the_defaults_are_durable_writes_and_reading_all_there_is() -> None:
    found = parse()
    assert found == LogSettings(
        connection=connection_settings(SERVERS).connection,
        fetch=FetchSettings(isolation_level="read_uncommitted"),
        produce=ProduceSettings(acks=-1, idempotent=True),
        oauth_token_provider=None,
        max_record_batch_bytes=1 << 30,
    )


def test_settings_of_connecting_fetching_and_writing_work() -> None:
    found = parse_log_params(
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
    assert (found.connection.bootstrap_servers, found.connection.client_id) == ((("c", 2),), "me")
    assert found.fetch == FetchSettings(isolation_level="read_committed", fetch_min_bytes=7)
    assert found.produce == ProduceSettings(
        codec="zstd", level=5, max_in_flight=1, delivery_timeout_ms=500, buffer_bytes=1024
    )
    assert (found.oauth_token_provider, found.max_record_batch_bytes) == ("mine:provider", 2048)
    assert found.warnings == ()


def test_nothing_is_said_of_what_kafka_connect_sets_itself() -> None:
    found = parse(
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
    )
    assert found.warnings == ()
    assert found.produce == ProduceSettings(max_in_flight=1)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("transactional.id", "t", "a log writes without transactions, and an offset store makes its own"),
        ("auto.offset.reset", "latest", "a log is always read from its beginning"),
        ("key.serializer", f"{JAVA}StringSerializer", "keys of a log are bytes"),
        ("value.deserializer", f"{JAVA}StringDeserializer", "values of a log are bytes"),
        ("interceptor.classes", "x.Y", "Java interceptors cannot run here"),
    ],
)
def test_what_would_change_what_a_log_is_is_refused(name: str, value: str, why: str) -> None:
    with pytest.raises(OptionError, match=f"^the parameter {re.escape(name)} cannot be used here: {why}"):
        parse(**{name: value})


@pytest.mark.parametrize("acks", ["0", 1])
def test_acknowledged_is_what_all_replicas_have(acks: object) -> None:
    with pytest.raises(OptionError, match=rf"^acks must be all in a log: .*, got '{acks}'"):
        parse(acks=acks)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("group.id", "g", "without a consumer group"),
        ("enable.auto.commit", "true", "no offsets are kept"),
        ("max.poll.records", "5", "a log's records come in Arrow batches"),
        ("linger.ms", "5", "records are sent at once"),
        ("client.rack", "r", "a log is read from the leaders"),
        ("failOnDataLoss", "true", "it goes on with what is left"),
        ("startingOffsets", "latest", "it is an option of the data source and changes nothing in a log"),
        ("delivery", "exactly-once", "it is an option of the data source and changes nothing in a log"),
        ("transaction.timeout.ms", "5", "a log writes without transactions, and an offset store makes its own"),
    ],
)
def test_what_has_no_effect_brings_one_warning(name: str, value: str, why: str) -> None:
    (warning,) = parse(**{name: value}).warnings
    assert warning.startswith(f"the parameter {name} is ignored: ")
    assert why in warning


def test_it_both_reads_and_writes() -> None:
    said = {row.name: row.fate("log") for row in TABLE.rows if "log" not in row.doors and row.written(Origin.PARAMETER)}
    assert len(said) > 50
    assert not [name for name, fate in said.items() if fate in (FOR_READING, FOR_WRITING)]


def test_what_is_missing_or_misspelt() -> None:
    with pytest.raises(OptionError, match=r"^bootstrap\.servers is missing"):
        parse_log_params({})
    with pytest.raises(OptionError, match="params must be a dict of client settings, got list"):
        parse_log_params([("bootstrap.servers", "b:1")])  # type: ignore[arg-type]
    (warning,) = parse(fetch_min_byte=5).warnings
    assert warning == "the parameter fetch.min.byte is unknown and ignored; did you mean 'fetch.min.bytes'?"


def test_a_secret_is_never_shown() -> None:
    found = parse(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="u", sasl_password="hunter2"
    )
    assert "hunter2" not in repr(found)


def test_the_documentation_is_current() -> None:
    page = pages()[DOCS.name]
    assert page == DOCS.read_text(encoding="utf-8"), "run python -m pyspark_kafka_direct.settings docs"
    assert "| `buffer.memory` | whole number | `33554432` |" in page
    assert "| *`maxRecordBatchBytes`* | whole number | `1073741824` |" in page
    assert "| `transactional.id` | a log writes without transactions, and an offset store makes its own |  |" in page
    assert "| `group.id` | records are read by partition and offset, without a consumer group |  |" in page
    assert "startingOffsets" not in page
