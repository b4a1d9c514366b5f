"""The options of a sink: defaults, contradictions, and what belongs to reading."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._table import TABLE
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.settings.documentation import pages
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.settings.row import SOURCE, Origin
from pyspark_kafka_direct.settings.sink import SinkOptions, parse_sink_options
from pyspark_kafka_direct.settings.source import parse_options

EXACTLY_ONCE = {"delivery": "exactly-once", "transactionalIdPrefix": "shop"}
DOCS = Path(__file__).parents[2] / "docs" / "options.md"


def parse(streaming: bool = True, /, **options: str) -> SinkOptions:
    """Parse options written with _ for . in the names."""
    given = {name.replace("_", "."): text for name, text in options.items()}
    return parse_sink_options({"kafka.bootstrap.servers": "broker:9092", **given}, streaming=streaming)


def produce(**options: str) -> ProduceSettings:
    return parse(**options).produce


def refusal(streaming: bool = True, /, **options: str) -> str:
    with pytest.raises(OptionError) as caught:
        parse(streaming, **options)
    return str(caught.value)


@pytest.mark.parametrize("streaming", [True, False])
def test_defaults(streaming: bool) -> None:
    assert parse(streaming) == SinkOptions(
        connection=ConnectionSettings((("broker", 9092),)),
        produce=ProduceSettings(),
        topic=None,
        delivery="at-least-once",
        transactional_id_prefix=None,
        marker_topic="pyspark-kafka-direct-markers",
        reset_delivery=None,
        job_id=None,
        staging_location=None,
        staging_threshold=256 << 10,
        transaction_timeout_ms=60_000,
        stamp_batch=False,
        warnings=(),
    )


def test_all_that_can_be_set() -> None:
    options = parse(
        False,
        topic=" delays ",
        delivery="Exactly-Once",
        transactionalidprefix="shop",
        markertopic="markers",
        resetdelivery="a1b2",
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
    assert options == SinkOptions(
        connection=ConnectionSettings((("broker", 9092),)),
        produce=ProduceSettings(-1, True, "lz4", 12, 1000, 3000, 2000, 3, 4000, True),
        topic="delays",
        delivery="exactly-once",
        transactional_id_prefix="shop",
        marker_topic="markers",
        reset_delivery="a1b2",
        job_id="night",
        staging_location="s3://bucket/staging",
        staging_threshold=0,
        transaction_timeout_ms=5000,
        stamp_batch=True,
        warnings=(),
    )
    assert pickle.loads(pickle.dumps(options)) == options


def test_librdkafkas_names() -> None:
    settings = produce(
        kafka_request_required_acks="all",
        kafka_compression_codec="zstd",
        kafka_message_timeout_ms="7",
        kafka_message_max_bytes="8",
    )
    assert settings == ProduceSettings(codec="zstd", delivery_timeout_ms=7, max_request_bytes=8)


@pytest.mark.parametrize(("text", "acks"), [("all", -1), ("-1", -1), ("1", 1), ("0", 0)])
def test_acks_other_than_all_turn_idempotence_off(text: str, acks: int) -> None:
    options = parse(kafka_acks=text)
    assert options.produce.acks == acks
    assert options.produce.idempotent == (acks == -1)
    told = [
        f"kafka.acks={text} turns idempotence off: records may be lost, and written twice when a request is sent again"
    ]
    assert list(options.warnings) == (told if acks != -1 else [])


def test_idempotence_that_was_asked_for_needs_all() -> None:
    assert refusal(kafka_acks="1", kafka_enable_idempotence="true") == (
        "kafka.enable.idempotence=true needs kafka.acks=all, got 1: leave one of them out"
    )
    options = parse(kafka_acks="1", kafka_enable_idempotence="false")
    assert (options.produce.acks, options.produce.idempotent, options.warnings) == (1, False, ())


def test_idempotence_allows_five_requests_under_way() -> None:
    assert refusal(kafka_max_in_flight_requests_per_connection="6") == (
        "kafka.max.in.flight.requests.per.connection must be at most 5 with idempotence, got 6; lower it, or set "
        "kafka.enable.idempotence=false"
    )
    many = {"kafka_max_in_flight_requests_per_connection": "6", "kafka_enable_idempotence": "false"}
    assert produce(**many).max_in_flight == 6
    assert parse(kafka_max_in_flight_requests_per_connection="6", kafka_acks="1").produce.max_in_flight == 6


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({"kafka_compression_type": "zstd"}, None),
        ({"kafka_compression_type": "zstd", "kafka_compression_zstd_level": "-1"}, -1),
        ({"kafka_compression_type": "gzip", "kafka_compression_gzip_level": "-1"}, None),
        ({"kafka_compression_type": "gzip", "kafka_compression_gzip_level": "9"}, 9),
        ({"kafka_compression_type": "gzip", "kafka_compression_zstd_level": "9"}, None),
        ({"kafka_compression_type": "lz4", "kafka_compression_level": "3"}, 3),
        ({"kafka_compression_type": "zstd", "kafka_compression_level": "-1"}, None),
        ({"kafka_compression_type": "zstd", "kafka_compression_level": "5", "kafka_compression_zstd_level": "6"}, 6),
        ({"kafka_compression_type": "snappy", "kafka_compression_level": "5"}, None),
        ({"kafka_compression_level": "5"}, None),
    ],
)
def test_levels(options: dict[str, str], level: int | None) -> None:
    assert produce(**options).level == level


def test_a_level_has_to_be_one_of_the_codec() -> None:
    beyond = {"kafka_compression_type": "gzip", "kafka_compression_level": "12"}
    assert refusal(**beyond) == "kafka.compression.level must be a whole number from -1 to 9, got '12'"


def test_exactly_once_needs_a_prefix_acks_and_idempotence() -> None:
    assert refusal(delivery="exactly-once").startswith("transactionalIdPrefix is missing: delivery=exactly-once needs")
    wanted = "kafka.acks must be all with delivery=exactly-once, got '1'"
    assert refusal(**EXACTLY_ONCE, kafka_acks="1") == wanted
    wanted = "kafka.enable.idempotence must be true with delivery=exactly-once, got 'false'"
    assert refusal(**EXACTLY_ONCE, kafka_enable_idempotence="false") == wanted
    assert refusal(**{**EXACTLY_ONCE, "transactionalIdPrefix": " "}).startswith("transactionalIdPrefix must be a text")


def test_exactly_once_needs_logs_that_are_written_in_time() -> None:
    wanted = r"asyncProgressTrackingEnabled=true cannot be used with delivery=exactly-once: .* have other records"
    assert re.match(wanted, refusal(**EXACTLY_ONCE, asyncProgressTrackingEnabled="true"))
    parse(**EXACTLY_ONCE, asyncProgressTrackingEnabled="false")
    parse(asyncProgressTrackingEnabled="true")


def test_what_means_nothing_is_told() -> None:
    stray = {"jobId": "j", "stagingLocation": "s3://b", "kafka_transaction_timeout_ms": "5"}
    told = [f"the option {name} is ignored: delivery is not exactly-once" for name in ("jobId", "stagingLocation")]
    told += ["the option kafka.transaction.timeout.ms is ignored: delivery is not exactly-once"]
    assert sorted(parse(**stray).warnings) == sorted(told)
    told = ["the option jobId is ignored: a streaming query is known by its own id"]
    assert list(parse(True, **EXACTLY_ONCE, jobId="j").warnings) == told
    assert parse(False, **EXACTLY_ONCE, jobId="j").warnings == ()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("kafka_key_serializer", "org.apache.kafka.common.serialization.ByteArraySerializer", "string or binary"),
        ("kafka_value_serializer", "x", "string or binary"),
        ("kafka_transactional_id", "x", "set delivery to exactly-once and give a transactionalIdPrefix"),
        ("kafka_partitioner_class", "com.example.Mine", "the column partition"),
        ("kafka_partitioner_class", "org.apache.kafka.clients.producer.UniformStickyPartitioner", "ignore.keys"),
        ("kafka_transaction_two_phase_commit_enable", "true", "a transaction ends with its batch"),
        ("kafka_interceptor_classes", "x", "Java interceptors"),
        ("kafka_compression_type", "brotli", "none, gzip, snappy, lz4 or zstd"),
        ("kafka_acks", "2", "all, -1, 1 or 0"),
        ("delivery", "exactly_once", "at-least-once or exactly-once"),
        ("topic", "a b", "a topic's name"),
        ("topic", "..", "a topic's name"),
        ("topic", "t" * 250, "a topic's name"),
        ("topic", "", "a topic's name"),
        ("stampBatch", "yes", "true or false"),
        ("stagingThreshold", "-1", "a whole number from 0"),
        ("delivry", "exactly-once", "did you mean 'delivery'?"),
    ],
)
def test_refusals(name: str, text: str, words: str) -> None:
    assert words in refusal(**{name: text})


def test_harmless_values() -> None:
    usual = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
    assert parse(kafka_partitioner_class=usual, kafka_retries="2147483647").warnings == ()
    assert parse(kafka_transaction_two_phase_commit_enable="false").warnings == ()


def test_what_has_no_effect_is_told_with_its_reason() -> None:
    (note,) = parse(kafka_linger_ms="5").warnings
    assert note == (
        "the option kafka.linger.ms is ignored: a record batch is sent when it is full or its task's rows have ended; "
        "waiting for more would gain nothing"
    )
    for name in ("subscribe", "startingOffsets", "failOnDataLoss", "kafka.group.id", "kafka.max.poll.records"):
        (note,) = parse(**{name: "true"}).warnings
        assert note == f"the option {name} is ignored: it is a setting for reading"


@pytest.mark.parametrize("name", ["acks", "retries"])
def test_a_client_setting_without_a_dot_needs_its_prefix(name: str) -> None:
    (note,) = parse(**{name: "1"}).warnings
    assert note == f"the option {name} is unknown and ignored; did you mean 'kafka.{name}'?"


@pytest.mark.parametrize(("written", "meant"), [("delivary", "delivery"), ("topc", "topic"), ("jobIt", "jobId")])
def test_a_misspelt_option_is_refused(written: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"^the option {written} is unknown; did you mean '{meant}'\\?$"):
        parse(**{written: "exactly-once"})


def test_options_of_sparks_own_bring_no_warning() -> None:
    assert parse(checkpointLocation="/c", queryName="q", path="/p").warnings == ()


def test_the_brokers_are_needed() -> None:
    with pytest.raises(OptionError, match=r"^kafka\.bootstrap\.servers is missing"):
        parse_sink_options({"topic": "t"}, streaming=True)


def test_in_a_read_they_are_ignored() -> None:
    read = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    for row in TABLE.rows:
        if "sink" in row.doors and not row.doors.keys() & set(SOURCE) and row.written(Origin.OPTION):
            name = TABLE.as_written(row, Origin.OPTION)
            (note,) = parse_options({**read, name: "5"}).warnings
            assert note.startswith(f"the option {name} is ignored: it "), name
    # It never was an option of a read, so it is no misspelt one there.
    (note,) = parse_options({**read, "topics": "t"}).warnings
    assert note == "the option topics is unknown and ignored; did you mean 'topic'?"


def test_the_documentation_lists_every_option_for_writing() -> None:
    page = pages()[DOCS.name]
    assert "| *`delivery`* | word | `at-least-once` |" in page
    assert "| `topic` | text |  | The topic to write to." in page
