"""The parts of the package that are changed, and the unit tests that must detect the changes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pyspark_kafka_direct"
TESTS = ROOT / "tests" / "unit"


class MutationTarget(NamedTuple):
    """A part of the package.

    Attributes:
        sources: The files and folders of the part.
        tests: Files and folders below tests/unit.
        integration: Those of the sources that only integration tests run, because they need a Spark session or a
            broker; they are not changed.
        goal: The minimum share of changes that must be detected.
    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    integration: tuple[str, ...] = ()
    goal: float = 0.9

    def files(self) -> list[Path]:
        """Return the files that are changed."""
        left = {PACKAGE / file for file in self.integration}
        return [file for source in self.sources for file in _python_files(PACKAGE / source) if file not in left]

    def test_files(self) -> list[Path]:
        """Return the test files and their helper modules."""
        return [file for test in self.tests for file in _python_files(TESTS / test)]

    def arguments(self) -> list[str]:
        """Return the tests as arguments of pytest."""
        return [str((TESTS / test).relative_to(ROOT)) for test in self.tests]


TARGETS = {
    "arrow": MutationTarget(("arrow",), ("arrow", "options/test_read_options.py")),
    "planning": MutationTarget(
        ("planning", "spark/write_report.py"),
        (
            "planning",
            "continuous/test_continuous_start_planner.py",
            "continuous/test_partition_discovery.py",
            "datasource/test_micro_batch_available_now.py",
            "datasource/test_micro_batch_first_batch.py",
            "datasource/test_micro_batch_loss.py",
            "datasource/test_micro_batch_planner.py",
            "direct/test_stream_client.py",
            "spark/test_write_report.py",
        ),
    ),
    "consumer": MutationTarget(
        ("consumer",),
        (
            "consumer",
            "datasource/test_partition_reader.py",
            "datasource/test_plan_batch_query.py",
            "direct/test_kafka_rdd_tasks.py",
            "planning/test_batch_planner.py",
            "spark/test_blocked_queries.py",
        ),
    ),
    "log": MutationTarget(("log",), ("log",)),
    "loss": MutationTarget(
        ("client/witnesses.py", "client/cluster_client.py", "consumer/fetcher.py", "consumer/partition_reader.py"),
        (
            "consumer",
            "client/test_witnesses.py",
            "client/test_replica_witnesses.py",
            "client/test_cluster_client.py",
            "planning/test_loss_evidence.py",
        ),
    ),
    "records": MutationTarget(("records",), ("records", "test_golden.py")),
    "payloads": MutationTarget(
        ("payloads",),
        (
            "payloads",
            "options/test_payload_options.py",
            "options/test_registry_options.py",
            "options/test_sink_payloads.py",
            "datasource/test_payload_schema.py",
            "test_functions.py",
            "test_golden.py",
        ),
    ),
    "options": MutationTarget(
        ("options",),
        ("options", "direct/test_conf.py", "planning/test_subscription.py", "planning/test_backpressure.py"),
    ),
    "protocol": MutationTarget(
        (
            "protocol/messages.py",
            "protocol/schema.py",
            "protocol/codec.py",
            "protocol/primitives.py",
        ),
        ("protocol", "consumer/test_fetch_codec.py", "producer/test_produce_channel.py"),
    ),
    "producer": MutationTarget(
        (
            "producer/accumulator.py",
            "producer/async_producer.py",
            "producer/batch_producer.py",
            "producer/broker_channel.py",
            "producer/leader_lookup.py",
            "producer/partition_queue.py",
            "producer/produce_errors.py",
            "producer/producer_id_manager.py",
            "producer/record_future.py",
        ),
        ("producer",),
    ),
    "transactions": MutationTarget(
        ("producer/transactional_producer.py", "client/transaction_coordinator.py", "continuous/sink_delivery.py"),
        (
            "producer",
            "client/test_transaction_coordinator.py",
            "client/test_consumer_group.py",
            "continuous",
        ),
    ),
    "cli": MutationTarget(("cli",), ("cli",), integration=("cli/doctor/broker_check.py",)),
    "client": MutationTarget(
        ("client",),
        ("client", "consumer/test_fetcher.py", "producer/test_producer_epochs.py"),
        integration=("client/admin.py",),
    ),
    "continuous": MutationTarget(
        ("continuous",),
        ("continuous",),
        integration=(
            "continuous/checkpoint_recovery.py",
            "continuous/continuous_execution.py",
            "continuous/continuous_sink.py",
            "continuous/kafka_writer.py",
            "continuous/query.py",
            "continuous/query_run.py",
        ),
    ),
    "datasource": MutationTarget(("datasource",), ("datasource",), integration=("datasource/dead_letters.py",)),
    "direct": MutationTarget(
        ("direct",),
        ("direct",),
        integration=(
            "direct/arrow_columns.py",
            "direct/direct_stream.py",
            "direct/kafka_rdd.py",
            "direct/location_strategies.py",
            "direct/streaming_context.py",
        ),
    ),
    "monitor": MutationTarget(("monitor",), ("monitor",), integration=("monitor/enable_monitor.py",)),
    "spark": MutationTarget(
        ("spark",),
        (
            "spark",
            "continuous/test_checkpoint_logs.py",
            "datasource/test_partition_reader.py",
            "datasource/test_payload_schema.py",
            "datasource/test_recorded_start.py",
            "datasource/test_write_task.py",
            "direct/test_kafka_rdd_tasks.py",
            "monitor/test_reported_queries.py",
            "monitor/test_skipped_losses.py",
            "test_functions.py",
            "test_stop_at_signal.py",
        ),
    ),
}


def _python_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]
