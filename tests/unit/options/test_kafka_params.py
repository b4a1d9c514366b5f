"""``kafkaParams``: conversion of values, overrides for executors, warnings and errors."""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from tests.positions import at_time

from pyspark_kafka_direct import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.kafka_params import KafkaParameters, parse_kafka_params

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.config_option import Api

SERVERS = {"bootstrap.servers": "a:9092,b:9093"}
STRING = "org.apache.kafka.common.serialization.StringDeserializer"
AUTO_OFFSET_RESET_WARNING = (
    "auto.offset.reset=earliest is overridden to none in tasks: records that a task cannot find are data loss. The "
    "setting applies only where a stream starts"
)
BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


@pytest.fixture(autouse=True)
def _clear_logged_warnings() -> None:
    option_messages.warn_once.cache_clear()


def logged_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_typical_java_configuration(caplog: pytest.LogCaptureFixture) -> None:
    params = {
        **SERVERS,
        "key.deserializer": BYTES,
        "value.deserializer": BYTES,
        "group.id": "delays",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.max.wait.ms": 100,
    }
    copy = dict(params)
    parsed = parse_kafka_params(params)
    assert params == copy
    assert parsed.connection.bootstrap_servers == (("a", 9092), ("b", 9093))
    assert parsed.fetch.fetch_max_wait_ms == 100
    assert parsed.group_id == "delays"
    assert parsed.auto_offset_reset == "earliest"
    assert logged_warnings(caplog) == [AUTO_OFFSET_RESET_WARNING]


def test_defaults_are_those_of_java() -> None:
    parsed = parse_kafka_params(SERVERS)
    assert (parsed.group_id, parsed.auto_offset_reset) == (None, "latest")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("65536", 65536),
        (65536, 65536),
        (1 << 20, 1 << 20),
        ("100", 100),  # Spark: ClassCastException
    ],
)
def test_integers_can_be_strings(value: object, expected: int) -> None:
    assert parse_kafka_params({**SERVERS, "receive.buffer.bytes": value}).connection.receive_buffer_bytes == expected


def test_booleans_and_lists_are_converted() -> None:
    parsed = parse_kafka_params({"bootstrap.servers": ["a:1", "b:2"], "check.crcs": False})
    assert parsed.connection.bootstrap_servers == (("a", 1), ("b", 2))
    assert parsed.fetch.check_crcs is False


def test_names_can_have_a_prefix_and_none_means_not_given() -> None:
    parsed = parse_kafka_params({"kafka.bootstrap.servers": "a:1", "kafka.Group.ID": "g", "client.id": None})
    assert (parsed.group_id, parsed.connection.client_id) == ("g", "pyspark-kafka-direct")


@pytest.mark.parametrize(("given", "expected"), [(None, -1), (-1, -1), (1000, 65536), (65536, 65536), (70000, 70000)])
def test_executors_have_a_minimum_receive_buffer(given: int | None, expected: int) -> None:
    """KAFKA-3135; without the parameter, the operating system chooses a larger buffer."""
    parsed = parse_kafka_params({**SERVERS, "receive.buffer.bytes": given})
    assert parsed.executor_connection.receive_buffer_bytes == expected
    assert parsed.connection.receive_buffer_bytes == (-1 if given is None else given)


