"""The one reader: what is taken, what is refused, ignored and hinted at, and in which words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._kinds import read_value
from pyspark_kafka_direct.settings._reader import Read, read
from pyspark_kafka_direct.settings.row import READING, SOURCE, Fate, Form, Kind, Origin, Setting, at
from pyspark_kafka_direct.settings.secret import Secret

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.row import Door

SERVERS = {"kafka.bootstrap.servers": "b:1"}


def options(door: Door = "batch", **given: Any) -> Read:
    texts = {name.replace("_", "."): text for name, text in given.items()}
    return read({**SERVERS, **texts}, door=door, origin=Origin.OPTION)


def parameters(given: dict[str, object], door: Door = "direct") -> Read:
    return read({"bootstrap.servers": "b:1", **given}, door=door, origin=Origin.PARAMETER)


def refusal(door: Door = "batch", **given: Any) -> str:
    with pytest.raises(OptionError) as caught:
        options(door, **given)
    return caught.value.message


def row(kind: Kind, **more: Any) -> Setting:
    return Setting(name="it", role="plan", doors=at(SOURCE), kind=kind, elsewhere={}, **more)


@pytest.mark.parametrize(
    ("kind", "more", "text", "value"),
    [
        (Kind.TEXT, {}, " a b ", "a b"),
        (Kind.TEXT, {"verbatim": True}, " a ", " a "),
        (Kind.TEXT, {"secret": True}, " s ", Secret("s")),
        (Kind.TEXT, {"secret": True, "verbatim": True}, " s ", Secret(" s ")),
        (Kind.FLAG, {}, " TRUE ", True),
        (Kind.FLAG, {}, "false", False),
        (Kind.NUMBER, {"low": 1, "high": 9}, "+9", 9),
        (Kind.NUMBER, {}, "-9223372036854775808", -(2**63)),
        (Kind.DECIMAL, {}, "1e-1", 0.1),
        (Kind.DECIMAL, {}, ".5", 0.5),
        (Kind.WORD, {"allowed": ("One", "two")}, "ONE", "One"),
        (Kind.DURATION, {}, "3us", 3e-6),
        (Kind.DURATION, {}, "2MIN", 120.0),
        (Kind.DURATION, {}, "5", 0.005),
        (Kind.LIST, {}, " a ,, b,", ("a", "b")),
        (Kind.JSON, {}, "{", "{"),
        (Kind.TIMESTAMP, {}, "soon", "soon"),
    ],
)
def test_values(kind: Kind, more: dict[str, Any], text: str, value: object) -> None:
    found = read_value(row(kind, **more), text, "it")
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "more", "text", "said"),
    [
        (Kind.FLAG, {}, "ture", "it must be true or false, got 'ture'; did you mean 'true'?"),
        (Kind.NUMBER, {"low": 1, "high": 9}, "10", "it must be a whole number from 1 to 9, got '10'"),
        (Kind.NUMBER, {}, "1_0", "it must be a whole number, got '1_0'"),
        (Kind.NUMBER, {}, "٣", "it must be a whole number, got '٣'"),
        (Kind.NUMBER, {}, "9" * 5000, "it must be a whole number"),
        (Kind.DECIMAL, {}, "-0.5", "it must be a number from 0 such as 0.2, got '-0.5'"),
        (Kind.DECIMAL, {}, "nan", "it must be a number from 0"),
        (Kind.DECIMAL, {}, "1e999", "it must be a number from 0"),
        (Kind.WORD, {"allowed": ("a", "b", "lates", "")}, "latest", "it must be a, b or lates, got 'latest'; did you"),
        (Kind.WORD, {"allowed": ("pid",)}, "mine", "it must be pid, got 'mine'"),
        (Kind.DURATION, {}, "1.5s", "it must be a duration such as 500ms, 30s or 15m, got '1.5s'"),
        (Kind.DURATION, {"low": 1}, "0", "it must be a duration above 0 such as 500ms, 30s or 15m, got '0'"),
        (Kind.TEXT, {"form": Form(re.compile("[a-z]+"), "small letters")}, "A", "it must be small letters, got 'A'"),
        (Kind.LIST, {"form": Form(re.compile("[a-z]"), "letters")}, "a,1", "it must be letters, got '1'"),
    ],
)
def test_bad_values(kind: Kind, more: dict[str, Any], text: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_value(row(kind, **more), text, "it")
    assert caught.value.message.startswith(said)


def test_a_duration_has_the_unit_of_its_origin() -> None:
    assert read_value(row(Kind.DURATION), "5", "it", "s") == 5.0


def test_names_are_shown_as_they_were_written() -> None:
    assert refusal(kafka_fetch_min_bytes="x").startswith("kafka.fetch.min.bytes must be")
    assert refusal(fetch_min_bytes="x").startswith("fetch.min.bytes must be")
    assert refusal(fetch_wait_max_ms="x").startswith("fetch.wait.max.ms must be")
    assert refusal(minpartitions="x").startswith("minPartitions must be"), "Spark hands over lower case"
    with pytest.raises(OptionError, match=r"^kafka\.fetch\.min\.bytes must be"):
        parameters({"kafka.fetch.min.bytes": "x"})
    assert parameters({}).name("fetch.min.bytes") == "fetch.min.bytes"
    assert options().name("fetch.min.bytes") == "kafka.fetch.min.bytes"


def test_defaults_are_those_of_the_door() -> None:
    assert options("batch").text("startingOffsets") == "earliest"
    assert options("stream").text("startingOffsets") == "latest"
    assert options("batch").number("kafkaConsumer.pollTimeoutMs") == 120_000
    assert parameters({}).number("kafkaConsumer.pollTimeoutMs") is None


def test_a_secret_is_never_shown() -> None:
    assert "hunter2" not in repr(options(kafka_sasl_password="hunter2"))
    said = refusal(kafka_sasl_password="hunter1", sasl_password="hunter2")
    assert said == (
        "kafka.sasl.password and sasl.password: one setting is given twice with different values; write it once"
    )


def test_one_setting_twice_must_agree() -> None:
    assert options(minPartitions="4", MINPARTITIONS="4").number("minPartitions") == 4
    assert "minPartitions: one setting is given twice" in refusal(minPartitions="4", MINPARTITIONS="5")
    assert "kafka.metadata.broker.list" in refusal(kafka_metadata_broker_list="c:2")
    assert len(options(kafka_acks="1", kafka_ACKS="1", flavour="1", FLAVOUR="1").notes) == 2, "each is told once"
    assert "given twice" in refusal(kafka_acks="1", kafka_ACKS="2"), "also where it is ignored"
    assert "given twice" in refusal(flavour="1", FLAVOUR="2"), "also where nobody knows it"
    assert len(options(acks="1", kafka_acks="2", kafka_flavour="3", flavour="4").notes) == 4, "not the same ones"


def test_empty_means_not_given_for_client_settings_without_a_default() -> None:
    given = options(kafka_ssl_truststore_location=" ", kafka_group_id="", kafka_acks="", kafka_auto_offset_reset="")
    assert given.text("ssl.truststore.location") is None
    assert (given.notes, given.given) == ((), {"bootstrap.servers": "kafka.bootstrap.servers"})
    assert "got ''" in refusal(kafka_fetch_min_bytes="")
    assert "got ''" in refusal(minPartitions="")
    assert options(client_rack="").text("client.rack") == ""


def test_none_is_not_given() -> None:
    assert options(minPartitions=None).number("minPartitions") is None


def test_what_is_missing() -> None:
    with pytest.raises(OptionError) as caught:
        read({"kafka.bootstrap.server": "b:1"}, door="batch", origin=Origin.OPTION)
    assert caught.value.message == (
        "kafka.bootstrap.servers is missing or empty: write host:port of one or more brokers, separated by commas; "
        "did you mean 'kafka.bootstrap.servers'?"
    )


def test_fates() -> None:
    assert refusal("stream", endingOffsets="latest").startswith(
        "the option endingOffsets cannot be used here: a stream has no end"
    )
    assert options("stream", endingTimestamp="5").notes[0].startswith("the option endingTimestamp is ignored: a stream")
    assert parameters({"minPartitions": 5}).notes == (
        "the parameter minPartitions is ignored: each offset range is read by one task",
    )
    assert refusal(kafka_enable_auto_commit="false").startswith("the option kafka.enable.auto.commit cannot be used")
    assert parameters({"enable.auto.commit": False}).notes == ()


def test_one_setting_has_another_fate_at_another_door() -> None:
    assert "DataFrame operations" in refusal(kafka_key_deserializer="x")
    assert "keyDecoder" in parameters({"key.deserializer": "x"}).notes[0]
    assert parameters({"key.deserializer": "org.apache.kafka.x.ByteArrayDeserializer"}).notes == ()


def test_harmless_values() -> None:
    fate = Fate(why="", harmless=("One", "*.Two"))
    assert [fate.is_harmless(text) for text in (" ONE ", "a.two", "two", "b.one")] == [True, True, False, False]


def test_what_belongs_elsewhere_is_told_where() -> None:
    assert options(spark_network_timeout="5s").notes == (
        "the option spark.network.timeout is ignored: write it as the Spark setting "
        "spark.streaming.kafka.consumer.poll.ms",
    )
    assert parameters({"backpressureIntegral": "1"}).notes == (
        "the parameter backpressureIntegral is ignored: write it as the option backpressureIntegral or the Spark "
        "setting spark.streaming.backpressure.pid.integral",
    )


def test_unknown_names_are_hinted_at() -> None:
    assert options(minPart="4").notes == ("the option minPart is unknown and ignored; did you mean 'minPartitions'?",)
    assert options(kafka_fetch_min_byte="1").notes == (
        "the option kafka.fetch.min.byte is unknown and ignored; did you mean 'kafka.fetch.min.bytes'?",
    )
    assert parameters({"fetch_min_bytes": "1"}).notes == (
        "the parameter fetch_min_bytes is unknown and ignored; did you mean 'fetch.min.bytes'?",
    )
    assert refusal(startingOffset="x") == "the option startingOffset is unknown; did you mean 'startingOffsets'?"
    assert len(parameters({"failOnDataLos": "x"}).notes) == 1, "refused as an option of the data source only"


def test_only_client_settings_have_a_prefix_and_only_with_a_dot_may_it_be_left_out() -> None:
    assert "unknown" in options(kafka_subscribe="t").notes[0]
    assert "unknown" in options(debug="x").notes[0]
    assert "tunes a client" in options(kafka_debug="x").notes[0]
    assert options(fetchOffset_numRetries="4").number("fetchOffset.numRetries") == 4


def test_values_of_parameters_may_be_pythons() -> None:
    given = parameters({"check.crcs": False, "fetch.min.bytes": 7, "ssl.enabled.protocols": ["TLSv1.2", "TLSv1.3"]})
    assert (given.flag("check.crcs"), given.number("fetch.min.bytes")) == (False, 7)
    assert given.entries("ssl.enabled.protocols") == ("TLSv1.2", "TLSv1.3")
    assert parameters({"key.deserializer": type("ByteArrayDeserializer", (), {})}).notes == ()
    with pytest.raises(OptionError, match=r"sasl\.password must be a text, .*got bytes") as caught:
        parameters({"sasl.password": b"hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", [7, "", " ", "kafka."])
def test_names_are_texts(name: Any) -> None:
    with pytest.raises(OptionError, match=r"name must be a text such as bootstrap\.servers, got"):
        parameters({name: "x"})


def test_inside_a_login_module() -> None:
    given = read({"ssl.protocol": "TLSv1.2", "scope": "s"}, door="batch", origin=Origin.JAAS)
    assert (given.text("ssl.protocol"), given.text("sasl.oauthbearer.scope")) == ("TLSv1.2", "s")
    with pytest.raises(OptionError, match=r"^ssl\.protocol inside sasl\.jaas\.config must be"):
        read({"ssl.protocol": "x"}, door="batch", origin=Origin.JAAS)
    (note,) = read({"ssl.provider": "x"}, door="batch", origin=Origin.JAAS).notes
    assert note.startswith("the login module's option ssl.provider inside sasl.jaas.config is ignored: it names Java")
    assert read({"SCOPE": "s"}, door="batch", origin=Origin.JAAS).text("sasl.oauthbearer.scope") is None


@pytest.mark.parametrize("door", READING)
def test_a_bad_value_has_one_verdict_at_every_door(door: Door) -> None:
    names = ["oauthTokenProvider", "failOnDataLoss", "maxRecordBatchBytes"]
    if door != "continuous":  # which reads from leaders alone
        names.append("rackEnvironmentVariable")
    for name in names:
        for text in ("", "A B", "1g"):
            origin = Origin.OPTION if door in SOURCE else Origin.PARAMETER
            with pytest.raises(OptionError, match=f"^{name} must be .*, got '{text}'$"):
                read({"bootstrap.servers": "b:1", name: text}, door=door, origin=origin)


def test_a_very_long_value_is_shown_in_part() -> None:
    with pytest.raises(OptionError, match=r"^kafka\.fetch\.min\.bytes must be .*, got '9{200}'\.\.\.$"):
        options(kafka_fetch_min_bytes="9" * 5000)
    with pytest.raises(OptionError, match=r", got '9{200}'$"):
        options(kafka_fetch_min_bytes="9" * 200)
