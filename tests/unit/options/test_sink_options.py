"""The options of a sink: defaults, contradictions, and options for reading."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from scripts.option_docs import pages

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.config_option import SOURCE_APIS, ConfigSource
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE
from pyspark_kafka_direct.options.read_options import parse_batch_options
from pyspark_kafka_direct.options.settings import ConnectionSettings, ProducerSettings, WriteSettings
from pyspark_kafka_direct.options.sink_options import parse_sink_options, parse_write_arguments
from pyspark_kafka_direct.options.sink_payloads import SinkPayloads

EXACTLY_ONCE = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "shop"}
DOCS = Path(__file__).parents[3] / "docs" / "options.md"


def parse(streaming: bool = True, /, **options: str) -> WriteSettings:
    """Parse options whose names are written with _ for dots."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    return parse_sink_options({"kafka.bootstrap.servers": "broker:9092", **given}, streaming=streaming)


def produce(**options: str) -> ProducerSettings:
    return parse(**options).produce


def error(streaming: bool = True, /, **options: str) -> str:
    with pytest.raises(OptionError) as caught:
        parse(streaming, **options)
    return str(caught.value)


@pytest.mark.parametrize("streaming", [True, False])
def test_defaults(streaming: bool) -> None:
    assert parse(streaming) == WriteSettings(
        connection=ConnectionSettings((("broker", 9092),)),
        produce=ProducerSettings(),
        payloads=SinkPayloads(),
        topic=None,
        delivery_guarantee="at-least-once",
        transactional_id_prefix=None,
        sink_state_topic="pyspark-kafka-direct-sink-state",
        reset_transaction_state=None,
        job_id=None,
        staging_location=None,
        staging_threshold=256 << 10,
        transaction_timeout_ms=60_000,
        stamp_batch=False,
        warnings=(),
    )


def test_all_options() -> None:
    options = parse(
        False,
        topic=" delays ",
        deliveryguarantee="Exactly-Once",
        transactionalidprefix="shop",
        sinkstatetopic="states",
        resettransactionstate="a1b2",
        jobid="night",
        staginglocation="s3://bucket/staging",
        stagingthreshold="0",
        stampbatch="TRUE",
        kafka_acks="-1",
        kafka_batch_size="1000",
        kafka_buffer_memory="2000",
        kafka_max_request_size="3000",
        kafka_delivery_timeout_ms="4000",
        kafka_max_in_flight_requests_per_connection="3",
        kafka_partitioner_ignore_keys="true",
        kafka_compression_type="LZ4",
        kafka_compression_lz4_level="12",
        kafka_transaction_timeout_ms="5000",
    )
    assert options == WriteSettings(
        connection=ConnectionSettings((("broker", 9092),)),
        produce=ProducerSettings(-1, True, "lz4", 12, 1000, 3000, 2000, 3, 4000, True),
        payloads=SinkPayloads(),
        topic="delays",
        delivery_guarantee="exactly-once",
        transactional_id_prefix="shop",
        sink_state_topic="states",
        reset_transaction_state="a1b2",
        job_id="night",
        staging_location="s3://bucket/staging",
        staging_threshold=0,
        transaction_timeout_ms=5000,
        stamp_batch=True,
        warnings=(),
    )
    assert pickle.loads(pickle.dumps(options)) == options


def test_names_of_librdkafka() -> None:
    settings = produce(
        kafka_request_required_acks="all",
        kafka_compression_codec="zstd",
        kafka_message_timeout_ms="7",
        kafka_message_max_bytes="8",
    )
    assert settings == ProducerSettings(codec="zstd", level=1, delivery_timeout_ms=7, max_request_bytes=8)


@pytest.mark.parametrize(("text", "acks"), [("all", -1), ("-1", -1), ("1", 1), ("0", 0)])
def test_acks_other_than_all_disable_idempotence(text: str, acks: int) -> None:
    options = parse(kafka_acks=text)
    assert options.produce.acks == acks
    assert options.produce.idempotent == (acks == -1)
    warning = f"kafka.acks={text} disables idempotence: records may be lost, or duplicated by retried requests"
    assert list(options.warnings) == ([warning] if acks != -1 else [])


def test_explicit_idempotence_requires_acks_all() -> None:
    assert error(kafka_acks="1", kafka_enable_idempotence="true") == (
        "kafka.enable.idempotence=true requires kafka.acks=all, got 1; remove one of them"
    )
    options = parse(kafka_acks="1", kafka_enable_idempotence="false")
    assert (options.produce.acks, options.produce.idempotent, options.warnings) == (1, False, ())


