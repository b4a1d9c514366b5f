"""What the driver's JVM knows of a running query and its progress reports don't tell: options, and the trigger.

Reports name a source of Python by an object's address. The same text is found in the query's plan, beside the source's
options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.planning.feedback import DEFAULT_INTERVAL_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMAT = "kafka-direct"
_ANY_PYTHON_SOURCE = "PythonMicroBatchStream"
_INTERVAL = re.compile(r"ProcessingTimeTrigger\((\d+)\)")


@dataclass(frozen=True)
class QueryFacts:
    """A query, as far as it could be found.

    Attributes:
        interval_ms: The interval of its trigger; a default where it has none.
        options: Options of its sources of this package, names in lower case, by Spark's text for the source; they may
            hold secrets, so they are not shown. ``None`` when the query could not be found.
    """

    interval_ms: float = DEFAULT_INTERVAL_MS
    options: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)

    def ours(self, description: str) -> bool:
        """Tell whether this is a source of this package; without the plan, any source written in Python may be."""
        return _ANY_PYTHON_SOURCE in description if self.options is None else description in self.options

    def option(self, description: str, name: str) -> str | None:
        """Return an option of a source."""
        return None if self.options is None else self.options.get(description, {}).get(name.lower())


def find_query(spark: Any, query_id: str) -> Any:
    """Return the JVM's running query, or ``None``: it ended, or there is no JVM at hand (Spark Connect)."""
    try:
        return spark._jsparkSession.streams().get(query_id)
    except Exception:
        return None


def query_facts(query: Any) -> QueryFacts:
    """Look into a query that has finished a batch.

    Args:
        query: From ``find_query``.
    """
    if query is None:
        return QueryFacts()
    execution = query.streamingQuery()
    found = _INTERVAL.search(execution.trigger().toString())
    interval = float(found[1]) if found is not None else 0.0
    options: dict[str, Mapping[str, str]] = {}
    for leaf in _leaves(execution.logicalPlan(), "StreamingDataSourceV2ScanRelation"):
        relation = leaf.relation()
        if relation.table().name() == FORMAT:
            options[leaf.stream().toString()] = _options(relation.options())
    return QueryFacts(interval or DEFAULT_INTERVAL_MS, options)


def committing_sources(query: Any) -> list[Mapping[str, str]]:
    """Return the options of the query's sources that commit for a group, before Spark makes their planners.

    The query waits for this, and each call into the JVM takes time: options are read only where a source commits.

    Args:
        query: From ``find_query``.
    """
    if query is None:
        return []
    given = [
        leaf.extraOptions()
        for leaf in _leaves(query.streamingQuery().analyzedPlan(), "StreamingRelationV2")
        if leaf.table().name() == FORMAT
    ]
    return [_options(options) for options in given if options.containsKey("commitGroupId")]


def _leaves(plan: Any, kind: str) -> Iterator[Any]:
    leaves = plan.collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() == kind:
            yield leaf


def _options(given: Any) -> dict[str, str]:
    return {str(name).lower(): str(text) for name, text in dict(given.asCaseSensitiveMap()).items()}
