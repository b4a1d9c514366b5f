"""The exactly-once sink under faults, crashes, zombie drivers and two queries: the rows of each batch exactly once."""

from __future__ import annotations

import math
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.coordinator_events import draw_coordinator_event
from tests.simulation.cluster.read_requests import CONFIGS_OF
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.drawing import (
    READ_APIS,
    draw_aimed_crash,
    draw_events,
    draw_spread_faults,
    draw_transactional_cluster,
)
from tests.simulation.environment import Environment
from tests.simulation.errors import ViolationError
from tests.simulation.faults import CRASHES, PAUSES
from tests.simulation.history import Event, Plan
from tests.simulation.oracle import READ_COMMITTED
from tests.simulation.record_attributes import attributes_of
from tests.simulation.scenarios import sink_checks
from tests.simulation.scenarios.several_topics import draw_place, draw_topics, partition_counts
from tests.simulation.scenarios.sink_commits import (
    SECONDS,
    STATE_TOPIC,
    TARGETS,
    check_denied_commits,
    draw_old_run,
    draw_open_transaction,
    draw_rejected_retry,
)
from tests.simulation.scenarios.sink_incidents import check_incident, draw_incident
from tests.simulation.scenarios.sink_stand_in import SinkQuery
from tests.simulation.scenarios.sink_writes import draw_kinds

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.simulation.history import Size
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scenarios.sink_checks import LogLine
    from tests.simulation.scenarios.sink_tasks import SinkRow
    from tests.simulation.scheduler import World
    from tests.simulation.wire import ReceivedRequest

    from pyspark_kafka_direct.spark.write_report import PartitionWriteReport

NAME = "exactly_once"
SHRINKABLE = {"batch_count": 1, "queries": 1, "topics": 1, "pauses": (), "speculated": (), "extra_drivers": ()}
SAFE_EVENTS = (
    "expand_topic",
    "elect_leader",
    "lose_leader",
    "stick_follower",
    "stop_broker",
    "isolate_broker",
    "stick_image",
    "pause_broker",
    "throttle_broker",
    "compact_log",
)
"""Events that remove no acknowledged record."""
_APIS = (
    *READ_APIS,
    "FindCoordinator",
    "InitProducerId",
    "AddPartitionsToTxn",
    "Produce",
    "EndTxn",
    "CreateTopics",
    "DescribeConfigs",
)
_STATE_CONFIGS = {"cleanup.policy": "compact"}
_STEPS = ("plan", "tasks", "commit", "commit log")
_TOPIC_AUTHORIZATION_FAILED = 29
_CLUSTER_AUTHORIZATION_FAILED = 31
_LIVENESS_SECONDS = 2_000.0  # after the faults have stopped


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    topics = draw_topics(rng)
    targets = partition_counts(TARGETS, topics)
    batches = rng.randint(20, 60) if long else rng.choice((1, 1, 1, 2, 2, 3))
    seconds = rng.choice((0.5, 3.0, 20.0)) * (20 if long else 1)
    requests = 1000 if long else 50
    restart_seconds = rng.choice((0.01, 0.5, 5.0))
    queries = rng.choice((2, 2, 2, 3)) if rng.random() < 0.2 else 1
    cluster = draw_transactional_cluster(rng)
    parameters = {
        **cluster,
        **topics,
        "stamp": rng.random() < 0.3,
        "names_topics": len(targets) > 1 or rng.random() < 0.3,
        "batches": [[draw_place(rng, targets) for _ in range(rng.choice((0, 1, 2, 4)))] for _ in range(batches)],
        "batch_count": batches,
        "parallelism": [rng.randint(1, 2) for _ in range(rng.randint(1, 2))],
        "queries": queries,
        "shares_prefix": queries > 1 and rng.random() < 0.3,
        "state_exists": rng.random() < 0.8,
        "restart_seconds": restart_seconds,
        "pauses": [
            [rng.randrange(2), rng.randrange(batches), rng.choice(_STEPS), rng.choice((0.01, 1.0, 30.0))]
            for _ in range(rng.choice((0, 0, 0, 1, 2)))
        ],
        "speculated": [batch for batch in range(batches) if rng.random() < 0.1],
        "extra_drivers": [round(rng.random() * seconds, 3)] if rng.random() < 0.15 else [],
        "request_timeout_ms": rng.choice((2_000, 30_000)),
        "api_timeout_ms": rng.choice((10_000, 60_000)),
        "delivery_timeout_ms": rng.choice((15_000, 120_000)),
        "transaction_timeout_ms": rng.choice((20_000, 60_000, 300_000)),
        "batch_bytes": rng.choice((120, 524_288)),
        **draw_kinds(rng, batches),
        **_draw_rows(rng, batches),
    }
    if cluster["cluster"]["transaction_version"] == 0 and rng.random() < 0.2:  # before Kafka 3.6
        versions = cluster["cluster"].get("newest_versions", {})
        cluster["cluster"]["newest_versions"] = {**versions, "AddPartitionsToTxn": 3}
    apis = [each for each in _APIS if each != "AddPartitionsToTxn" or cluster["cluster"]["transaction_version"] < 2]
    events = draw_events(
        rng, {**targets, STATE_TOPIC: 1}, seconds=seconds, requests=requests, long=long, kinds=SAFE_EVENTS, apis=apis
    )
    events = tuple(each for each in events if each.kind != "compact_log" or each.args["topic"] == STATE_TOPIC)
    events = tuple(each for each in events if each.kind != "expand_topic" or each.args["topic"] in targets)
    if rng.random() < 0.2:
        kind = "move_transaction_coordinators"
        events += (Event(kind, rng.random() * seconds, args=draw_coordinator_event(rng, kind, "", seconds)),)
    count, occurrences = (rng.randint(20, 60), batches) if long else (rng.choice((0, 1, 2, 3)), 3)
    events += tuple(draw_spread_faults(rng, apis, count=count, occurrences=occurrences))
    events += _draw_process_events(rng, apis, requests, long)
    parameters["restores_checkpoint"] = rng.random() < 0.3  # after all batches, by one with another last batch
    parameters["restored_age"] = rng.choice((0, 0, 1))  # of this batch, in batches
    share = 1.0 if long else rng.random()
    if share < 0.03:
        seconds = SECONDS
        events = draw_old_run(rng, parameters)
    elif share < 0.07:
        seconds = SECONDS
        events = draw_rejected_retry(rng, batches)
    elif share < 0.1:
        seconds = SECONDS
        events = draw_open_transaction(rng, parameters)
    elif share < 0.4:
        events, seconds = draw_incident(rng, parameters)
    return Plan(NAME, parameters, events, quiet_after=seconds)


