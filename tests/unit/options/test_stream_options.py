"""The options of streaming queries, where they differ from those of batches."""

from __future__ import annotations

import pickle

import pytest
from tests.positions import at_time, at_times

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, MAX_OFFSET, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    AT_EARLIEST,
    AT_LATEST,
    CommittedStart,
    OffsetSpec,
)
from pyspark_kafka_direct.options.read_options import parse_batch_options, parse_columns, parse_stream_options
from pyspark_kafka_direct.options.settings import ReadLimits, ReadSettings
from pyspark_kafka_direct.options.subscription import SubscribeStrategy


def parse(**options: str) -> ReadSettings:
    given = {name.replace("_", "."): value for name, value in options.items()}
    return parse_stream_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": "t", **given})


def test_defaults_are_sparks() -> None:
    options = parse()
    assert options.source.start == AT_LATEST
    assert options.source.limits == ReadLimits(None, None, 900.0)
    assert options.source.selection == SubscribeStrategy(("t",))
    assert options.fetch.fail_on_data_loss
    assert options.warnings == ()
    assert pickle.loads(pickle.dumps(options)) == options


def test_streams_can_start_at_the_latest_offsets() -> None:
    assert parse(startingOffsets="EARLIEST").source.start == AT_EARLIEST
    assert parse(startingOffsets="Latest").source.start == AT_LATEST
    start = parse(startingOffsets='{"t":{"0":-1,"1":5,"2":-2}}').source.start
    assert start == OffsetSpec({TopicPartition("t", n): o for n, o in enumerate([LATEST, 5, EARLIEST])})
    assert parse(startingOffsets='{"t":"latest"}').source.start == OffsetSpec({}, {"t": LATEST})
    assert parse(startingTimestamp="5", startingOffsets="earliest").source.start == at_time(5)


def test_a_start_from_committed_offsets() -> None:
    options = parse(startingOffsets="Committed", commitGroupId="g")
    assert (options.source.start, options.source.commit_group_id, options.source.start_group_id) == (
        CommittedStart(),
        "g",
        "g",
    )
    options = parse(startingOffsets="committed", kafka_group_id="h", committedOffsetsFallback="LATEST")
    assert (options.source.start, options.source.commit_group_id, options.source.start_group_id) == (
        CommittedStart(AT_LATEST),
        None,
        "h",
    )
    assert options.warnings == ()
    assert parse(commitGroupId="g").source.start_group_id is None
    assert parse(startingOffsets="committed", startingTimestamp="5").source.start == at_time(5)
    for fallback in ("earliest", "error"):  # the stream would start at latest
        with pytest.raises(OptionError, match="committedOffsetsFallback needs startingOffsets=committed"):
            parse(committedOffsetsFallback=fallback, commitGroupId="g")
    explicit = parse(committedOffsetsFallback="earliest", startingOffsets="latest")
    assert explicit.warnings == ("the option committedOffsetsFallback is ignored: startingOffsets is not committed",)
    assert parse(committedOffsetsFallback="latest").warnings == (
        "the option committedOffsetsFallback is ignored: startingOffsets is not committed",
    )
    for message, options_with_error in [
        ("requires the consumer group that .*; set commitGroupId", {"startingOffsets": "committed"}),
        ("committedOffsetsFallback must be error.*did you mean 'latest'", {"committedOffsetsFallback": "lates"}),
        ("commitGroupId must be the name", {"commitGroupId": " "}),
    ]:
        with pytest.raises(OptionError, match=message):
            parse(**options_with_error)


def test_warnings_name_the_option_that_takes_precedence_over_a_committed_start() -> None:
    options = parse(startingOffsets="committed", commitGroupId="g", kafka_group_id="h")
    assert options.source.start_group_id == "g"
    assert options.warnings == ("the option kafka.group.id is ignored: commitGroupId takes precedence",)
    for name, value in (("startingTimestamp", "5"), ("startingOffsetsByTimestamp", '{"t":{"0":5}}')):
        options = parse(startingOffsets="committed", committedOffsetsFallback="latest", **{name: value})
        assert options.source.start == (at_time(5) if value == "5" else at_times({TopicPartition("t", 0): 5}))
        assert [warning for warning in options.warnings if "1970" not in warning] == [
            f"the option committedOffsetsFallback is ignored: {name} takes precedence",
            f"the option startingOffsets is ignored: {name} takes precedence",
        ]


@pytest.mark.parametrize("others", [{}, {"commitGroupId": "g"}])
def test_an_unused_group_id_causes_a_warning(others: dict[str, str]) -> None:
    assert parse(kafka_group_id="h", **others).warnings == (
        "the option kafka.group.id is ignored: records are read by partition and offset, without a consumer group",
    )


