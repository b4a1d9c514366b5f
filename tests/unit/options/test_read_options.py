"""The options of batch queries."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scripts.option_docs import pages
from tests.positions import at_time, at_times

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.options.config_option import READ_APIS, SOURCE_APIS, ConfigSource
from pyspark_kafka_direct.options.hints import is_misspelt
from pyspark_kafka_direct.options.offset_specs import (
    AT_EARLIEST,
    AT_LATEST,
    OffsetSpec,
)
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE, parse_config
from pyspark_kafka_direct.options.payload_settings import PayloadSettings
from pyspark_kafka_direct.options.read_options import (
    parse_batch_options,
    parse_columns,
    parse_slice_arguments,
    parse_stream_options,
)
from pyspark_kafka_direct.options.security_settings import SecuritySettings, TlsSettings
from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings, ReadSettings, SourceSettings
from pyspark_kafka_direct.options.spark_definitions import TOKEN_PROVIDERS_VARIABLE
from pyspark_kafka_direct.options.subscription import AssignStrategy, SubscribePatternStrategy, SubscribeStrategy

if TYPE_CHECKING:
    from collections.abc import Callable

DOCS = Path(__file__).parents[3] / "docs" / "options.md"
T0 = TopicPartition("t", 0)
DATA_SOURCE_NAMES = OPTION_TABLE.names(ConfigSource.OPTION, is_client=False, apis=READ_APIS)


def parse(**options: str) -> ReadSettings:
    """Parse options whose names are written with _ for dots; they subscribe to t by default."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    if not {name.lower() for name in given} & {"assign", "subscribe", "subscribepattern", "offsetranges"}:
        given["subscribe"] = "t"
    return parse_batch_options({"kafka.bootstrap.servers": "broker:9092", **given})


def assert_rejected(*parts: str, **options: str) -> None:
    """Check the parts of the error message."""
    with pytest.raises(OptionError) as caught:
        parse(**options)
    for part in parts:
        assert part in str(caught.value)


def test_defaults_are_those_of_spark() -> None:
    options = parse()
    assert options == ReadSettings(
        ConnectionSettings((("broker", 9092),)),
        FetchSettings(),
        SourceSettings(selection=SubscribeStrategy(("t",)), start=AT_EARLIEST, end=AT_LATEST),
        PayloadSettings(),
    )


def test_all_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_PROVIDERS_VARIABLE, "company.tokens:make")
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
    assert isinstance(options.source.selection, SubscribePatternStrategy)
    assert options.source.start == OffsetSpec({T0: 5})
    assert options.source.end == OffsetSpec({T0: 9})
    assert options.fetch.fail_on_data_loss is False
    assert (options.source.min_partitions, options.source.max_records_per_partition) == (4, 5_000_000_000)
    assert options.fetch.max_record_batch_bytes == 1_000_000
    assert (options.source.include_headers, options.source.push_down_filters) == (True, True)
    assert (
        options.fetch.poll_timeout_ms,
        options.source.offset_fetch_attempts,
        options.source.offset_fetch_retry_interval_ms,
    ) == (
        512,
        7,
        0,
    )
    assert options.fetch.rack_environment_variable == "RACK"
    assert options.connection.security.protocol == "SASL_SSL"
    assert options.warnings == ()


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
def test_names_are_case_insensitive(change: Any) -> None:
    names = {"minPartitions": "4", "kafkaConsumer.pollTimeoutMs": "512", "includeHeaders": "true", "subscribe": "t"}
    names["kafka.bootstrap.servers"] = "b:1"
    options = parse_batch_options({change(name): text for name, text in names.items()})
    assert (options.source.min_partitions, options.fetch.poll_timeout_ms, options.source.include_headers) == (
        4,
        512,
        True,
    )
    assert options.connection == ConnectionSettings((("b", 1),))


def test_values_of_a_name_in_two_cases_must_be_equal() -> None:
    assert parse(minPartitions="4", minpartitions="4").source.min_partitions == 4
    assert_rejected("minPartitions is given twice with different values", minPartitions="4", minpartitions="5")


