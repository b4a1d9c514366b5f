"""The limits of a stream's micro-batches together: by the options, by how long batches took, by sampled bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.planning.limits import MinimumGate, byte_limit, new_offsets, rate_limit, with_earlier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.limits import Limits, Sample
    from pyspark_kafka_direct.planning.stream_view import ClusterView

_MOST_SAMPLES = 16
_GUESS = 1024


class BatchLimits:
    """Says how much of what is available the next micro-batch takes.

    Args:
        limits: The options.
        view: Samples sizes of records.
        clock: Seconds on a clock that never goes back.
        measured_limit: The most offsets of the batch that begins there, from how long earlier ones took; ``None``: no
            limit.
    """

    def __init__(
        self,
        limits: Limits,
        view: ClusterView,
        clock: Callable[[], float],
        measured_limit: Callable[[Mapping[TopicPartition, int]], int | None] | None,
    ) -> None:
        self._limits = limits
        self._view = view
        self._clock = clock
        self._measured_limit = measured_limit
        self._gate = None if limits.min_offsets is None else MinimumGate(limits.min_offsets, limits.max_delay)
        self._samples: dict[TopicPartition, Sample] = {}
        self._sizes: dict[TopicPartition, float] = {}

    @property
    def any(self) -> bool:
        """Whether there is any limit."""
        return self._limits.active or self._measured_limit is not None

    def holds_back(
        self,
        start: Mapping[TopicPartition, int],
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        *,
        at_once: bool,
    ) -> bool:
        """Tell whether there is too little for a batch, and time to wait for more.

        Args:
            start: The end of the batch before.
            begins: Where reading of each partition begins.
            ends: What is available.
            at_once: The batch must not wait, however small it is.
        """
        if self._gate is None:
            return False
        known = {tp: begin for tp, begin in begins.items() if tp in start}
        return not self._gate.passes(new_offsets(known, ends), self._clock(), at_once=at_once)

    def cut(
        self,
        start: Mapping[TopicPartition, int],
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Cut what is available down to one batch.

        Args:
            start: The end of the batch before.
            begins: Where reading of each partition begins.
            ends: What is available.
        """
        measured = None if self._measured_limit is None else self._measured_limit(start)
        in_bytes = self._byte_limit(begins, ends)
        limits = [limit for limit in (self._limits.max_offsets, measured, in_bytes) if limit is not None]
        return rate_limit(min(limits), begins, ends) if limits else dict(ends)

    def _byte_limit(self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int | None:
        most = self._limits.max_bytes
        waiting = {tp: end - begins[tp] for tp, end in ends.items() if end > begins[tp]}
        if most is None or not waiting:
            return None
        # The partitions with the most to read decide; asking many would take longer than it is worth.
        chosen = sorted(waiting, key=lambda tp: waiting[tp], reverse=True)[:_MOST_SAMPLES]
        for tp, sample in self._view.samples({tp: begins[tp] for tp in chosen}).items():
            known = self._samples[tp] = with_earlier(sample, self._samples.get(tp))
            # The few huge records among tiny ones are seldom among the first ones; where they are, those decide.
            self._sizes[tp] = max(sample.per_offset, known.per_offset)
        sizes = {tp: size for tp, size in self._sizes.items() if tp in waiting} or self._sizes
        if not sizes:
            self._view.warn(f"no records could be sampled for maxBytesPerTrigger; taking {_GUESS} bytes for each")
            sizes = dict.fromkeys(chosen, float(_GUESS))
        return byte_limit(most, begins, ends, sizes)
