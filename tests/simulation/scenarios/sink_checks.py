"""What every history of the exactly-once sink must leave behind: sink states, log messages, pauses, files."""

from __future__ import annotations

import json
import logging
import os
import re
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from tests.simulation.errors import ViolationError
from tests.simulation.oracle import READ_COMMITTED
from tests.simulation.scenarios.sink_commits import STATE_TOPIC

from pyspark_kafka_direct.errors import BrokerTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulation.environment import Environment
    from tests.simulation.scenarios.sink_stand_in import SinkQuery
    from tests.simulation.scheduler import World
    from tests.simulation.wire import ReceivedRequest

_OPEN: Final = re.compile(r"has been open for ([\d.]+) s of the ([\d.]+) s .* has sent (\d+) bytes")
_OLD_BROKER: Final = "is older than Kafka 3.6"
_WARNED: Final = 0.5  # of the timeout of a transaction
_EXPIRED: Final = 0.9
_ROUNDING: Final = 0.05  # of the seconds in a message
_REPEATED: Final = "Reading the sink state record, and trying again."
_FENCED: Final = re.compile(
    r"(INVALID_PRODUCER_EPOCH|PRODUCER_FENCED|INVALID_PRODUCER_ID_MAPPING) while|Another producer has acquired"
)
_FENCED_PAUSE: Final = 0.2
_COORDINATOR_APIS: Final = ("FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "EndTxn", "CreateTopics")
_WINDOW, _MOST_IN_WINDOW = 0.05, 14
# Requests of one write, at most, if nothing fails. The markers of the transaction before take some tries.
_BOUNDS: Final = {
    "Metadata": 12,
    "FindCoordinator": 1,
    "InitProducerId": 10,
    "EndTxn": 10,
    "DescribeConfigs": 2,
}
_WRITE_SECONDS: Final = 0.35
_REPLICATED: Final = 6  # times in a write that it waits for replicas


class LogLine(NamedTuple):
    at: float
    process: str
    logger: str
    level: int
    text: str
    sent: int  # requests before it


class _Log(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self.sent: list[tuple[str, str]] = []  # by the network
        self.lines: list[LogLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        task = self._world._current
        name = "" if task is None or task.process is None else task.process.name
        self.lines.append(
            LogLine(self._world.now, name, record.name, record.levelno, record.getMessage(), len(self.sent))
        )


@contextmanager
def package_log(environment: Environment) -> Iterator[list[LogLine]]:
    """Collect what the package logs; a message that appears once per process may appear again."""
    from pyspark_kafka_direct.options.option_messages import warn_once

    warn_once.cache_clear()
    handler = _Log(environment.world)
    handler.sent = environment.network.sent_requests
    logger = logging.getLogger("pyspark_kafka_direct")
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)


def check_log(environment: Environment, queries: Sequence[SinkQuery], lines: Sequence[LogLine]) -> None:
    """Check that each message has a reason, and appears once for it."""
    warnings = [line for line in lines if line.level >= logging.WARNING]
    once = Counter(line.text for line in warnings if line.logger.endswith(".options") or _OLD_BROKER in line.text)
    if repeated := [text for text, count in once.items() if count > 1]:
        raise ViolationError(f"a warning is logged again: {repeated[0]}")
    versions = environment.plan.parameters["cluster"].get("newest_versions", {})
    is_old, is_named = versions.get("AddPartitionsToTxn") == 3, any(_OLD_BROKER in text for text in once)
    if is_named != is_old and (is_named or any(query.commit_log for query in queries)):
        raise ViolationError(f"the brokers are {'' if is_old else 'not '}older than Kafka 3.6, but the log is {lines}")
    warned_at: dict[str, int] = {}  # by process: the number of requests that were sent before the last warning
    sent = environment.network.sent_requests
    for line in warnings:
        if (found := _OPEN.search(line.text)) is None or _REPEATED in line.text:
            continue
        if float(found[1]) < _WARNED * float(found[2]) - _ROUNDING:
            raise ViolationError(f"a transaction that is not old is warned of: {line.text}")
        before = warned_at.get(line.process)
        if before is not None and (line.process, "InitProducerId") not in sent[before : line.sent]:
            raise ViolationError(f"a transaction is warned of again: {line.text}")
        warned_at[line.process] = line.sent
    for query in queries:
        for error in query.failures:
            found = _OPEN.search(str(error))
            if found is None or not isinstance(error, BrokerTimeoutError) or "Nothing was committed" not in str(error):
                continue
            if float(found[1]) < _EXPIRED * float(found[2]) - _ROUNDING:
                raise ViolationError(f"a transaction fails because of its timeout, which has not passed: {error}")


def check_pauses(environment: Environment, lines: Sequence[LogLine]) -> None:
    """Check that a fenced writer waits, and that no request is repeated without a pause."""
    requests: dict[tuple[str, str], list[float]] = {}  # times of arrival, by process and API
    for at, kind, *facts in environment.world.trace_lines:
        if kind == "request" and facts[3] in _COORDINATOR_APIS:
            requests.setdefault((facts[1], facts[3]), []).append(at + environment.started_at)
    for line in lines:
        if _REPEATED in line.text and _FENCED.search(line.text) is not None:
            later = [at for at in requests.get((line.process, "InitProducerId"), ()) if at > line.at]
            if later and later[0] < line.at + _FENCED_PAUSE:
                raise ViolationError(f"{line.process} fences {later[0] - line.at:.3f} s after it was fenced")
    for (process, api), times in requests.items():
        for first, last in zip(times, times[_MOST_IN_WINDOW:], strict=False):
            if last - first < _WINDOW:
                raise ViolationError(f"{process} repeats {api} without a pause, {_MOST_IN_WINDOW} times")


def check_requests(environment: Environment, requests: Sequence[ReceivedRequest]) -> None:
    """Check that no ticket takes a producer id, and how the sink state topic is created."""
    brokers = len(environment.cluster.brokers)
    timeout_ms = environment.plan.parameters["transaction_timeout_ms"]
    is_faultless = not environment.plan.events
    for request in requests:
        values = request.values
        if request.api == "InitProducerId" and values.transactional_id is None:
            raise ViolationError("a producer id is requested that no transaction needs")
        if request.api == "InitProducerId" and values.transaction_timeout_ms != timeout_ms:
            raise ViolationError(f"a transaction may last {values.transaction_timeout_ms} ms, not {timeout_ms} ms")
        if request.api == "Produce" and values.acks != -1:
            raise ViolationError(f"records are written with acks={values.acks}")
        if request.api == "CreateTopics":
            (topic,) = values.topics
            configs = {each.name: each.value for each in topic.configs}
            if topic.name != STATE_TOPIC or topic.num_partitions != 1 or configs["cleanup.policy"] != "compact":
                raise ViolationError(f"another topic is created than that of the sink states: {topic}")
            if is_faultless and topic.replication_factor != min(3, brokers):
                raise ViolationError(f"{brokers} brokers get {topic.replication_factor} replicas of the sink states")
            if (topic.replication_factor == 3) != (configs.get("min.insync.replicas") == "2"):
                raise ViolationError(f"{topic.replication_factor} replicas of the sink states have {configs}")


class _State(NamedTuple):
    key: str
    value: dict[str, Any] | None


def check_states(environment: Environment, queries: Sequence[SinkQuery]) -> None:
    """Check that each visible sink state is that of its write, once, and that the newest one is the last batch's."""
    states = _visible_states(environment)
    writes = {offset: (query, write) for query in queries for offset, write in query.writes.items()}
    newest: dict[str, int] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for key, fields in states:
        if fields is None:
            continue
        query, write = writes[fields["ticket"][1]]
        found = {name: fields[name] for name in write.state}
        suffix = f".{quote(write.query, safe='')}" if write.kind == "job" else ""
        if found != write.state or key != f"{query.parameters['prefix']}.sink{suffix}":
            raise ViolationError(f"the sink state {key} is {found}, but its ticket belongs to {write.state}")
        if query.kind == "unnamed":
            raise ViolationError(f"a job without a name leaves a sink state: {key}")
        seen[write.query, write.batch] += 1
        newest[write.query] = write.batch
    if repeated := [name for name, count in seen.items() if count > 1]:
        raise ViolationError(f"a batch is committed again: {repeated[0]}")
    for query in queries:
        written = [batch for batch in query.commit_log if not query.is_skipped(batch)]
        if query.kind in ("stream", "foreach") and written and newest.get(query.id, -1) < max(written):
            raise ViolationError(f"the sink state of {query.name} is that of batch {newest.get(query.id)}")


def _visible_states(environment: Environment) -> list[_State]:
    """Return the committed records of transactional ids, but not the tickets."""
    if STATE_TOPIC not in environment.cluster.topics:
        return []
    truth = environment.oracle.truth((STATE_TOPIC, 0))
    entries = truth.records(0, 1 << 60, READ_COMMITTED, 1e9)
    return [
        _State((entry.key or b"").decode(), json.loads(entry.value) if entry.value else None)
        for entry in entries
        if entry.is_transactional
    ]


def check_files(environment: Environment, queries: Sequence[SinkQuery]) -> None:
    """Check that no staged file remains, if no process died and no attempt was one too many."""
    parameters = environment.plan.parameters
    for query in queries:
        processes = [*query.executors, *(driver.process for driver in query.drivers)]
        if query.folder is None or any(each.dead for each in processes) or parameters["speculated"]:
            continue
        staged = [name for _, _, names in os.walk(query.folder) for name in names if name.endswith(".staged")]
        if staged:
            raise ViolationError(f"{len(staged)} staged files of {query.name} remain")


def check_faultless(environment: Environment, queries: Sequence[SinkQuery], lines: Sequence[LogLine]) -> None:
    """Check that a history without faults has no failure, no warning, and no request or wait in vain."""
    topics = environment.plan.parameters["topics"]
    for query in queries:
        if query.rejection is None and (query.failures or len(query.drivers) > 1):
            raise ViolationError(f"a run of {query.name} fails without a reason: {query.failures}")
    is_hidden = environment.plan.parameters.get("hidden_configs") is not None
    phrases = [_OLD_BROKER, *(["Cannot check whether the sink state topic"] if is_hidden else [])]
    warnings = [line.text for line in lines if line.level >= logging.WARNING]
    if warnings := [text for text in warnings if not any(phrase in text for phrase in phrases)]:
        raise ViolationError(f"there is no reason for a warning: {warnings[0]}")
    for query in queries:
        most = 0 if environment.plan.parameters["state_exists"] else len(queries)
        if environment.network.sent_requests.count((query.drivers[0].process.name, "CreateTopics")) > most:
            raise ViolationError(f"{query.name} creates the topic of the sink states again")
        if query.rejection is not None or environment.plan.parameters["cluster"].get("metadata_lag", 0.0) > 0.1:
            continue
        process = query.drivers[0].process.name
        counts = Counter(api for name, api in environment.network.sent_requests if name == process)
        for api, bound in _BOUNDS.items():
            most = bound + (topics if api == "Metadata" else 0)
            if counts[api] > most * len(query.writes):
                raise ViolationError(f"{len(query.writes)} writes of {query.name} send {counts[api]} requests of {api}")
        executors = {process.name for process in query.executors}
        found = [api for name, api in environment.network.sent_requests if name in executors].count("Metadata")
        if found > (topics + 2) * query.attempt_count and environment.plan.parameters["metadata_max_age_ms"] > 1000:
            raise ViolationError(f"{query.attempt_count} tasks of {query.name} send {found} requests of Metadata")
        longest = max(map(len, query.batches), default=0) * environment.plan.parameters["row_seconds"]
        longest += _WRITE_SECONDS + _REPLICATED * environment.cluster.settings.replication_delay
        if query.write_seconds and max(query.write_seconds) > longest:
            raise ViolationError(f"a write of {query.name} takes {max(query.write_seconds):.1f} s without a fault")
