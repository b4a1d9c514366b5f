"""Faults of single requests and connects: what can happen to them, and how they are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Mapping, Sequence


class RequestFault(NamedTuple):
    """What happens to one request, or to one connect."""

    kind: str
    arguments: Mapping[str, Any] = {}


REQUEST_FAULTS: Final = (
    "lose_request",  # the connection is reset before the broker handles the request
    "lose_response",  # the broker handles the request, then the connection is reset
    "truncate_response",  # a part of the response arrives, then the connection is reset
    "stall_request",  # the request never arrives, and the connection stays open
    "stall_response",  # the broker handles the request, but its response never arrives
    "late_request",  # the connection is reset, and the broker handles the request some seconds later
    "late_stalled_request",  # the connection stalls, and the broker handles the request some seconds later
    "delay_response",  # the response arrives some seconds later
    "split_response",  # the response arrives in pieces, with pauses
    "throttle",  # the response has a throttle time, and the broker delays the connection's next request
    "error",  # the broker responds with a retriable error, or the one in ``code``, and does nothing
)
MALFORMED_RESPONSES: Final = ("garble_response",)  # the response is other bytes, but for its size and correlation id
CONNECT_FAULTS: Final = ("refuse_connect", "stall_connect")
CRASHES: Final = (
    "crash_before_request",  # the process dies instead of sending it
    "crash_after_request",  # the broker handles the request, and the process dies before the response
)
CHANGES: Final = ("change_before_request",)  # the cluster changes just before it is sent: between two requests
PAUSES: Final = ("pause_before_request",)  # the thread that sends it sleeps some seconds first, as in a stopped process
CLOSES_CONNECTION: Final = frozenset({"lose_request", "lose_response", "truncate_response", "late_request"})

# Errors with which brokers ask for another try, by request. Those of partitions stand in each partition's response.
RETRIABLE_ERRORS: Final[Mapping[str, tuple[int, ...]]] = {
    "Metadata": (5,),  # LEADER_NOT_AVAILABLE
    "ListOffsets": (6, 5, 9, 56, 74, 75, 78),
    "Fetch": (6, 9, 56, 74, 75, 78, -1),
    "Produce": (6, 7, 19, 20, 56),
    "FindCoordinator": (15,),
    "OffsetFetch": (14, 16),
    "OffsetCommit": (14, 15, 16),
    "InitProducerId": (14, 15, 16, 51),
    "AddPartitionsToTxn": (14, 15, 16, 51),
    "AddOffsetsToTxn": (14, 15, 16, 51),
    "TxnOffsetCommit": (14, 15, 16),
    "EndTxn": (14, 15, 16, 51),
    "CreateTopics": (7, 41, 89),
    "DescribeProducers": (6,),
}


_NO_ID: Final = UUID(int=0)

# Errors with which brokers respond although they have handled the request, or will.
_OPEN_OUTCOME_ERRORS: Final[Mapping[str, tuple[int, ...]]] = {"Produce": (7, 20, 56, -1, 6), "EndTxn": (15, 16)}


# Requests of which one partition may fail: its error codes, and the result that it has then.
PARTITION_ERRORS: Final[Mapping[str, tuple[tuple[int, ...], Mapping[str, int]]]] = {
    "ListOffsets": (RETRIABLE_ERRORS["ListOffsets"], {"timestamp": -1, "offset": -1, "leader_epoch": -1}),
    "OffsetCommit": (RETRIABLE_ERRORS["OffsetCommit"], {}),
    "OffsetFetch": ((88,), {"committed_offset": -1, "committed_leader_epoch": -1}),  # UNSTABLE_OFFSET_COMMIT
}


def draw_fault(rng: random.Random, kinds: Collection[str]) -> RequestFault:
    """Draw a fault of one of these kinds, in the order in which they are given."""
    kind = rng.choice(tuple(kinds))
    arguments: dict[str, Any] = {}
    match kind:
        case "late_request" | "late_stalled_request":
            arguments["seconds"] = round(rng.choice((0.01, 0.3, 2.0, 20.0, 50.0)) * (0.5 + rng.random()), 3)
        case "delay_response":
            arguments["seconds"] = round(rng.choice((0.02, 0.5, 5.0, 29.0, 35.0)) * (0.8 + 0.4 * rng.random()), 3)
        case "split_response":
            arguments["pieces"] = rng.randint(2, 6)
            arguments["seconds"] = rng.choice((0.0001, 0.05, 1.0))
        case "truncate_response":
            arguments["fraction"] = round(rng.random(), 2)
        case "throttle":
            arguments["ms"] = rng.choice((1, 50, 1_000, 8_000))
        case "error":
            arguments["draw"] = rng.randrange(1_000_000)
            if rng.random() < 0.4:  # of one partition of the request, if its API permits that
                arguments["partition"] = rng.randrange(12)
    return RequestFault(kind, arguments)


def error_response(api: str, version: int, request: Any, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a response with the error ``code``, or a retriable one; None if the request has no such errors."""
    codes = (_OPEN_OUTCOME_ERRORS if arguments.get("is_handled") else RETRIABLE_ERRORS).get(api)
    if codes is None:
        return None
    code = arguments.get("code") or codes[arguments["draw"] % len(codes)]
    match api:
        case "ListOffsets":
            return {
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {
                                "partition_index": each.partition_index,
                                "error_code": code,
                                "timestamp": -1,
                                "offset": -1,
                                "leader_epoch": -1,
                            }
                            for each in topic.partitions
                        ],
                    }
                    for topic in request.topics
                ]
            }
        case "FindCoordinator" if version >= 4:
            missing = {"error_code": code, "node_id": -1, "host": "", "port": -1}
            return {"coordinators": [{"key": key, **missing} for key in request.coordinator_keys]}
        case "FindCoordinator":
            return {"error_code": code, "node_id": -1, "host": "", "port": -1}
        case "AddPartitionsToTxn":
            return {
                "results_by_topic_v3_and_below": [
                    {
                        "name": topic.name,
                        "results_by_partition": [
                            {"partition_index": index, "partition_error_code": code} for index in topic.partitions
                        ],
                    }
                    for topic in request.v3_and_below_topics
                ]
            }
        case "Fetch":
            return {"error_code": 0, "responses": [_fetch_errors(topic, code) for topic in request.topics]}
        case "Produce":
            return {
                "responses": [
                    {
                        "name": topic.name,
                        "partition_responses": [
                            {"index": each.index, "error_code": code, "base_offset": -1}
                            for each in topic.partition_data
                        ],
                    }
                    for topic in request.topic_data
                ]
            }
        case "CreateTopics":
            failed = {"topic_id": _NO_ID, "error_code": code, "error_message": None, "topic_config_error_code": 0}
            failed |= {"num_partitions": -1, "replication_factor": -1, "configs": None}
            return {"topics": [{"name": topic.name, **failed} for topic in request.topics]}
        case "DescribeProducers":
            failed = {"error_code": code, "error_message": None, "active_producers": []}
            return {
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [{"partition_index": index, **failed} for index in topic.partition_indexes],
                    }
                    for topic in request.topics
                ]
            }
        case "InitProducerId":
            return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
        case "EndTxn" | "AddOffsetsToTxn":
            return {"error_code": code}
        case "OffsetFetch" if version >= 8:
            return {
                "groups": [{"group_id": group.group_id, "topics": [], "error_code": code} for group in request.groups]
            }
        case "OffsetFetch" if version >= 2:
            return {"topics": [], "error_code": code}
        case "OffsetCommit" | "TxnOffsetCommit":
            return {
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": each.partition_index, "error_code": code} for each in topic.partitions
                        ],
                    }
                    for topic in request.topics
                ]
            }
    return None


