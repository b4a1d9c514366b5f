"""A fake ``AbsenceCheck``: one broker reports about topics, and the real ``AbsenceEvidence`` decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.planning.data_loss import CONFIRMATION_SECONDS, AbsenceEvidence, Presence, TopicReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.offsets import TopicPartition


class FakeAbsenceCheck:
    confirmation_seconds = CONFIRMATION_SECONDS

    def __init__(
        self,
        suspects: Mapping[TopicPartition, UUID | None],
        report: Callable[[TopicPartition], TopicReport],
        system: System,
    ) -> None:
        self._evidence = {tp: AbsenceEvidence(tp, topic_id) for tp, topic_id in suspects.items()}
        self._report = report
        self._system = system

    def new_topic_id(self, tp: TopicPartition) -> UUID | None:
        return self._evidence[tp].new_topic_id

    def step(self, _: object) -> dict[TopicPartition, Presence]:
        now = self._system.monotonic()
        return {tp: evidence.add([self._report(tp)], now) for tp, evidence in self._evidence.items()}
