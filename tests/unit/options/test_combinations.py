"""Drawn combinations of options: each has its own effect and its own warning, under each of its names."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.examples import seeds

from pyspark_kafka_direct.errors import KafkaDirectError, OptionError
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE
from pyspark_kafka_direct.options.read_options import (
    parse_batch_options,
    parse_continuous_options,
    parse_stream_options,
)
from pyspark_kafka_direct.options.sink_options import parse_sink_options
from pyspark_kafka_direct.options.value_types import Boolean, Duration, Enum, Integer, Number

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping

    from pyspark_kafka_direct.options.config_option import Api, ConfigOption

    Parse = Callable[[dict[str, str]], Any]

JAAS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'clientId="id" clientSecret="secret" extension_a="1" ssl.cipher.suites="";'
)
SECURE: Final = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://token:1/",
    "kafka.sasl.jaas.config": JAAS,
}
READ: Final = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "schema.registry.url": "https://r:1"}
AVRO: Final = {"valueFormat": "avro", "keyFormat": "avro"}
WRITE: Final = {"kafka.bootstrap.servers": "b:1", "schema.registry.url": "https://r:1", **AVRO}
COMMITTED: Final = {"startingOffsets": "committed", "commitGroupId": "g"}
EXACTLY_ONCE: Final = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "p"}

CASES: Final[dict[str, tuple[Api, Parse, dict[str, str]]]] = {
    "batch": ("batch", parse_batch_options, READ | AVRO | SECURE),
    "stream": ("stream", parse_stream_options, READ | AVRO | {"backpressure": "true"}),
    "continuous query": ("continuous", parse_continuous_options, READ | AVRO | COMMITTED),
    "sink": ("sink", functools.partial(parse_sink_options, streaming=True), WRITE | SECURE),
    "exactly-once": ("sink", functools.partial(parse_sink_options, streaming=False), WRITE | EXACTLY_ONCE),
}
"""The API, its parser, and the options that others are added to."""

TEXTS: Final = {
    "acks": "1",
    "client.id": "c",
    "client.rack": "r",
    "group.id": "g",
    "rackEnvironmentVariable": "RACK",
    "startingOffsets": "earliest",
    "startingTimestamp": "1000000001",
    "endingTimestamp": "1000000002",
    "keySubject": "ks",
    "valueSubject": "vs",
    "keySchemaVersion": "2",
    "valueSchemaVersion": "3",
    "topic": "t",
    "sinkStateTopic": "state",
    "jobId": "j",
    "stagingLocation": "/tmp",
    "commitGroupId": "h",
    "ssl.truststore.location": "/ca",
    "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256",
    "sasl.oauthbearer.scope": "all",
    "sasl.oauthbearer.extensions": "b=2",
    "schema.registry.ssl.truststore.location": "/registry",
    "schema.registry.basic.auth.user.info": "u:p",
}
# An option whose effect depends on another one of the table.
DEPENDENT: Final = frozenset(
    {
        "enable.idempotence",  # and acks
        "max.in.flight.requests.per.connection",
        "compression.gzip.level",  # and the type
        "compression.lz4.level",
        "compression.zstd.level",
        "compression.level",
        "startingOffsets",  # and times
        "startingOffsetsByTimestampStrategy",
        "commitGroupId",  # and the other group
        "group.id",
        "minOffsetsPerTrigger",  # and the maximum
        "committedOffsetsFallback",
        "backpressure",
        "keyFormat",  # and the options of formats
        "valueFormat",
        "keySubjectNameStrategy",  # and the subject
        "valueSubjectNameStrategy",
        "keyFraming",
        "valueFraming",
        "keyCharset",
        "valueCharset",
        "auto.register.schemas",
        "use.latest.version",
        "security.protocol",
        "ssl.protocol",
        "schema.registry.ssl.protocol",
        "schema.registry.ssl.cipher.suites",
        "deliveryGuarantee",
        "schema.registry.basic.auth.credentials.source",
        "schema.registry.bearer.auth.credentials.source",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.grant.type",
        "oauthTokenProvider",
        "sasl.mechanism",
    }
)


def value_of(option: ConfigOption, number: int) -> str | None:
    """A valid value that is not the default; numbers are those of one option only."""
    if option.name in TEXTS:
        return TEXTS[option.name]
    match option.value_type:
        case Integer(low, high):
            return str(min(max(low, 0) + number, high))
        case Boolean():
            return "false" if option.default == "true" else "true"
        case Duration():
            return f"{number}s"
        case Number():
            return str(number / 8)
        case Enum(allowed):
            return next((each for each in allowed if each and each != option.default), None)
    return None


def flat(settings: Any, path: str = "") -> dict[str, object]:
    """The fields of nested settings that are not None, by their paths."""
    if isinstance(settings, tuple):
        return {
            name: value for index, each in enumerate(settings) for name, value in flat(each, f"{path}.{index}").items()
        }
    if not dataclasses.is_dataclass(settings):
        return {} if settings is None else {path: settings}
    return {
        name: value
        for field in dataclasses.fields(settings)
        if field.name != "warnings"
        for name, value in flat(getattr(settings, field.name), f"{path}.{field.name}").items()
    }


def name_in(option: ConfigOption) -> str:
    return OPTION_TABLE.key_for(option, ConfigSource.OPTION)


@functools.cache
def effects(case: str) -> Mapping[str, tuple[str, dict[str, object], tuple[str, ...]]]:
    """The value, the changed fields and the warnings of each option that can be added."""
    _, parse, base = CASES[case]
    before = parse(base)
    fields = flat(before)
    assert before.warnings == ()
    found: dict[str, tuple[str, dict[str, object], tuple[str, ...]]] = {}
    for number, option in enumerate(OPTION_TABLE.options, start=201):
        name = name_in(option)
        value = value_of(option, number)
        if option.key_in(ConfigSource.OPTION) is None or name in base or option.name in DEPENDENT or value is None:
            continue
        try:
            after = parse({**base, name: value})
        except KafkaDirectError:
            continue  # it is not an option of this API, or needs another one
        new = flat(after)
        changed = {path: new.get(path) for path in {*fields, *new} if fields.get(path) != new.get(path)}
        found[option.name] = value, changed, after.warnings
    return found


def separated(warning: str) -> list[str]:
    """A warning about several options, as one for each of them."""
    match = re.fullmatch(r"(.+) have (no effect .*)", warning)
    return [warning] if match is None else [f"{name} has {match[2]}" for name in match[1].split(", ")]


def drawn(source: random.Random, names: Iterable[str], count: int) -> list[str]:
    shuffled = sorted(names)
    source.shuffle(shuffled)
    return shuffled[:count]


def spelled(source: random.Random, option: ConfigOption) -> str:
    """One of the names of an option, in any letter case."""
    names = [option.name, *option.aliases]
    if option.is_client:
        names = [each for name in names for each in (f"kafka.{name}", name) if "." in each]
    name = source.choice(names)
    return source.choice([name, name.lower(), name.upper(), f" {name}"])


@pytest.mark.parametrize("case", CASES)
def test_every_option_has_its_own_effect_and_warning(case: str) -> None:
    _, parse, base = CASES[case]
    fields = flat(parse(base))
    pool = effects(case)
    assert len(pool) > 15

    @seeds(60)
    def check(source: random.Random) -> None:
        names = drawn(source, pool, source.randrange(2, 9))
        given = dict(base)
        expected = dict(fields)
        warnings: Counter[str] = Counter()
        for name in names:
            option = OPTION_TABLE.by_name[name]
            value, changed, own_warnings = pool[name]
            shown = spelled(source, option)
            given[shown] = value
            expected |= changed
            display = OPTION_TABLE.find(ConfigSource.OPTION, shown).display_name
            warnings.update(warning.replace(name_in(option), display) for warning in own_warnings)
        shuffled = {name: given[name] for name in drawn(source, given, len(given))}
        found = parse(shuffled)
        assert flat(found) == {path: each for path, each in expected.items() if each is not None}, given
        assert Counter(each for warning in found.warnings for each in separated(warning)) == warnings, given

    check()


@pytest.mark.parametrize("case", CASES)
def test_an_error_names_the_option_as_it_is_given(case: str) -> None:
    api, parse, base = CASES[case]
    pool = effects(case)
    checked = [
        name
        for name in pool
        if api in OPTION_TABLE.by_name[name].apis
        and isinstance(OPTION_TABLE.by_name[name].value_type, Boolean | Duration | Enum | Integer | Number)
    ]

    @seeds(60)
    def check(source: random.Random) -> None:
        good = drawn(source, pool, source.randrange(4))
        bad = source.choice([name for name in checked if name not in good])
        shown = spelled(source, OPTION_TABLE.by_name[bad])
        display = OPTION_TABLE.find(ConfigSource.OPTION, shown).display_name
        given = {**base, **{spelled(source, OPTION_TABLE.by_name[name]): pool[name][0] for name in good}}
        with pytest.raises(OptionError) as caught:
            parse({**given, shown: "?!"})
        assert caught.value.message.startswith(f"{display} must be "), given
        other = next(each for each in (f"kafka.{bad}", bad.upper(), f"{bad} ") if each != shown)
        if OPTION_TABLE.find(ConfigSource.OPTION, other).option is not None:
            assert flat(parse({**given, shown: pool[bad][0], other: pool[bad][0]})) == flat(
                parse({**given, shown: pool[bad][0]})
            )
            with pytest.raises(OptionError, match=r"given twice|are the same setting") as caught:
                parse({**given, shown: pool[bad][0], other: "?!"})
            assert display in caught.value.message

    check()


FIELDS: Final = {
    "batch": {
        "schema.registry.http.read.timeout.ms": "payloads.registry.read_timeout_ms",
        "schema.registry.api.timeout.ms": "payloads.registry.api_timeout_ms",
        "schema.registry.retries.wait.ms": "payloads.registry.retry_backoff_ms",
        "schema.registry.retries.max.wait.ms": "payloads.registry.retry_backoff_max_ms",
        "sasl.login.connect.timeout.ms": "connection.security.sasl.oauth.source.connect_timeout_ms",
        "sasl.login.read.timeout.ms": "connection.security.sasl.oauth.source.read_timeout_ms",
        "kafkaConsumer.pollTimeoutMs": "fetch.poll_timeout_ms",
        "maxRecordBatchBytes": "fetch.max_record_batch_bytes",
        "minPartitions": "source.min_partitions",
        "maxRecordsPerPartition": "source.max_records_per_partition",
        "fetchOffset.numRetries": "source.offset_fetch_attempts",
        "fetchOffset.retryIntervalMs": "source.offset_fetch_retry_interval_ms",
    },
    "stream": {
        "maxOffsetsPerTrigger": "source.limits.max_offsets",
        "maxBytesPerTrigger": "source.limits.max_bytes",
        "maxTriggerDelay": "source.limits.max_delay",
        "backpressureInitialRate": "source.backpressure.initial_rate",
        "backpressureMinRate": "source.backpressure.gains.min_rate",
        "backpressureProportional": "source.backpressure.gains.proportional",
        "backpressureIntegral": "source.backpressure.gains.integral",
        "backpressureDerived": "source.backpressure.gains.derived",
    },
    "exactly-once": {
        "batch.size": "produce.batch_bytes",
        "max.request.size": "produce.max_request_bytes",
        "buffer.memory": "produce.buffer_bytes",
        "delivery.timeout.ms": "produce.delivery_timeout_ms",
        "transaction.timeout.ms": "transaction_timeout_ms",
        "stagingThreshold": "staging_threshold",
        "sinkStateTopic": "sink_state_topic",
        "jobId": "job_id",
        "stagingLocation": "staging_location",
    },
}


@pytest.mark.parametrize("case", FIELDS)
def test_each_number_is_in_its_own_field(case: str) -> None:
    for name, path in FIELDS[case].items():
        value, changed, _ = effects(case)[name]
        assert changed.keys() == {f".{path}"}, name
        assert str(changed[f".{path}"]).removesuffix(".0") == value.removesuffix("s").removesuffix(".0"), name
