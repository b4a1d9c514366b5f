"""Details of a running query that progress reports do not contain: the options of its sources, and its trigger.

Progress reports identify a Python source by the address of an object. The same string is in the query's plan, next to
the options of the source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.planning.backpressure import DEFAULT_INTERVAL_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMAT = "kafka-direct"
_ANY_PYTHON_SOURCE = "PythonMicroBatchStream"  # in Spark's description of any source that is written in Python
_INTERVAL = re.compile(r"ProcessingTimeTrigger\((\d+)\)")


@dataclass(frozen=True)
class QueryDetails:
    """The trigger interval and the source options of a query; defaults if the query was not found."""

    interval_ms: float = DEFAULT_INTERVAL_MS  # of its trigger
    # The options of its sources of this package by Spark's description of the source, with names in lower case. They
    # may contain secrets, so they are not in the repr. None if the query was not found.
    options: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)

    def is_kafka_direct(self, description: str) -> bool:
        """Return whether this is a source of this package; without a plan, any Python source may be one."""
        return _ANY_PYTHON_SOURCE in description if self.options is None else description in self.options

    def option(self, description: str, name: str) -> str | None:
        """Return an option of a source by its documented name, however the user has written that."""
        from pyspark_kafka_direct.options.config_option import ConfigSource
        from pyspark_kafka_direct.options.option_parser import OPTION_TABLE

        for given_name, value in (self.options or {}).get(description, {}).items():
            if value.strip() and OPTION_TABLE.find(ConfigSource.OPTION, given_name).canonical_name == name:
                return value.strip()
        return None


def find_query(spark: Any, query_id: str) -> Any:
    """Return the JVM's running query, or ``None`` if it has ended, or if there is no JVM (Spark Connect)."""
    try:
        return spark._jsparkSession.streams().get(query_id)
    except Exception:
        return None


def read_query_details(query: Any) -> QueryDetails:
    """Return the details of a query that has finished a batch."""
    if query is None:
        return QueryDetails()
    execution = query.streamingQuery()
    match = _INTERVAL.search(execution.trigger().toString())
    interval_ms = float(match[1]) if match is not None else 0.0  # 0 without a trigger, or if it has no interval
    options: dict[str, Mapping[str, str]] = {}
    for leaf in _leaves(execution.logicalPlan(), "StreamingDataSourceV2ScanRelation"):
        relation = leaf.relation()
        if relation.table().name() == FORMAT:
            options[leaf.stream().toString()] = _options(relation.options())
    return QueryDetails(interval_ms or DEFAULT_INTERVAL_MS, options)


def committing_sources(query: Any) -> list[Mapping[str, str]]:
    """Return the options of the query's sources that commit for a group, before Spark creates their planners."""
    if query is None:
        return []
    # The query waits for this function, and each JVM call takes time, so only options of committing sources are read.
    relation_options = [
        leaf.extraOptions()
        for leaf in _leaves(query.streamingQuery().analyzedPlan(), "StreamingRelationV2")
        if leaf.table().name() == FORMAT
    ]
    return [_options(options) for options in relation_options if options.containsKey("commitGroupId")]


def _leaves(plan: Any, class_name: str) -> Iterator[Any]:
    """Yield the leaves of a logical plan that are of this class."""
    leaves = plan.collectLeaves()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.getClass().getSimpleName() == class_name:
            yield leaf


def _options(relation_options: Any) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in dict(relation_options.asCaseSensitiveMap()).items()}
