"""Each batch brings the newest delegation token to its tasks, as Spark pickles the reader of a stream only once."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from tests.unit.datasource.stream_runs import StreamRun, at

from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream
from pyspark_kafka_direct.datasource.read_schema import kafka_schema, read_schema
from pyspark_kafka_direct.options import security_settings
from pyspark_kafka_direct.options.read_options import parse_stream_options
from pyspark_kafka_direct.options.security_settings import (
    DelegationToken,
    DelegationTokenLogin,
    DelegationTokens,
    Secret,
)
from pyspark_kafka_direct.options.token_clusters import TokenCluster

if TYPE_CHECKING:
    import pytest
    from tests.unit.planning.planner_cluster import NewCluster

LOGIN = DelegationTokenLogin("application", "main")


def token(serial: int, expires_at: float = 2e9) -> DelegationToken:
    return DelegationToken(serial, Secret(f"id-{serial}"), Secret(f"hmac-{serial}"), expires_at)


def received_by_executor(pickled: bytes, process: DelegationTokens, patch: pytest.MonkeyPatch) -> str | None:
    """Return the HMAC that a process has after it has unpickled an object."""
    with patch.context() as executor:
        executor.setattr(security_settings, "TOKENS", process)
        pickle.loads(pickled)
    state = process.state(LOGIN)
    return None if state.token is None else state.token.hmac.reveal()


def test_each_batch_has_the_newest_token(cluster: NewCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, executor = DelegationTokens(), DelegationTokens()
    monkeypatch.setattr(security_settings, "TOKENS", driver)
    run = StreamRun(cluster(10))
    end = run.first_end()
    options = {"kafka.bootstrap.servers": "broker-1:9092", "subscribe": "t"}
    reader = KafkaMicroBatchStream(
        parse_stream_options(options, [TokenCluster(LOGIN)]), read_schema(kafka_schema(False))
    )
    reader._planning_state = run.reader._open_planner()  # of a query without a login
    (partition,) = reader.partitions(at(0), end)
    assert received_by_executor(pickle.dumps(partition), executor, monkeypatch) is None
    driver.receive(LOGIN, token(1))
    of_first_batch = pickle.dumps(partition)
    assert received_by_executor(of_first_batch, executor, monkeypatch) == "hmac-1"
    driver.receive(LOGIN, token(2))
    assert received_by_executor(pickle.dumps(partition), executor, monkeypatch) == "hmac-2"
    assert received_by_executor(of_first_batch, executor, monkeypatch) == "hmac-2", "a task of an older batch"
    assert received_by_executor(pickle.dumps(reader), DelegationTokens(), monkeypatch) == "hmac-2"


def test_a_renewed_token_replaces_itself() -> None:
    tokens = DelegationTokens()
    for each in (token(2, 5.0), token(2, 9.0), token(2, 7.0), token(1, 99.0)):
        tokens.receive(LOGIN, each)
    assert tokens.state(LOGIN).token == token(2, 9.0)


def test_a_query_without_tokens_has_none(cluster: NewCluster) -> None:
    run = StreamRun(cluster(10))
    end = run.first_end()
    (partition,) = run.reader.partitions(at(0), end)
    assert getattr(partition, "token_login", "missing") is None