@pytest.mark.parametrize(("reset", "is_logged"), [(None, False), ("none", False), ("latest", True), ("Earliest", True)])
def test_an_overridden_offset_reset_is_logged_once(
    reset: str | None, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        parse_kafka_params({**SERVERS, "group.id": "g", "auto.offset.reset": reset})
    overridden = [warning for warning in logged_warnings(caplog) if "is overridden to none in tasks" in warning]
    assert len(overridden) == is_logged


def test_each_override_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    params: dict[str, object] = {**SERVERS, "enable.auto.commit": "True", "receive.buffer.bytes": 100}
    for _ in range(3):
        assert parse_kafka_params(params).executor_connection.receive_buffer_bytes == 65536
    warnings = logged_warnings(caplog)
    assert len(warnings) == 2
    assert any("enable.auto.commit is overridden to false" in warning for warning in warnings)
    assert any("receive.buffer.bytes=100 is increased to 65536" in warning for warning in warnings)


@pytest.mark.parametrize("api", ["direct", "rdd"])
@pytest.mark.parametrize("part", ["key", "value"])
def test_another_deserializer_is_rejected(part: str, api: Api) -> None:
    """Otherwise, the program would compare bytes with what it expects."""
    with pytest.raises(OptionError, match=f"{part}.deserializer cannot be used here: .*{part}Decoder.* bytes.decode"):
        parse_kafka_params({**SERVERS, f"{part}.deserializer": STRING}, api)


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets", "endingTimestamp", "subscribe", "offsetRanges"])
def test_a_strategy_defines_what_is_read(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(OptionError, match=f"{name} cannot be used here: the consumer strategy .* auto.offset.reset"):
        parse_kafka_params({**SERVERS, name: "5"})
    parse_kafka_params({**SERVERS, name: "5"}, "rdd")
    (warning,) = logged_warnings(caplog)
    assert warning == f"the parameter {name} is ignored: the list of offset ranges defines what is read"


@pytest.mark.parametrize("value", [BYTES, type("ByteArrayDeserializer", (), {})])
def test_a_deserializer_of_bytes_causes_no_warning(value: object, caplog: pytest.LogCaptureFixture) -> None:
    parse_kafka_params({**SERVERS, "key.deserializer": value})
    assert logged_warnings(caplog) == []


@pytest.mark.parametrize("word", ["earliest", "LATEST", "none", " none "])
def test_auto_offset_reset(word: str) -> None:
    assert parse_kafka_params({**SERVERS, "auto.offset.reset": word}).auto_offset_reset == word.strip().lower()


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
            "must be an integer from 1 to [0-9]+, got '5s'",
        ),
        ({**SERVERS, "kafkaConsumer.pollTimeoutMs": 0}, "from 1 to [0-9]+, got '0'"),
        ({**SERVERS, "maxRecordBatchBytes": 0}, "from 1 to 2147483647, got '0'"),
        ({**SERVERS, "maxRecordBatchBytes": 1 << 31}, "from 1 to 2147483647, got '2147483648'"),
        ({**SERVERS, "maxRecordBatchBytes": "1g"}, "from 1 to 2147483647, got '1g'"),
        ({**SERVERS, "fetch.min.bytes": "many"}, r"fetch\.min\.bytes"),
        ({**SERVERS, "fetch.min.bytes": 1.5}, r"fetch\.min\.bytes must be a string.*got float"),
        ({7: "x"}, "name of a setting must be a string such as.*, got 7"),
        ({**SERVERS, "kafka.": "x"}, "name of a setting must be a string such as.*, got 'kafka.'"),
        ({**SERVERS, "Kafka.Bootstrap.Servers": "b:1"}, "are the same setting, but their values differ"),
        ({"bootstrap.servers": b""}, "got bytes"),
        (None, "kafkaParams must be a dict.*got NoneType"),
        ([("bootstrap.servers", "a:1")], "kafkaParams must be a dict.*got list"),
        ({**SERVERS, "group.id": "a", "Group.Id": "b"}, "given twice"),
    ],
)
def test_errors(params: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_kafka_params(params)


def test_a_value_that_may_be_a_secret_is_not_shown() -> None:
    with pytest.raises(OptionError) as caught:
        parse_kafka_params({**SERVERS, "sasl.jaas.config": b"swordfish"})
    assert "swordfish" not in str(caught.value)


def test_an_error_about_an_unsigned_token_names_the_parameter() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    params = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{module} required unsecuredLoginStringClaim_x="y";',
    }
    with pytest.raises(OptionError, match=r"^sasl\.jaas\.config: the unsigned token has no user"):
        parse_kafka_params(params)