def test_client_settings_can_have_a_prefix() -> None:
    options = parse(kafka_client_id="a", security_protocol="SSL")
    ssl = SecuritySettings("SSL", TlsSettings())
    assert options.connection == ConnectionSettings((("broker", 9092),), client_id="a", security=ssl)
    bare = parse_batch_options({"bootstrap.servers": "b:1", "subscribe": "t"})
    assert bare.connection == ConnectionSettings((("b", 1),))


def test_every_client_setting_is_valid_without_its_prefix() -> None:
    for option in OPTION_TABLE.options:
        if option.is_client and "." in option.name and "batch" in option.apis:
            value = option.default_in("batch") or (option.allowed[0] if option.allowed else "b:1")
            parsed = parse_config(
                {"kafka.bootstrap.servers": "b:1", option.name: value}, api="batch", source=ConfigSource.OPTION
            )
            assert parsed.strings[option.name] == value, option.name
            assert parsed.warnings == ()


def test_the_error_about_a_setting_given_twice_does_not_show_its_values() -> None:
    assert_rejected("client.id", "their values differ", kafka_client_id="a", client_id="b")
    with pytest.raises(OptionError) as caught:
        parse(kafka_sasl_password="hunter1", sasl_password="hunter2")
    assert "hunter" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    assert "hunter" not in repr(parse(kafka_sasl_password="hunter1"))


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing or empty"):
        parse_batch_options({"subscribe": "t"})
    with pytest.raises(OptionError, match=r"did you mean 'kafka\.bootstrap\.servers'"):
        parse_batch_options({"subscribe": "t", "kafka.bootstrap.server": "b:1"})


@pytest.mark.parametrize("check", [parse_batch_options, parse_stream_options, parse_columns])
def test_no_option_at_all_has_arrived(check: Callable[[dict[str, str]], object]) -> None:
    """Spark does not pass the options of a table; it adds other ones."""
    without: list[dict[str, str]] = [{}, {"path": "/warehouse/t"}, {"Path": "/warehouse/t", "queryName": "q"}]
    for options in without:
        with pytest.raises(OptionError, match=r"servers is missing .* No option has arrived.* WITH \(.*TEMPORARY VIEW"):
            check(options)
    for options in ({"subscribe": "t"}, {"unknown": "5"}, {"kafka.linger.ms": "5"}, {"path": "x", "subscribe": "t"}):
        with pytest.raises(OptionError, match=r"servers is missing") as caught:
            check(options)
        assert "No option has arrived" not in str(caught.value)


@pytest.mark.parametrize("check", [parse_batch_options, parse_stream_options, parse_columns])
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("topic", "subscribe"),
        ("Topics", "subscribe"),
        ("topicPattern", "subscribePattern"),
        ("path", "subscribe"),  # load("t")
        ("kafka.subscribe", "subscribe"),
    ],
)
def test_an_option_that_looks_like_a_selection(
    check: Callable[[dict[str, str]], object], given: str, meant: str
) -> None:
    others = {"stampBatch": "true", "colour": "red"}  # one that does not apply, and an unknown one
    for more in ({}, others):
        with pytest.raises(OptionError, match=rf"got none; use {meant} instead of (?i:{given})$"):
            check({**more, "kafka.bootstrap.servers": "b:1", given: "t"})
    with pytest.raises(OptionError, match=r"got none$"):
        check({"kafka.bootstrap.servers": "b:1", "kafka.linger.ms": "5"})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("format", "valueFormat"),
        ("Schema", "valueSchema"),
        ("framing", "valueFraming"),
        ("message", "valueMessage"),
        ("keyForm", "keyFormat"),
    ],
)
def test_hints_about_formats_prefer_values_to_keys(given: str, meant: str) -> None:
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", given: "json"}
    for parse_options in (parse_batch_options, parse_stream_options):
        (warning,) = parse_options(options).warnings
        assert warning.endswith(f"is unknown and ignored; did you mean '{meant}'?")


def test_exactly_one_selection_is_required() -> None:
    with pytest.raises(OptionError, match="exactly one of the options assign, subscribe, subscribePattern"):
        parse_batch_options({"kafka.bootstrap.servers": "b:1"})
    assert_rejected("exactly one", "assign, subscribe", subscribe="t", assign='{"a":[0]}')
    assert_rejected("exactly one", "subscribe, subscribePattern", subscribe="t", subscribePattern="t.*")


