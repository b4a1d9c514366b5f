"""Files that a stream planner and the query listener of ``enable(spark)`` exchange: measurements and commits."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.planning.backpressure import BackpressureLimit, BatchMeasurement, measurement_file_name
from pyspark_kafka_direct.spark.commit_offer import (
    AcceptedCommitOffer,
    CommitGroup,
    accept_commit_offer,
    commit_group,
)
from pyspark_kafka_direct.spark.listener_files import find_shared_folder
from pyspark_kafka_direct.spark.offset_committer import GroupOffsetCommitter, RunOffsetCommitter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import BackpressureOptions, ReadSettings

_log = logging.getLogger("pyspark_kafka_direct.datasource")

QueryCommitter: TypeAlias = AcceptedCommitOffer | RunOffsetCommitter
"""Passes the offsets of the query to the listener, or commits them."""

_NOT_ENABLED = (
    "backpressure=true needs the durations of batches, which Spark reports only to a query listener: call "
    "pyspark_kafka_direct.enable(spark) before the query starts, or remove backpressure. Over Spark Connect there is "
    "no backpressure, because a listener there cannot reach the planning process: set maxOffsetsPerTrigger"
)


def backpressure_limit(options: BackpressureOptions, warn: Callable[[str], None]) -> BackpressureLimit:
    """Return the backpressure limit of a planner, which needs the measurements of the listener."""
    folder = find_shared_folder()
    if folder is None:
        raise OptionError(_NOT_ENABLED)

    def load_measurement(end: Mapping[TopicPartition, int]) -> BatchMeasurement | None:
        try:
            return BatchMeasurement.from_json((folder / measurement_file_name(end)).read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            warn(f"backpressure: cannot read a measurement: {error}")
            return None

    return BackpressureLimit(options, load_measurement, warn)


def open_query_committer(settings: ReadSettings, cluster: ClusterClient) -> QueryCommitter | None:
    """Return the committer for ``commitGroupId``: the listener if it offers to commit, else the planner."""
    group = commit_group(settings)
    return None if group is None else _listener_committer(group) or _planner_committer(group.group_id, cluster)


def _planner_committer(group_id: str, cluster: ClusterClient) -> RunOffsetCommitter:
    committer = GroupOffsetCommitter(group_id, _log, cluster.pool.system)
    return committer.for_run(lambda: ConsumerGroup(cluster, group_id))


def _listener_committer(group: CommitGroup) -> AcceptedCommitOffer | None:
    try:
        folder = find_shared_folder()
        return None if folder is None else accept_commit_offer(folder, group)
    except Exception as error:  # commits never fail a query
        _log.info("cannot check whether the listener offers to commit, so the planner commits: %r", error)
        return None
