"""Continuous queries over Avro with the schemas of a registry, which change and fail while a query runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.fake_registry import FakeRegistry, Reply
from tests.integration.continuous.continuous_queries import await_failure
from tests.integration.test_avro_with_registry import V1, V2, Orders

from pyspark_kafka_direct import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa
    from tests.conftest import MakeTopic
    from tests.integration.continuous.continuous_queries import Queries

    from pyspark_kafka_direct.continuous import ContinuousQueryBuilder


@pytest.fixture
def orders(queries: Queries, make_topic: MakeTopic, registry: FakeRegistry) -> Orders:
    return Orders(queries.bench.bootstrap_servers, make_topic(1), registry)


def as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.record_batch({"value": [json.dumps(value) for value in batch.column("value").to_pylist()]})


def read(queries: Queries, orders: Orders, **options: str) -> ContinuousQueryBuilder:
    return queries.read(**{**orders.options, **options}).select("value").map_batches(as_text)


def test_a_schema_that_changes_while_a_query_runs(queries: Queries, make_topic: MakeTopic, orders: Orders) -> None:
    """It reads with the schema of its start, and after a restart with the latest one."""
    output = make_topic()
    orders.write(V1, {"id": 1})
    query = queries.start(read(queries, orders).to_kafka(output))
    queries.expect(output, ['{"id": 1}'], query)
    orders.write(V2, {"id": 2, "name": "b"})
    query.processAllAvailable()
    orders.write(V2, {"id": 3, "name": "c"}, in_headers=True)  # has no id in front of it, so the query fails
    error = await_failure(query)
    assert "[topic" in str(error)
    query = queries.start(read(queries, orders, valueFraming="header").to_kafka(output))
    orders.write(V1, {"id": 4})
    queries.expect(output, ['{"id": 1}', '{"id": 2}', '{"id": 3, "name": "c"}', '{"id": 4, "name": null}'], query)


def test_new_fields_can_fail_the_query(queries: Queries, make_topic: MakeTopic, orders: Orders) -> None:
    output = make_topic()
    orders.write(V1, {"id": 1})
    query = queries.start(read(queries, orders, schemaEvolutionMode="restart").to_kafka(output))
    queries.expect(output, ['{"id": 1}'], query)
    query.processAllAvailable()  # a record that is written but not committed is written again
    orders.write(V2, {"id": 2, "name": "b"})
    error = await_failure(query)
    assert isinstance(error, SchemaError)  # at once, because a restart reads with the same schema
    assert "lacks: name" in str(error)
    query = queries.start(read(queries, orders, schemaEvolutionMode="restart").to_kafka(output))
    queries.expect(output, ['{"id": 1}', '{"id": 2, "name": "b"}'], query)


def test_a_registry_that_is_down(
    queries: Queries, make_topic: MakeTopic, orders: Orders, registry: FakeRegistry
) -> None:
    """Known ids need no registry. Values of another id are neither null nor lost, in each mode."""
    output = make_topic()
    orders.write(V1, {"id": 1})
    query = queries.start(read(queries, orders, mode="PERMISSIVE").to_kafka(output))
    queries.expect(output, ['{"id": 1}'], query)
    registry.fault = lambda _: Reply(500, {"error_code": 50001, "message": "down"})
    orders.write_bytes(b"\0\0\0\0\1\2\4")
    queries.expect(output, ['{"id": 1}', '{"id": 2}'], query)
    query.processAllAvailable()
    orders.write_bytes(b"\0\0\0\0\2\2\6")
    assert "SchemaRegistryUnavailableError: Schema id 2" in str(await_failure(query))  # after several restarts
    registry.fault = None
    registry.add(f"{orders.topic}-value", V2)
    orders.write_bytes(b"\0\0\0\0\1\2\x08")
    query = queries.start(read(queries, orders, valueSchemaVersion="1", mode="DROPMALFORMED").to_kafka(output))
    queries.expect(output, [f'{{"id": {number}}}' for number in (1, 2, 4)], query)