def test_selections() -> None:
    assert parse(assign='{"t":[1,0],"s":[2]}').source.selection == AssignStrategy(
        (TopicPartition("s", 2), T0, TopicPartition("t", 1))
    )
    assert parse(subscribe=" a , b,,a ").source.selection == SubscribeStrategy(("a", "b"))
    assert_rejected("no topic-partitions to assign", assign="{}")
    assert_rejected("assign must be JSON", assign="")
    assert_rejected("assign", "a b", assign='{"a":[0],"a b":[0]}')
    assert_rejected("no topics to subscribe to", subscribe=" , ")
    assert_rejected("the pattern is empty", subscribePattern=" ")


@pytest.mark.parametrize("text", ["a", "1.0", "0", "-1", "", "1_000", "2147483648", "9" * 5000])
def test_invalid_min_partitions(text: str) -> None:
    assert_rejected("minPartitions must be an integer from 1 to 2147483647", minPartitions=text)


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
        ("rackEnvironmentVariable", "AWS_SECRET_ACCESS_KEY"),
        ("rackEnvironmentVariable", "github_token"),
        ("rackEnvironmentVariable", "MYSQL_PWD"),
        ("rackEnvironmentVariable", "RABBITMQ_ERLANG_COOKIE"),
        ("rackEnvironmentVariable", "GIT_CREDS"),
        ("rackEnvironmentVariable", "HASH_SALT"),
        ("rackEnvironmentVariable", "BLOB_SAS"),
        ("rackEnvironmentVariable", "SESSION_ID"),
        ("rackEnvironmentVariable", "DbPassword"),
        ("rackEnvironmentVariable", "GOOGLE_APPLICATION_CREDENTIALS"),
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
def test_errors_name_the_option_and_the_value(name: str, text: str) -> None:
    assert_rejected(name, text.strip(), **{name: text})


def test_errors_about_misspelled_values_have_a_hint() -> None:
    assert_rejected("did you mean 'earliest'?", startingOffsets="earlist")
    assert_rejected("did you mean 'latest'?", startingOffsetsByTimestampStrategy="lates")
    assert_rejected("did you mean 'true'?", failOnDataLoss="ture")


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("startingTimestamp", "1764449000"),
        ("startingOffsetsByTimestamp", '{"t":{"0":1764449000,"1":1764449001}}'),
        ("endingTimestamp", "1764449000"),
    ],
)
def test_a_timestamp_in_seconds_gets_one_warning(option: str, text: str) -> None:
    meant = f"{option}: 1764449000 ms is a time in 1970; if it is in seconds, multiply it by 1000"
    assert [warning for warning in parse(**{option: text}).warnings if "1970" in warning] == [meant]
    assert not [w for w in parse(**{option: text.replace("1764449", "1764449000")}).warnings if "1970" in w]
    assert not [w for w in parse(startingTimestamp="0").warnings if "1970" in w]


