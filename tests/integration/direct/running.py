"""Running direct streams in tests: contexts that end, and what their batches held."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.streaming import StreamingContext

from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark import SparkContext

    from pyspark_kafka_direct.direct import DirectKafkaDStream

DEADLINE = 120.0  # seconds


@contextmanager
def streaming(sc: SparkContext, seconds: float, checkpoint: str | None = None) -> Iterator[StreamingContext]:
    """A streaming context that is stopped at the end; the Spark context stays."""
    ssc = StreamingContext(sc, seconds)  # type: ignore[arg-type]
    if checkpoint is not None:
        ssc.checkpoint(checkpoint)
    try:
        yield ssc
    finally:
        ssc.stop(stopSparkContext=False, stopGraceFully=False)


def direct_stream(
    ssc: StreamingContext, servers: str, topic: str, group: str | None, **more: Any
) -> DirectKafkaDStream:
    """A stream over a topic from its start, or from where the group is."""
    parameters: dict[str, object] = {
        "bootstrap.servers": servers,
        "auto.offset.reset": "earliest",
        **({} if group is None else {"group.id": group}),
    }
    strategy = ConsumerStrategies.Subscribe([topic], parameters)
    return KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy, **more)


class Seen:
    """What functions of a stream's batches have seen, in the order of batches; tests wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._all: list[Any] = []

    def add(self, what: Any) -> None:
        with self._changed:
            self._all.append(what)
            self._changed.notify_all()

    @property
    def all(self) -> list[Any]:
        with self._changed:
            return list(self._all)

    @property
    def flat(self) -> list[Any]:
        """All that was seen, of which each is a list, as one list."""
        return [each for some in self.all for each in some]

    def wait(self, enough: Callable[[list[Any]], bool]) -> list[Any]:
        """Wait until the function says that it is enough, and return all.

        Raises:
            AssertionError: It did not come in time.
        """
        with self._changed:
            assert self._changed.wait_for(lambda: enough(self._all), DEADLINE), f"after {DEADLINE:.0f} s: {self._all}"
            return list(self._all)

    def wait_for_elements(self, count: int) -> None:
        """Wait until so many were seen in all, where each that is seen is a list."""
        self.wait(lambda seen: sum(map(len, seen)) >= count)

    def wait_for_more(self, count: int = 1) -> list[Any]:
        """Wait for so many more batches."""
        goal = len(self.all) + count
        return self.wait(lambda seen: len(seen) >= goal)


def counted(keys: list[Any]) -> Mapping[Any, int]:
    """How often each occurs."""
    return {key: keys.count(key) for key in keys}
