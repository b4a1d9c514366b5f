"""The planner with real brokers that stop, restart, lose partition leaders, or never respond.

The tests call the reader as Spark does, with offsets as JSON, but without Spark: the brokers' behaviour matters here.
"""

from __future__ import annotations

import json
import pickle
import re
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import InputPartition
from tests.integration.stream_queries import produce
from tests.integration.topics import Admin

from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider
from pyspark_kafka_direct.errors import BrokerError, DataLossError, PatternTimeoutError
from pyspark_kafka_direct.options import topic_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream

# Spark before 4.2 has no limits and another reader.
_limits = pytest.importorskip("pyspark.sql.streaming.datasource")
ReadAllAvailable, ReadMaxRows = _limits.ReadAllAvailable, _limits.ReadMaxRows


HANG = 120.0  # seconds after which a wait counts as a hang
LONG_TIMEOUT_MS = "600000"  # longer than HANG


def reader(servers: str, topic: str, **options: str) -> KafkaMicroBatchStream:
    fixed_options = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest"}
    if topic:
        fixed_options["subscribe"] = topic
    source = KafkaSourceProvider({**fixed_options, **{name.replace("_", "."): text for name, text in options.items()}})
    return source.streamReader(source.schema())  # type: ignore[return-value]


def next_end(stream: KafkaMicroBatchStream, start: dict[str, Any]) -> dict[str, Any]:
    """The next end after the start, as Spark gets it."""
    deadline = time.monotonic() + 600
    while True:
        end: dict[str, Any] = json.loads(json.dumps(stream.latestOffset(start, stream.getDefaultReadLimit())))
        if end != start:
            return end
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read(stream: KafkaMicroBatchStream, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    batches = [batch for task in stream.partitions(start, end) for batch in stream.read(task)]
    return sorted(int(value) for batch in batches for value in batch.column("value").to_pylist())


def test_creating_a_reader_sends_no_request_and_it_can_be_pickled(make_topic: MakeTopic, kafka: EmbeddedKafka) -> None:
    stream = reader("127.0.0.1:1", "t")
    assert list(pickle.loads(pickle.dumps(stream)).read(InputPartition(None))) == []
    stream = reader(kafka.bootstrap_servers, make_topic())
    stream.initialOffset()
    assert list(pickle.loads(pickle.dumps(stream)).read(InputPartition(None))) == []


def test_the_default_limit_distinguishes_trigger_once() -> None:
    assert reader("127.0.0.1:1", "t").getDefaultReadLimit() == ReadAllAvailable()
    assert reader("127.0.0.1:1", "t", maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    assert isinstance(reader("127.0.0.1:1", "t", minOffsetsPerTrigger="7").getDefaultReadLimit(), ReadMaxRows)
    assert isinstance(reader("127.0.0.1:1", "t", startingOffsets="latest").getDefaultReadLimit(), ReadMaxRows)


def test_offsets_are_sorted_and_an_idle_result_is_the_identical_json(
    make_topic: MakeTopic, kafka: EmbeddedKafka
) -> None:
    topics = [make_topic(12), make_topic(2)]
    stream = reader(kafka.bootstrap_servers, ",".join(reversed(topics)))
    start = stream.initialOffset()
    assert list(start) == sorted(topics)
    assert list(start[topics[0]]) == [str(number) for number in range(12)]
    for topic in topics:
        produce(kafka.bootstrap_servers, topic, range(12))
    end = next_end(stream, start)
    assert [name for name in end if name in topics] == sorted(topics)
    # In another order, as Spark's own source may have written it.
    unsorted_end = {topic: dict(reversed(offsets.items())) for topic, offsets in reversed(end.items())}
    assert json.dumps(stream.latestOffset(unsorted_end, ReadAllAvailable())) == json.dumps(unsorted_end)
    assert stream.partitions(unsorted_end, end) == []


def test_the_planner_survives_a_restart_of_the_broker(
    stoppable_kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic]
) -> None:
    """While it is down, it is an error in time."""
    kafka = stoppable_kafka
    servers, topic = kafka.bootstrap_servers, topics_on(kafka.bootstrap_servers)(2)
    stream = reader(servers, topic, failOnDataLoss="true", kafka_default_api_timeout_ms="900000")
    with_short_timeout = reader(
        servers, topic, kafka_default_api_timeout_ms="5000", kafka_request_timeout_ms=LONG_TIMEOUT_MS
    )
    produce(servers, topic, range(10))
    start = stream.initialOffset()
    end = next_end(stream, start)
    assert read(stream, start, end) == list(range(10))
    assert with_short_timeout.latestOffset(end, ReadAllAvailable()) == end
    kafka.stop_broker(1)
    started_at = time.monotonic()
    with pytest.raises(BrokerError, match="127"):
        with_short_timeout.latestOffset(end, ReadAllAvailable())
    assert time.monotonic() - started_at < HANG
    with pytest.raises(BrokerError):
        reader(servers, topic, kafka_default_api_timeout_ms="1000").initialOffset()
    back = threading.Timer(2.0, kafka.start_broker, [1])
    back.start()
    assert stream.latestOffset(end, ReadAllAvailable()) == end, "waits until the broker is back"
    back.join()
    produce(servers, topic, range(10, 15))
    last = next_end(stream, end)
    assert read(stream, end, last) == list(range(10, 15))


def test_an_unresponsive_broker_is_an_error_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unresponsive:
        stream = reader(
            f"127.0.0.1:{unresponsive.getsockname()[1]}",
            "t",
            kafka_default_api_timeout_ms="1000",
            kafka_request_timeout_ms=LONG_TIMEOUT_MS,
            kafka_socket_connection_setup_timeout_ms=LONG_TIMEOUT_MS,
            kafka_socket_connection_setup_timeout_max_ms=LONG_TIMEOUT_MS,
        )
        started_at = time.monotonic()
        with pytest.raises(BrokerError):
            stream.initialOffset()
        assert time.monotonic() - started_at < HANG


def test_a_topic_that_is_not_selected_any_more_is_not_reported_as_deleted(
    make_topic: MakeTopic, kafka: EmbeddedKafka
) -> None:
    topics = [make_topic(2), make_topic()]
    both = reader(kafka.bootstrap_servers, ",".join(topics))
    start = both.initialOffset()
    one = reader(kafka.bootstrap_servers, topics[1])
    with pytest.raises(DataLossError, match=rf"{topics[0]}-0, {topics[0]}-1 are not selected any more"):
        one.latestOffset(start, ReadAllAvailable())
    start["deleted"] = {"0": 5}
    with pytest.raises(DataLossError, match="deleted-0 do not exist any more"):
        both.latestOffset(start, ReadAllAvailable())


def test_a_topic_whose_name_takes_too_long_to_match_fails_a_running_query(
    make_topic: MakeTopic, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone who may create topics can create one whose name takes exponential time."""
    monkeypatch.setattr(topic_pattern, "_MAX_SECONDS", 0.5)
    topic, admin = make_topic(prefix="slow"), Admin(kafka.bootstrap_servers)
    produce(kafka.bootstrap_servers, topic, [1])
    stream = reader(kafka.bootstrap_servers, "", subscribePattern=f"^{topic}(?:a|aa)*$")
    start = stream.initialOffset()
    end = next_end(stream, start)
    assert read(stream, start, end) == [1]
    hostile = f"{topic}{'a' * 100}-"
    admin.create(hostile, 1)
    try:
        with pytest.raises(PatternTimeoutError, match=re.escape(f"up to the topic '{hostile[:80]}")):
            next_end(stream, end)
    finally:
        admin.delete(hostile)


def test_an_idle_planner_refreshes_in_each_call_and_at_most_ten_times_a_second(
    make_topic: MakeTopic, kafka: EmbeddedKafka
) -> None:
    stream = reader(kafka.bootstrap_servers, make_topic())
    start = stream.initialOffset()
    stream.latestOffset(start, ReadAllAvailable())
    offset_reader = stream._offset_reader()
    refreshes: list[float] = []
    assigned = offset_reader.assigned
    offset_reader.assigned = lambda *, strict: refreshes.append(time.monotonic()) or assigned(strict=strict)  # type: ignore
    started_at = time.monotonic()
    calls = 0
    while time.monotonic() < started_at + 1:
        stream.latestOffset(start, ReadAllAvailable())
        calls += 1
    assert len(refreshes) <= 1 + 10 * (time.monotonic() - started_at)
    assert len(refreshes) == calls