def test_limits() -> None:
    options = parse(maxOffsetsPerTrigger=str(MAX_OFFSET), minOffsetsPerTrigger="7", maxTriggerDelay="5s")
    assert options.source.limits == ReadLimits(MAX_OFFSET, 7, 5.0)
    assert parse(maxBytesPerTrigger="5000000000").source.limits == ReadLimits(max_bytes=5_000_000_000)
    assert parse(maxOffsetsPerTrigger="7", minOffsetsPerTrigger="7").source.limits.min_offsets == 7


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250", 0.25), ("250ms", 0.25), ("5s", 5), ("2m", 120), ("2MIN", 120), ("1h", 3600), ("1d", 86400), ("0", 0)],
)
def test_durations_have_the_format_of_spark(text: str, seconds: float) -> None:
    assert parse(maxTriggerDelay=text).source.limits.max_delay == seconds


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "ten"),
        ("maxBytesPerTrigger", "1m"),
        ("minOffsetsPerTrigger", "-1"),
        ("maxTriggerDelay", "5 minutes"),
        ("maxTriggerDelay", "-5s"),
        ("maxTriggerDelay", "1.5s"),
    ],
)
def test_errors_name_the_option_and_the_value(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"{name} must be .*{text}"):
        parse(**{name: text})


def test_the_minimum_must_not_exceed_the_maximum() -> None:
    with pytest.raises(
        OptionError, match="minOffsetsPerTrigger=8 must be less than or equal to maxOffsetsPerTrigger=7"
    ):
        parse(maxOffsetsPerTrigger="7", minOffsetsPerTrigger="8")


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "offsetRanges"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} cannot be used here: a stream has no end"):
        parse(**{name: "latest"})


def test_ignored_options_cause_a_warning() -> None:
    options = parse(endingTimestamp="5", pushDownFilters="true", groupIdPrefix="g", **{"kafka.group.id": "g"})
    assert sorted(warning.split(":")[0] for warning in options.warnings) == [
        "the option endingTimestamp is ignored",
        "the option groupIdPrefix is ignored",
        "the option kafka.group.id is ignored",
        "the option pushDownFilters is ignored",
    ]


def test_include_headers_is_parsed_before_the_kind_of_query_is_known() -> None:
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    assert parse_columns({**base, "IncludeHeaders": "TRUE", "startingOffsets": "latest"})[0]
    assert not parse_columns({**base, "endingOffsets": "latest"})[0]
    for invalid in ({"includeheaders": "1"}, {"minPartitions": "a"}, {"startingOffsets": "earlist"}, {"assign": "{}"}):
        with pytest.raises(OptionError):
            parse_columns({**base, **invalid})


STREAM_ONLY = {
    "maxOffsetsPerTrigger": "a",
    "maxBytesPerTrigger": "1m",
    "minOffsetsPerTrigger": "0",
    "maxTriggerDelay": "soon",
    "backpressure": "on",
    "backpressureMinRate": "0",
    "backpressureIntegral": "-1",
    "commitGroupId": " ",
    "committedOffsetsFallback": "lates",
}
BATCH_ONLY = {"pushDownFilters": "on", "endingTimestamp": "soon"}


@pytest.mark.parametrize("start", [None, "earliest", "latest"])
@pytest.mark.parametrize(("name", "text"), [*STREAM_ONLY.items(), *BATCH_ONLY.items()])
def test_an_invalid_value_is_rejected_before_the_kind_of_query_is_known(
    name: str, text: str, start: str | None
) -> None:
    """A batch ignores options of a stream, but ``load()`` does not know which of them it is."""
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", name: text}
    if start is not None:
        options["startingOffsets"] = start
    for check in (parse_columns, parse_batch_options, parse_stream_options):
        with pytest.raises(OptionError, match=f"^{name} must be ") as caught:
            check(options)
        assert "in a stream" not in str(caught.value)


@pytest.mark.parametrize("start", [{}, {"startingOffsets": "latest"}, {"startingTimestamp": "5"}])
def test_a_minimum_above_the_maximum_is_rejected_before_the_kind_of_query_is_known(start: dict[str, str]) -> None:
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", **start}
    for check in (parse_columns, parse_batch_options, parse_stream_options):
        with pytest.raises(OptionError, match=r"^minOffsetsPerTrigger=8 must be .* maxOffsetsPerTrigger=7$"):
            check({**base, "minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "7"})
    parse_columns({**base, "minOffsetsPerTrigger": "7", "maxOffsetsPerTrigger": "7"})
    parse_columns({**base, "minOffsetsPerTrigger": "8"})


def test_options_that_neither_a_batch_nor_a_stream_can_have() -> None:
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    for name in ("endingOffsets", " endingOffsets "):  # only a batch can have it
        with pytest.raises(OptionError, match=r"^endingOffsets must be"):
            parse_columns({**base, name: "nonsense"})
    with pytest.raises(InvalidOffsetsError, match="greater than the end offset"):
        parse_columns({**base, "startingOffsets": '{"t":{"0":4}}', "ENDINGOFFSETS": '{"t":{"0":2}}'})
    with pytest.raises(OptionError, match=r"in a stream: startingOffsets=committed requires .*; in a batch: "):
        parse_columns({**base, "startingOffsets": "committed"})


def test_settings_of_producers_are_not_parsed_for_a_read() -> None:
    """A template for all clients may have settings that a read ignores."""
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "kafka.linger.ms": "soon"}
    assert not parse_columns(base)[0]
    (warning,) = parse_stream_options(base).warnings
    assert warning.startswith("the option kafka.linger.ms is ignored")
