"""How a continuous query may end, and what is then left of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.errors import ViolationError
from tests.simulation.scenarios.checkpoint_store import FileSystemError
from tests.simulation.scenarios.continuous_options import COMMIT_GROUP

from pyspark_kafka_direct.errors import (
    DataLossError,
    InvalidOffsetsError,
    KafkaDirectError,
    OptionError,
    QueryRunError,
    TaskStartTimeoutError,
    TransactionStateError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.cluster.cluster import SimulatedCluster
    from tests.simulation.scenarios.checkpoint_store import CheckpointStore
    from tests.simulation.scenarios.continuous_checks import OutputChecker
    from tests.simulation.scenarios.continuous_stand_in import ContinuousDriver


def seconds_until_new_partition(parameters: Mapping[str, Any]) -> float:
    """Return how long a query without faults may take until it has committed a record of a new partition."""
    start = parameters["start"]
    epochs = 3 * (start["epochInterval"] + parameters["flush_seconds"] + parameters.get("function_seconds", 0.0))
    offsets_delay: float = parameters["cluster"].get("offsets_delay", 0.0)
    metadata_lag: float = parameters["cluster"].get("metadata_lag", 0.0)
    seconds: float = start["discoveryInterval"] + epochs + 1.5 * parameters["task_delay"] + metadata_lag
    return seconds + 2 * offsets_delay + 2.5


def check_commit_group(
    progress: Mapping[str, Any] | None, parameters: Mapping[str, Any], cluster: SimulatedCluster
) -> None:
    """Check that the group of ``commitGroupId`` has the end of the last epoch."""
    if not parameters.get("commits_to_group") or progress is None:
        return
    committed = {tp: each.offset for tp, each in GroupCoordinator.of(cluster).committed(COMMIT_GROUP).items()}
    for topic, offsets in progress["sources"][0]["endOffset"].items():
        for partition, offset in offsets.items():
            if (found := committed.get((topic, int(partition)))) != offset:
                raise ViolationError(
                    f"the last epoch ends at {offset} of {topic}-{partition}, and the group has committed {found}"
                )


def judge_driver(driver: ContinuousDriver, checker: OutputChecker, store: CheckpointStore, now: float) -> bool:
    """Check that a driver ended with an error that the history can cause; return whether it is a data loss."""
    error = driver.error
    match error:
        case None | FileSystemError():
            return False
        case DataLossError():
            if not driver.fails_on_loss:
                raise ViolationError(f"failOnDataLoss is false, but the query fails: {error!r}") from error
            if not checker.explains_loss(error, now):
                raise ViolationError(f"the query fails, but nothing was lost: {error!r}") from error
            return True
        case InvalidOffsetsError():
            raise ViolationError(f"the checkpoint is rejected: {error!r}") from error
        case TransactionStateError():
            raise ViolationError(f"the transactions are rejected: {error!r}") from error
        case TaskStartTimeoutError():
            if driver.query is not None and driver.query.lastProgress is not None:
                raise ViolationError(f"the query ends because others took its cores: {error!r}") from error
            if driver.job_count == 1 and driver.process.name in store.fencers:
                raise ViolationError("a driver without cores fences another one") from error
        case OptionError():
            raise ViolationError(f"the options are valid, but the query fails: {error!r}") from error
        case QueryRunError() if (cause := error.__cause__) is not None:
            if not isinstance(cause, KafkaDirectError | FileSystemError) and "The query failed" in str(error):
                raise cause
        case KafkaDirectError():
            return False
        case _:
            raise error
    return False
