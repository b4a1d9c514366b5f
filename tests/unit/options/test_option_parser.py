"""The parser of options: valid values, errors, warnings and hints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.config_option import (
    APIS,
    READ_APIS,
    SOURCE_APIS,
    ConfigOption,
    ConfigSource,
    UnsupportedPolicy,
)
from pyspark_kafka_direct.options.option_parser import ParsedConfig, parse_config, parse_value
from pyspark_kafka_direct.options.security_settings import Secret
from pyspark_kafka_direct.options.value_types import (
    BOOLEAN,
    DURATION,
    INTEGER,
    JSON,
    LIST,
    NUMBER,
    SECRET,
    STRING,
    TIMESTAMP,
    Duration,
    Enum,
    Integer,
    ListOf,
    Text,
)

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.config_option import Api
    from pyspark_kafka_direct.options.value_types import ValueType

SERVERS = {"kafka.bootstrap.servers": "b:1"}


def options(api: Api = "batch", **given: Any) -> ParsedConfig:
    """Parse options whose names are written with _ for dots."""
    values = {name.replace("_", "."): value for name, value in given.items()}
    return parse_config({**SERVERS, **values}, api=api, source=ConfigSource.OPTION)


def parameters(given: dict[str, object], api: Api = "direct") -> ParsedConfig:
    return parse_config({"bootstrap.servers": "b:1", **given}, api=api, source=ConfigSource.PARAMETER)


def error(api: Api = "batch", **given: Any) -> str:
    with pytest.raises(OptionError) as caught:
        options(api, **given)
    return caught.value.message


def option(value_type: ValueType, *, verbatim: bool = False) -> ConfigOption:
    return ConfigOption("it", value_type, role="plan", apis=SOURCE_APIS, verbatim=verbatim)


@pytest.mark.parametrize(
    ("value_type", "text", "value"),
    [
        (STRING, " a b ", "a b"),
        (SECRET, " s ", Secret("s")),
        (BOOLEAN, " TRUE ", True),
        (BOOLEAN, "false", False),
        (Integer(1, 9), "+9", 9),
        (INTEGER, "-9223372036854775808", -(2**63)),
        (NUMBER, "1e-1", 0.1),
        (NUMBER, ".5", 0.5),
        (Enum(("One", "two")), "ONE", "One"),
        (DURATION, "3us", 3e-6),
        (DURATION, "2MIN", 120.0),
        (DURATION, "5", 0.005),
        (LIST, " a ,, b,", ("a", "b")),
        (JSON, "{", "{"),
        (TIMESTAMP, "1700000000000", "1700000000000"),
    ],
)
def test_valid_values(value_type: ValueType, text: str, value: object) -> None:
    parsed = parse_value(option(value_type), text, "it")
    assert (parsed, type(parsed)) == (value, type(value))


def test_blanks_around_a_verbatim_value_count() -> None:
    assert parse_value(option(STRING, verbatim=True), " a ", "it") == " a "
    assert parse_value(option(SECRET, verbatim=True), " s ", "it") == Secret(" s ")


@pytest.mark.parametrize(
    ("value_type", "text", "message"),
    [
        (BOOLEAN, "ture", "it must be true or false, got 'ture'; did you mean 'true'?"),
        (Integer(1, 9), "10", "it must be an integer from 1 to 9, got '10'"),
        (INTEGER, "1_0", "it must be an integer, got '1_0'"),
        (INTEGER, "٣", "it must be an integer, got '٣'"),
        (INTEGER, "9" * 5000, "it must be an integer"),
        (NUMBER, "-0.5", "it must be a number of at least 0, such as 0.2, got '-0.5'"),
        (NUMBER, "nan", "it must be a number of at least 0"),
        (NUMBER, "1e999", "it must be a number of at least 0"),
        (Enum(("a", "b", "lates", "")), "latest", "it must be a, b or lates, got 'latest'; did you"),
        (Enum(("pid",)), "mine", "it must be pid, got 'mine'"),
        (DURATION, "1.5s", "it must be a duration such as 500ms, 30s or 15m, got '1.5s'"),
        (Duration(1), "0", "it must be a duration greater than 0, such as 500ms, 30s or 15m, got '0'"),
        (Text(pattern=re.compile("[a-z]+"), expected="lowercase letters"), "A", "it must be lowercase letters, got"),
        (ListOf(Text(pattern=re.compile("[a-z]"), expected="letters")), "a,1", "it must be letters, got '1'"),
    ],
)
def test_invalid_values(value_type: ValueType, text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_value(option(value_type), text, "it")
    assert caught.value.message.startswith(message)


def test_a_duration_has_the_default_unit_of_its_source() -> None:
    assert parse_value(option(DURATION), "5", "it", "s") == 5.0


def test_names_are_shown_as_given() -> None:
    assert error(kafka_fetch_min_bytes="x").startswith("kafka.fetch.min.bytes must be")
    assert error(fetch_min_bytes="x").startswith("fetch.min.bytes must be")
    assert error(fetch_wait_max_ms="x").startswith("fetch.wait.max.ms must be")
    assert error(minpartitions="x").startswith("minPartitions must be"), "Spark converts names to lower case"
    with pytest.raises(OptionError, match=r"^kafka\.fetch\.min\.bytes must be"):
        parameters({"kafka.fetch.min.bytes": "x"})
    assert parameters({}).name_of("fetch.min.bytes") == "fetch.min.bytes"
    assert options().name_of("fetch.min.bytes") == "kafka.fetch.min.bytes"


def test_defaults_depend_on_the_api() -> None:
    assert options("batch").get_string("startingOffsets") == "earliest"
    assert options("stream").get_string("startingOffsets") == "latest"
    assert options("batch").get_optional_int("kafkaConsumer.pollTimeoutMs") == 120_000
    assert parameters({}).get_optional_int("kafkaConsumer.pollTimeoutMs") is None


def test_a_secret_is_never_shown() -> None:
    assert "hunter2" not in repr(options(kafka_sasl_password="hunter2"))
    message = error(kafka_sasl_password="hunter1", sasl_password="hunter2")
    assert message == (
        "kafka.sasl.password and sasl.password are the same setting, but their values differ; set only one of them"
    )


def test_values_of_an_option_given_twice_must_be_equal() -> None:
    assert options(minPartitions="4", MINPARTITIONS="4").get_optional_int("minPartitions") == 4
    assert error(minPartitions="4", MINPARTITIONS="5") == (
        "minPartitions is given twice with different values; set it once"
    )
    assert "kafka.metadata.broker.list" in error(kafka_metadata_broker_list="c:2")
    assert len(options(kafka_acks="1", kafka_ACKS="1", flavour="1", FLAVOUR="1").warnings) == 2, "one for each option"
    assert "given twice" in error(kafka_acks="1", kafka_ACKS="2"), "also if it is ignored"
    assert "their values differ" in error(flavour="1", FLAVOUR="2"), "also if it is unknown"
    assert len(options(acks="1", kafka_acks="2", kafka_flavour="3", flavour="4").warnings) == 4, "four options"


def test_an_empty_value_of_a_client_setting_without_a_default_means_not_given() -> None:
    given = options(kafka_ssl_truststore_location=" ", kafka_group_id="", kafka_acks="", kafka_auto_offset_reset="")
    assert given.get_string("ssl.truststore.location") is None
    assert (given.warnings, given.given_names) == ((), {"bootstrap.servers": "kafka.bootstrap.servers"})
    assert "got ''" in error(kafka_fetch_min_bytes="")
    assert "got ''" in error(minPartitions="")
    assert options(client_rack="").get_string("client.rack") == ""


def test_none_means_not_given() -> None:
    assert options(minPartitions=None).get_optional_int("minPartitions") is None


def test_a_missing_option() -> None:
    with pytest.raises(OptionError) as caught:
        parse_config({"flavour": "x", "kafka.bootstrap.server": "b:1"}, api="batch", source=ConfigSource.OPTION)
    assert caught.value.message == (
        "kafka.bootstrap.servers is missing or empty; set it to host:port of one or more brokers, separated by "
        "commas; the option kafka.bootstrap.server is unknown; did you mean 'kafka.bootstrap.servers'?"
    )


def test_unsupported_options_are_rejected_or_ignored() -> None:
    assert error("stream", endingOffsets="latest").startswith(
        "the option endingOffsets cannot be used here: a stream has no end"
    )
    assert (
        options("stream", endingTimestamp="5").warnings[0].startswith("the option endingTimestamp is ignored: a stream")
    )
    assert parameters({"minPartitions": 5}).warnings == (
        "the parameter minPartitions is ignored: one task reads each offset range",
    )
    assert error(kafka_enable_auto_commit="false").startswith("the option kafka.enable.auto.commit cannot be used")
    assert parameters({"enable.auto.commit": False}).warnings == ()


def test_unsupported_policies_depend_on_the_api() -> None:
    assert "DataFrame operations" in error(kafka_key_deserializer="x")
    with pytest.raises(OptionError, match="keyDecoder"):
        parameters({"key.deserializer": "x"})
    assert parameters({"key.deserializer": "org.apache.kafka.x.ByteArrayDeserializer"}).warnings == ()


@pytest.mark.parametrize(
    ("apis", "name", "value", "harmless"),
    [
        (SOURCE_APIS, "deliveryGuarantee", " Exactly-Once", None),
        (("continuous",), "endingTimestamp", "5", None),
        (APIS, "kafka.topic.blacklist", "secret.*", None),
        (APIS, "kafka.ssl.curves.list", "X25519", None),
        (APIS, "kafka.ssl.sigalgs.list", "ECDSA+SHA256", None),
        (APIS, "kafka.ssl.trustmanager.algorithm", "Pinned", "PKIX"),
        (("sink", "log"), "kafka.partitioner", "consistent_random", "murmur2_random"),
        (("direct",), "kafka.exclude.internal.topics", "false", "true"),
        (("log",), "kafka.enable.gapless.guarantee", "true", "false"),
        (("direct", "rdd", "log"), "value.deserializer", "x.StringDeserializer", "x.ByteArrayDeserializer"),
    ],
)
def test_an_option_is_rejected_if_without_it_the_result_is_another_one(
    apis: tuple[Api, ...], name: str, value: str, harmless: str | None
) -> None:
    for api in apis:
        source = ConfigSource.OPTION if api in (*SOURCE_APIS, "sink") else ConfigSource.PARAMETER
        given = {"kafka.bootstrap.servers": "b:1"}
        with pytest.raises(OptionError, match=f"{name} cannot be used here"):
            parse_config({**given, name: value}, api=api, source=source)
        if harmless is not None:
            assert parse_config({**given, name: harmless}, api=api, source=source).warnings == ()


def test_one_error_names_all_rejected_options() -> None:
    given = {"kafka.topic.blacklist": "x", "kafka.enable.auto.commit": "true", "endingOffsets": "latest"}
    message = error("stream", **given)
    assert [part.split(" cannot be used here: ")[0] for part in message.split(". ")] == [
        f"the option {name}" for name in given
    ]


def test_accepted_values() -> None:
    policy = UnsupportedPolicy("", accepted_values=("One", "*.Two"))
    assert [policy.accepts(value) for value in (" ONE ", "a.two", "two", "b.one")] == [True, True, False, False]


def test_the_warning_about_the_wrong_source_names_the_right_one() -> None:
    assert options(spark_network_timeout="5s").warnings == (
        "the option spark.network.timeout is ignored: set it as the Spark configuration property "
        "spark.streaming.kafka.consumer.poll.ms",
    )
    assert parameters({"backpressureIntegral": "1"}).warnings == (
        "the parameter backpressureIntegral is ignored: set it as the option backpressureIntegral or the Spark "
        "configuration property spark.streaming.backpressure.pid.integral",
    )


def test_warnings_about_unknown_names_have_a_hint() -> None:
    assert options(minPart="4").warnings == (
        "the option minPart is unknown and ignored; did you mean 'minPartitions'?",
    )
    assert options(kafka_fetch_min_byte="1").warnings == (
        "the option kafka.fetch.min.byte is unknown and ignored; did you mean 'kafka.fetch.min.bytes'?",
    )
    assert parameters({"fetch_min_bytes": "1"}).warnings == (
        "the parameter fetch_min_bytes is unknown and ignored; did you mean 'fetch.min.bytes'?",
    )
    assert error(startingOffset="x") == "the option startingOffset is unknown; did you mean 'startingOffsets'?"


def test_only_client_settings_have_a_prefix_which_is_optional_for_names_with_a_dot() -> None:
    assert "unknown" in options(kafka_subscribe="t").warnings[0]
    assert "unknown" in options(debug="x").warnings[0]
    assert "configures a part of another Kafka client" in options(kafka_debug="x").warnings[0]
    assert options(fetchOffset_numRetries="4").get_optional_int("fetchOffset.numRetries") == 4


def test_values_of_parameters_can_be_python_objects() -> None:
    given = parameters({"check.crcs": False, "fetch.min.bytes": 7, "ssl.enabled.protocols": ["TLSv1.2", "TLSv1.3"]})
    assert (given.get_boolean("check.crcs"), given.get_optional_int("fetch.min.bytes")) == (False, 7)
    assert given.get_list("ssl.enabled.protocols") == ("TLSv1.2", "TLSv1.3")
    assert parameters({"key.deserializer": type("ByteArrayDeserializer", (), {})}).warnings == ()
    with pytest.raises(OptionError, match=r"ssl\.enabled\.protocols must be a string, .*got list"):
        parameters({"ssl.enabled.protocols": ["TLSv1.2", 1.3]})
    with pytest.raises(OptionError, match=r"sasl\.password must be a string, .*got bytes") as caught:
        parameters({"sasl.password": b"hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", [7, "", " ", "kafka."])
def test_names_must_be_non_empty_strings(name: Any) -> None:
    with pytest.raises(OptionError, match=r"name of a setting must be a string such as bootstrap\.servers, got"):
        parameters({name: "x"})


def test_options_of_a_login_module() -> None:
    given = parse_config({"ssl.protocol": "TLSv1.2", "scope": "s"}, api="batch", source=ConfigSource.JAAS)
    assert (given.get_string("ssl.protocol"), given.get_string("sasl.oauthbearer.scope")) == ("TLSv1.2", "s")
    with pytest.raises(OptionError, match=r"^ssl\.protocol inside sasl\.jaas\.config must be"):
        parse_config({"ssl.protocol": "x"}, api="batch", source=ConfigSource.JAAS)
    (warning,) = parse_config({"ssl.provider": "x"}, api="batch", source=ConfigSource.JAAS).warnings
    assert warning.startswith("the login module option ssl.provider inside sasl.jaas.config is ignored: it configures")
    assert (
        parse_config({"SCOPE": "s"}, api="batch", source=ConfigSource.JAAS).get_string("sasl.oauthbearer.scope") is None
    )


@pytest.mark.parametrize("api", READ_APIS)
def test_an_invalid_value_causes_the_same_error_in_every_api(api: Api) -> None:
    names = ["oauthTokenProvider", "failOnDataLoss", "maxRecordBatchBytes"]
    if api != "continuous":  # it reads from leaders only
        names.append("rackEnvironmentVariable")
    for name in names:
        for text in ("", "A B", "1g"):
            source = ConfigSource.OPTION if api in SOURCE_APIS else ConfigSource.PARAMETER
            with pytest.raises(OptionError, match=f"^{name} must be .*, got '{text}'$"):
                parse_config({"bootstrap.servers": "b:1", name: text}, api=api, source=source)


def test_a_very_long_value_is_truncated_in_errors() -> None:
    with pytest.raises(OptionError, match=r"^kafka\.fetch\.min\.bytes must be .*, got '9{200}'\.\.\.$"):
        options(kafka_fetch_min_bytes="9" * 200 + "1" * 5000)
    with pytest.raises(OptionError, match=r", got '9{200}'$"):
        options(kafka_fetch_min_bytes="9" * 200)