def _draw_rows(rng: random.Random, batches: int) -> dict[str, Any]:
    """Draw how tasks get and stage their rows, and where the sink state topic has many records of others."""
    has_slow_rows = rng.random() < 0.3
    return {
        "arrow_rows": rng.choice((1, 2)) if has_slow_rows else 10_000,
        "row_seconds": rng.choice((0.0, 0.3)),
        "metadata_max_age_ms": rng.choice((200, 300_000)) if has_slow_rows else 300_000,
        "buffer_bytes": 300 if rng.random() < 0.2 else 1 << 25,
        "files": {"threshold": rng.choice((0, 150, 600)), "is_set": rng.random() < 0.5}
        if rng.random() < 0.15
        else None,
        "hidden_configs": rng.choice(("", STATE_TOPIC)) if rng.random() < 0.08 else None,
        "busy_topic": [batch for batch in range(batches) if rng.random() < 0.04],
    }


def run(world: World, plan: Plan) -> None:
    environment = Environment(world, plan)
    with ExitStack() as stack:
        lines = stack.enter_context(sink_checks.package_log(environment))
        folder = None
        if plan.parameters.get("files") is not None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="simulated-sink-"))
        _run(environment, lines, folder)


def _run(environment: Environment, lines: Sequence[LogLine], folder: str | None) -> None:
    world, plan = environment.world, environment.plan
    parameters = plan.parameters
    cluster = environment.cluster
    for topic, partitions in partition_counts(TARGETS, parameters).items():
        cluster.create_topic(topic, partitions)
    if parameters["state_exists"]:
        cluster.create_topic(STATE_TOPIC, 1, configs=_STATE_CONFIGS)
    queries = [
        SinkQuery(
            environment,
            name,
            {**parameters, "prefix": "p-a" if parameters["shares_prefix"] else f"p-{name}"},
            number,
            folder,
        )
        for number, name in enumerate(("a", "b", "c")[: parameters["queries"]])
    ]
    _misconfigure(environment, queries[0])
    for query in queries:
        query.start_driver()
        for seconds in parameters["extra_drivers"]:
            world.at(environment.started_at + seconds, query.start_driver)
    requests: list[ReceivedRequest] = []
    environment.network.on_request = requests.append
    environment.network.on_pause = partial(_replace_paused, queries)
    supervisor = environment.process("supervisor")
    watch = supervisor.spawn("watch", lambda: _wait_until_done(environment, supervisor, queries))
    world.run([watch])
    world.run([task for query in queries for task in query.tasks])  # of drivers that were replaced, too
    environment.raise_errors()
    if parameters.get("restores_checkpoint"):
        world.run([query.start_restored() for query in queries if query.may_be_restored])
        environment.raise_errors()
    world.run_for(20.0)
    _check_rows(environment, queries)
    check_denied_commits(environment, {ticket for query in queries for ticket in query.denied})
    _check_nothing_hangs(environment)
    sink_checks.check_states(environment, queries)
    sink_checks.check_requests(environment, requests)
    sink_checks.check_log(environment, queries, lines)
    sink_checks.check_pauses(environment, lines)
    if "incident" in parameters and len(queries) == 1:
        check_incident(environment, queries[0], lines)
    if parameters.get("incident") == "none":
        sink_checks.check_faultless(environment, queries, lines)
    drivers = (driver.process for query in queries for driver in query.drivers)
    processes = chain(drivers, *(query.executors for query in queries))
    environment.check_released([process for process in processes if not process.dead])
    sink_checks.check_files(environment, queries)
    for query in queries:
        if query.notes:
            raise ViolationError(query.notes[0])


