"""Where a run of a continuous query begins: by its starting position, or by where the last epoch ended.

What was lost meanwhile is told by the rules of streams (``stream_loss.py``), and so are partitions that are new: they
are read from their start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import TopicNotFoundError
from pyspark_kafka_direct.planning.stream_look import Looks, recreated
from pyspark_kafka_direct.planning.stream_loss import LossReport
from pyspark_kafka_direct.planning.stream_start import first_offsets
from pyspark_kafka_direct.planning.stream_view import Memory, Seen

if TYPE_CHECKING:
    from collections.abc import Mapping
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
        topic_ids: The topics' ids when it was last asked.
        latest: The ends of the partitions then.
    """

    def __init__(self, tuning: StartTuning, view: ClusterView) -> None:
        self._tuning = tuning
        self._view = view
        self._losses = LossReport(tuning.fail_on_data_loss, view)
        self._memory = Memory()
        self._looks = Looks(view, self._memory, tries=tuning.tries, read_committed=tuning.read_committed)
        self.topic_ids: Mapping[str, UUID] = {}
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
                self.topic_ids = assigned.topic_ids
                return offsets

    def resume(self, ended: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where a query goes on, of all partitions that there are now.

        Args:
            ended: Where its last epoch ended.

        Raises:
            DataLossError: Records are lost, and ``failOnDataLoss`` is true.
        """
        before = self.topic_ids
        self._memory.put(ended, Seen(before))
        looked = self._looks.now(ended)
        anew = recreated(before, looked.topic_ids)
        for topic in sorted(anew):
            lost = [tp for tp in ended if tp.topic == topic]
            self._losses.recreated(lost, before[topic], looked.topic_ids[topic])
        self._losses.gone([tp for tp in ended if tp not in looked.latest and tp.topic not in anew])
        begin: dict[TopicPartition, int] = {}
        for tp in sorted(looked.latest.keys() & ended.keys()):
            if tp.topic in anew:
                continue
            begin[tp] = min(ended[tp], looked.latest[tp])
            if begin[tp] < ended[tp]:
                self._losses.went_back(tp, ended[tp], looked.latest[tp])
        begin.update(self._from_their_start(looked.latest, ended, begin))
        self.topic_ids, self.latest = {**before, **looked.topic_ids}, looked.latest
        return dict(sorted(begin.items()))

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
