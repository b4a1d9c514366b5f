"""Looks for other partitions, on a made-up cluster."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.integration.waiting import wait_until
from tests.unit.planning.stream_clusters import Cluster

from pyspark_kafka_direct.continuous._watch import Watch
from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire.system import RealSystem

if TYPE_CHECKING:
    import pytest

    from pyspark_kafka_direct.planning.stream_view import Assigned

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Shaky(Cluster):
    """A cluster that answers only while it is ``well``."""

    well = True

    def assigned(self, *, strict: bool) -> Assigned:
        if not self.well:
            raise BrokerTimeoutError("nobody answers")
        return super().assigned(strict=strict)


def test_trouble_is_told_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    cluster, drained = Shaky({A0: (0, 3)}), threading.Event()
    watch = Watch(cluster, [A0], 0.01, drained.set, RealSystem())
    watch.start()
    try:
        wait_until(lambda: watch.latest == {A0: 3}, "a look")
        assert watch.trouble is None
        cluster.well = False
        wait_until(lambda: "nobody answers" in str(watch.trouble), "trouble")
        looks = cluster.looks
        cluster.well = True
        wait_until(lambda: cluster.looks > looks + 1, "more looks")
        assert watch.trouble is None
        assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1
        assert not drained.is_set()
        cluster.logs[A1] = (0, 1)
        assert drained.wait(10)
    finally:
        watch.close()
