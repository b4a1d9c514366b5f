"""The functions that Spark calls for each batch, in a form that survives its checkpoint.

All are objects of classes, not closures: a pickled closure holds compiled code, which another Python version cannot
read. ``GenerationBegins`` holds the stream itself, the others only its id (see ``_registry.py``).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.direct import _registry
from pyspark_kafka_direct.direct._registry import stream_of
from pyspark_kafka_direct.direct._spark_side import side_after_restore
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pyspark import RDD

    from pyspark_kafka_direct.direct._carried import BatchRdds, CarriedStream
    from pyspark_kafka_direct.direct.rdd import KafkaRDD


class GenerationBegins:
    """Called before all else that Spark generates for a batch; carries the stream through the checkpoint.

    It is the first function of the graph, so Spark calls it first, and pickles it first. ``_graph.py`` sees to that.
    """

    def __init__(self, stream: CarriedStream) -> None:
        self._stream = stream

    def __call__(self, time: datetime, rdd: RDD[Any]) -> None:
        """Begin a generation; Spark calls this with the constant stream's empty RDD."""
        stream = self._stream
        if stream.spark is None:
            stream.spark = side_after_restore(stream, rdd)
            # Only now: reading a checkpoint makes a stream too, which must not take the place of one that runs.
            _registry.enter(stream)
        stream.begin_generation(milliseconds(time))

    def __getstate__(self) -> dict[str, CarriedStream]:
        # Spark holds the graph's lock here as while it generates: a generation without an end has failed.
        self._stream.settle()
        return {"_stream": self._stream}


class GenerationEnds:
    """Called after all else that Spark generates for a batch; from there Spark goes on to submit the jobs."""

    def __init__(self, stream_id: str) -> None:
        self._stream = stream_id

    def __call__(self, time: datetime, rdd: RDD[Any]) -> None:
        """End a generation; Spark calls this."""
        stream_of(self._stream).end_generation()


class Carrier:
    """Makes the RDD of a batch when Spark generates it."""

    def __init__(self, stream_id: str) -> None:
        self._stream = stream_id

    def __call__(self, time: datetime, rdd: RDD[Any]) -> KafkaRDD:
        """Return the RDD of a batch; Spark calls this with the constant stream's empty RDD."""
        return _spark_side(self._stream).generated(milliseconds(time))


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
        """Call the user's function with a KafkaRDD; Spark calls this."""
        replaced = [
            rdd if stream is None else _batch(stream, time) for stream, rdd in zip(self._streams, rdds, strict=True)
        ]
        return self._function(time, *replaced) if self._with_time else self._function(*replaced)


class ForEachKafkaRdd(OnKafkaRdd):
    """The same for ``foreachRDD``: PySpark takes whatever is returned for an RDD, so nothing is."""

    def __call__(self, time: datetime, *rdds: RDD[Any]) -> None:
        """Call the user's function with a KafkaRDD; Spark calls this."""
        super().__call__(time, *rdds)


def milliseconds(time: datetime) -> int:
    """Return the batch's time as Spark counts it; PySpark has made it a local time of the fraction."""
    return round(time.timestamp() * 1000)


def _batch(stream_id: str, time: datetime) -> KafkaRDD:
    return _spark_side(stream_id).rdd(milliseconds(time))


def _spark_side(stream_id: str) -> BatchRdds:
    spark = stream_of(stream_id).spark
    assert spark is not None, "a stream is entered when it is connected"
    return spark


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