def _misconfigure(environment: Environment, query: SinkQuery) -> None:
    """Configure the cluster wrongly, until the user corrects it after the first failure."""
    cluster = environment.cluster
    hidden = environment.plan.parameters.get("hidden_configs")
    if hidden is not None and query.misconfigured not in ("policy", "timeout"):  # which may be unknown
        code = _TOPIC_AUTHORIZATION_FAILED if hidden else _CLUSTER_AUTHORIZATION_FAILED
        cluster.unauthorized[CONFIGS_OF + hidden] = (math.inf, code)
    if query.misconfigured == "policy":
        configs = cluster.topics[STATE_TOPIC].configs
        configs["cleanup.policy"] = "delete"
        query.mend = lambda: configs.update(_STATE_CONFIGS)
    elif query.misconfigured == "record":  # of another program
        key = f"{query.parameters['prefix']}.sink".encode()
        cluster.append((STATE_TOPIC, 0), [b"not a state"], keys=[key])
        query.mend = lambda: cluster.append((STATE_TOPIC, 0), [None], keys=[key])
    elif query.misconfigured == "denied":
        cluster.unauthorized[STATE_TOPIC] = (math.inf, _TOPIC_AUTHORIZATION_FAILED)
        query.mend = lambda: cluster.unauthorized.pop(STATE_TOPIC, None)
    elif query.misconfigured == "timeout":
        settings, limit = cluster.settings, environment.plan.parameters["transaction_timeout_ms"] - 1
        cluster.settings = replace(settings, broker_configs={"transaction.max.timeout.ms": str(limit)})

        def raise_limit() -> None:
            cluster.settings = settings

        query.mend = raise_limit


def _replace_paused(queries: Sequence[SinkQuery], process: SimulatedProcess) -> None:
    for query in queries:
        query.paused(process)


def _check_rows(environment: Environment, queries: Sequence[SinkQuery]) -> None:
    """Check that readers with read_committed get the rows of each batch exactly once, in the order of the batches."""
    visible = {
        partition: [
            (entry.offset, entry.value)
            for entry in environment.oracle.truth(partition).records(0, 1 << 60, READ_COMMITTED, 1e9)
        ]
        for partition in _partitions(environment)
    }
    values = {partition: [value for _, value in records] for partition, records in visible.items()}
    for query in queries:
        for batch in range(len(query.batches)):
            rows = query.rows(batch)
            counts = [values[row.partition].count(row.value) for row in rows]
            is_committed = batch in query.commit_log
            if any(count > 1 for count in counts):
                raise ViolationError(f"rows of a batch are duplicated: batch {batch} of {query.name}, copies {counts}")
            if 0 in counts and 1 in counts:
                raise ViolationError(f"a batch is visible in part: batch {batch} of {query.name}, copies {counts}")
            if is_committed and 0 in counts:
                raise ViolationError(f"rows of a committed batch are lost: batch {batch} of {query.name}")
            if is_committed:
                _check_attributes(environment, query, batch)
            if (report := query.reports.get(batch)) is not None:
                _check_report(f"batch {batch} of {query.name}", rows, report, visible)
    for tp in values:
        for query in queries:
            expected = [row.value for batch in range(len(query.batches)) for row in query.rows(batch)]
            if not query.is_repeated:
                continue  # a run that was paused may write its job behind the next ones
            ranks = [expected.index(value) for value in values[tp] if value in expected]
            if ranks != sorted(ranks):
                raise ViolationError(f"the rows of {query.name} in {tp} are in another order: {values[tp]}")
        written = {row.value for query in queries for row in query.all_rows() if row.partition == tp}
        if unknown := set(values[tp]) - written:
            raise ViolationError(f"{tp} has rows that no task wrote: {sorted(map(str, unknown))}")


