"""A continuous query whose driver crashes at the requests of an epoch that records changed partitions."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.simulation.faults import CRASHES
from tests.simulation.history import Event, History, Plan
from tests.simulation.runner import run_history

_SOURCES: Final = ("flights", "trains")
_APPENDS: Final[list[dict[str, Any]]] = [
    {"partition": 1, "records": records, "keys": 0, "producer": 0, "transaction": None, "at": at}
    for at, records in ((0.5, 1), (0.6, 2), (1.6, 1), (1.7, 2))  # one record selects the first topic, two the second
]
_PARAMETERS: Final[dict[str, Any]] = {
    "brokers": 2,
    "cluster": {"replication_factor": 2},
    "partitions": dict.fromkeys(_SOURCES, 2),
    "output_partitions": 1,
    "output_topics": 1,
    "guarantee": "exactly-once",
    "isolation": "read_committed",
    "fail_on_data_loss": False,
    "starting": "earliest",
    "drops_rows": False,
    "selections": [list(_SOURCES)],
    "log": [],
    "appends": _APPENDS,
    "late": [],
    "start": {
        "checkpointLocation": "memory:/checkpoint",
        "epochInterval": 0.3,
        "tasksMax": 2,
        "taskStartTimeout": 10.0,
        "epochTimeout": 5.0,
        "heartbeatTimeout": 5.0,
        "maxRestarts": 0,
        "discoveryInterval": 0.3,
    },
    "request_timeout_ms": 1_000,
    "api_timeout_ms": 3_000,
    "restart_seconds": 2.0,
    "task_delay": 0.005,
    "task_attempts": 4,
    "kill_seconds": 0.0,
    "linger_seconds": 0.1,
    "retain": 2,
    "flush_seconds": 0.0,
    "kills": [[2.5, "driver", 0]],
    "pauses": [],
    "stops": [],
    "cuts": [],
    "extra_drivers": [],
    "file_faults": [],
    "micro_batches": [],
    "executors": 2,
    "sink_failures": [],
}


@pytest.mark.parametrize("transaction_version", [0, 2])
@pytest.mark.parametrize("api", ["TxnOffsetCommit", "EndTxn"])
@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_while_a_truncation_is_committed(crash: str, api: str, transaction_version: int) -> None:
    """The group's offsets of a truncated log must not remain higher than those of the checkpoint."""
    events = [Event(crash, args={"api": f"driver:{api}", "occurrence": 0, "repeats": 1})]
    for topic in _SOURCES:
        partition = {"topic": topic, "partition": 1}
        events.append(Event("stick_follower", 0.9, args={**partition, "seconds": 2.2, "in_sync": False}))
        events.append(Event("elect_unclean_leader", 3.0, args={**partition, "shortest": True}))
    cluster = {**_PARAMETERS["cluster"], "transaction_version": transaction_version}
    plan = Plan("continuous", {**_PARAMETERS, "cluster": cluster}, tuple(events), quiet_after=8.0)

    outcome = run_history(History(1, "short", "tables", plan))

    assert outcome.failure is None, outcome.failure.traceback
    crashes = [tuple(details[1:]) for _, what, *details in outcome.trace if what == "fault"]
    assert crashes == [(crash, api)], "the driver has not crashed in the epoch of the change"
