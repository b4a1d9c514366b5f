"""Requests to a simulated broker without a network, for tests of brokers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tests.simulation import wire
from tests.simulation.cluster.replies import Delayed

from pyspark_kafka_direct.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.cluster.cluster import SimulatedCluster
    from tests.simulation.scheduler import World

    from pyspark_kafka_direct.protocol.messages import ApiMessageType


class DirectCalls:
    """Sends requests to one broker; simulated time passes while a response waits."""

    def __init__(self, world: World, cluster: SimulatedCluster, broker_id: int = 1) -> None:
        self._world = world
        self._broker = cluster.brokers[broker_id]

    def __call__(self, api: ApiMessageType, version: int, values: Mapping[str, Any]) -> Any:
        frame = messages.encode(api, version, 7, b"client", values)
        received = wire.decode_request(frame)
        reply = self._broker.handle(received.api, received.version, received.values, "client")
        if isinstance(reply, Delayed):
            reply = self._wait(reply)
        if reply is None:
            return None
        response = wire.encode_response(received, reply)
        (size,) = struct.unpack_from(">i", response)
        assert size == len(response) - 4
        return messages.decode(api, version, response[8:])

    def _wait(self, delayed: Delayed) -> Mapping[str, Any]:
        while True:
            response = delayed.poll()
            if response is not None:
                return response
            assert self._world.now < delayed.until + 1, "a delayed response has no end"
            self._world.run_for(0.001)