@pytest.mark.parametrize("option", ["startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
def test_a_timestamp_in_seconds_is_found_among_others(option: str) -> None:
    for others in range(1, 4):
        for place in range(others + 1):
            times = [1764449000000] * others
            times.insert(place, 1764449000)
            for topics in ({"t": dict(enumerate(times))}, {f"t{each}": {0: time} for each, time in enumerate(times)}):
                warnings = parse(**{option: json.dumps(topics)}).warnings
                assert [warning for warning in warnings if "1764449000 ms is a time in 1970" in warning], topics


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
    assert (options.source.start, options.source.end) == (at_time(1000), at_time(3000, "latest"))
    assert [w for w in options.warnings if "startingTimestamp takes precedence" in w] == [
        "the option startingOffsetsByTimestamp is ignored: startingTimestamp takes precedence",
        "the option startingOffsets is ignored: startingTimestamp takes precedence",
    ]
    del everything["startingTimestamp"], everything["endingTimestamp"]
    options = parse(**everything)
    assert options.source.start == at_times({T0: 2000})
    assert options.source.end == at_times({T0: 4000}, "latest")


def test_a_position_with_lower_precedence_is_not_validated() -> None:
    assert parse(startingTimestamp="1000", startingOffsets="latest").source.start == at_time(1000)


def test_the_strategy_applies_to_starts_only() -> None:
    options = parse(startingTimestamp="1", endingTimestamp="2", startingOffsetsByTimestampStrategy="LATEST")
    assert (options.source.start, options.source.end) == (at_time(1, "latest"), at_time(2, "latest"))
    assert parse(startingTimestamp="1", startingOffsetsByTimestampStrategy="Error").source.start == at_time(1, "error")


def test_batches_cannot_start_at_the_latest_or_end_at_the_earliest_offsets() -> None:
    assert_rejected("startingOffsets", "cannot be latest", startingOffsets="LATEST")
    assert_rejected("startingOffsets", "t-1", "cannot be latest", startingOffsets='{"t":{"0":0,"1":-1}}')
    assert_rejected("startingOffsets", "topic t", "cannot be latest", startingOffsets='{"t":"latest"}')
    assert_rejected("endingOffsets", "cannot be earliest", endingOffsets="earliest")
    assert_rejected("endingOffsets", "t-1", "cannot be earliest", endingOffsets='{"t":{"0":0,"1":-2}}')
    assert_rejected("endingOffsets", "topic t", "cannot be earliest", endingOffsets='{"t":"Earliest"}')


def test_explicit_positions_are_compared_while_parsing() -> None:
    with pytest.raises(InvalidOffsetsError, match="same topic-partitions; only in startingOffsets: t-1"):
        parse(startingOffsets='{"t":{"0":1,"1":1}}', endingOffsets='{"t":{"0":2}}')
    with pytest.raises(
        InvalidOffsetsError, match=r"start offset 3 \(startingOffsets\) is greater than the end offset 2"
    ):
        parse(startingOffsets='{"t":{"0":3}}', endingOffsets='{"t":{"0":2}}')


def test_streaming_options_are_ignored_with_a_warning() -> None:
    options = parse(
        maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5", maxTriggerDelay="1m", groupIdPrefix="g", topic="t"
    )
    assert len(options.warnings) == 5
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "groupIdPrefix", "topic"):
        assert any(f"option {name} is ignored" in warning for warning in options.warnings)


def test_warnings_about_unknown_options_have_a_hint() -> None:
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
@pytest.mark.parametrize("check", [parse_batch_options, parse_stream_options, parse_columns])
def test_a_misspelled_option_is_rejected(check: Callable[[dict[str, str]], object], given: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"the option {given.lower()} is unknown; did you mean '{meant}'\\?"):
        check({"kafka.bootstrap.servers": "b:1", "subscribe": "t", given.lower(): "earliest"})


@pytest.mark.parametrize("name", sorted(DATA_SOURCE_NAMES))
def test_every_name_with_one_wrong_letter_is_detected(name: str) -> None:
    for i in range(len(name)):
        start, letter, rest = name[:i], name[i], name[i + 1 :]
        for wrong in (rest, "z" + rest, "z" + letter + rest, rest[:1] + letter + rest[1:]):
            assert start + wrong == name or is_misspelt(start + wrong, [name]), start + wrong


def test_options_that_spark_adds_cause_no_warning() -> None:
    assert parse(path="x", paths="[]", checkpointLocation="y").warnings == ()


@pytest.mark.parametrize("check", [parse_batch_options, parse_stream_options])
def test_options_of_spark_and_of_kafka_are_not_rejected_as_misspelled_ones(
    check: Callable[[dict[str, str]], ReadSettings],
) -> None:
    """Unrelated options cause a warning at most, because Spark and generic wrappers pass options of other formats."""
    spark_options = (
        "path paths checkpointLocation queryName maxFilesPerTrigger maxFileAge latestFirst fileNameOnly numPartitions "
        "rowsPerSecond rampUpTime includeTimestamp asyncProgressTrackingEnabled withEventTimeOrder header mergeSchema "
        "asyncProgressTrackingCheckpointIntervalMs useDeprecatedOffsetFetching partitionColumn maxPartitions topics"
    )
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    check(base | {name.lower(): "1" for name in spark_options.split()})
    for option in OPTION_TABLE.options:
        if option.is_client and "." in option.name and not any(policy.reject for policy in option.unsupported.values()):
            value = option.default_in("batch") or (option.allowed[0] if option.allowed else "b:1")
            assert parse_config(base | {option.name: value}, api="batch", source=ConfigSource.OPTION)
    prefixed = {"kafka.startingoffset": "1", "kafka.startingoffsetsbytimestampstrategy": "1"}
    assert all(any(name in warning for warning in check(base | prefixed).warnings) for name in prefixed)


def test_none_means_not_given() -> None:
    options = parse_batch_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "minpartitions": None})  # type: ignore[dict-item]
    assert options.source.min_partitions is None


