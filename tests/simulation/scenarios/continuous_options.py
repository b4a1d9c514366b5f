"""The query that an application defines: its options, its function and its sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.scenarios.continuous_checks import OUTPUTS
from tests.simulation.scenarios.continuous_sinks import DatabaseSinkFactory, RowSinkFactory, UserFunction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.continuous.query_builder import ContinuousQueryBuilder

COMMIT_GROUP: Final = "committed"
"""The value of ``commitGroupId``."""


def define_query(
    builder: ContinuousQueryBuilder,
    parameters: Mapping[str, Any],
    history: str,
    *,
    topics: Sequence[str],
    prefix: str,
    fails_on_loss: bool,
    overrides: Mapping[str, str] | None = None,
) -> ContinuousQueryBuilder:
    """Return the query of a history; ``overrides`` are other options of its sink."""
    options: dict[str, object] = {
        **connection_options(parameters),
        "kafka.isolation.level": parameters["isolation"],
        "subscribe": ",".join(topics),
        "startingOffsets": parameters["starting"],
        "failOnDataLoss": fails_on_loss,
    }
    if parameters.get("commits_to_group"):
        options["commitGroupId"] = COMMIT_GROUP
    builder = builder.read(options).select("key", "value")
    seconds = parameters.get("function_seconds", 0.0)
    drops_rows, outputs = parameters["drops_rows"], parameters["output_topics"]
    if drops_rows or seconds or outputs > 1:
        builder = builder.map_batches(UserFunction(history, seconds, drops_rows=drops_rows, topics=outputs))
    if parameters["guarantee"] == "function":
        return builder.to(RowSinkFactory(history))
    if parameters["guarantee"] == "database":
        return builder.to(DatabaseSinkFactory(history))
    delivery_timeout_ms = parameters["api_timeout_ms"] + parameters["request_timeout_ms"]
    sink_options: dict[str, object] = {"kafka.delivery.timeout.ms": delivery_timeout_ms}
    if parameters.get("stamps"):
        sink_options["stampBatch"] = "true"
    if parameters["guarantee"] == "exactly-once":
        sink_options |= {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": prefix}
    return builder.to_kafka(OUTPUTS[0] if outputs == 1 else None, {**sink_options, **(overrides or {})})


def connection_options(parameters: Mapping[str, Any]) -> dict[str, str]:
    servers = ",".join(f"broker-{number}:9092" for number in range(1, parameters["brokers"] + 1))
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.request.timeout.ms": str(parameters["request_timeout_ms"]),
        "kafka.default.api.timeout.ms": str(parameters["api_timeout_ms"]),
    }
