"""Invalid input is rejected at planning with an error of this package, in time and before any task starts."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from tests.logins import jaas_text

from pyspark_kafka_direct import errors
from pyspark_kafka_direct.broker import make_certificates
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

    Rejected: TypeAlias = Callable[..., str]

HANG = 120.0  # seconds after which a wait counts as hung
LONG_API_TIMEOUT = {"kafka_default_api_timeout_ms": "600000"}  # longer than HANG
NOWHERE = "127.0.0.1:1"  # nothing listens there: invalid options have to be reported without a request


def plan(**options: str) -> list[Any]:
    """Create a source and plan its tasks, as Spark does; in option names ``_`` stands for a dot."""
    source = KafkaSourceProvider({name.replace("_", "."): value for name, value in options.items()})
    return list(source.reader(source.schema()).partitions())


def jobs_of(spark: SparkSession) -> list[int]:
    """Return all jobs so far, after the events that report them."""
    context = spark.sparkContext._jsc
    assert context is not None
    context.sc().listenerBus().waitUntilEmpty(600_000)
    return list(spark.sparkContext.statusTracker().getJobIdsForGroup())


@pytest.fixture(scope="module")
def rejected(spark: SparkSession) -> Rejected:
    """Run a query that has to fail with an error, soon and without a job; return Spark's message."""

    def run(error: type[errors.KafkaDirectError], *messages: str, **options: str) -> str:
        jobs = jobs_of(spark)
        reader = spark.read.format("kafka-direct")
        given = LONG_API_TIMEOUT | options
        started = time.monotonic()
        with pytest.raises(Exception, match=rf"pyspark_kafka_direct\.errors\.{error.__name__}: ") as caught:
            reader.options(**{name.replace("_", "."): value for name, value in given.items()}).load().collect()
        assert time.monotonic() - started < HANG
        assert jobs_of(spark) == jobs
        actual = str(caught.value)
        for message in messages:
            assert message in actual
        return actual

    return run


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        (
            {},
            [
                "exactly one of the options assign, subscribe, subscribePattern (or offsetRanges) must be given",
                "got none",
            ],
        ),
        ({"subscribe": "t", "assign": '{"t":[0]}'}, ["exactly one", "got assign, subscribe"]),
        ({"assign": "t:0"}, ["assign must be JSON such as", "got 't:0'"]),
        ({"assign": "[]"}, ["assign must be JSON such as", "not a JSON object"]),
        ({"assign": '{"t":[-1]}'}, ["assign must be JSON such as", "-1 is not a partition number"]),
        ({"subscribe": ""}, ["subscribe must be a comma-separated list of topics", "no topics"]),
        ({"subscribe": ", ,"}, ["subscribe must be a comma-separated list of topics", "no topics"]),
        (
            {"subscribe": "t", "startingOffset": "latest"},
            ["option startingOffset is", "did you mean 'startingOffsets'?"],
        ),
        ({"subscribe": "t.*"}, ["'t.*' is not a valid topic name", "use subscribePattern"]),
        ({"subscribePattern": ""}, ["subscribePattern must be a Java regular expression", "empty"]),
        ({"subscribePattern": "t(1"}, ["subscribePattern", "t(1"]),
        ({"subscribePattern": "*t"}, ["subscribePattern", "'*' has nothing to repeat"]),
    ],
)
def test_selections(options: dict[str, str], messages: list[str]) -> None:
    option_error(messages, **options)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("startingOffsets", "latest", "cannot be latest (-1) in a batch query"),
        ("startingOffsets", '{"t":{"0":-1}}', "offset of t-0 cannot be latest (-1) in a batch query"),
        ("startingOffsets", '{"t":"latest"}', "offset of topic t cannot be latest (-1) in a batch query"),
        ("startingOffsets", "beginning", "must be"),
        ("startingOffsets", "earlist", "did you mean 'earliest'?"),
        ("startingOffsets", '{"t":{"0":5', "not JSON"),
        ("startingOffsets", '{"t":5}', "topic 't' does not map partitions to integers"),
        ("startingOffsets", '{"t":{"0":-3}}', "-3 for t-0 is not an offset (-1 is latest, -2 is earliest)"),
        ("startingOffsets", '{"t":{"0":1.5}}', "1.5 is not a 64-bit integer"),
        ("startingOffsets", '{"t":{"0":1},"t":"earliest"}', "'t' occurs twice"),
        ("startingOffsets", '{"t":{"zero":1}}', "'zero' is not a partition number"),
        ("endingOffsets", "earliest", "cannot be earliest (-2) in a batch query"),
        ("endingOffsets", '{"t":{"0":-2}}', "offset of t-0 cannot be earliest (-2) in a batch query"),
        ("endingOffsets", "end", "must be"),
        ("endingOffsets", '{"t":{"0":5', "not JSON"),
        ("startingTimestamp", "2024-01-01", "must be one timestamp in milliseconds since 1970"),
        ("startingTimestamp", "-1", "must be one timestamp in milliseconds since 1970"),
        ("startingTimestamp", "1.0", "must be one timestamp in milliseconds since 1970"),
        ("endingTimestamp", "", "must be one timestamp in milliseconds since 1970"),
        ("startingOffsetsByTimestamp", "1700000000000", "must be JSON such as"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}', "-1 for t-0 is before 1970"),
        ("endingOffsetsByTimestamp", '{"t":{"0":"soon"}}', "'soon' is not a 64-bit integer"),
        ("startingOffsetsByTimestampStrategy", "earliest", "must be error or latest, got 'earliest'"),
        ("offsetRanges", "[]", "remove subscribe"),
        ("minPartitions", "a", "an integer from 1"),
        ("minPartitions", "1.0", "an integer from 1"),
        ("minPartitions", "0", "an integer from 1"),
        ("minPartitions", "-1", "an integer from 1"),
        ("maxRecordsPerPartition", "0", "an integer from 1"),
        ("maxRecordsPerPartition", "many", "an integer from 1"),
        ("failOnDataLoss", "no", "must be true or false, got 'no'"),
        ("includeHeaders", "", "must be true or false"),
        ("pushDownFilters", "on", "must be true or false"),
        ("kafkaConsumer.pollTimeoutMs", "2m", "an integer from 1"),
        ("fetchOffset.numRetries", "-1", "an integer from 1"),
        ("fetchOffset.retryIntervalMs", "1s", "an integer from 0"),
        ("oauthTokenProvider", "company.tokens", "must be msk, azure, gcp or module:factory, got 'company.tokens'"),
        ("rackEnvironmentVariable", "$RACK", "must be the name of an environment variable"),
    ],
)
def test_values(name: str, value: str, message: str) -> None:
    option_error([name, message], subscribe="t", **{name: value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kafka.auto.offset.reset", "latest", "set startingOffsets"),
        ("kafka.enable.auto.commit", "true", "Spark manages them"),
        ("kafka.key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer", "are binary"),
        ("kafka.value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer", "are binary"),
        ("kafka.interceptor.classes", "company.Audit", "use DataFrame operations instead"),
        ("kafka.isolation.level", "committed", "read_uncommitted or read_committed"),
        ("kafka.security.protocol", "TLS", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        ("kafka.sasl.client.callback.handler.class", "company.Tokens", "oauthTokenProvider"),
        ("kafka.request.timeout.ms", "30s", "an integer from 1"),
        ("kafka.fetch.min.bytes", "-1", "an integer from 0"),
        ("kafka.check.crcs", "maybe", "true or false"),
    ],
)
def test_client_properties(name: str, value: str, message: str) -> None:
    option_error([name, message], subscribe="t", **{name: value})
    # The prefix is optional.
    option_error([message], subscribe="t", **{name.removeprefix("kafka."): value})


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        ("", "kafka.bootstrap.servers is missing or empty"),
        ("localhost", "must be host:port of one or more brokers, separated by commas, got 'localhost'"),
        ("localhost:0", "must be host:port with a port from 1 to 65535, got 'localhost:0'"),
        ("one:9092 two:9092", "must be host:port of one or more brokers"),
    ],
)
def test_bootstrap_servers(servers: str, message: str) -> None:
    option_error([message], subscribe="t", kafka_bootstrap_servers=servers)


