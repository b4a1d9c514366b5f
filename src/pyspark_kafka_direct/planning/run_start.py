"""Where a run of a continuous query begins: by its starting position, or by where the last epoch ended.

What was lost meanwhile is told by the rules of streams (``stream_loss.py``), and so are partitions that are new: they
are read from their start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import TopicNotFoundError
from pyspark_kafka_direct.planning.stream_look import Looks
from pyspark_kafka_direct.planning.stream_loss import LossReport
from pyspark_kafka_direct.planning.stream_start import first_offsets
from pyspark_kafka_direct.planning.stream_view import Memory, Seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.stream_start import StreamStart
    from pyspark_kafka_direct.planning.stream_view import ClusterView


@dataclass(frozen=True, slots=True)
class StartTuning:
    """The options that decide where a run begins.

    Attributes:
        start: Where a new query begins.
        fail_on_data_loss: Whether lost records end the query.
        read_committed: Whether the ends are last stable offsets.
        tries: How often the cluster is asked before it is believed that something is gone.
    """

    start: StreamStart
    fail_on_data_loss: bool = True
    read_committed: bool = False
    tries: int = 3


class StartPlanner:
    """Decides where the runs of one query begin; not for several threads.

    Args:
        tuning: The options.
        view: Asks the cluster.

    Attributes:
        found_ids: The ids of the topics in which the offsets lie that were returned last, by partition.
        latest: The ends of the partitions then.
    """

    def __init__(self, tuning: StartTuning, view: ClusterView) -> None:
        self._tuning = tuning
        self._view = view
        self._losses = LossReport(tuning.fail_on_data_loss, view)
        self._memory = Memory()
        self._looks = Looks(view, self._memory, tries=tuning.tries, read_committed=tuning.read_committed)
        self._known_ids: Mapping[TopicPartition, UUID] = {}
        self.found_ids: Mapping[TopicPartition, UUID] = {}
        self.latest: Mapping[TopicPartition, int] = {}

    def first(self) -> dict[TopicPartition, int]:
        """Return where a new query begins.

        Raises:
            OffsetPlanError: The starting position does not fit the assigned partitions.
            TopicNotFoundError: A named topic or partition does not exist.
        """
        tries = self._tuning.tries
        while True:
            try:
                assigned = self._view.assigned(strict=True)
                offsets = first_offsets(self._tuning.start, assigned.partitions, self._view)
            except TopicNotFoundError:
                # A topic that was created a moment ago may not be known to every broker yet.
                tries -= 1
                if tries <= 0:
                    raise
                self._view.wait()
            else:
                self.found_ids = _by_partition(offsets, assigned.topic_ids)
                return offsets

    def resume(self, ended: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where a query goes on, of all partitions that there are now.

        It may be asked again, and says the same, until ``keep`` tells that the answer was written down.

        Args:
            ended: Where its last epoch ended.

        Raises:
            DataLossError: Records are lost, and ``failOnDataLoss`` is true.
        """
        before = {tp: self._known_ids[tp] for tp in ended if tp in self._known_ids}
        self._memory.put(ended, Seen({tp.topic: topic_id for tp, topic_id in before.items()}))
        looked = self._looks.now(ended)
        now = looked.topic_ids
        anew = {tp for tp, topic_id in before.items() if now.get(tp.topic, topic_id) != topic_id}
        for topic in sorted({tp.topic for tp in anew}):
            lost = sorted(tp for tp in anew if tp.topic == topic)
            self._losses.recreated(lost, before[lost[0]], now[topic])
        self._losses.gone([tp for tp in ended if tp not in looked.latest and tp not in anew])
        begin: dict[TopicPartition, int] = {}
        for tp in sorted(looked.latest.keys() & ended.keys()):
            if tp in anew:
                continue
            begin[tp] = min(ended[tp], looked.latest[tp])
            if begin[tp] < ended[tp]:
                self._losses.went_back(tp, ended[tp], looked.latest[tp])
        begin.update(self._from_their_start(looked.latest, ended, begin))
        self.found_ids, self.latest = {**before, **_by_partition(begin, now)}, looked.latest
        return dict(sorted(begin.items()))

    def keep(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        """Remember of which topics the offsets are that the query would go on from.

        What was committed at an offset of one topic says nothing of another one with the same name. So this is called
        when offsets were committed, and not before.

        Args:
            topic_ids: The ids of the topics, by partition; those of other partitions stay what they were.
        """
        self._known_ids = {**self._known_ids, **topic_ids}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget of which topics the offsets of these partitions are: they were told by who knows the topics of now."""
        gone = set(partitions)
        self._known_ids = {tp: topic_id for tp, topic_id in self._known_ids.items() if tp not in gone}

    def _from_their_start(
        self,
        latest: Mapping[TopicPartition, int],
        ended: Mapping[TopicPartition, int],
        begin: Mapping[TopicPartition, int],
    ) -> Mapping[TopicPartition, int]:
        """Return where the partitions begin that are new, or are new ones under an old name."""
        fresh = latest.keys() - begin.keys()
        if not fresh:
            return {}
        starts = self._looks.log_starts(fresh)
        self._losses.start_not_found(fresh - starts.keys())
        self._losses.added_late({tp: offset for tp, offset in starts.items() if tp not in ended})
        return starts


def _by_partition(partitions: Iterable[TopicPartition], topic_ids: Mapping[str, UUID]) -> Mapping[TopicPartition, UUID]:
    return {tp: topic_ids[tp.topic] for tp in partitions if tp.topic in topic_ids}
