from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.errors import OffsetPlanError, OptionError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.hints import is_misspelt
from pyspark_kafka_direct.planning.positions import (
    Earliest,
    GlobalTimestamp,
    Latest,
    SpecificOffsets,
    SpecificTimestamps,
)
from pyspark_kafka_direct.planning.select import Assign, Subscribe, SubscribePattern
from pyspark_kafka_direct.settings._reader import read
from pyspark_kafka_direct.settings._table import TABLE
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.settings.documentation import pages
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.settings.row import READING, SOURCE, Origin
from pyspark_kafka_direct.settings.security import SecuritySettings, TlsSettings
from pyspark_kafka_direct.settings.source import (
    BatchOptions,
    ReadOptions,
    includes_headers,
    parse_options,
    parse_stream_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable

DOCS = Path(__file__).parents[2] / "docs" / "options.md"
T0 = TopicPartition("t", 0)
OWN = TABLE.names(Origin.OPTION, client=False, doors=READING)


def parse(**options: str) -> BatchOptions:
    """Parse options written with _ for . , subscribing to t unless they say what to read."""
    given = {name.replace("_", "."): text for name, text in options.items()}
    if not {name.lower() for name in given} & {"assign", "subscribe", "subscribepattern", "offsetranges"}:
        given["subscribe"] = "t"
    return parse_options({"kafka.bootstrap.servers": "broker:9092", **given})


def refuse(*parts: str, **options: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(**options)
    for part in parts:
        assert part in str(caught.value)


def test_defaults_are_sparks() -> None:
    options = parse()
    assert options == BatchOptions(
        connection=ConnectionSettings((("broker", 9092),)),
        fetch=FetchSettings(),
        selection=Subscribe(("t",)),
        start=Earliest(),
        end=Latest(),
        offset_ranges=None,
        fail_on_data_loss=True,
        min_partitions=None,
        max_records_per_partition=None,
        max_record_batch_bytes=1 << 30,
        include_headers=False,
        push_down_filters=False,
        poll_timeout_ms=120_000,
        fetch_tries=None,
        fetch_retry_interval_ms=None,
        oauth_token_provider=None,
        rack_environment_variable=None,
        warnings=(),
    )


def test_everything_can_be_set() -> None:
    options = parse(
        subscribePattern="t.*",
        startingOffsets='{"t":{"0":5}}',
        endingOffsets='{"t":{"0":9}}',
        failOnDataLoss="false",
        minPartitions="4",
        maxRecordsPerPartition="5000000000",
        maxRecordBatchBytes="1000000",
        includeHeaders="TRUE",
        pushDownFilters="true",
        kafkaConsumer_pollTimeoutMs="512",
        fetchOffset_numRetries="7",
        fetchOffset_retryIntervalMs="0",
        oauthTokenProvider="company.tokens:make",
        rackEnvironmentVariable="RACK",
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="OAUTHBEARER",
    )
    assert isinstance(options.selection, SubscribePattern)
    assert options.start == SpecificOffsets({T0: 5})
    assert options.end == SpecificOffsets({T0: 9})
    assert options.fail_on_data_loss is False
    assert (options.min_partitions, options.max_records_per_partition) == (4, 5_000_000_000)
    assert options.max_record_batch_bytes == 1_000_000
    assert (options.include_headers, options.push_down_filters) == (True, True)
    assert (options.poll_timeout_ms, options.fetch_tries, options.fetch_retry_interval_ms) == (512, 7, 0)
    assert options.oauth_token_provider == "company.tokens:make"
    assert options.rack_environment_variable == "RACK"
    assert options.connection.security.protocol == "SASL_SSL"
    assert options.warnings == ()


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
def test_names_are_case_insensitive(change: Any) -> None:
    names = {"minPartitions": "4", "kafkaConsumer.pollTimeoutMs": "512", "includeHeaders": "true", "subscribe": "t"}
    names["kafka.bootstrap.servers"] = "b:1"
    options = parse_options({change(name): text for name, text in names.items()})
    assert (options.min_partitions, options.poll_timeout_ms, options.include_headers) == (4, 512, True)
    assert options.connection == ConnectionSettings((("b", 1),))


def test_one_name_in_two_cases_must_agree() -> None:
    assert parse(minPartitions="4", minpartitions="4").min_partitions == 4
    refuse("minPartitions: one setting is given twice", minPartitions="4", minpartitions="5")


def test_client_settings_come_with_or_without_prefix() -> None:
    options = parse(kafka_client_id="a", security_protocol="SSL")
    ssl = SecuritySettings("SSL", TlsSettings())
    assert options.connection == ConnectionSettings((("broker", 9092),), client_id="a", security=ssl)
    bare = parse_options({"bootstrap.servers": "b:1", "subscribe": "t"})
    assert bare.connection == ConnectionSettings((("b", 1),))


def test_every_known_client_setting_passes_without_its_prefix() -> None:
    for row in TABLE.rows:
        if row.client and "." in row.name and "batch" in row.doors:
            text = row.doors["batch"] or (row.allowed[0] if row.allowed else "b:1")
            given = read({"kafka.bootstrap.servers": "b:1", row.name: text}, door="batch", origin=Origin.OPTION)
            assert given.texts[row.name] == text, row.name
            assert given.notes == ()


def test_contradicting_client_settings_are_refused_without_their_values() -> None:
    refuse("client.id", "different values", kafka_client_id="a", client_id="b")
    with pytest.raises(OptionError) as caught:
        parse(kafka_sasl_password="hunter1", sasl_password="hunter2")
    assert "hunter" not in str(caught.value)


def test_client_settings_are_not_shown() -> None:
    assert "hunter" not in repr(parse(kafka_sasl_password="hunter1"))


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing or empty"):
        parse_options({"subscribe": "t"})
    with pytest.raises(OptionError, match=r"did you mean 'kafka\.bootstrap\.servers'"):
        parse_options({"subscribe": "t", "kafka.bootstrap.server": "b:1"})


def test_exactly_one_way_to_select() -> None:
    with pytest.raises(OptionError, match="exactly one of the options assign, subscribe, subscribePattern"):
        parse_options({"kafka.bootstrap.servers": "b:1"})
    refuse("exactly one", "assign, subscribe", subscribe="t", assign='{"a":[0]}')
    refuse("exactly one", "subscribe, subscribePattern", subscribe="t", subscribePattern="t.*")


def test_selections() -> None:
    assert parse(assign='{"t":[1,0],"s":[2]}').selection == Assign((TopicPartition("s", 2), T0, TopicPartition("t", 1)))
    assert parse(subscribe=" a , b,,a ").selection == Subscribe(("a", "b"))
    refuse("no topic-partitions to assign", assign="{}")
    refuse("assign must be JSON", assign="")
    refuse("no topics to subscribe to", subscribe=" , ")
    refuse("the pattern is empty", subscribePattern=" ")


@pytest.mark.parametrize("text", ["a", "1.0", "0", "-1", "", "1_000", "2147483648", "9" * 5000])
def test_min_partitions_is_as_strict_as_sparks(text: str) -> None:
    refuse("minPartitions must be a whole number from 1 to 2147483647", minPartitions=text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maxRecordsPerPartition", "0"),
        ("maxRecordBatchBytes", "0"),
        ("maxRecordBatchBytes", "2147483648"),
        ("maxRecordsPerPartition", "9223372036854775808"),
        ("kafkaConsumer.pollTimeoutMs", "0"),
        ("fetchOffset.numRetries", "0"),
        ("fetchOffset.retryIntervalMs", "-1"),
        ("failOnDataLoss", "yes"),
        ("includeHeaders", "1"),
        ("pushDownFilters", "tru"),
        ("oauthTokenProvider", "module.factory"),
        ("rackEnvironmentVariable", "A B"),
        ("startingOffsets", "earlist"),
        ("startingTimestamp", "yesterday"),
        ("startingOffsetsByTimestamp", "5"),
        ("startingOffsetsByTimestampStrategy", "lates"),
        ("endingOffsets", "[]"),
        ("endingTimestamp", "-1"),
        ("endingOffsetsByTimestamp", '{"t":{"0":-1}}'),
        ("subscribe", "a b"),
        ("subscribePattern", "*"),
        ("assign", '{"t":["0"]}'),
        ("offsetRanges", "{}"),
    ],
)
def test_bad_values_name_the_option_and_what_was_given(name: str, text: str) -> None:
    refuse(name, text.strip(), **{name: text})


def test_typos_in_values_bring_a_hint() -> None:
    refuse("did you mean 'earliest'?", startingOffsets="earlist")
    refuse("did you mean 'latest'?", startingOffsetsByTimestampStrategy="lates")
    refuse("did you mean 'true'?", failOnDataLoss="ture")


def test_precedence_is_timestamp_then_timestamps_then_offsets() -> None:
    everything = {
        "startingTimestamp": "1000",
        "startingOffsetsByTimestamp": '{"t":{"0":2000}}',
        "startingOffsets": "earliest",
        "endingTimestamp": "3000",
        "endingOffsetsByTimestamp": '{"t":{"0":4000}}',
        "endingOffsets": "latest",
    }
    options = parse(**everything)
    assert (options.start, options.end) == (GlobalTimestamp(1000), GlobalTimestamp(3000, "latest"))
    assert [w for w in options.warnings if "startingTimestamp takes precedence" in w] == [
        "the option startingOffsetsByTimestamp is ignored: startingTimestamp takes precedence",
        "the option startingOffsets is ignored: startingTimestamp takes precedence",
    ]
    del everything["startingTimestamp"], everything["endingTimestamp"]
    options = parse(**everything)
    assert options.start == SpecificTimestamps({T0: 2000})
    assert options.end == SpecificTimestamps({T0: 4000}, "latest")


def test_a_position_that_loses_is_not_judged() -> None:
    assert parse(startingTimestamp="1000", startingOffsets="latest").start == GlobalTimestamp(1000)


def test_the_strategy_is_for_starts_only() -> None:
    options = parse(startingTimestamp="1", endingTimestamp="2", startingOffsetsByTimestampStrategy="LATEST")
    assert (options.start, options.end) == (GlobalTimestamp(1, "latest"), GlobalTimestamp(2, "latest"))
    assert parse(startingTimestamp="1", startingOffsetsByTimestampStrategy="Error").start == GlobalTimestamp(1, "error")


def test_batches_neither_start_at_the_latest_nor_end_at_the_earliest() -> None:
    refuse("startingOffsets", "cannot be latest", startingOffsets="LATEST")
    refuse("startingOffsets", "t-1", "cannot be latest", startingOffsets='{"t":{"0":0,"1":-1}}')
    refuse("startingOffsets", "topic t", "cannot be latest", startingOffsets='{"t":"latest"}')
    refuse("endingOffsets", "cannot be earliest", endingOffsets="earliest")
    refuse("endingOffsets", "t-1", "cannot be earliest", endingOffsets='{"t":{"0":0,"1":-2}}')
    refuse("endingOffsets", "topic t", "cannot be earliest", endingOffsets='{"t":"Earliest"}')


def test_explicit_positions_are_compared_before_anything_is_asked() -> None:
    with pytest.raises(OffsetPlanError, match="same topic-partitions; only in startingOffsets: t-1"):
        parse(startingOffsets='{"t":{"0":1,"1":1}}', endingOffsets='{"t":{"0":2}}')
    with pytest.raises(OffsetPlanError, match=r"start offset 3 \(startingOffsets\) is greater than the end offset 2"):
        parse(startingOffsets='{"t":{"0":3}}', endingOffsets='{"t":{"0":2}}')


def test_streaming_options_are_ignored_with_a_warning() -> None:
    options = parse(
        maxOffsetsPerTrigger="x", minOffsetsPerTrigger="5", maxTriggerDelay="1m", groupIdPrefix="g", topic="t"
    )
    assert len(options.warnings) == 5
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "groupIdPrefix", "topic"):
        assert any(f"option {name} is ignored" in warning for warning in options.warnings)


