"""What a query costs however little it reads: the first rows of a large topic, and all of a tiny one."""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from bench.errors import BenchError
from bench.run import turn
from bench.spark_peers import NOOP, Spark, frame, read
from bench.summary import JVM, OURS, WARM
from bench.topics import Topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.client_peers import Clients
    from bench.host import Host

SHOW = "show()"
LIMIT = "limit(10).collect()"
WHOLE = "2 records, to the log's end, to noop"
FIRST_BATCH = "first fetch, no Spark"
ACTIONS = (WHOLE, SHOW, LIMIT)

_IN_WARM = {JVM: JVM, OURS: WARM}

# Rounds that are not counted: both JVMs compile what the first action has in common with the others.
_FIRST_WARM_UP, _WARM_UP = 6, 2

_QUIET = 0.5  # seconds
_QUIET_DEADLINE = 10.0
_TRACE = re.compile(r"Traceback|Exception|^\s+at |\bERROR\b")


@dataclass(frozen=True, slots=True)
class Latency:
    """How long an action took.

    Attributes:
        seconds: Of each run that counts.
        trace_lines: Lines of the session's console, all runs together, that look like an error or a stack trace.
    """

    action: str
    peer: str
    seconds: tuple[float, ...]
    trace_lines: int

    @property
    def median_seconds(self) -> float:
        """Median of the runs."""
        return median(self.seconds)


def tiny_topic() -> Topic:
    """Return the topic that ``measure`` reads as a whole; nothing comes after what is read."""
    return Topic(100, "none", 2, padding=0, purpose="tiny")


def measure(
    spark: Host[Spark], warm: Host[Spark], clients: Host[Clients], topic: Topic, rounds: int, peers: list[str]
) -> list[Latency]:
    """Time the actions of both Spark sources in turn, then a single fetch through this package without Spark.

    Both sources run in both sessions, so that both JVMs are as warm. The JVM connector's runs in either count.

    Args:
        spark: A session with Spark's defaults.
        warm: A session with the daemon of this package.
        clients: A process without Spark.
        topic: A large one, for the first rows; ``tiny_topic`` must be loaded too.
        rounds: Runs of each that count.
        peers: Who takes part.
    """
    chosen = [peer for peer in (JVM, OURS) if peer in peers]
    turns = [(spark, peer, peer) for peer in chosen] + [(warm, peer, _IN_WARM[peer]) for peer in chosen]
    times: dict[tuple[str, str], list[float]] = {(action, name): [] for action in ACTIONS for _, _, name in turns}
    traces = dict.fromkeys(times, 0)
    # One action after the other: a query that ends early costs Spark its Python worker, and the next one a new worker.
    for action, number in itertools.product(ACTIONS, range(-_FIRST_WARM_UP, rounds)):
        if action != ACTIONS[0] and number < -_WARM_UP:
            continue
        for session, peer, name in turn(turns, number):
            before = session.output.stat().st_size
            took = session.call(_act, action, peer, topic)
            wait_until_quiet(session.output)
            traces[action, name] += trace_lines(session.output, before)
            if number >= 0:
                times[action, name].append(took)
    found = [Latency(action, peer, tuple(taken), traces[action, peer]) for (action, peer), taken in times.items()]
    if OURS in chosen:
        taken = [clients.call(_first_batch, topic) for _ in range(rounds + 1)]
        found.append(Latency(FIRST_BATCH, OURS, tuple(taken[1:]), 0))
    return found


def wait_until_quiet(output: Path, quiet: float = _QUIET, deadline: float = _QUIET_DEADLINE) -> None:
    """Wait until nothing has been written to a console for ``quiet`` seconds: a worker's last words come late."""
    end = time.monotonic() + deadline
    size, since = output.stat().st_size, time.monotonic()
    while time.monotonic() < min(since + quiet, end):
        time.sleep(0.02)
        if output.stat().st_size != size:
            size, since = output.stat().st_size, time.monotonic()


def trace_lines(output: Path, start: int) -> int:
    """Count the lines of a console, from a byte on, that look like an error or a stack trace."""
    with output.open("rb") as file:
        file.seek(start)
        return sum(bool(_TRACE.search(line)) for line in file.read().decode(errors="replace").splitlines())


def _act(spark: Spark, action: str, peer: str, topic: Topic) -> float:
    if action == WHOLE:
        return read(spark, peer, tiny_topic(), NOOP).seconds
    started = time.perf_counter()
    rows = _ACTIONS[action](spark, peer, topic)
    took = time.perf_counter() - started
    if rows != min(10, topic.records) and action == LIMIT:
        raise BenchError(f"{peer} gave {rows} rows for {action} of {topic.name}")
    return took


def _show(spark: Spark, peer: str, topic: Topic) -> int:
    frame(spark, peer, topic).show()
    return 0


def _limit(spark: Spark, peer: str, topic: Topic) -> int:
    return len(frame(spark, peer, topic).limit(10).collect())


_ACTIONS: dict[str, Callable[[Spark, str, Topic], int]] = {SHOW: _show, LIMIT: _limit}


def _first_batch(clients: Clients, topic: Topic) -> float:
    from tests.settings import parse_client_params, task_settings

    from pyspark_kafka_direct.consumer.fetcher import read_range
    from pyspark_kafka_direct.consumer.range_task import RangeTask
    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.records import COLUMNS

    config = task_settings(*parse_client_params({"bootstrap.servers": clients.bootstrap_servers}))
    columns = tuple(name for name in COLUMNS if name not in ("headers", "leaderEpoch"))
    task = RangeTask(OffsetRange(topic.name, 0, 0, topic.until_offset))
    started = time.perf_counter()
    batches = read_range(*config, task, columns)
    next(batches)
    took = time.perf_counter() - started
    batches.close()
    return took
