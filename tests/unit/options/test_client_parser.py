"""Client settings: names, aliases, values, errors and warnings, and secrets that are never shown."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import pickle
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts.option_docs import pages
from tests.settings import parse_client_params

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.config_option import APIS, ConfigSource
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE, parse_config
from pyspark_kafka_direct.options.security_settings import Secret
from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVERS = {"bootstrap.servers": "broker:9092"}
SETTINGS = {option.name: option for option in OPTION_TABLE.options if option.is_client}

# ConsumerConfig.configDef() of kafka-clients 4.4.0, all but the ones after "sasl." and "ssl." (tested with security).
JAVA_CONSUMER = """
allow.auto.create.topics auto.commit.interval.ms auto.offset.reset bootstrap.resolve.timeout.ms bootstrap.servers
check.crcs client.dns.lookup client.id client.rack config.providers connections.max.idle.ms default.api.timeout.ms
enable.auto.commit enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer max.partition.fetch.bytes
max.poll.interval.ms max.poll.records metadata.cluster.check.enable metadata.max.age.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms
security.protocol security.providers send.buffer.bytes session.timeout.ms share.acknowledgement.mode
share.acquire.mode socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms value.deserializer
""".split()  # noqa: SIM905 - a word list reads better than a page of literals

JAVA_PRODUCER = """
acks batch.size buffer.memory buffer.memory.allocation.strategy compression.gzip.level compression.lz4.level
compression.type compression.zstd.level delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms
max.in.flight.requests.per.connection max.request.size metadata.max.idle.ms partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys partitioner.rack.aware retries
transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.serializer
""".split()  # noqa: SIM905 - a word list reads better than a page of literals


def test_defaults_are_those_of_the_java_client_except_buffer_sizes() -> None:
    assert parse_client_params(SERVERS).connection == ConnectionSettings(
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
        metadata_cluster_check_enable=True,
        receive_buffer_bytes=-1,
        send_buffer_bytes=-1,
    )
    assert parse_client_params(SERVERS).fetch == FetchSettings(
        isolation_level="read_uncommitted",
        client_rack="",
        fetch_min_bytes=1,
        fetch_max_wait_ms=500,
        fetch_max_bytes=52_428_800,
        max_partition_fetch_bytes=4_194_304,
        check_crcs=True,
    )


def test_every_setting_sets_its_field() -> None:
    other_values = {
        "client.id": "me",
        "isolation.level": "READ_COMMITTED",
        "client.rack": "r1",
        "broker.address.family": "v4",
        "check.crcs": "FALSE",
    }
    integer_names = [
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
    integers = {name: f" {number} " for number, name in enumerate(integer_names, start=101)}
    connection, fetch = parse_client_params(SERVERS | other_values | integers)
    assert connection.client_id == "me"
    assert fetch.isolation_level == "read_committed"
    assert fetch.client_rack == "r1"
    assert connection.address_family == "v4"
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
    assert [getattr(fetch if hasattr(fetch, field) else connection, field) for field in fields] == list(
        range(101, 101 + len(integer_names))
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
        ("2001:db8::1:9092", (("2001:db8::1", 9092),)),  # as Java does, although it is also an address without a port
    ],
)
def test_bootstrap_servers(text: str, servers: tuple[tuple[str, int], ...]) -> None:
    assert parse_client_params({"bootstrap.servers": text}).connection.bootstrap_servers == servers


@pytest.mark.parametrize("text", ["a", "a:", ":9092", "a:x", "a:0", "a:65536", "a:1;b:2", "a b:1", "a:1/x"])
def test_invalid_bootstrap_servers(text: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers.*host:port"):
        parse_client_params({"bootstrap.servers": text})


@pytest.mark.parametrize("text", ["::1", "a:1, ::1", "fe80::1", "2001:db8::ffff", "fe80::1%eth0", "1:2:3:4:5:6:7:8"])
def test_an_ipv6_address_without_a_port(text: str) -> None:
    address = text.removeprefix("a:1, ")
    with pytest.raises(OptionError) as raised:
        parse_client_params({"bootstrap.servers": text})
    assert raised.value.message == (
        "kafka.bootstrap.servers must be host:port, with an IPv6 address in brackets, such as "
        f"[{address}]:9092, got {address!r}"
    )


@pytest.mark.parametrize("params", [{}, {"bootstrap.servers": " "}, {"bootstrap.servers": ","}])
def test_missing_bootstrap_servers(params: Mapping[str, str]) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing or empty"):
        parse_client_params(params)


def test_the_bootstrap_string_has_the_format_of_the_option() -> None:
    settings = parse_client_params({"bootstrap.servers": "a:1,[::1]:2"}).connection
    assert settings.bootstrap_string == "a:1,[::1]:2"


def test_names_are_case_insensitive() -> None:
    assert parse_client_params(SERVERS | {"Fetch.MIN.bytes": "7"}).fetch.fetch_min_bytes == 7


def test_names_of_librdkafka() -> None:
    connection, fetch = parse_client_params(
        {"metadata.broker.list": "a:1", "fetch.wait.max.ms": "9", "socket.timeout.ms": "8"}
    )
    assert (connection.bootstrap_servers, fetch.fetch_max_wait_ms, connection.request_timeout_ms) == (
        (("a", 1),),
        9,
        8,
    )


def test_values_of_a_setting_given_twice_must_be_equal() -> None:
    same = SERVERS | {"fetch.max.wait.ms": "9", "fetch.wait.max.ms": "9"}
    assert parse_client_params(same).fetch.fetch_max_wait_ms == 9
    with pytest.raises(OptionError, match=r"kafka\.fetch\.max\.wait\.ms and kafka\.fetch\.wait\.max\.ms"):
        parse_client_params(same | {"fetch.wait.max.ms": "10"})


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("fetch.min.bytes", "many", "an integer from 0 to 2147483647"),
        ("fetch.min.bytes", "-1", "from 0"),
        ("fetch.min.bytes", "1.5", "integer"),
        ("fetch.min.bytes", "1_000", "integer"),
        ("fetch.min.bytes", "٣", "integer"),
        ("fetch.min.bytes", "", "integer"),
        ("fetch.min.bytes", "2147483648", "2147483647"),
        ("request.timeout.ms", "0", "from 1"),
        ("check.crcs", "yes", "true or false"),
        ("isolation.level", "serializable", "read_uncommitted or read_committed"),
        ("security.protocol", "TLS", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        ("broker.address.family", "v5", "any, v4 or v6"),
    ],
)
def test_errors_name_the_option_the_value_and_the_allowed_values(name: str, text: str, allowed: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_client_params(SERVERS | {name: text})
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
        ("enable.auto.commit", "Spark manages them"),
        ("interceptor.classes", "DataFrame operations"),
        ("config.providers", "resolve the values"),
    ],
)
def test_errors_about_rejected_settings_name_the_alternative(name: str, instead: str) -> None:
    with pytest.raises(OptionError, match=rf"kafka\.{name} cannot be used here: .*{instead}"):
        parse_client_params(SERVERS | {name: "x"})


def test_dns_lookup_is_rejected_only_if_it_would_differ() -> None:
    parse_client_params(SERVERS | {"client.dns.lookup": "use_all_dns_ips"})
    with pytest.raises(OptionError, match=r"client\.dns\.lookup"):
        parse_client_params(SERVERS | {"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"})


def test_warnings_about_ignored_and_unknown_settings_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    option_messages.warn_once.cache_clear()
    params = SERVERS | {"max.poll.records": "5", "fetch.min.byte": "7", "fetch_max_bytes": "1", "colour": "blue"}
    with caplog.at_level(logging.WARNING, "pyspark_kafka_direct.options"):
        parse_client_params(params)
        parse_client_params(params)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 4
    assert "kafka.max.poll.records is ignored: there is no poll loop" in warnings[0]
    assert warnings[1].endswith("did you mean 'kafka.fetch.min.bytes'?")
    assert warnings[2].endswith("did you mean 'kafka.fetch.max.bytes'?")
    assert warnings[3] == "the option kafka.colour is unknown and ignored"


def test_the_error_about_a_missing_setting_includes_the_warning_about_a_misspelled_one() -> None:
    plain = SERVERS | {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
    with pytest.raises(OptionError) as raised:
        parse_client_params(plain | {"colour": "blue", "jaas.config": jaas, "max.poll.records": "5"})
    assert str(raised.value).startswith("kafka.sasl.mechanism is PLAIN, but the user name is missing; set ")
    assert str(raised.value).endswith(
        " (the option kafka.colour is unknown and ignored)"
        " (the option kafka.jaas.config is unknown and ignored; did you mean 'kafka.sasl.jaas.config'?)"
    )
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("host", ["a..example.com", f"kafka.{'x' * 64}.com"])
def test_a_host_name_that_no_name_server_has_is_rejected(host: str) -> None:
    with pytest.raises(OptionError, match="host:port with a legal host name"):
        parse_client_params({"bootstrap.servers": f"a:1,{host}:9092"})


def test_accepted_values_cause_no_warning() -> None:
    accepted = {"allow.auto.create.topics": "false", "exclude.internal.topics": "true"}
    assert parse_config(SERVERS | accepted, api="batch", source=ConfigSource.OPTION).warnings == ()


def test_settings_that_only_another_api_ignores_cause_no_warning() -> None:
    params = SERVERS | {"group.id": "g", "auto.offset.reset": "earliest"}
    assert parse_config(params, api="direct", source=ConfigSource.PARAMETER).warnings == ()


@pytest.mark.parametrize("name", JAVA_CONSUMER + JAVA_PRODUCER)
def test_the_table_contains_every_java_setting(name: str) -> None:
    assert name in SETTINGS


def test_names_are_unique() -> None:
    names = list(itertools.chain.from_iterable((each.name, *each.aliases) for each in SETTINGS.values()))
    assert len(names) == len(set(names))
    assert all(name == name.lower() for name in names)


def test_every_setting_has_a_description_and_valid_defaults() -> None:
    for setting in SETTINGS.values():
        assert setting.doc or not setting.apis
        assert "|" not in setting.doc
        assert all(policy.reason and "|" not in policy.reason for policy in setting.unsupported.values())
        for api in setting.apis:
            default = setting.default_in(api)
            if setting.allowed and default is not None:
                assert default in setting.allowed
        assert set(setting.apis) <= set(APIS)


def test_the_documentation_lists_every_setting() -> None:
    page = pages()["options.md"]
    lines = page.splitlines()
    listed = [re.split(r"[:|(]", line[2:])[0] for line in lines if line.startswith(("| `", "- `"))]
    listed += [line.partition(": `")[2] for line in lines if line.startswith("- ")]  # the names follow the reason
    names = {name for text in listed for name in re.findall(r"[\w.-]+", text)}
    assert set(SETTINGS) <= names
    assert "| `check.crcs` | reading, log | boolean | `true` |" in page
    assert "| `client.id` | all | string | `pyspark-kafka-direct` |" in page
    assert "| `acks` | sink, log | `all`, `-1`, `1`, `0` | `all` |" in page


@given(st.dictionaries(st.sampled_from(sorted(SETTINGS)), st.text(max_size=12), max_size=5))
def test_any_values_are_parsed_or_rejected(params: dict[str, str]) -> None:
    try:
        settings = parse_client_params(SERVERS | params)
    except OptionError:
        return
    assert hash(pickle.loads(pickle.dumps(settings))) == hash(settings)


def test_settings_are_hashable_immutable_and_picklable() -> None:
    settings = parse_client_params(SERVERS)
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert {settings: 1}[parse_client_params(SERVERS)] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.connection.client_id = "x"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.fetch.client_rack = "x"  # type: ignore[misc]


def test_a_secret_shows_only_its_mask() -> None:
    secret = Secret("hunter2")
    shown = [repr(secret), str(secret), f"{secret}", f"{secret:>40}", f"{secret!r:.3}", f"{[secret]}", f"{(secret,)}"]
    assert not any("hunter2" in text or "hun" in text for text in shown)
    assert set(shown[:4]) == {"********"}
    assert secret.reveal() == "hunter2"


def test_a_secret_compares_by_value_and_can_be_pickled() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert hash(Secret("a")) == hash(Secret("a"))
    assert pickle.loads(pickle.dumps(Secret("a"))).reveal() == "a"
    assert not Secret("")