def test_idempotence_allows_five_requests_in_flight() -> None:
    assert error(kafka_max_in_flight_requests_per_connection="6") == (
        "kafka.max.in.flight.requests.per.connection must be at most 5 with idempotence, got 6; lower it, or set "
        "kafka.enable.idempotence=false"
    )
    many = {"kafka_max_in_flight_requests_per_connection": "6", "kafka_enable_idempotence": "false"}
    assert produce(**many).max_in_flight == 6
    assert parse(kafka_max_in_flight_requests_per_connection="6", kafka_acks="1").produce.max_in_flight == 6


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({"kafka_compression_type": "zstd"}, 1),
        ({"kafka_compression_type": "zstd", "kafka_compression_zstd_level": "3"}, 3),
        ({"kafka_compression_type": "zstd", "kafka_compression_zstd_level": "-1"}, -1),
        ({"kafka_compression_type": "gzip", "kafka_compression_gzip_level": "-1"}, None),
        ({"kafka_compression_type": "gzip", "kafka_compression_gzip_level": "9"}, 9),
        ({"kafka_compression_type": "gzip", "kafka_compression_zstd_level": "9"}, None),
        ({"kafka_compression_type": "lz4", "kafka_compression_level": "3"}, 3),
        ({"kafka_compression_type": "zstd", "kafka_compression_level": "-1"}, 1),
        ({"kafka_compression_type": "zstd", "kafka_compression_level": "5"}, 5),
        ({"kafka_compression_type": "zstd", "kafka_compression_level": "5", "kafka_compression_zstd_level": "6"}, 6),
        ({"kafka_compression_type": "snappy", "kafka_compression_level": "5"}, None),
        ({"kafka_compression_level": "5"}, None),
    ],
)
def test_compression_levels(options: dict[str, str], level: int | None) -> None:
    assert produce(**options).level == level


def test_a_level_must_be_valid_for_the_codec() -> None:
    too_high = {"kafka_compression_type": "gzip", "kafka_compression_level": "12"}
    assert error(**too_high) == "kafka.compression.level must be an integer from -1 to 9, got '12'"


def test_exactly_once_requires_a_prefix_acks_and_idempotence() -> None:
    assert error(deliveryGuarantee="exactly-once").startswith(
        "transactionalIdPrefix is missing; deliveryGuarantee=exactly-once requires"
    )
    assert error(**EXACTLY_ONCE, kafka_acks="1") == (
        "kafka.acks must be all with deliveryGuarantee=exactly-once, got '1'"
    )
    assert error(**EXACTLY_ONCE, kafka_enable_idempotence="false") == (
        "kafka.enable.idempotence must be true with deliveryGuarantee=exactly-once, got 'false'"
    )
    blank_prefix = {**EXACTLY_ONCE, "transactionalIdPrefix": " "}
    assert error(**blank_prefix).startswith("transactionalIdPrefix must be a non-empty string")


def test_exactly_once_rejects_async_progress_tracking() -> None:
    expected = r"asyncProgressTrackingEnabled=true cannot be used with deliveryGuarantee=exactly-once: .* other records"
    assert re.match(expected, error(**EXACTLY_ONCE, asyncProgressTrackingEnabled="true"))
    lower = expected.replace("TrackingEnabled", "trackingenabled")  # as Spark passes it in some calls
    assert re.match(lower, error(**EXACTLY_ONCE, asyncProgresstrackingenabled=" TRUE"))
    parse(**EXACTLY_ONCE, asyncProgressTrackingEnabled="false")
    parse(asyncProgressTrackingEnabled="true")


