"""The functions that Spark calls for each batch, in a form that survives its checkpoint.

All are objects of classes, not closures: a pickled closure holds compiled code, which another Python version cannot
read. ``Carrier`` holds the stream itself, the others only its id (see ``_registry.py``).
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.direct._registry import stream_of
from pyspark_kafka_direct.direct._spark_side import side_after_restore
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pyspark import RDD

    from pyspark_kafka_direct.direct._planner import StreamPlanner
    from pyspark_kafka_direct.direct.rdd import KafkaRDD

_first_call = threading.Lock()


class Carrier:
    """Makes the RDD of a batch when Spark generates it."""

    def __init__(self, planner: StreamPlanner) -> None:
        self._planner = planner

    def __call__(self, time: datetime, rdd: RDD[Any]) -> KafkaRDD:
        """Called by Spark, with the constant stream's empty RDD."""
        planner = self._planner
        with _first_call:
            if planner.spark is None:
                planner.spark = side_after_restore(planner, rdd)
        return planner.spark.generated(milliseconds(time))


class OnKafkaRdd:
    """Calls a user's function with the batch's KafkaRDD, where Spark hands in a wrapper of the JVM's RDD.

    The wrapper knows no offset ranges, and what it computes runs in a worker of its own that pickles all records into
    the one of the user's functions.

    Args:
        streams: Ids of the direct streams among the arguments, in order; ``None`` for other streams.
        function: The user's function, of RDDs, or of the batch's time and RDDs.

    Raises:
        OptionError: The function takes another number of arguments.
    """

    def __init__(self, streams: tuple[str | None, ...], function: Callable[..., Any]) -> None:
        self._streams = streams
        self._function = function
        self._with_time = _takes_time(function, len(streams))

    def __call__(self, time: datetime, *rdds: RDD[Any]) -> Any:
        """Called by Spark."""
        replaced = [
            rdd if stream is None else _batch(stream, time) for stream, rdd in zip(self._streams, rdds, strict=True)
        ]
        return self._function(time, *replaced) if self._with_time else self._function(*replaced)


def milliseconds(time: datetime) -> int:
    """The batch's time as Spark counts it; PySpark has made it a local time of the fraction."""
    return round(time.timestamp() * 1000)


def _batch(stream_id: str, time: datetime) -> KafkaRDD:
    spark = stream_of(stream_id).spark
    assert spark is not None, "Spark runs no job of a batch before it has generated it"
    return spark.rdd(milliseconds(time))


def _takes_time(function: Callable[..., Any], rdds: int) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # builtins such as print tell nothing
        return False
    kinds = [each.kind for each in parameters if each.default is each.empty]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return False
    required = len([kind for kind in kinds if kind is not inspect.Parameter.VAR_KEYWORD])
    if required not in (rdds, rdds + 1):
        raise OptionError(
            f"the function must take {rdds} argument{'s' * (rdds > 1)} (an RDD of each stream), or the batch's time "
            f"before that; {getattr(function, '__name__', function)!r} takes {required}"
        )
    return required == rdds + 1