def partition_error_response(
    api: str, request: Any, arguments: Mapping[str, Any], handle: Callable[[Any], Any]
) -> dict[str, Any] | None:
    """Handle a request except for one partition, which has an error; None if the broker gives no result at all."""
    places = [(topic, index) for topic, each in enumerate(request.topics or ()) for index in range(len(_parts(each)))]
    if not places:
        return None
    topic, index = places[arguments["partition"] % len(places)]
    codes, failed = PARTITION_ERRORS[api]
    error = {**failed, "error_code": codes[arguments["draw"] % len(codes)]}
    if api == "OffsetCommit":  # which must not be applied to the partition
        partitions = list(request.topics[topic].partitions)
        error["partition_index"] = partitions.pop(index).partition_index
        topics = list(request.topics)
        topics[topic] = topics[topic]._replace(partitions=partitions)
        response = handle(request._replace(topics=topics))
    else:
        response = handle(request)
    if not isinstance(response, dict) or len(response["topics"]) != len(request.topics):
        return None
    changed = [{**each, "partitions": list(each["partitions"])} for each in response["topics"]]
    entries = changed[topic]["partitions"]
    if api == "OffsetCommit":
        entries.insert(index, error)
    else:
        entries[index] = {**entries[index], **error}
    return {**response, "topics": changed}


def _parts(topic: Any) -> Sequence[Any]:
    parts: Sequence[Any] = topic.partition_indexes if hasattr(topic, "partition_indexes") else topic.partitions
    return parts


def without_topics(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return a response of Metadata with LEADER_NOT_AVAILABLE for all topics, as a broker that creates them."""
    missing = {"error_code": RETRIABLE_ERRORS["Metadata"][0], "partitions": []}
    return {**metadata, "topics": [{**topic, **missing} for topic in metadata["topics"]]}


def lacking_topics(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return a response of Metadata with UNKNOWN_TOPIC_OR_PARTITION for all topics, as a broker that lags behind."""
    return {**metadata, "topics": [{**topic, "error_code": 3, "partitions": []} for topic in metadata["topics"]]}


def without_leaders(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return a response of Metadata with LEADER_NOT_AVAILABLE for all partitions."""
    missing = {"error_code": RETRIABLE_ERRORS["Metadata"][0], "leader_id": -1}
    topics = [
        {**topic, "partitions": [{**each, **missing} for each in topic["partitions"]]} for topic in metadata["topics"]
    ]
    return {**metadata, "topics": topics}


def _fetch_errors(topic: Any, code: int) -> dict[str, Any]:
    partitions = [
        {
            "partition_index": each.partition,
            "error_code": code,
            "high_watermark": -1,
            "last_stable_offset": -1,
            "log_start_offset": -1,
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": b"",
        }
        for each in topic.partitions
    ]
    return {"topic": topic.topic, "topic_id": topic.topic_id, "partitions": partitions}
