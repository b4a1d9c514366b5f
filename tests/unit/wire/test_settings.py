"""Client settings: names, aliases, values, refusals, warnings, and what must never be seen."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings import _messages
from pyspark_kafka_direct.settings._reader import read
from pyspark_kafka_direct.settings._table import TABLE
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.settings.documentation import pages
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.settings.row import DOORS, Kind, Origin
from pyspark_kafka_direct.settings.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCS = Path(__file__).parents[3] / "docs" / "client-settings.md"
SERVERS = {"bootstrap.servers": "broker:9092"}
SETTINGS = {row.name: row for row in TABLE.rows if row.client}

# ConsumerConfig.configDef() of kafka-clients 4.3.0, all but the ones after "sasl." and "ssl." (tested with security).
JAVA_CONSUMER = """
allow.auto.create.topics auto.commit.interval.ms auto.offset.reset bootstrap.servers check.crcs client.dns.lookup
client.id client.rack config.providers connections.max.idle.ms default.api.timeout.ms enable.auto.commit
enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id
group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer max.partition.fetch.bytes
max.poll.interval.ms max.poll.records metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
retry.backoff.max.ms retry.backoff.ms security.protocol security.providers send.buffer.bytes session.timeout.ms
share.acknowledgement.mode share.acquire.mode socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
value.deserializer
""".split()  # noqa: SIM905 - a word list reads better than a page of literals

JAVA_PRODUCER = """
acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type compression.zstd.level
delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
max.request.size metadata.max.idle.ms partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
partitioner.class partitioner.ignore.keys retries transaction.timeout.ms transaction.two.phase.commit.enable
transactional.id value.serializer
""".split()  # noqa: SIM905 - a word list reads better than a page of literals


def test_defaults_are_those_of_the_java_client_but_for_the_buffers() -> None:
    assert connection_settings(SERVERS).connection == ConnectionSettings(
        bootstrap_servers=(("broker", 9092),),
        client_id="pyspark-kafka-direct",
        connect_timeout_ms=10_000,
        connect_timeout_max_ms=30_000,
        request_timeout_ms=30_000,
        default_api_timeout_ms=60_000,
        retry_backoff_ms=100,
        retry_backoff_max_ms=1_000,
        reconnect_backoff_ms=50,
        reconnect_backoff_max_ms=1_000,
        connections_max_idle_ms=540_000,
        metadata_max_age_ms=300_000,
        receive_buffer_bytes=-1,
        send_buffer_bytes=-1,
    )
    assert connection_settings(SERVERS).fetch == FetchSettings(
        isolation_level="read_uncommitted",
        client_rack="",
        fetch_min_bytes=1,
        fetch_max_wait_ms=500,
        fetch_max_bytes=52_428_800,
        max_partition_fetch_bytes=4_194_304,
        check_crcs=True,
    )


def test_every_setting_reaches_its_field() -> None:
    texts = {
        "client.id": "me",
        "isolation.level": "READ_COMMITTED",
        "client.rack": "r1",
        "broker.address.family": "v4",
        "check.crcs": "FALSE",
    }
    numbers = [
        "socket.connection.setup.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "request.timeout.ms",
        "default.api.timeout.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "fetch.min.bytes",
        "fetch.max.wait.ms",
        "fetch.max.bytes",
        "max.partition.fetch.bytes",
    ]
    given_numbers = {name: f" {number} " for number, name in enumerate(numbers, start=101)}
    settings, fetch = connection_settings(SERVERS | texts | given_numbers)
    assert settings.client_id == "me"
    assert fetch.isolation_level == "read_committed"
    assert fetch.client_rack == "r1"
    assert settings.address_family == "v4"
    assert fetch.check_crcs is False
    fields = [
        "connect_timeout_ms",
        "connect_timeout_max_ms",
        "request_timeout_ms",
        "default_api_timeout_ms",
        "retry_backoff_ms",
        "retry_backoff_max_ms",
        "reconnect_backoff_ms",
        "reconnect_backoff_max_ms",
        "connections_max_idle_ms",
        "metadata_max_age_ms",
        "receive_buffer_bytes",
        "send_buffer_bytes",
        "fetch_min_bytes",
        "fetch_max_wait_ms",
        "fetch_max_bytes",
        "max_partition_fetch_bytes",
    ]
    assert [getattr(fetch if hasattr(fetch, field) else settings, field) for field in fields] == list(
        range(101, 101 + len(numbers))
    )


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a:1", (("a", 1),)),
        (" a:1 , b:2,", (("a", 1), ("b", 2))),
        ("a:1,a:1", (("a", 1),)),
        ("[::1]:9092", (("::1", 9092),)),
        ("SASL_SSL://b-1.example.com:9096", (("b-1.example.com", 9096),)),
        ("127.0.0.1:65535", (("127.0.0.1", 65535),)),
    ],
)
def test_bootstrap_servers(text: str, servers: tuple[tuple[str, int], ...]) -> None:
    assert connection_settings({"bootstrap.servers": text}).connection.bootstrap_servers == servers


@pytest.mark.parametrize("text", ["a", "a:", ":9092", "a:x", "a:0", "a:65536", "a:1;b:2", "a b:1", "a:1/x"])
def test_bad_bootstrap_servers_are_named(text: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers.*host:port"):
        connection_settings({"bootstrap.servers": text})


@pytest.mark.parametrize("params", [{}, {"bootstrap.servers": " "}, {"bootstrap.servers": ","}])
def test_missing_bootstrap_servers(params: Mapping[str, str]) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing or empty"):
        connection_settings(params)


def test_bootstrap_text_can_be_read_again() -> None:
    settings = connection_settings({"bootstrap.servers": "a:1,[::1]:2"}).connection
    assert settings.bootstrap_text == "a:1,[::1]:2"


def test_names_are_case_insensitive_as_spark_hands_them_over() -> None:
    assert connection_settings(SERVERS | {"Fetch.MIN.bytes": "7"}).fetch.fetch_min_bytes == 7


def test_librdkafka_names() -> None:
    settings, fetch = connection_settings(
        {"metadata.broker.list": "a:1", "fetch.wait.max.ms": "9", "socket.timeout.ms": "8"}
    )
    assert (settings.bootstrap_servers, fetch.fetch_max_wait_ms, settings.request_timeout_ms) == ((("a", 1),), 9, 8)


def test_the_same_setting_twice_must_agree() -> None:
    same = SERVERS | {"fetch.max.wait.ms": "9", "fetch.wait.max.ms": "9"}
    assert connection_settings(same).fetch.fetch_max_wait_ms == 9
    with pytest.raises(OptionError, match=r"kafka\.fetch\.max\.wait\.ms and kafka\.fetch\.wait\.max\.ms"):
        connection_settings(same | {"fetch.wait.max.ms": "10"})


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("fetch.min.bytes", "many", "a whole number from 0 to 2147483647"),
        ("fetch.min.bytes", "-1", "from 0"),
        ("fetch.min.bytes", "1.5", "whole number"),
        ("fetch.min.bytes", "1_000", "whole number"),
        ("fetch.min.bytes", "٣", "whole number"),
        ("fetch.min.bytes", "", "whole number"),
        ("fetch.min.bytes", "2147483648", "2147483647"),
        ("request.timeout.ms", "0", "from 1"),
        ("check.crcs", "yes", "true or false"),
        ("isolation.level", "serializable", "read_uncommitted or read_committed"),
        ("security.protocol", "TLS", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        ("broker.address.family", "v5", "any, v4 or v6"),
    ],
)
def test_bad_values_name_option_value_and_what_is_allowed(name: str, text: str, allowed: str) -> None:
    with pytest.raises(OptionError) as caught:
        connection_settings(SERVERS | {name: text})
    message = caught.value.message
    assert f"kafka.{name}" in message
    assert repr(text) in message
    assert allowed in message


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("auto.offset.reset", "startingOffsets"),
        ("key.deserializer", "DataFrame operations"),
        ("value.deserializer", "DataFrame operations"),
        ("enable.auto.commit", "Spark keeps the offsets"),
        ("interceptor.classes", "DataFrame operations"),
        ("config.providers", "resolve the values"),
    ],
)
def test_refused_settings_say_what_to_write_instead(name: str, instead: str) -> None:
    with pytest.raises(OptionError, match=rf"kafka\.{name} cannot be used here: .*{instead}"):
        connection_settings(SERVERS | {name: "x"})


def test_dns_lookup_is_refused_only_where_it_would_differ() -> None:
    connection_settings(SERVERS | {"client.dns.lookup": "use_all_dns_ips"})
    with pytest.raises(OptionError, match=r"client\.dns\.lookup"):
        connection_settings(SERVERS | {"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"})


def test_ignored_and_unknown_settings_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    _messages.warn_once.cache_clear()
    params = SERVERS | {"max.poll.records": "5", "fetch.min.byte": "7", "fetch_max_bytes": "1", "colour": "blue"}
    with caplog.at_level(logging.WARNING, "pyspark_kafka_direct.settings"):
        connection_settings(params)
        connection_settings(params)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4
    assert "kafka.max.poll.records is ignored: there is no poll loop" in said[0]
    assert said[1].endswith("did you mean 'kafka.fetch.min.bytes'?")
    assert said[2].endswith("did you mean 'kafka.fetch.max.bytes'?")
    assert said[3] == "the option kafka.colour is unknown and ignored"


def test_what_was_misspelt_is_said_where_it_is_missed() -> None:
    plain = SERVERS | {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
    with pytest.raises(OptionError) as raised:
        connection_settings(plain | {"sasl.jaas.confg": jaas, "max.poll.records": "5"})
    assert str(raised.value).startswith("kafka.sasl.mechanism is PLAIN, but the user name is missing; write ")
    assert str(raised.value).endswith(
        " (the option kafka.sasl.jaas.confg is unknown and ignored; did you mean 'kafka.sasl.jaas.config'?)"
    )
    assert "hunter2" not in str(raised.value)


def test_nothing_is_said_about_what_is_done_anyway() -> None:
    harmless = {"allow.auto.create.topics": "false", "exclude.internal.topics": "true"}
    assert read(SERVERS | harmless, door="batch", origin=Origin.OPTION).notes == ()


def test_nothing_is_said_about_what_works_at_another_door() -> None:
    params = SERVERS | {"group.id": "g", "auto.offset.reset": "earliest"}
    assert read(params, door="direct", origin=Origin.PARAMETER).notes == ()


@pytest.mark.parametrize("name", JAVA_CONSUMER + JAVA_PRODUCER)
def test_the_table_knows_every_java_setting(name: str) -> None:
    assert name in SETTINGS


def test_no_name_stands_for_two_settings() -> None:
    names = list(itertools.chain.from_iterable((each.name, *each.aliases) for each in SETTINGS.values()))
    assert len(names) == len(set(names))
    assert all(name == name.lower() for name in names)


def test_every_setting_says_something_and_defaults_are_allowed() -> None:
    for setting in SETTINGS.values():
        assert setting.about or not setting.doors
        assert "|" not in setting.about
        assert all(fate.why and "|" not in fate.why for fate in setting.elsewhere.values())
        for default in setting.doors.values():
            if setting.kind is Kind.WORD and default is not None:
                assert default in setting.allowed
        assert setting.doors.keys() <= set(DOORS)


def test_the_documentation_lists_every_setting() -> None:
    page = pages()[DOCS.name]
    assert all(f"| `{name}` |" in page for name in SETTINGS)
    assert "| `check.crcs` | reading, log | `true` |" in page
    assert "| `client.id` | all | `pyspark-kafka-direct` |" in page
    assert "| `acks` | sink, log | `all` |" in page
    assert page == DOCS.read_text(encoding="utf-8")


@given(st.dictionaries(st.sampled_from(sorted(SETTINGS)), st.text(max_size=12), max_size=5))
def test_any_values_are_read_or_refused(params: dict[str, str]) -> None:
    try:
        settings = connection_settings(SERVERS | params)
    except OptionError:
        return
    assert hash(pickle.loads(pickle.dumps(settings))) == hash(settings)


def test_settings_are_values() -> None:
    settings = connection_settings(SERVERS)
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert {settings: 1}[connection_settings(SERVERS)] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.connection.client_id = "x"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.fetch.client_rack = "x"  # type: ignore[misc]


def test_a_secret_shows_nothing_but_its_mask() -> None:
    secret = Secret("hunter2")
    shown = [repr(secret), str(secret), f"{secret}", f"{secret:>40}", f"{secret!r:.3}", f"{[secret]}", f"{(secret,)}"]
    assert not any("hunter2" in text or "hun" in text for text in shown)
    assert set(shown[:4]) == {"********"}
    assert secret.reveal() == "hunter2"


def test_a_secret_is_a_value() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert hash(Secret("a")) == hash(Secret("a"))
    assert pickle.loads(pickle.dumps(Secret("a"))).reveal() == "a"
    assert not Secret("")