def test_unknown_options_bring_a_warning_with_a_hint() -> None:
    assert parse(minPart="4").warnings == ("the option minPart is unknown and ignored; did you mean 'minPartitions'?",)
    assert parse(fetchOffset_tries="4").warnings == (
        "the option fetchOffset.tries is unknown and ignored; did you mean 'fetchOffset.numRetries'?",
    )
    assert parse(flavour="x").warnings == ("the option flavour is unknown and ignored",)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("starting_offsets", "startingOffsets"),
        ("failOnDataLos", "failOnDataLoss"),
        ("subscribePatern", "subscribePattern"),
        ("minPartition", "minPartitions"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("fetchOffset.numRetry", "fetchOffset.numRetries"),
        ("fetchOffsets.numRetries", "fetchOffset.numRetries"),
    ],
)
@pytest.mark.parametrize("check", [parse_options, parse_stream_options, includes_headers])
def test_a_misspelt_option_is_refused(check: Callable[[dict[str, str]], object], given: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"the option {given.lower()} is unknown; did you mean '{meant}'\\?"):
        check({"kafka.bootstrap.servers": "b:1", "subscribe": "t", given.lower(): "earliest"})


@pytest.mark.parametrize("name", sorted(OWN))
def test_no_wrong_letter_of_a_name_goes_unnoticed(name: str) -> None:
    for i in range(len(name)):
        begin, letter, rest = name[:i], name[i], name[i + 1 :]
        for wrong in (rest, "z" + rest, "z" + letter + rest, rest[:1] + letter + rest[1:]):
            assert begin + wrong == name or is_misspelt(begin + wrong, [name]), begin + wrong