def option_error(messages: list[str], **options: str) -> None:
    with pytest.raises(errors.OptionError) as caught:
        plan(**{"kafka_bootstrap_servers": NOWHERE, **options})
    for message in messages:
        assert message in str(caught.value)


def test_an_option_through_spark(rejected: Rejected) -> None:
    rejected(errors.OptionError, "startingOffsets", kafka_bootstrap_servers=NOWHERE, subscribe="t", startingOffsets="x")
    rejected(
        errors.OptionError, "kafka.check.crcs", kafka_bootstrap_servers=NOWHERE, subscribe="t", kafka_check_crcs="x"
    )


@pytest.mark.parametrize("kind", ["batch", "stream"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "7"}, "minOffsetsPerTrigger=8 must be"),
        ({"maxOffsetsPerTrigger": "many", "startingOffsets": "latest"}, "maxOffsetsPerTrigger must be an integer"),
        ({"pushDownFilters": "on"}, "pushDownFilters must be true or false"),
    ],
)
def test_invalid_options_are_rejected_in_load(
    spark: SparkSession, tmp_path: Path, kind: str, options: dict[str, str], message: str
) -> None:
    """With a schema of the user, Spark calls the source only when the query runs."""
    reader: Any = (spark.read if kind == "batch" else spark.readStream).format("kafka-direct")
    reader = reader.options(**{"kafka.bootstrap.servers": NOWHERE, "subscribe": "t", **options})
    with pytest.raises(AnalysisException, match=f"OptionError: {message}"):
        reader.load()
    df = reader.schema("value binary").load()
    if kind == "batch":
        with pytest.raises(AnalysisException, match=message):
            df.collect()
    else:
        query = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
        with pytest.raises(StreamingQueryException, match=message):
            query.awaitTermination(600)