def _check_attributes(environment: Environment, query: SinkQuery, batch: int) -> None:
    """Check that the rows of a batch have their keys, timestamps and headers, and those that name their task."""
    stamp = query.stamp(batch)
    for value, partition in query.rows(batch):
        found, expected = environment.oracle.attributes[*partition, value], attributes_of(value)
        if query.parameters["stamp"]:
            *headers, task, attempt = found.headers
            found = found._replace(headers=tuple(headers))
            names, numbers = zip(task, attempt, strict=True)
            if names != (b"spark.partition.id", b"spark.attempt") or (value, *numbers) not in query.attempts:
                raise ViolationError(f"the row {value!r} names a task attempt that has not written it: {task, attempt}")
        expected = expected._replace(headers=(*expected.headers, *stamp))
        if found != expected:
            raise ViolationError(f"the row {value!r} in {partition} has {found}, not {expected}")


def _check_report(
    name: str,
    rows: Sequence[SinkRow],
    report: Mapping[TopicPartition, PartitionWriteReport],
    visible: Mapping[TopicPartition, Sequence[tuple[int, bytes | None]]],
) -> None:
    """Compare what a commit reports with what the batch has written."""
    expected = {}
    for tp in {row.partition for row in rows}:
        written = {row.value for row in rows if row.partition == tp}
        offsets = [offset for offset, value in visible[tp] if value in written]
        expected[tp] = (min(offsets), max(offsets) + 1, len(written))
    reported = {tp: (each.first_offset, each.next_offset, each.records) for tp, each in report.items()}
    # A broker may not return the offset of a batch that it had already.
    if reported.keys() != expected.keys() or any(
        records != expected[tp][2] or (first, end) not in ((-1, -1), expected[tp][:2])
        for tp, (first, end, records) in reported.items()
    ):
        raise ViolationError(f"the report of {name} is {reported}, not {expected}")


def _partitions(environment: Environment) -> list[TopicPartition]:
    topics = environment.cluster.topics
    return [
        TopicPartition(name, index)
        for name in TARGETS
        if name in topics
        for index in range(len(topics[name].partitions))
    ]


def _wait_until_done(environment: Environment, supervisor: Any, queries: Sequence[SinkQuery]) -> None:
    world = environment.world
    while not all(query.is_done for query in queries):
        if world.now > environment.quiet_at + _LIVENESS_SECONDS:
            undone = {query.name: len(query.commit_log) for query in queries if not query.is_done}
            if environment.plan.parameters["shares_prefix"]:
                raise ViolationError(f"two queries with one prefix fence each other: committed batches {undone}")
            raise ViolationError(f"queries are not done though no fault is left: committed batches {undone}")
        supervisor.sleep(1.0)
    # Late requests, paused drivers and open transactions end.
    last_pause = max((each[3] for each in environment.plan.parameters["pauses"]), default=0.0)
    timeout = environment.plan.parameters["transaction_timeout_ms"] / 1000
    supervisor.sleep(max(0.0, environment.quiet_at - world.now) + 80.0 + last_pause + timeout)


def _check_nothing_hangs(environment: Environment) -> None:
    coordinator = TransactionCoordinator.of(environment.cluster)
    if coordinator.ongoing:
        raise ViolationError(f"transactions are open at the end: {coordinator.ongoing}")
    partitions = _partitions(environment)
    if STATE_TOPIC in environment.cluster.topics:
        partitions.append(TopicPartition(STATE_TOPIC, 0))
    for partition in partitions:
        truth = environment.oracle.truth(partition)
        if truth.end_offset(READ_COMMITTED) < truth.high_watermark():
            raise ViolationError(f"a hanging transaction blocks readers of {partition}")


def _draw_process_events(rng: random.Random, apis: Sequence[str], requests: int, long: bool) -> tuple[Event, ...]:
    """Draw crashes of the processes that send some requests, and pauses, after which a zombie wakes."""
    scale = 8 if long else 1
    crashes = rng.choice((0, 0, 1, 2)) * scale
    pauses = rng.choice((0, 0, 0, 1, 2)) * scale
    seconds = (0.02, 1.0, 30.0)
    return (
        *(
            Event(rng.choice(CRASHES), request=rng.randrange(requests))
            if rng.random() < 0.6
            else draw_aimed_crash(rng, apis, long=long)
            for _ in range(crashes)
        ),
        *(
            Event(PAUSES[0], request=rng.randrange(requests), args={"seconds": rng.choice(seconds)})
            for _ in range(pauses)
        ),
    )
