"""The maximum number of concurrent tasks."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.continuous.task_slots import max_concurrent_tasks

CASES: list[tuple[str, dict[str, str], int | None]] = [
    ("local", {}, 1),
    ("local[3]", {}, 3),
    ("local[*]", {}, 8),
    ("local[4, 2]", {}, 4),
    ("local[4]", {"spark.task.cpus": "3"}, 1),
    ("local[4]", {"spark.task.cpus": "0.5"}, 8),
    ("local[4]", {"spark.task.cpus": "1.5"}, 2),
    ("local", {"spark.task.cpus": "0.1"}, 10),
    ("local[4]", {"spark.task.cpus": "0"}, 4),
    ("local[4]", {"spark.task.cpus": "many"}, 4),
    ("local[4]", {"spark.task.cpus": "NaN"}, 4),
    ("local-cluster[2,3,1024]", {}, 6),
    ("local-cluster[2,3,1024]", {"spark.task.cpus": "0.4"}, 14),
    ("local-cluster[2,3,1024]", {"spark.task.cpus": "2"}, 2),
    ("spark://host:7077", {}, None),
    ("spark://host:7077", {"spark.cores.max": "5"}, 5),
    ("spark://host:7077", {"spark.cores.max": "5", "spark.task.cpus": "2"}, 2),
    ("yarn", {}, 2),
    ("yarn", {"spark.executor.instances": "4", "spark.executor.cores": "5", "spark.task.cpus": "2"}, 8),
    ("yarn", {"spark.executor.instances": "4", "spark.task.cpus": "0.25"}, 16),
    ("spark://host:7077", {"spark.cores.max": "5", "spark.task.cpus": "2.5"}, 2),
    ("yarn", {"spark.dynamicAllocation.enabled": "true"}, None),
    ("yarn", {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "3"}, 3),
    ("k8s://https://host", {"spark.executor.instances": "3"}, 3),
    ("something-else", {}, None),
]


@pytest.mark.parametrize(("master", "conf", "expected"), CASES, ids=[str(number) for number in range(len(CASES))])
def test_max_concurrent_tasks(master: str, conf: dict[str, str], expected: int | None) -> None:
    assert max_concurrent_tasks(master, conf.get, 8) == expected
