"""Why a test of Spark has another result with this package; a unit test fails if a reason is missing or not needed."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.spark_suites.results import Row


class Kind(enum.Enum):
    """What a difference means."""

    ERROR = "the query fails with both sources, with another class or text of the error"
    DEVIATION = "a documented difference"
    NOT_APPLICABLE = "the test is about a class, a file or a metric of the JVM connector"


class Reason(NamedTuple):
    kind: Kind
    text: str
    since: str = "4.0"
    """The oldest version of Spark of which the kind is true."""


_PLANNED_ONCE: Final = Reason(
    Kind.DEVIATION,
    "[A DataFrame is planned once](../../docs/coming-from-the-jvm-connector.md#a-dataframe-is-planned-once).",
)
_CLASS: Final = Reason(Kind.ERROR, "Another class and text: see below.")
_INITIAL_OFFSETS: Final = Reason(
    Kind.NOT_APPLICABLE,
    "Spark does not pass the checkpoint's path to a Python source, so this file is neither written nor read. "
    "[An empty first batch](../../docs/structured-streaming.md#where-a-query-starts) replaces it.",
)
_ONE_BATCH: Final = Reason(
    Kind.DEVIATION,
    "On Spark 4.0 and 4.1, [a run with `Trigger.AvailableNow` or `Trigger.Once` is one batch within the limits]"
    "(../../docs/install.md#triggeravailablenow-before-42).",
)
_CLASS_UNLESS_ONE_BATCH: Final = Reason(
    Kind.ERROR, f"{_CLASS.text} {_ONE_BATCH.text} This batch does not fail.", since="4.2"
)
_METRICS: Final = Reason(
    Kind.NOT_APPLICABLE,
    "A Python source cannot define metrics. [`enable(spark)`](../../docs/monitoring.md) has the lag.",
)

REASONS: Final[dict[str, dict[str, Reason]]] = {
    "KafkaMicroBatchV2SourceWithAdminSuite": {
        "ensure that initial offset are written with an extra byte in the beginning (SPARK-19517)": _INITIAL_OFFSETS,
        "deserialization of initial offset written by Spark 2.1.0 (SPARK-19517)": _INITIAL_OFFSETS,
        "deserialization of initial offset written by future version": _INITIAL_OFFSETS,
        "Trigger.AvailableNow": _ONE_BATCH,
        "maxOffsetsPerTrigger": _ONE_BATCH,
        "test custom metrics - with rate limit": _METRICS,
        "test custom metrics - no rate limit": _METRICS,
        "compositeReadLimit": Reason(
            Kind.NOT_APPLICABLE,
            "The test advances a clock in the JVM, and the source runs in a Python process. "
            "`test_both_limits_as_in_sparks_test` has the same numbers.",
        ),
        "V2 Source is used by default": Reason(Kind.NOT_APPLICABLE, "The test expects the JVM connector's class."),
        "Query with Trigger.AvailableNow should throw error when topic partitions got unavailable "
        "during subsequent batches": _CLASS_UNLESS_ONE_BATCH,
        "Query with Trigger.AvailableNow should throw error when offset(s) in planned topic partitions "
        "got unavailable during subsequent batches": _CLASS_UNLESS_ONE_BATCH,
        "subscribe topic by pattern with topic recreation between batches": _CLASS,
        "SPARK-56243: malformed record timestamp throws detailed error": _CLASS,
        "bad source options": Reason(
            Kind.DEVIATION,
            "[Some options are checked only when the query runs]"
            "(../../docs/coming-from-the-jvm-connector.md#errors-at-planning).",
        ),
        "async progress tracking": Reason(
            Kind.NOT_APPLICABLE,
            "Spark allows asynchronous progress tracking for its own sinks only. With them, this source works: "
            "`test_asynchronous_progress_tracking_repeats_records_that_the_checkpoint_lacks`.",
        ),
        "unsupported kafka configs": _CLASS,
    },
    "KafkaRelationSuiteV2": {
        "explicit earliest to latest offsets": _PLANNED_ONCE,
        "explicit offsets": _PLANNED_ONCE,
        "test late binding start offsets": _PLANNED_ONCE,
        "read Kafka transactional messages: read_committed": _PLANNED_ONCE,
        "read Kafka transactional messages: read_uncommitted": _PLANNED_ONCE,
        "SPARK-30656: minPartitions": _PLANNED_ONCE,
        "no matched offset for timestamp - startingOffsets": _CLASS,
        "bad batch query options": _CLASS,
        "topic-partition for start offset and end offset must match": _CLASS,
        "unresolved start offset greater than end offset": _CLASS,
        "resolved start offset greater than end offset (without latest)": _CLASS,
    },
    "KafkaSinkBatchSuiteV2": {
        "batch - partition column and partitioner priorities": Reason(
            Kind.DEVIATION,
            "[A Java partitioner](../../docs/coming-from-the-jvm-connector.md#the-sink) cannot run. "
            "The other priorities are the same: `test_the_partition_is_chosen_by_column_then_key_then_batch`.",
        ),
        "batch - null topic field value, and no topic option": _CLASS,
        "batch - unsupported save modes": _CLASS,
    },
    "KafkaSinkMicroBatchStreamingSuite": {
        "streaming - write to kafka with topic field": _PLANNED_ONCE,
        "streaming - write w/o topic field, with topic option": _PLANNED_ONCE,
        "streaming - topic field and topic option": _PLANNED_ONCE,
        "streaming - write to non-existing topic": _CLASS,
        "streaming - exception on config serializer": _CLASS,
        "streaming - sink progress is produced": Reason(
            Kind.DEVIATION,
            "[Spark rejects output mode `update`]"
            "(../../docs/coming-from-the-jvm-connector.md#the-sink) for Python sinks.",
        ),
    },
    "KafkaDontFailOnDataLossSuite": {
        "failOnDataLoss=false should not return duplicated records: continuous processing": Reason(
            Kind.DEVIATION,
            "Spark has no trigger `continuous` for Python sources: use [continuous queries](../../docs/continuous.md).",
        ),
    },
}


def missing_reasons(rows: Iterable[Row]) -> list[str]:
    """Return the tests that do not pass with both sources and have no reason."""
    return [
        f"{row.suite}: {row.test}"
        for row in rows
        if not row.passed_with_both and row.test not in REASONS.get(row.suite, {})
    ]


def unused_reasons(rows: Iterable[Row]) -> list[str]:
    """Return the tests with a reason that pass with both sources, or do not exist."""
    needed = {(row.suite, row.test) for row in rows if not row.passed_with_both}
    return [f"{suite}: {test}" for suite, tests in REASONS.items() for test in tests if (suite, test) not in needed]