def test_options_for_exactly_once_require_it() -> None:
    for name in ("transactionalIdPrefix", "sinkStateTopic", "resetTransactionState", "jobId", "stagingLocation"):
        assert error(**{name: "j"}) == (
            f"{name} requires deliveryGuarantee=exactly-once, and without it the write is at-least-once; set "
            f"deliveryGuarantee, or remove {name}"
        )
    assert error(stagingThreshold="5").startswith("stagingThreshold requires deliveryGuarantee=exactly-once")
    # With an explicit guarantee, nobody expects another one.
    given = {"jobId": "j", "stagingLocation": "s3://b", "deliveryGuarantee": "AT-LEAST-ONCE"}
    warnings = [
        f"the option {name} is ignored: deliveryGuarantee is not exactly-once" for name in ("jobId", "stagingLocation")
    ]
    assert sorted(parse(**given).warnings) == warnings
    # A client setting may be in a template for all producers.
    assert parse(kafka_transaction_timeout_ms="5").warnings == (
        "the option kafka.transaction.timeout.ms is ignored: deliveryGuarantee is not exactly-once",
    )
    assert parse(True, **EXACTLY_ONCE, jobId="j").warnings == (
        "the option jobId is ignored: a streaming query is identified by its query id",
    )
    assert parse(False, **EXACTLY_ONCE, jobId="j").warnings == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("exactlyOnce", "true"),
        ("exactly.once", "TRUE"),
        ("exactly-once", "1"),
        ("kafka.exactly_once", "yes"),
        ("delivery", "exactly-once"),
        ("semantic", "EXACTLY_ONCE"),
        ("processing.guarantee", "exactly_once_v2"),
        ("kafka.processing.guarantee", "exactly_once_v2"),
        ("sink.delivery-guarantee", "exactly-once"),
        ("kafka.delivery.guarantee", "exactly-once"),
    ],
)
def test_other_names_for_exactly_once_are_rejected(name: str, value: str) -> None:
    options = {"kafka.bootstrap.servers": "broker:9092", name: value}
    with pytest.raises(OptionError) as caught:
        parse_sink_options(options, streaming=True)
    assert str(caught.value) == (
        f"the option {name} is unknown, and without deliveryGuarantee the write is at-least-once; for exactly-once, "
        "set deliveryGuarantee=exactly-once and transactionalIdPrefix instead"
    )
    assert parse_sink_options({**options, **EXACTLY_ONCE}, streaming=True).delivery_guarantee == "exactly-once"


@pytest.mark.parametrize(("name", "value"), [("exactlyOnce", "false"), ("delivery", "at-least-once"), ("x", "true")])
def test_other_unknown_options_cause_a_warning(name: str, value: str) -> None:
    options = parse(**{name: value})
    assert options.delivery_guarantee == "at-least-once"
    assert options.warnings[0].startswith(f"the option {name} is unknown and ignored")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("delivery.guarantee", "deliveryGuarantee"),
        ("transactional-id-prefix", "transactionalIdPrefix"),
        ("staging_location", "stagingLocation"),
    ],
)
def test_other_spellings_of_a_name_are_rejected(given: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"^the option {given} is unknown; did you mean '{meant}'\\?$"):
        parse_sink_options({"kafka.bootstrap.servers": "b:1", given: "exactly-once"}, streaming=True)


@pytest.mark.parametrize("value", ["Exactly-Once", "EXACTLY-ONCE", " exactly-once "])
def test_the_letter_case_of_the_guarantee_does_not_matter(value: str) -> None:
    assert parse(**{**EXACTLY_ONCE, "deliveryGuarantee": value}).delivery_guarantee == "exactly-once"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("kafka_key_serializer", "org.apache.kafka.common.serialization.ByteArraySerializer", "strings, bytes or JSON"),
        ("kafka_value_serializer", "x", "strings, bytes or JSON"),
        ("kafka_transactional_id", "x", "set deliveryGuarantee to exactly-once, and transactionalIdPrefix"),
        ("kafka_partitioner_class", "com.example.Mine", "the column partition"),
        ("kafka_partitioner_class", "org.apache.kafka.clients.producer.UniformStickyPartitioner", "ignore.keys"),
        ("kafka_transaction_two_phase_commit_enable", "true", "each transaction ends with its batch"),
        ("kafka_interceptor_classes", "x", "Java interceptors"),
        ("kafka_compression_type", "brotli", "none, gzip, snappy, lz4 or zstd"),
        ("kafka_acks", "2", "all, -1, 1 or 0"),
        ("deliveryGuarantee", "exactly_once", "at-least-once or exactly-once"),
        ("topic", "a b", "a topic name"),
        ("topic", "..", "a topic name"),
        ("topic", "t" * 250, "a topic name"),
        ("topic", "", "a topic name"),
        ("stampBatch", "yes", "true or false"),
        ("stagingThreshold", "-1", "an integer from 0"),
        ("deliveryGuarante", "exactly-once", "did you mean 'deliveryGuarantee'?"),
    ],
)
def test_errors(name: str, value: str, words: str) -> None:
    assert words in error(**{name: value})


def test_accepted_values() -> None:
    default = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
    assert parse(kafka_partitioner_class=default, kafka_retries="2147483647").warnings == ()
    assert parse(kafka_transaction_two_phase_commit_enable="false").warnings == ()