def test_sparks_own_options_pass_in_silence() -> None:
    assert parse(path="x", paths="[]", checkpointLocation="y").warnings == ()


@pytest.mark.parametrize("check", [parse_options, parse_stream_options])
def test_options_of_spark_and_of_kafka_are_never_taken_for_misspelt_ones(
    check: Callable[[dict[str, str]], ReadOptions],
) -> None:
    """A stranger's option is a warning at most: Spark hands its own over, and so do wrappers that serve all formats."""
    others = (
        "path paths checkpointLocation queryName maxFilesPerTrigger maxFileAge latestFirst fileNameOnly numPartitions "
        "rowsPerSecond rampUpTime includeTimestamp asyncProgressTrackingEnabled withEventTimeOrder header mergeSchema "
        "asyncProgressTrackingCheckpointIntervalMs useDeprecatedOffsetFetching partitionColumn maxPartitions topics"
    )
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    check(base | {name.lower(): "1" for name in others.split()})
    for row in TABLE.rows:
        if row.client and "." in row.name and not any(fate.refuse for fate in row.elsewhere.values()):
            text = row.doors.get("batch") or (row.allowed[0] if row.allowed else "b:1")
            assert read(base | {row.name: text}, door="batch", origin=Origin.OPTION)
    strangers = {"kafka.startingoffset": "1", "kafka.startingoffsetsbytimestampstrategy": "1"}
    assert all(any(name in warning for warning in check(base | strangers).warnings) for name in strangers)