def test_offset_ranges() -> None:
    options = parse(
        offsetRanges='[{"topic":"t","partition":1,"fromOffset":5,"untilOffset":9},'
        '{"topic":"t","partition":0,"fromOffset":0,"untilOffset":0},'
        '{"topic":"t","partition":1,"fromOffset":20,"untilOffset":30}]'
    )
    assert options.source.offset_ranges == (
        OffsetRange("t", 1, 5, 9),
        OffsetRange("t", 0, 0, 0),
        OffsetRange("t", 1, 20, 30),
    )
    assert options.source.selection == AssignStrategy((T0, TopicPartition("t", 1)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[", "offsetRanges must be a JSON list"),
        ('["t"]', "entry 0 must have exactly the keys topic, partition, fromOffset, untilOffset"),
        ('[{"topic":"t","partition":0,"fromOffset":5}]', "entry 0 must have exactly the keys"),
        ('[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":4}]', "after its end 4"),
        ('[{"topic":"t","partition":0,"fromOffset":-2,"untilOffset":4}]', "from_offset must be"),
        ('[{"topic":"t","partition":"0","fromOffset":1,"untilOffset":4}]', "partition must be"),
        ('[{"topic":3,"partition":0,"fromOffset":1,"untilOffset":4}]', "needs a topic name"),
    ],
)
def test_malformed_offset_ranges(text: str, reason: str) -> None:
    assert_rejected(reason, offsetRanges=text)


@pytest.mark.parametrize("other", ["subscribe", "assign", "subscribePattern", "startingOffsets", "endingTimestamp"])
def test_offset_ranges_exclude_other_options_that_select_topics_or_offsets(other: str) -> None:
    assert_rejected("offsetRanges defines everything that is read", other, offsetRanges="[]", **{other: "5"})


def test_arguments_of_read_arrow() -> None:
    def sliced(**given: str) -> ReadSettings:
        return parse_slice_arguments(
            {"bootstrap.servers": "b:1", **given}, SubscribeStrategy(("t",)), "earliest", "latest"
        )

    for name, value in (("subscribe", "t"), ("endingOffsets", "latest"), ("minPartitions", "4")):
        with pytest.raises(OptionError, match=f"read_arrow has the argument .* in place of {name}"):
            sliced(**{name: value})
    with pytest.raises(OptionError, match="colums is unknown; did you mean 'columns'"):
        sliced(flavour="x", colums="y")
    payloads = sliced(keyFormat="string", valueFormat="string").payloads
    assert (payloads.key.charset, payloads.value.charset) == ("UTF-8", "UTF-8")


def test_options_can_be_pickled() -> None:
    options = parse(subscribePattern="t.*", startingTimestamp="5")
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_documentation_is_up_to_date() -> None:
    assert DOCS.read_text(encoding="utf-8") == pages()[DOCS.name], "run python scripts/option_docs.py"


def test_the_script_writes_the_documentation(tmp_path: Path) -> None:
    subprocess.run([sys.executable, DOCS.parents[1] / "scripts" / "option_docs.py", tmp_path], check=True, timeout=300)
    assert {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()} == pages()


def test_every_option_has_a_description_or_a_reason() -> None:
    for option in OPTION_TABLE.options:
        assert option.doc or not option.apis, option.name
        assert all(api in option.apis or option.unsupported_policy(api).reason for api in SOURCE_APIS), option.name