def test_warnings_about_ignored_options_have_a_reason() -> None:
    (warning,) = parse(kafka_linger_ms="5").warnings
    assert warning == (
        "the option kafka.linger.ms is ignored: batch.size, buffer.memory and delivery.timeout.ms control how records "
        "are sent"
    )
    for name in ("subscribe", "startingOffsets", "failOnDataLoss", "kafka.group.id", "kafka.fetch.min.bytes"):
        (warning,) = parse(**{name: "true"}).warnings
        assert warning == f"the option {name} is ignored: it applies to reads only"


@pytest.mark.parametrize("name", ["acks", "retries"])
def test_a_client_setting_without_a_dot_needs_its_prefix(name: str) -> None:
    (warning,) = parse(**{name: "1"}).warnings
    assert warning == f"the option {name} is unknown and ignored; did you mean 'kafka.{name}'?"


@pytest.mark.parametrize(
    ("given", "meant"), [("deliveryGuarentee", "deliveryGuarantee"), ("topc", "topic"), ("jobIt", "jobId")]
)
def test_a_misspelled_option_is_rejected(given: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"^the option {given} is unknown; did you mean '{meant}'\\?$"):
        parse(**{given: "exactly-once"})


def test_options_that_spark_adds_cause_no_warning() -> None:
    assert parse(checkpointLocation="/c", queryName="q", path="/p").warnings == ()


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(OptionError, match=r"^kafka\.bootstrap\.servers is missing"):
        parse_sink_options({"topic": "t"}, streaming=True)


def test_no_option_at_all_has_arrived() -> None:
    """Spark does not pass the options of a table."""
    for streaming in (False, True):
        with pytest.raises(OptionError, match=r"servers is missing .* No option has arrived.* INSERT INTO t WITH"):
            parse_sink_options({"path": "/warehouse/t"}, streaming=streaming)


def test_hints_about_formats_prefer_values_to_keys() -> None:
    (warning,) = parse_sink_options({"kafka.bootstrap.servers": "b:1", "format": "json"}, streaming=False).warnings
    assert warning.endswith("did you mean 'valueFormat'?")


def test_write_arrow_does_not_have_the_options_of_batches() -> None:
    given = {"bootstrap.servers": "b:1", "jobId": "j", "stampBatch": "true"}
    with pytest.raises(OptionError, match="write_arrow does not have jobId, stampBatch, which the sink"):
        parse_write_arguments(given, "t", in_transaction=False)


def test_a_transaction_of_write_arrow_requires_acks_and_idempotence() -> None:
    servers = {"bootstrap.servers": "b:1"}
    for name, value, expected in (
        ("acks", "1", "all"),
        ("request.required.acks", "0", "all"),
        ("Enable.Idempotence", "false", "true"),
    ):
        found = parse_write_arguments({**servers, name: value}, "t", in_transaction=False)
        assert not found.produce.idempotent
        with pytest.raises(OptionError) as caught:
            parse_write_arguments({**servers, name: value}, "t", in_transaction=True)
        shown = name if name == name.lower() else name.lower()
        assert caught.value.message == f"{shown} must be {expected} with transactional_id, got {value!r}"
    for name, argument in (
        ("kafka.transactional.id", "transactional_id"),
        ("TRANSACTIONALIDPREFIX", "transactional_id"),
        ("Topic", "topic"),
    ):
        with pytest.raises(OptionError, match=f"^write_arrow has the argument {argument} in place of {name}$"):
            parse_write_arguments({**servers, name: "x"}, "t", in_transaction=False)
    for in_transaction in (False, True):
        found = parse_write_arguments({**servers, "transaction.timeout.ms": 5}, "t", in_transaction=in_transaction)
        ignored = ("the parameter transaction.timeout.ms is ignored: there is no transactional_id",)
        assert found.warnings == (() if in_transaction else ignored)


def test_a_read_ignores_them() -> None:
    read = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    for option in OPTION_TABLE.options:
        if "sink" in option.apis and not set(option.apis) & set(SOURCE_APIS) and option.key_in(ConfigSource.OPTION):
            name = OPTION_TABLE.key_for(option, ConfigSource.OPTION)
            (warning,) = parse_batch_options({**read, name: "5"}).warnings
            assert warning.startswith(f"the option {name} is ignored: it "), name
    # `topic` is not an option of a read, so `topics` is not rejected as a misspelled one.
    (warning,) = parse_batch_options({**read, "topics": "t"}).warnings
    assert warning == "the option topics is unknown and ignored; did you mean 'topic'?"


def test_the_documentation_lists_every_option_for_writing() -> None:
    page = pages()[DOCS.name]
    assert "| *`deliveryGuarantee`* | sink | `at-least-once`, `exactly-once` | `at-least-once` |" in page
    assert "| `topic` | sink | string |  | The topic to write to." in page