def test_an_option_set_to_none_was_not_given() -> None:
    options = parse_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "minpartitions": None})  # type: ignore[dict-item]
    assert options.min_partitions is None


def test_offset_ranges() -> None:
    options = parse(
        offsetRanges='[{"topic":"t","partition":1,"fromOffset":5,"untilOffset":9},'
        '{"topic":"t","partition":0,"fromOffset":0,"untilOffset":0},'
        '{"topic":"t","partition":1,"fromOffset":20,"untilOffset":30}]'
    )
    assert options.offset_ranges == (OffsetRange("t", 1, 5, 9), OffsetRange("t", 0, 0, 0), OffsetRange("t", 1, 20, 30))
    assert options.selection == Assign((T0, TopicPartition("t", 1)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[", "offsetRanges must be a JSON list"),
        ('["t"]', "entry 0 must have exactly the keys topic, partition, fromOffset, untilOffset"),
        ('[{"topic":"t","partition":0,"fromOffset":5}]', "entry 0 must have exactly the keys"),
        ('[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":4}]', "after its end 4"),
        ('[{"topic":"t","partition":0,"fromOffset":-2,"untilOffset":4}]', "from_offset must be"),
        ('[{"topic":"t","partition":"0","fromOffset":1,"untilOffset":4}]', "partition must be"),
        ('[{"topic":3,"partition":0,"fromOffset":1,"untilOffset":4}]', "name of a topic"),
    ],
)
def test_malformed_offset_ranges(text: str, reason: str) -> None:
    refuse(reason, offsetRanges=text)


@pytest.mark.parametrize("other", ["subscribe", "assign", "subscribePattern", "startingOffsets", "endingTimestamp"])
def test_offset_ranges_exclude_other_ways_to_say_what_to_read(other: str) -> None:
    refuse("offsetRanges says exactly what to read", other, offsetRanges="[]", **{other: "t"})


def test_options_travel_between_processes() -> None:
    options = parse(subscribePattern="t.*", startingTimestamp="5")
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_documentation_is_current() -> None:
    assert DOCS.read_text(encoding="utf-8") == pages()[DOCS.name], "run python -m pyspark_kafka_direct.settings docs"


def test_the_module_prints_the_documentation(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "pyspark_kafka_direct.settings", str(tmp_path)], check=True, timeout=60)
    assert {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()} == pages()


def test_every_row_says_what_it_is_for() -> None:
    for row in TABLE.rows:
        assert row.about or not row.doors, row.name
        assert all(door in row.doors or row.fate(door).why for door in SOURCE), row.name
