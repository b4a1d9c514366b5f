"""Bugs of direct streams that only checks of rates, of each request, of memory and of all warnings see."""

from __future__ import annotations

from typing import Any, Final

from tests.simulation.planting import BugsOf, does_nothing

from pyspark_kafka_direct.direct import commit_queue as commit_module
from pyspark_kafka_direct.direct.checkpoint_data import StreamCheckpointData
from pyspark_kafka_direct.direct.commit_queue import CommitQueue
from pyspark_kafka_direct.direct.rate_controller import RateController
from pyspark_kafka_direct.direct.stop_hooks import StopSignal

_bug: Final = BugsOf("direct_streams").by_one_patch


def _newest_ranges(original: Any) -> Any:
    return lambda self, time_ms: original(self, max(self._batches, default=time_ms))


def _without_rate(original: Any) -> Any:
    return lambda self: {**original(self), "rate": -1}


def _sent_at_stop(original: Any) -> Any:
    def send(self: Any, deadline: Any = None) -> None:
        if deadline is not None:  # of a stop
            original(self, deadline)

    return send


def _last_of_calls(_: Any) -> Any:
    return lambda calls: {partition: end for call in calls for partition, end in call.offsets.items()}


BUGS: Final = (
    _bug(
        "no batch is forgotten",
        "The ranges of all batches stay in the checkpoint.",
        StreamCheckpointData,
        "forget_batches",
        lambda _: lambda self, is_needed: [],
    ),
    _bug(
        "ranges of the newest batch",
        "offsetRanges(time) returns the ranges of the newest batch.",
        StreamCheckpointData,
        "planned_ranges",
        _newest_ranges,
    ),
    _bug(
        "rate lost at restart",
        "After a restart the estimated rate is lost.",
        RateController,
        "__getstate__",
        _without_rate,
    ),
    _bug(
        "commits only at stop",
        "Queued offsets are committed only when the stream stops.",
        CommitQueue,
        "send",
        _sent_at_stop,
    ),
    _bug(
        "last call wins",
        "If a later range is queued before an earlier one, the end of the earlier one is committed.",
        commit_module,
        "_highest_offsets",
        _last_of_calls,
    ),
    _bug(
        "rejected stop remains",
        "After a stop that Spark rejected, batches that take longer than three seconds fail.",
        StopSignal,
        "cancel_stop",
        does_nothing,
    ),
)
