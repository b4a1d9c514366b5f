"""A broker of another cluster that uses the address of a broker for a while, as a reused address in Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.read_requests import UNKNOWN_TOPIC_OR_PARTITION, api_versions
from tests.simulation.faults import error_response

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import SimulatedBroker
    from tests.simulation.cluster.replies import Reply

_COORDINATOR_NOT_AVAILABLE = 15


class ForeignBroker:
    """It has the same node id, and none of the topics."""

    cluster_id = "another-cluster"

    def __init__(self, replaced: SimulatedBroker) -> None:
        self._replaced = replaced

    def handle(self, api: str, version: int, request: Any) -> Reply:
        if api == "ApiVersions":
            return api_versions(self._replaced, version, request, self.cluster_id)
        if api == "Metadata":
            return self._metadata(request)
        code = _COORDINATOR_NOT_AVAILABLE if api == "FindCoordinator" else UNKNOWN_TOPIC_OR_PARTITION
        return error_response(api, version, request, {"code": code})

    def _metadata(self, request: Any) -> Reply:
        node = self._replaced
        missing = {"error_code": UNKNOWN_TOPIC_OR_PARTITION, "is_internal": False, "partitions": []}
        return {
            "brokers": [{"node_id": node.id, "host": node.host, "port": node.port, "rack": None}],
            "cluster_id": self.cluster_id,
            "controller_id": node.id,
            "topics": [{"name": each.name, "topic_id": each.topic_id, **missing} for each in request.topics or ()],
            "error_code": 0,
        }
