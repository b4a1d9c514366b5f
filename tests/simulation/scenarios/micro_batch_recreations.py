"""Which runs of a streaming query must have noticed that a topic was recreated, and have to report it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.errors import ViolationError
from tests.simulation.scenarios.micro_batch_options import is_selected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.cluster.cluster import ClusterSettings
    from tests.simulation.scenarios.record_truth import RecordTruth
    from tests.simulation.scenarios.spark_stand_in import Checkpoint

Looks = list[tuple[float, float]]
"""The times of a run's calls of ``latestOffset`` and of their results."""


class Report(NamedTuple):
    """A warning, or the error of a data loss."""

    time: float
    run: int
    text: str
    is_error: bool


class Run(NamedTuple):
    """A run of the query."""

    number: int
    options: Mapping[str, str]
    trigger: str
    started_at: float


class Recreations:
    """The recreated topics of a history, and the runs that looked at them."""

    def __init__(
        self, truth: RecordTruth, settings: ClusterSettings, look_seconds: float, runs: list[Run], looks: list[Looks]
    ) -> None:
        self._truth = truth
        self._settings = settings
        self._look_seconds = look_seconds
        self._runs = runs
        self._looks = looks

    def was_seen(self, topic: str, generation: int) -> bool:
        """Return whether a run looked at a topic both before it was deleted and long after it was recreated."""
        return any(
            any(called > self._known_at(topic, generation) for called, _ in looks)
            for _, looks in self._runs_before(topic, generation)
        )

    def check_reports(
        self, reports: Sequence[Report], checkpoint: Checkpoint, ends: Sequence[Mapping[tuple[str, int], int]]
    ) -> None:
        """Check that a query that continues after losses reports each topic that was recreated after it was read."""
        for topic, newest in self._truth.generations.items():
            for generation in range(2, newest + 1):
                deleted_at = self._deleted_at(topic, generation)
                for run, looks in self._runs_before(topic, generation):
                    # A batch without the topic is planned after its deletion was reported.
                    was_read = [
                        (topic, 0) in end
                        for logged, end in zip(checkpoint.offsets, ends, strict=False)
                        if logged.run == run.number and logged.time < deleted_at
                    ][-1:] == [True]
                    # The last look may have failed.
                    was_seen = any(called > self._known_at(topic, generation) for called, _ in looks[:-1])
                    is_skipped = run.options.get("failOnDataLoss") == "false" and is_selected(run.options, topic, 0)
                    if was_read and was_seen and is_skipped and not self._is_reported(topic, run, deleted_at, reports):
                        raise ViolationError(f"run {run.number} does not report that {topic} was recreated")

    def _is_reported(self, topic: str, run: Run, since: float, reports: Sequence[Report]) -> bool:
        return any(each.run == run.number and each.time >= since and topic in each.text for each in reports)

    def _runs_before(self, topic: str, generation: int) -> list[tuple[Run, Looks]]:
        """Return the runs that looked at a topic before it was deleted, and may notice that it is another one."""
        if not self._settings.topic_ids:
            return []
        deleted_at = self._deleted_at(topic, generation)
        return [
            (run, looks)
            for run, looks in zip(self._runs, self._looks, strict=False)
            if run.trigger == "processing time" and any(returned < deleted_at for _, returned in looks)
        ]

    def _deleted_at(self, topic: str, generation: int) -> float:
        return self._truth.partitions[topic, generation - 1, 0].deleted_at

    def _known_at(self, topic: str, generation: int) -> float:
        created_at = self._truth.partitions[topic, generation, 0].created_at
        return created_at + self._settings.metadata_lag + self._look_seconds