def test_the_option_max_record_batch_bytes() -> None:
    assert parse_kafka_params(SERVERS).fetch.max_record_batch_bytes == 128 << 20
    parsed = parse_kafka_params({**SERVERS, "maxRecordBatchBytes": 70_000})
    assert parsed.fetch.max_record_batch_bytes == 70_000
    assert parsed.source_options()["maxRecordBatchBytes"] == "70000"


def test_defaults_of_options_and_of_fields_are_equal() -> None:
    parsed = parse_kafka_params(SERVERS)
    assert parsed == KafkaParameters(
        parsed.connection, parsed.fetch, source_option_strings=parsed.source_option_strings
    )


def test_the_option_poll_timeout() -> None:
    assert parse_kafka_params(SERVERS).poll_timeout_ms is None
    assert parse_kafka_params({**SERVERS, "kafkaConsumer.pollTimeoutMs": 1500}).poll_timeout_ms == 1500


def test_secrets_are_masked_and_pickled() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="swordfish";'
    parsed = parse_kafka_params(
        {
            **SERVERS,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas,
            "rackEnvironmentVariable": "RACK",
        }
    )
    assert "swordfish" not in repr(parsed)
    unpickled = pickle.loads(pickle.dumps(parsed))
    assert unpickled == parsed
    options = unpickled.source_options()
    assert options["kafka.sasl.jaas.config"] == jaas
    assert options["rackEnvironmentVariable"] == "RACK"


def test_options_for_the_data_source_omit_what_it_rejects() -> None:
    params: dict[str, object] = {**SERVERS, "group.id": "g", "auto.offset.reset": "none", "enable.auto.commit": False}
    params |= {"key.deserializer": BYTES, "client.id": "me", "failOnDataLoss": "false"}
    assert parse_kafka_params(params).source_options() == {
        "kafka.bootstrap.servers": "a:9092,b:9093",
        "kafka.client.id": "me",
        "failOnDataLoss": "false",
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("startingTimestamp", "yesterday", "must be one timestamp in milliseconds"),
        ("startingTimestamp", -1, "must be one timestamp in milliseconds"),
        ("startingOffsetsByTimestamp", "5", "startingOffsetsByTimestamp must be"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-5}}', "before 1970"),
        ("startingOffsetsByTimestampStrategy", "earliest", "error or latest"),
    ],
)
def test_invalid_timestamps_are_rejected(name: str, value: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_kafka_params({**SERVERS, name: value})


def test_one_timestamp_takes_precedence(caplog: pytest.LogCaptureFixture) -> None:
    parsed = parse_kafka_params({**SERVERS, "startingTimestamp": 5, "startingOffsetsByTimestamp": '{"t":{"0":9}}'})
    assert parsed.starting_timestamp == at_time(5)
    of_1970 = "startingTimestamp: 5 ms is a time in 1970"
    assert [warning for warning in logged_warnings(caplog) if not warning.startswith(of_1970)] == [
        "the parameter startingOffsetsByTimestamp is ignored: startingTimestamp takes precedence"
    ]


def test_each_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    parse_kafka_params({**SERVERS, "flavour": "x", "colour": "y", "startingTimestamp": 1764449000})
    for warning in ("flavour is unknown", "colour is unknown", "1764449000 ms is a time in 1970"):
        assert any(warning in logged for logged in logged_warnings(caplog))


def test_a_data_frame_of_ranges_has_no_start() -> None:
    params = {**SERVERS, "startingTimestamp": 5, "startingOffsetsByTimestampStrategy": "latest"}
    assert parse_kafka_params(params).source_options() == {"kafka.bootstrap.servers": SERVERS["bootstrap.servers"]}


def test_create_rdd_ignores_timestamps(caplog: pytest.LogCaptureFixture) -> None:
    assert parse_kafka_params({**SERVERS, "startingTimestamp": 5}, "rdd").starting_timestamp is None
    assert any("startingTimestamp is ignored" in warning for warning in logged_warnings(caplog))
