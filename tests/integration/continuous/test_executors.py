"""Continuous queries on executors in separate processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.integration.continuous.continuous_queries import SHORT_LEASE
from tests.soak.processes import executor_of, executors, kill, task_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic
    from tests.integration.continuous.continuous_queries import Queries

pytestmark = pytest.mark.spark_app


@pytest.fixture(scope="module")
def spark(two_executors: SparkSession) -> SparkSession:
    return two_executors


def test_a_killed_worker_and_a_killed_executor(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(2), make_topic()
    query = queries.copy(source, output, heartbeatTimeout=SHORT_LEASE)
    queries.put(source, range(10))
    queries.expect(output, range(10), query)
    query.processAllAvailable()
    assert kill(task_workers(os.getpid())[:1]) == 1
    queries.put(source, range(10, 20))
    queries.expect_all(output, range(20), range(10), query)  # the other task may write before it is cancelled
    query.processAllAvailable()
    busy_executors = [each for worker in task_workers(os.getpid()) if (each := executor_of(worker.pid)) is not None]
    assert len(busy_executors) == 2, "a task on each executor"
    assert kill(executors(os.getpid())[:1]) == 1
    queries.put(source, range(20, 30))
    queries.expect_all(output, range(30), range(10), query)
    assert query.isActive


def test_more_tasks_than_cores(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(3), make_topic()
    queries.put(source, range(30))
    queries.expect(output, range(30), queries.copy(source, output))
