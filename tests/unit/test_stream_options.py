"""The options of streaming queries, as far as they differ from those of batches."""

from __future__ import annotations

import pickle

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, MAX_OFFSET, TopicPartition
from pyspark_kafka_direct.planning.limits import Limits
from pyspark_kafka_direct.planning.positions import Earliest, GlobalTimestamp, Latest, SpecificOffsets
from pyspark_kafka_direct.planning.select import Subscribe
from pyspark_kafka_direct.planning.stream_start import Committed
from pyspark_kafka_direct.settings.source import StreamOptions, includes_headers, parse_stream_options


def parse(**options: str) -> StreamOptions:
    given = {name.replace("_", "."): text for name, text in options.items()}
    return parse_stream_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": "t", **given})


def test_defaults_are_sparks() -> None:
    options = parse()
    assert options.start == Latest()
    assert options.limits == Limits(None, None, 900.0)
    assert options.selection == Subscribe(("t",))
    assert options.fail_on_data_loss
    assert options.warnings == ()
    assert pickle.loads(pickle.dumps(options)) == options


def test_streams_may_start_at_the_latest() -> None:
    assert parse(startingOffsets="EARLIEST").start == Earliest()
    assert parse(startingOffsets="Latest").start == Latest()
    start = parse(startingOffsets='{"t":{"0":-1,"1":5,"2":-2}}').start
    assert start == SpecificOffsets({TopicPartition("t", n): o for n, o in enumerate([LATEST, 5, EARLIEST])})
    assert parse(startingOffsets='{"t":"latest"}').start == SpecificOffsets({}, {"t": LATEST})
    assert parse(startingTimestamp="5", startingOffsets="earliest").start == GlobalTimestamp(5)


def test_a_start_from_committed_offsets() -> None:
    options = parse(startingOffsets="Committed", commitGroupId="g")
    assert (options.start, options.commit_group_id, options.start_group_id) == (Committed(), "g", "g")
    options = parse(startingOffsets="committed", kafka_group_id="h", committedOffsetsFallback="LATEST")
    assert (options.start, options.commit_group_id, options.start_group_id) == (Committed(Latest()), None, "h")
    assert options.warnings == ()
    assert parse(commitGroupId="g").start_group_id is None
    assert parse(startingOffsets="committed", startingTimestamp="5").start == GlobalTimestamp(5)
    assert parse(committedOffsetsFallback="latest").warnings == (
        "the option committedOffsetsFallback is ignored: startingOffsets is not committed",
    )
    for said, wrong in [
        ("needs the group that has committed: set commitGroupId", {"startingOffsets": "committed"}),
        ("committedOffsetsFallback must be error.*did you mean 'latest'", {"committedOffsetsFallback": "lates"}),
        ("commitGroupId must be the name", {"commitGroupId": " "}),
    ]:
        with pytest.raises(OptionError, match=said):
            parse(**wrong)


@pytest.mark.parametrize("more", [{}, {"startingOffsets": "committed", "commitGroupId": "g"}])
def test_a_group_that_plays_no_part_is_told(more: dict[str, str]) -> None:
    assert parse(kafka_group_id="h", **more).warnings == (
        "the option kafka.group.id is ignored: records are read by partition and offset, without a consumer group",
    )


def test_limits() -> None:
    options = parse(maxOffsetsPerTrigger=str(MAX_OFFSET), minOffsetsPerTrigger="7", maxTriggerDelay="5s")
    assert options.limits == Limits(MAX_OFFSET, 7, 5.0)
    assert parse(maxBytesPerTrigger="5000000000").limits == Limits(max_bytes=5_000_000_000)
    assert parse(maxOffsetsPerTrigger="7", minOffsetsPerTrigger="7").limits.min_offsets == 7


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250", 0.25), ("250ms", 0.25), ("5s", 5), ("2m", 120), ("2MIN", 120), ("1h", 3600), ("1d", 86400), ("0", 0)],
)
def test_durations_are_written_as_in_spark(text: str, seconds: float) -> None:
    assert parse(maxTriggerDelay=text).limits.max_delay == seconds


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
def test_bad_values_name_the_option_and_what_was_given(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"{name} must be .*{text}"):
        parse(**{name: text})


def test_the_minimum_may_not_exceed_the_maximum() -> None:
    with pytest.raises(
        OptionError, match="minOffsetsPerTrigger=8 must be less than or equal to maxOffsetsPerTrigger=7"
    ):
        parse(maxOffsetsPerTrigger="7", minOffsetsPerTrigger="8")


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "offsetRanges"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} cannot be used here: a stream has no end"):
        parse(**{name: "latest"})


def test_what_has_no_effect_brings_a_warning() -> None:
    options = parse(endingTimestamp="5", pushDownFilters="true", groupIdPrefix="g", **{"kafka.group.id": "g"})
    assert sorted(warning.split(":")[0] for warning in options.warnings) == [
        "the option endingTimestamp is ignored",
        "the option groupIdPrefix is ignored",
        "the option kafka.group.id is ignored",
        "the option pushDownFilters is ignored",
    ]


def test_headers_are_known_before_the_use_is() -> None:
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    assert includes_headers({**base, "IncludeHeaders": "TRUE", "startingOffsets": "latest"})
    assert not includes_headers({**base, "endingOffsets": "latest"})
    assert not includes_headers({**base, "endingOffsets": "nonsense"}), "told when it is known that it is a batch"
    for wrong in ({"includeheaders": "1"}, {"minPartitions": "a"}, {"startingOffsets": "earlist"}, {"assign": "{}"}):
        with pytest.raises(OptionError):
            includes_headers({**base, **wrong})
