"""Positions as people say them: keywords, times and numbers of offsets."""

from __future__ import annotations

import copy
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, MAX_OFFSET, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    OffsetSpec,
    check_batch_end,
    check_batch_start,
    check_start_and_end,
    parse_offset_spec,
    parse_timestamps_by_partition,
)
from pyspark_kafka_direct.options.positions import AtTime, BeforeNow, LastOffsets, Position, parse_position, parse_time
from pyspark_kafka_direct.options.read_options import (
    parse_batch_options,
    parse_continuous_options,
    parse_stream_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_kafka_direct.options.settings import ReadSettings

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SIX = 1_795_845_600_000  # 2026-11-28T06:00Z
UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

COUNTS = st.integers(1, MAX_OFFSET)
SPACES = st.sampled_from(["", " ", "\t", "  "])


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose zone is half an hour off."""
    monkeypatch.setenv("TZ", "XST-05:30")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", EARLIEST),
        (" NOW ", LATEST),
        ("-1h", BeforeNow(3_600_000)),
        ("-30M", BeforeNow(1_800_000)),
        ("-90s\n", BeforeNow(90_000)),
        ("-2d", BeforeNow(172_800_000)),
        ("-5min", BeforeNow(300_000)),
        ("-250ms", BeforeNow(250)),
        ("-106751991167d", BeforeNow(106_751_991_167 * 86_400_000)),
        ("last 1000", LastOffsets(1000)),
        (" LAST \t 1", LastOffsets(1)),
        (f"last {MAX_OFFSET}", LastOffsets(MAX_OFFSET)),
        ("2026-11-28T06:00Z", AtTime(SIX, "latest")),
        ("2026-11-28t06:00z", AtTime(SIX, "latest")),
        ("2026-11-28 06:00:00+00:00", AtTime(SIX, "latest")),
        ("2026-11-28T07:30:00.250+0130", AtTime(SIX + 250, "latest")),
        ("2026-11-28T05:59:59.9991Z", AtTime(SIX, "latest")),
        ("1970-01-01T00:00Z", AtTime(0, "latest")),
        (datetime(2026, 11, 28, 6, tzinfo=UTC), AtTime(SIX, "latest")),
        (datetime(2026, 11, 28, 4, tzinfo=timezone(-timedelta(hours=2))), AtTime(SIX, "latest")),
        (-timedelta(hours=1), BeforeNow(3_600_000)),
    ],
)
def test_positions(text: object, position: Position) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("-1", "has no unit; write a time before now such as -1h"),
        ("1764449000", "has no unit"),
        ("-0h", "write 'now'"),
        ("-1.5h", "not a whole number; use a smaller unit, such as -90m"),
        ("1h", "is not before now; write -1h"),
        ("+1h", "is not before now; write -1h"),
        ("-1w", "unknown unit; the units are ms, s, m, h and d"),
        ("-106751991168d", "too long ago"),
        ("-9999999999999999999ms", "too long ago"),
        ("-" + "9" * 5000 + "h", "neither 'earliest'"),
        ("-\u0661h", "neither 'earliest'"),
        ("- 1h", "neither 'earliest'"),
        ("-1_0h", "neither 'earliest'"),
        ("last", "does not say how many offsets"),
        ("last 0", "does not say how many offsets"),
        ("last -5", "does not say how many offsets"),
        ("last 1_000", "does not say how many offsets"),
        ("last \u0661", "does not say how many offsets"),
        (f"last {MAX_OFFSET + 1}", "does not say how many offsets"),
        ("earlist", "did you mean 'earliest'"),
        ("lastest", "did you mean 'latest'"),
        ("2026-02-30T06:00Z", "is not a time: day"),
        ("2026-11-28T25:00Z", "is not a time: hour"),
        ("1969-12-31T23:59Z", "is not a time from 1970"),
        ("1970-01-01T00:00+01:00", "is not a time from 1970"),
        ("9999-12-31T23:59Z", "is not a time from 1970 to 2999"),
        ("\u0662\u0660\u0662\u0666-11-28T06:00Z", "neither 'earliest'"),
        (timedelta(hours=1), "is not before now"),
        (timedelta(0), "write 'now'"),
        (5, "5 is not a position"),
        (None, "None is not a position"),
    ],
)
def test_what_is_no_position(text: object, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_position(text)


@pytest.mark.usefixtures("local_zone")
@pytest.mark.parametrize("value", ["2026-11-28T06:00", "2026-11-28 06:00:00", datetime(2026, 11, 28, 6)])
def test_a_time_without_a_zone_shows_both_readings(value: object) -> None:
    with pytest.raises(
        ValueError,
        match=r"has no zone: write 2026-11-28T06:00Z if it is in UTC, or 2026-11-28T06:00\+05:30 if it is in the zone "
        r"of this machine \(XST\)",
    ):
        parse_position(value)


@pytest.mark.usefixtures("local_zone")
def test_a_date_has_no_zone_either() -> None:
    with pytest.raises(ValueError, match=r"write 2026-11-28T00:00Z .* or 2026-11-28T00:00\+05:30"):
        parse_position("2026-11-28")
    for seconds in ("06:00:30", "06:00:00.250000"):
        with pytest.raises(ValueError, match=rf"write 2026-11-28T{seconds}Z if"):
            parse_position(f"2026-11-28T{seconds}")


@given(COUNTS, st.sampled_from(sorted(UNITS)), SPACES, st.booleans())
def test_units_letter_case_and_white_space(count: int, unit: str, space: str, upper: bool) -> None:
    text = f"{space}-{count}{unit}{space}"
    if count * UNITS[unit] > MAX_OFFSET:
        with pytest.raises(ValueError, match="too long ago"):
            parse_position(text)
    else:
        assert parse_position(text.upper() if upper else text) == BeforeNow(count * UNITS[unit])


@given(st.builds(BeforeNow, COUNTS) | st.builds(LastOffsets, COUNTS))
def test_what_messages_show_is_the_position_itself(position: Position) -> None:
    assert parse_position(str(position)) == position


@given(
    st.datetimes(
        datetime(1970, 1, 2),
        datetime(2999, 12, 30),
        timezones=st.builds(lambda minutes: timezone(timedelta(minutes=minutes)), st.integers(-1439, 1439)),
    )
)
def test_a_time_is_the_first_millisecond_that_is_not_earlier(value: datetime) -> None:
    position = parse_position(value)
    assert isinstance(position, AtTime)
    found = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=position.timestamp)
    assert found - timedelta(milliseconds=1) < value <= found
    assert parse_position(str(value)) == position


@given(st.text() | st.from_regex(r"[-+]?[0-9]+.{0,3}") | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.{0,20}"))
def test_any_text_is_a_position_or_an_error_that_names_it(text: str) -> None:
    message = ""
    try:
        parse_offset_spec(text, "startingOffsets")
    except OptionError as error:
        message = str(error)
    assert not message or (message.startswith("startingOffsets must be ") and repr(text) in message)


@pytest.mark.parametrize("strategy", [None, "error", "latest"])
def test_times_have_the_strategy_that_is_given(strategy: None) -> None:
    assert parse_time(" 5 ", on_no_match=strategy) == AtTime(5, strategy or "error")
    assert parse_time("2026-11-28T06:00Z", on_no_match=strategy) == AtTime(SIX, strategy or "error")
    assert parse_time("-1h", on_no_match=strategy) == BeforeNow(3_600_000, strategy or "latest")


@pytest.mark.parametrize("text", ["earliest", "now", "last 5"])
def test_a_position_that_is_no_time_is_not_a_timestamp(text: str) -> None:
    with pytest.raises(ValueError, match="is not a 64-bit integer, nor a time such as"):
        parse_time(text, on_no_match=None)


def test_positions_of_topics_and_partitions() -> None:
    text = '{"a":{"0":5,"1":"-1h","2":"LAST 3","3":"7","*":"now"},"b":"2026-11-28T06:00Z","*":"earliest"}'
    assert parse_offset_spec(text, "startingOffsets") == OffsetSpec(
        {
            A0: 5,
            A1: BeforeNow(3_600_000),
            TopicPartition("a", 2): LastOffsets(3),
            TopicPartition("a", 3): 7,
        },
        {"a": LATEST, "b": AtTime(SIX, "latest")},
        EARLIEST,
    )


@pytest.mark.parametrize(
    "positions",
    [
        {A0: 5, "a": "earliest"},
        {"a": "earliest", A0: 5},
        {A0: 5, "a": {"*": "earliest"}},
        {"a": {"*": "earliest"}, A0: 5},
        {"a": {0: 5, "*": "earliest"}},
    ],
)
def test_a_dict_names_partitions_with_their_topic_or_alone(positions: dict[Any, Any]) -> None:
    before = copy.deepcopy(positions)
    assert parse_offset_spec(positions, "start") == OffsetSpec({A0: 5}, {"a": EARLIEST})
    assert positions == before


def test_times_of_python_in_a_dict() -> None:
    six = datetime(2026, 11, 28, 6, tzinfo=UTC)
    assert parse_offset_spec({A0: -timedelta(hours=1), "b": six, "*": -timedelta(days=1)}, "start") == OffsetSpec(
        {A0: BeforeNow(3_600_000)}, {"b": AtTime(SIX, "latest")}, BeforeNow(86_400_000)
    )


@pytest.mark.parametrize(
    ("positions", "reason"),
    [
        ({A0: 5, "a": {"0": 6}}, "topic 'a': partition 0 occurs twice"),
        ({"a": {0: 5, "0": 6}}, "topic 'a': partition 0 occurs twice"),
        ({"a": 5}, "5 for '*' of topic 'a' is not a position"),
        ({"*": {"0": 5}}, "{'0': 5} for topic '*' is not a position"),
        ({("a", 0): 5}, "('a', 0) is neither a topic nor a TopicPartition"),
        ({A0: timedelta(hours=1)}, "is not before now"),
    ],
)
def test_malformed_dicts(positions: dict[Any, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=re.escape(reason)):
        parse_offset_spec(positions, "start")


def test_times_of_topics_and_partitions() -> None:
    text = '{"a":{"0":5,"*":"-1h"},"b":6,"*":"2026-11-28T06:00Z"}'
    assert parse_timestamps_by_partition(text, "startingOffsetsByTimestamp") == OffsetSpec(
        {A0: AtTime(5)}, {"a": BeforeNow(3_600_000), "b": AtTime(6)}, AtTime(SIX)
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":{"0":"soon"}}', "'soon' for a-0 is neither"),
        ('{"a":"-0h"}', "'-0h' for topic 'a' is not before now"),
        ('{"a":{"*":5}}', "5 for '*' of topic 'a' is not a position"),
        ('{"a":{"0":null}}', "None is not a 64-bit integer for a-0"),
        ('{"a":null}', "topic 'a' does not map partitions to integers"),
        ('{"a":{"0":-3600}}', "-3600 for a-0 is not an offset (-1 is latest, -2 is earliest); a time before now needs"),
        ('{"*":-2}', "-2 for topic '*' is not a position"),
        ('{"*":{"0":"-1h"}}', "{'0': '-1h'} for topic '*' is not a position"),
        ('{"a":{"x":"-1h"}}', "'x' is not a partition number"),
        ('{"a":{"0":"-1h","*":"now","*":"now"}}', "'*' occurs twice"),
    ],
)
def test_malformed_maps(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=re.escape(reason)):
        parse_offset_spec(text, "startingOffsets")


@pytest.mark.parametrize("text", ["now", '{"*":"now"}', '{"t":{"0":5,"*":"now"}}'])
def test_a_batch_does_not_start_now(text: str) -> None:
    with pytest.raises(OptionError, match=r"cannot be latest \(-1\) in a batch query"):
        check_batch_start(parse_offset_spec(text, "startingOffsets"), "startingOffsets")


@pytest.mark.parametrize("text", ["last 10", '{"a":{"0":5},"*":"last 10"}'])
def test_a_batch_does_not_end_at_its_last_offsets(text: str) -> None:
    with pytest.raises(OptionError, match=r"endingOffsets: the end of .* cannot be 'last N', .*: end at an offset, a"):
        check_batch_end(parse_offset_spec(text, "endingOffsets"), "endingOffsets")


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ("-1h", "-2h", "start -1h (startingOffsets) is greater than the end -2h (endingOffsets)"),
        ("2026-11-28T06:00Z", "2026-11-28T05:00Z", f"start timestamp {SIX} "),
        ('{"a":"-1h","*":"earliest"}', '{"a":"-90m","*":"now"}', "start -1h "),
        ('{"b":{"0":5},"*":"-1h"}', '{"b":{"0":5},"*":"-90m"}', "start -1h "),
        ('{"a":{"0":"-1h"}}', '{"a":{"0":"-90m"}}', "start -1h "),
    ],
)
def test_a_start_that_is_seen_to_be_after_the_end(start: str, end: str, message: str) -> None:
    with pytest.raises(InvalidOffsetsError, match=re.escape(message)):
        check_start_and_end(parse_offset_spec(start, "startingOffsets"), parse_offset_spec(end, "endingOffsets"))


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("-2h", "-1h"),
        ("-1h", "-1h"),
        ("2026-11-28T06:00Z", "2026-11-28T06:00Z"),
        ("-1h", "2020-01-01T00:00Z"),
        ("last 5", "now"),
        ('{"*":"-1h"}', '{"a":"-2h"}'),
        ('{"a":"earliest","*":"-1h"}', '{"b":"now","*":"-2h"}'),  # of a until -2h, of b from -1h
        ('{"a":{"0":"earliest","*":"-1h"}}', '{"a":{"1":"now","*":"-2h"}}'),
        ('{"a":{"0":5}}', '{"a":{"0":"-2h","1":"-2h"}}'),
    ],
)
def test_other_starts_and_ends_are_compared_when_they_are_resolved(start: str, end: str) -> None:
    check_start_and_end(parse_offset_spec(start, "startingOffsets"), parse_offset_spec(end, "endingOffsets"))


@pytest.mark.parametrize("parse_options", [parse_batch_options, parse_stream_options, parse_continuous_options])
def test_a_given_strategy_applies_to_all_times(parse_options: Callable[[dict[str, str]], ReadSettings]) -> None:
    def start(**options: str) -> object:
        return parse_options({"kafka.bootstrap.servers": "b:1", "subscribe": "a", **options}).source.start

    error = {"startingOffsetsByTimestampStrategy": "error"}
    hour = BeforeNow(3_600_000)
    for name in ("startingOffsets", "startingTimestamp"):
        assert start(**{name: "-1h"}) == OffsetSpec(others=hour)
        assert start(**{name: "-1h"}, **error) == OffsetSpec(others=replace(hour, on_no_match="error"))
    assert start(startingOffsets='{"a":"-1h"}', **error) == OffsetSpec({}, {"a": replace(hour, on_no_match="error")})


def test_both_ends_of_a_batch_may_be_times() -> None:
    servers = {"kafka.bootstrap.servers": "b:1", "subscribe": "a"}
    found = parse_batch_options({**servers, "startingOffsets": "-2h", "endingOffsets": "now"}).source
    assert (found.start, found.end) == (OffsetSpec(others=BeforeNow(7_200_000)), OffsetSpec(others=LATEST))
    found = parse_batch_options({**servers, "startingTimestamp": "-2h", "endingTimestamp": "-1h"}).source
    assert found.end == OffsetSpec(others=BeforeNow(3_600_000))
    for options, message in (
        ({"startingOffsets": "now"}, "cannot be latest"),
        ({"endingOffsets": "last 5"}, "cannot be 'last N'"),
        ({"startingTimestamp": "-1h", "endingTimestamp": "-2h"}, "start -1h"),
        ({"startingOffsets": "2026-11-28T06:00"}, "has no zone: write 2026-11-28T06:00Z"),
        ({"startingTimestamp": "2026-11-28T06:00"}, "has no zone: write 2026-11-28T06:00Z"),
    ):
        with pytest.raises((OptionError, InvalidOffsetsError), match=message):
            parse_batch_options({**servers, **options})
