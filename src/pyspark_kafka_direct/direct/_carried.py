"""One direct stream: what Spark's checkpoint carries of it, and what of it lives in this process.

``DirectKafkaInputDStream`` of Spark, without its consumer: ``start`` finds where to begin, ``batch`` gives the offset
ranges of a batch, which ``planning.direct`` decides. Two things go into Spark's checkpoint: what the user asked for,
and ``StreamState``. Connections, the queue of commits and the RDDs at hand are of this process and made anew after a
restart.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_kafka_direct.direct._spec import StreamSpec
from pyspark_kafka_direct.direct._state import StreamState, check_version
from pyspark_kafka_direct.direct._stopping import StopSignal
from pyspark_kafka_direct.direct._wire import Wire, WireView, connect
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.planning.direct import plan_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from pyspark_kafka_direct.direct._commits import CommitQueue
    from pyspark_kafka_direct.direct.rates import RateController
    from pyspark_kafka_direct.direct.rdd import KafkaRDD
    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

_log = logging.getLogger("pyspark_kafka_direct.direct")

VERSION = 2


class BatchRdds(Protocol):
    """The stream's connection with its StreamingContext: the RDDs of its batches; ``SparkSide`` is it."""

    def rdd(self, time_ms: int) -> KafkaRDD:
        """Return the RDD of a batch: one object for all that ask."""

    def generated(self, time_ms: int) -> KafkaRDD:
        """Return the RDD of a batch that Spark generates now."""

    def forget_generated(self, times_ms: Sequence[int]) -> None:
        """Forget the RDDs of batches that Spark failed to generate."""