@pytest.mark.parametrize("side", ["key", "value"])
def test_a_typo_in_a_schema(spark: SparkSession, side: str) -> None:
    """The error names the option, and is not about the columns that Spark parses."""
    options = {
        "kafka.bootstrap.servers": NOWHERE,
        "subscribe": "t",
        f"{side}Format": "json",
        f"{side}Schema": "a strng",
    }
    message = (
        f"OptionError: {side}Schema must be DDL such as .*: field a has the unknown type 'strng'; did you mean 'str"
    )
    for reader in (spark.read, spark.readStream):
        with pytest.raises(AnalysisException, match=message):
            reader.format("kafka-direct").options(**options).load()
    listed = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    with pytest.raises(AnalysisException, match=message):
        spark.sql(f"CREATE TEMPORARY VIEW typo USING `kafka-direct` OPTIONS ({listed})")


def test_unreachable_brokers(rejected: Rejected) -> None:
    options = {"subscribe": "t", "kafka_socket_connection_setup_timeout_ms": "1000"}
    rejected(errors.BrokerUnreachableError, NOWHERE, kafka_bootstrap_servers=NOWHERE, **options)
    rejected(
        errors.BrokerUnreachableError, "nowhere.invalid", kafka_bootstrap_servers="nowhere.invalid:9092", **options
    )


def test_an_unresponsive_broker(rejected: Rejected) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        options = {"subscribe": "t", "kafka_bootstrap_servers": address}
        rejected(errors.BrokerTimeoutError, address, kafka_socket_connection_setup_timeout_ms="2000", **options)
        rejected(errors.BrokerTimeoutError, address, kafka_default_api_timeout_ms="2000", **options)


def test_topics_and_partitions_that_do_not_exist(
    rejected: Rejected, kafka: EmbeddedKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    servers = {"kafka_bootstrap_servers": kafka.bootstrap_servers}
    missing = topic + "-old"
    hint = f"did you mean '{topic}'?"
    rejected(
        errors.TopicNotFoundError,
        missing,
        "reading never creates topics",
        hint,
        subscribe=f"{topic},{missing}",
        **servers,
    )
    rejected(errors.TopicNotFoundError, missing, assign=json.dumps({missing: [0]}), **servers)
    rejected(
        errors.TopicNotFoundError, f"{topic}-2", "has partitions 0, 1", assign=json.dumps({topic: [0, 2]}), **servers
    )
    ranges = json.dumps([{"topic": topic, "partition": 2, "fromOffset": 0, "untilOffset": 1}])
    rejected(errors.TopicNotFoundError, "offsetRanges", f"topic {topic}, partition 2", offsetRanges=ranges, **servers)


def test_offsets_of_a_missing_partition(rejected: Rejected, kafka: EmbeddedKafka, make_topic: MakeTopic) -> None:
    """Offsets of a topic with three partitions that was deleted and recreated with two."""
    topic = make_topic(partitions=2)
    offsets = json.dumps({topic: {"0": 5, "1": 5, "2": 5}})
    servers = {"kafka_bootstrap_servers": kafka.bootstrap_servers}
    rejected(
        errors.InvalidOffsetsError,
        "startingOffsets",
        f"not assigned: {topic}-2",
        subscribe=topic,
        startingOffsets=offsets,
        **servers,
    )
    rejected(
        errors.InvalidOffsetsError,
        "endingOffsets",
        f"not assigned: {topic}-2",
        subscribe=topic,
        endingOffsets=offsets,
        **servers,
    )


@pytest.fixture(scope="module")
def login(secured_kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic]) -> dict[str, str]:
    """Options with which only the ACL of the topic is missing."""
    secured = secured_kafka
    user = secured.users[0]
    return {
        "kafka_bootstrap_servers": secured.listener("SASL_SSL"),
        "kafka_security_protocol": "SASL_SSL",
        "kafka_ssl_truststore_location": str(secured.certificates.ca),
        "kafka_sasl_mechanism": "PLAIN",
        "kafka_sasl_jaas_config": jaas_text("PLAIN", user),
        "subscribe": topics_on(secured.bootstrap_servers)(),
    }


def test_no_acl_on_the_topic(rejected: Rejected, login: dict[str, str]) -> None:
    rejected(errors.AuthorizationError, f"topic {login['subscribe']}", **login)


def test_a_wrong_password(rejected: Rejected, login: dict[str, str]) -> None:
    wrong = jaas_text("PLAIN", password="not-hers")
    message = rejected(
        errors.AuthenticationError,
        "alice",
        login["kafka_bootstrap_servers"],
        **{**login, "kafka_sasl_jaas_config": wrong},
    )
    assert "not-hers" not in message


def test_a_wrong_ca(rejected: Rejected, login: dict[str, str], tmp_path: Path) -> None:
    other = make_certificates(tmp_path / "other", ("localhost",)).ca
    rejected(
        errors.TlsError,
        "kafka.ssl.truststore",
        login["kafka_bootstrap_servers"],
        **{**login, "kafka_ssl_truststore_location": str(other)},
    )
    missing = str(tmp_path / "missing.pem")
    rejected(
        errors.OptionError, "ssl.truststore.location", missing, **{**login, "kafka_ssl_truststore_location": missing}
    )
