"""Streaming contexts that are stopped at the end of a test, and the results of their batches."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.streaming import StreamingContext

from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark import SparkContext

    from pyspark_kafka_direct.direct import DirectKafkaInputDStream

DEADLINE = 600.0  # seconds


@contextmanager
def streaming(sc: SparkContext, seconds: float, checkpoint: str | None = None) -> Iterator[StreamingContext]:
    """A streaming context that is stopped at the end; the SparkContext keeps running."""
    ssc = StreamingContext(sc, seconds)  # type: ignore[arg-type]
    if checkpoint is not None:
        ssc.checkpoint(checkpoint)
    try:
        yield ssc
    finally:
        ssc.stop(stopSparkContext=False, stopGraceFully=False)


def direct_stream(
    ssc: StreamingContext, servers: str, topic: str, group: str | None, **more: Any
) -> DirectKafkaInputDStream:
    """A stream over a topic from the committed offsets of the group, or else from its start."""
    parameters: dict[str, object] = {
        "bootstrap.servers": servers,
        "auto.offset.reset": "earliest",
        **({} if group is None else {"group.id": group}),
    }
    strategy = ConsumerStrategies.Subscribe([topic], parameters)
    return KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy, **more)


class BatchResults:
    """The results of functions of a stream's batches, in the order of batches; tests wait for them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._results: list[Any] = []

    def add(self, result: Any) -> None:
        with self._changed:
            self._results.append(result)
            self._changed.notify_all()

    @property
    def all(self) -> list[Any]:
        with self._changed:
            return list(self._results)

    @property
    def flat(self) -> list[Any]:
        """All results as one list; each result is a list."""
        return [each for result in self.all for each in result]

    def wait(self, enough: Callable[[list[Any]], bool]) -> list[Any]:
        """Wait until the function returns true for the results, and return them."""
        with self._changed:
            assert self._changed.wait_for(lambda: enough(self._results), DEADLINE), (
                f"after {DEADLINE:.0f} s: {self._results}"
            )
            return list(self._results)

    def wait_for_elements(self, count: int) -> None:
        """Wait until the results, which are lists, have this many elements."""
        self.wait(lambda results: sum(map(len, results)) >= count)

    def wait_for_more(self, count: int = 1) -> list[Any]:
        """Wait for this many more results."""
        goal = len(self.all) + count
        return self.wait(lambda results: len(results) >= goal)


def count_values(keys: list[Any]) -> Mapping[Any, int]:
    """The number of occurrences of each key."""
    return {key: keys.count(key) for key in keys}