class CarriedStream:
    """The offsets and batches of one stream; for several threads.

    A batch is planned only while Spark generates, between ``begin_generation`` and ``end_generation``. What is planned
    in between counts from the second on; when Spark generates the next batch, or writes its checkpoint, without it,
    that generation has failed, and ``settle`` takes it back.

    Attributes:
        spark: The stream's connection with its StreamingContext; ``None`` until the first batch after a restart.
        persisted: Whether the stream's batches are persisted.
        stopping: Given when the context is stopped.

    Args:
        stream_id: Unlike that of any other stream, restarts included.
        spec: What the user asked for.
        controller: Backpressure, if it is on.
    """

    _made: Wire | None
    _warned: bool
    spark: BatchRdds | None
    stopping: StopSignal

    def __init__(self, stream_id: str, spec: StreamSpec, controller: RateController | None) -> None:
        self.stream_id = stream_id
        self.spec = spec
        self.controller = controller
        self.persisted = False
        self._state = StreamState()
        self._live()

    def start(self) -> None:
        """Find out where a new stream begins.

        Raises:
            OptionError: A parameter that cannot be used.
            OffsetPlanError: There is no offset to start at, or a given one is not in the log.
            TopicNotFoundError: A topic or partition does not exist.
            BrokerError: The cluster could not be asked.
        """
        with self._planning:
            position = self._view().start()
            with self._lock:
                self._state.start(position)

    def batch(self, time_ms: int) -> tuple[OffsetRange, ...]:
        """Return the ranges of a batch, one for each partition, empty ones too; the same ones at every call.

        Args:
            time_ms: The batch's time in milliseconds.

        Raises:
            OffsetPlanError: The batch is an old one that was forgotten.
            KafkaDirectError: It is not known, and Spark generates nothing.
            DataLossError: A partition that was read is gone, its topic was deleted and created anew, or its log ends
                before what was read of it.
            BrokerError: The cluster could not be asked within ``default.api.timeout.ms``.
        """
        with self._lock:  # not held while brokers are asked: jobs that run must not wait for the next plan
            ranges = self._state.ranges(time_ms)
        if ranges is not None:
            return ranges
        with self._planning:
            with self._lock:
                ranges, position = self._state.ranges(time_ms), self._state.position
            if ranges is None:
                self.wire.commits.send()
                planned = self.stopping.run(lambda: plan_batch(position, self._view()))
                ranges = planned.ranges
                with self._lock:
                    self._state.add(time_ms, ranges, planned.topic_ids)
                    if planned.expired:
                        self._expired[time_ms] = planned.expired
            return ranges

    def expired(self, time_ms: int) -> int:
        """Return how many offsets of a batch were gone when it was planned here; asked once, to tell Spark."""
        with self._lock:
            return self._expired.pop(time_ms, 0)

    def known_ranges(self, time_ms: int) -> list[OffsetRange]:
        """Return the ranges of a batch that was planned.

        Args:
            time_ms: The batch's time in milliseconds.

        Raises:
            OffsetPlanError: There was no such batch, or it was forgotten.
        """
        with self._lock:
            return list(self._state.known(time_ms))

    def begin_generation(self, time_ms: int) -> None:
        """Note that Spark begins to generate a batch."""
        self.settle()
        with self._lock:
            self._state.begin(time_ms)

    def end_generation(self) -> None:
        """Note that Spark has generated all of a batch, and submits its jobs."""
        with self._lock:
            self._state.end()

    def settle(self) -> None:
        """Take back what a failed generation has planned. Called when Spark is not within one, on its own thread."""
        with self._lock:
            failed = self._state.unfinished()
        if not failed:
            return
        if self.spark is not None:
            self.spark.forget_generated(failed)  # first: should it fail, it is to be done again
        with self._lock:
            self._state.take_back()
        _log.warning(
            "Spark failed to generate the batch of %d ms, so none of its jobs runs; the next batch begins where this "
            "one began",
            failed[-1],
        )

    def forget(self, is_needed: Callable[[int], bool]) -> list[int]:
        """Forget batches that Spark will not ask for again; returns their times."""
        with self._lock:
            return self._state.forget(is_needed)

    @property
    def current_offsets(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition, after the last batch that was planned."""
        with self._lock:
            return dict(self._state.position.offsets)

    @property
    def topic_ids(self) -> dict[str, UUID]:
        """The ids of the topics, where brokers have ids."""
        with self._lock:
            return dict(self._state.position.topic_ids)

    @property
    def wire(self) -> Wire:
        """How brokers are asked; made when it is first needed, so that an error of the settings is one of a batch."""
        with self._lock:
            made = self._made
            if made is None:
                made = self._made = connect(self.spec.strategy)
            return made

    @property
    def queued_commits(self) -> CommitQueue | None:
        """What waits to be committed; ``None`` if nothing ever did."""
        made = self._made
        return None if made is None else made.commits

    def _view(self) -> WireView:
        return WireView(self.wire, self.spec, self.controller)

    def __getstate__(self) -> dict[str, Any]:
        self._warn_of_secrets()
        with self._lock:
            return {
                "version": VERSION,
                "stream_id": self.stream_id,
                "spec": {each.name: getattr(self.spec, each.name) for each in fields(StreamSpec)},
                "persisted": self.persisted,
                "controller": self.controller,
                "state": self._state.__getstate__(),
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        check_threads()
        check_version(state, VERSION)
        self.stream_id = state["stream_id"]
        self.spec = StreamSpec(**state["spec"])
        self.persisted = state["persisted"]
        self.controller = state["controller"]
        self._state = StreamState()
        self._state.__setstate__(state["state"])
        self._live()

    def _warn_of_secrets(self) -> None:
        kept, made = getattr(self.spec.strategy, "keeps_parameters", False), self._made
        if kept and made is not None and made.holds_secrets and not self._warned:
            self._warned = True
            _log.warning(
                "Spark's checkpoint holds the kafkaParams of a direct stream, passwords in clear. Give the consumer "
                "strategy a function that returns them instead: then the checkpoint holds only the function."
            )

    def _live(self) -> None:
        """Set up what is of this process only."""
        self._warned = False
        self._lock = threading.RLock()
        self._planning = threading.Lock()
        self._made = None
        self._expired: dict[int, int] = {}
        self.stopping = StopSignal()
        self.spark = None


def check_threads() -> None:
    """Refuse to run where each call of the JVM's comes in another thread.

    Raises:
        OptionError: ``PYSPARK_PIN_THREAD`` is not true.
    """
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        raise OptionError(
            "a direct stream needs PYSPARK_PIN_THREAD=true, which is PySpark's default: without it, Spark's locks keep "
            "the stream from asking anything while a batch is generated"
        )
