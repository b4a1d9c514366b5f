"""Java's parameters: conversion, what executors change, what is told and what is refused."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from pyspark_kafka_direct import OptionError
from pyspark_kafka_direct.settings import _messages
from pyspark_kafka_direct.settings.kafka_params import KafkaParameters, driver_parameters

SERVERS = {"bootstrap.servers": "a:9092,b:9093"}
STRING = "org.apache.kafka.common.serialization.StringDeserializer"
BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


@pytest.fixture(autouse=True)
def _nothing_was_told() -> None:
    _messages.warn_once.cache_clear()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_usual_map_of_a_java_user(caplog: pytest.LogCaptureFixture) -> None:
    params = {
        **SERVERS,
        "key.deserializer": BYTES,
        "value.deserializer": BYTES,
        "group.id": "delays",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.max.wait.ms": 100,
    }
    before = dict(params)
    read = driver_parameters(params)
    assert params == before
    assert read.settings.bootstrap_servers == (("a", 9092), ("b", 9093))
    assert read.fetch.fetch_max_wait_ms == 100
    assert read.group_id == "delays"
    assert read.auto_offset_reset == "earliest"
    assert told(caplog) == []


def test_defaults_are_javas() -> None:
    read = driver_parameters(SERVERS)
    assert (read.group_id, read.auto_offset_reset) == (None, "latest")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("65536", 65536),
        (65536, 65536),
        (1 << 20, 1 << 20),
        ("100", 100),  # Spark: ClassCastException
    ],
)
def test_numbers_may_be_texts(value: object, expected: int) -> None:
    assert driver_parameters({**SERVERS, "receive.buffer.bytes": value}).settings.receive_buffer_bytes == expected


def test_booleans_and_lists_are_converted() -> None:
    read = driver_parameters({"bootstrap.servers": ["a:1", "b:2"], "check.crcs": False})
    assert read.settings.bootstrap_servers == (("a", 1), ("b", 2))
    assert read.fetch.check_crcs is False


def test_names_may_begin_with_kafka_and_none_is_not_given() -> None:
    read = driver_parameters({"kafka.bootstrap.servers": "a:1", "kafka.Group.ID": "g", "client.id": None})
    assert (read.group_id, read.settings.client_id) == ("g", "pyspark-kafka-direct")


@pytest.mark.parametrize(("given", "expected"), [(None, -1), (-1, -1), (1000, 65536), (65536, 65536), (70000, 70000)])
def test_executors_have_a_receive_buffer_that_is_large_enough(given: int | None, expected: int) -> None:
    """KAFKA-3135; where nothing is given the operating system chooses, which is never less."""
    read = driver_parameters({**SERVERS, "receive.buffer.bytes": given})
    assert read.executor_settings.receive_buffer_bytes == expected
    assert read.settings.receive_buffer_bytes == (-1 if given is None else given)


def test_each_override_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    params: dict[str, object] = {
        **SERVERS,
        "enable.auto.commit": "True",
        "receive.buffer.bytes": 100,
        "value.deserializer": STRING,
    }
    for _ in range(3):
        assert driver_parameters(params).executor_settings.receive_buffer_bytes == 65536
    notes = told(caplog)
    assert len(notes) == 3
    assert any("valueDecoder" in note for note in notes)
    assert any("enable.auto.commit is overridden to false" in note for note in notes)
    assert any("receive.buffer.bytes=100 is raised to 65536" in note for note in notes)


@pytest.mark.parametrize("value", [BYTES, type("ByteArrayDeserializer", (), {})])
def test_bytes_are_what_comes_anyway(value: object, caplog: pytest.LogCaptureFixture) -> None:
    driver_parameters({**SERVERS, "key.deserializer": value})
    assert told(caplog) == []


@pytest.mark.parametrize("word", ["earliest", "LATEST", "none", " none "])
def test_auto_offset_reset(word: str) -> None:
    assert driver_parameters({**SERVERS, "auto.offset.reset": word}).auto_offset_reset == word.strip().lower()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, r"bootstrap\.servers is missing"),
        ({**SERVERS, "auto.offset.reset": "newest"}, "earliest, latest or none, got 'newest'"),
        ({**SERVERS, "auto.offset.reset": "by_duration:PT1H"}, r"by_duration:PT1H is not supported"),
        ({**SERVERS, "enable.auto.commit": "yes"}, "must be true or false, got 'yes'"),
        ({**SERVERS, "failOnDataLoss": "maybe"}, "must be true or false, got 'maybe'"),
        (
            {**SERVERS, "kafkaConsumer.pollTimeoutMs": "5s"},
            "must be a whole number from 1 to [0-9]+, got '5s'",
        ),
        ({**SERVERS, "kafkaConsumer.pollTimeoutMs": 0}, "from 1 to [0-9]+, got '0'"),
        ({**SERVERS, "maxRecordBatchBytes": 0}, "from 1 to 2147483647, got '0'"),
        ({**SERVERS, "maxRecordBatchBytes": 1 << 31}, "from 1 to 2147483647, got '2147483648'"),
        ({**SERVERS, "maxRecordBatchBytes": "1g"}, "from 1 to 2147483647, got '1g'"),
        ({**SERVERS, "fetch.min.bytes": "many"}, r"fetch\.min\.bytes"),
        ({**SERVERS, "fetch.min.bytes": 1.5}, r"fetch\.min\.bytes must be a text.*got float"),
        ({7: "x"}, "name must be a text such as.*, got 7"),
        ({**SERVERS, "kafka.": "x"}, "name must be a text such as.*, got 'kafka.'"),
        ({**SERVERS, "Kafka.Bootstrap.Servers": "b:1"}, "given twice"),
        ({"bootstrap.servers": b""}, "got bytes"),
        (None, "kafkaParams must be a dict.*got NoneType"),
        ([("bootstrap.servers", "a:1")], "kafkaParams must be a dict.*got list"),
        ({**SERVERS, "group.id": "a", "Group.Id": "b"}, "given twice"),
    ],
)
def test_what_is_refused(params: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        driver_parameters(params)


def test_a_value_that_might_be_a_secret_is_not_shown() -> None:
    with pytest.raises(OptionError) as failure:
        driver_parameters({**SERVERS, "sasl.jaas.config": b"swordfish"})
    assert "swordfish" not in str(failure.value)


def test_an_unsigned_token_that_cannot_be_made_names_the_parameter() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    params = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{module} required unsecuredLoginStringClaim_x="y";',
    }
    with pytest.raises(OptionError, match=r"^sasl\.jaas\.config: the unsigned token needs a user"):
        driver_parameters(params)


def test_the_largest_record_batch_of_the_data_source() -> None:
    assert driver_parameters(SERVERS).max_record_batch_bytes == 1 << 30
    read = driver_parameters({**SERVERS, "maxRecordBatchBytes": 70_000})
    assert read.max_record_batch_bytes == 70_000
    assert read.source_options()["maxRecordBatchBytes"] == "70000"


def test_what_a_map_leaves_out_is_what_is_left_out_anywhere() -> None:
    read = driver_parameters(SERVERS)
    assert read == KafkaParameters(read.settings, read.fetch, texts=read.texts)


def test_the_poll_timeout_of_the_data_source() -> None:
    assert driver_parameters(SERVERS).poll_timeout is None
    assert driver_parameters({**SERVERS, "kafkaConsumer.pollTimeoutMs": 1500}).poll_timeout == 1.5


def test_secrets_are_masked_and_it_pickles() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="swordfish";'
    read = driver_parameters(
        {
            **SERVERS,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas,
            "rackEnvironmentVariable": "RACK",
        }
    )
    assert "swordfish" not in repr(read)
    again = pickle.loads(pickle.dumps(read))
    assert again == read
    options = again.source_options()
    assert options["kafka.sasl.jaas.config"] == jaas
    assert options["rackEnvironmentVariable"] == "RACK"


def test_options_for_the_data_source_leave_out_what_it_refuses() -> None:
    params: dict[str, object] = {**SERVERS, "group.id": "g", "auto.offset.reset": "none", "enable.auto.commit": False}
    params |= {"key.deserializer": BYTES, "client.id": "me", "failOnDataLoss": "false"}
    assert driver_parameters(params).source_options() == {
        "kafka.bootstrap.servers": "a:9092,b:9093",
        "kafka.client.id": "me",
        "failOnDataLoss": "false",
    }
