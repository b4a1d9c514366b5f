"""Every block of Python in the README and docs/ runs, in the order of its page, against a real broker and a real Spark.

A block is run as it stands, but for the names of places (servers, folders, a port), and for waits. A page has its own
Spark session, so that what a block sets does not reach other tests; topics are those of one broker for all pages. A
transactional id belongs to one query, so each page has its own prefix of it.
docs/security.md has its own test (``tests/unit/options/test_security_docs.py``): its options are for other clusters.
So has docs/runbook.md (``tests/integration/test_runbook.py``): its blocks need its commands.
"""

from __future__ import annotations

import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.documentation import PAGES, fenced
from tests.integration.sessions import setting
from tests.integration.waiting import wait_until
from tests.shards.brokers import shared_broker

from pyspark_kafka_direct.broker.__main__ import example_code
from pyspark_kafka_direct.cli.sample_flights import FLIGHTS_TOPIC, FlightsProducer
from pyspark_kafka_direct.cli.topic_arguments import create_topics, parse_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from tests.documentation import Block

ELSEWHERE = {"docs/runbook.md", "docs/security.md"}
RUN = [page for page in PAGES if page not in ELSEWHERE and any(block.language == "python" for block in fenced(page))]

SERVERS = re.compile(r"\b(localhost|broker1?):9092\b")
FOLDERS = re.compile(
    r'"(?:hdfs://|/local/disk)?/?((?:checkpoints/)?[a-z-]+\.(?:checkpoint|parquet)|/?checkpoints/[a-z-]+)"'
)
TRANSACTIONAL_ID_PREFIX = re.compile(r'("transactionalIdPrefix"[:,] ")')
WAITS = {
    "ssc.awaitTermination()": "ssc.awaitTerminationOrTimeout(1)",
    "query.awaitTermination()": "query.awaitTermination(3)",
    "query.awaitTermination(60)": "query.awaitTermination(3)",
    '"1 minute"': '"0 seconds"',
    '"5 seconds"': '"0 seconds"',
    "(9108)": "(0)",
    '"replication_factor": 3': '"replication_factor": 1',
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """The address of the shared broker, where other tests do not use these topics.

    It is never an existing broker, because a user may have topics with these names there.
    """
    with shared_broker("plain") as kafka:
        create_topics(
            kafka.bootstrap_servers,
            [
                FLIGHTS_TOPIC,
                *parse_topics(
                    ["copies", "copies-once", "delays", "alerts", "counts", "events", "dead-letters", "flights-copy:2"]
                ),
            ],
        )
        with FlightsProducer(kafka.bootstrap_servers) as sample:
            sample.produce_due()
        yield kafka.bootstrap_servers


@pytest.fixture
def namespace(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What a shell of Spark has; what the page has started is stopped at the end."""
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    own = spark.newSession()
    found: dict[str, Any] = {"__name__": "__main__", "spark": own, "sessions": (spark, own)}
    with setting(spark, "spark.sql.shuffle.partitions", "2"):  # which a page changes
        yield found
    stop_streams(found)
    stop_queries(found)
    for table in ("delays", "flights_table"):
        own.sql(f"DROP TABLE IF EXISTS {table}")
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run(page: str, namespace: dict[str, Any], servers: str, tmp_path: Path) -> None:
    for block in fenced(page):
        if block.language == "python":
            text = SERVERS.sub(servers, FOLDERS.sub(rf'"{tmp_path}/\1"', block.text))
            text = TRANSACTIONAL_ID_PREFIX.sub(rf"\g<1>{re.sub(r'[^a-z]', '-', page.lower())}.", text)
            for word, other in WAITS.items():
                text = text.replace(word, other)
            run(block, text, namespace)


def test_what_the_broker_says_to_paste_runs(
    spark: SparkSession, servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(example_code(servers, "flights"), "paste", "exec"), {})
    assert '"carrier"' in capsys.readouterr().out


def run(block: Block, text: str, namespace: dict[str, Any]) -> None:
    """Run a block, and what it has started until something was read by it."""
    if ".start(" in text or "KafkaOffsetStore(" in text:
        stop_queries(namespace)
    uses_stream = re.search(r"\b(stream|ssc)\b", text) is not None and "readStream" not in text
    if uses_stream and "ssc = " not in text and "ssc" in namespace:
        renew_stream(namespace)
    code = compile("\n" * (block.line - 1) + text, block.page, "exec")
    as_soon_as_known(lambda: exec(code, namespace))
    for query in running(namespace):
        query.processAllAvailable()
        assert query.exception() is None
    if "continuous_query(" in text:
        assert namespace["query"].exception() is None
        namespace["query"].stop()
    if uses_stream and "ssc" in namespace:
        run_a_batch(namespace["ssc"])
        stop_streams(namespace)


def stop_queries(namespace: dict[str, Any]) -> None:
    for query in running(namespace):
        query.stop()
    if (store := namespace.pop("store", None)) is not None:
        store.close()


def running(namespace: dict[str, Any]) -> list[StreamingQuery]:
    return [query for session in namespace["sessions"] for query in session.streams.active]


def as_soon_as_known(act: Callable[[], None]) -> None:
    """What a query reports is ``None`` for a moment, until Spark has told of its first batch."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return act()
        except AttributeError as error:
            if "'NoneType'" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def renew_stream(namespace: dict[str, Any]) -> None:
    """A stream that was started takes no more functions: make it again, as the page's first block does."""
    code = """
ssc = StreamingContext(spark.sparkContext, 1)
stream = KafkaUtils.createDirectStream(
    ssc, LocationStrategies.PreferConsistent, ConsumerStrategies.Subscribe(["flights"], first_parameters)
)
stream.foreachRDD(lambda rdd: rdd.count())
"""
    if not callable(namespace["parameters"]):
        namespace["first_parameters"] = namespace["parameters"]
    exec(code, namespace)


def run_a_batch(ssc: Any) -> None:
    context = ssc._jssc.ssc()
    if str(context.getState()) == "INITIALIZED":
        ssc.start()

    def done() -> bool:
        ssc.awaitTerminationOrTimeout(0.2)  # raises what a batch failed with
        return int(context.progressListener().numTotalCompletedBatches()) > 0

    wait_until(done, "a batch")


def stop_streams(namespace: dict[str, Any]) -> None:
    if (ssc := namespace.get("ssc")) is not None:
        ssc.stop(False, False)
