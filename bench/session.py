"""A whole benchmark: broker, processes, topics, cases, and the measurements beside them."""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import decoding, latency, machine, memory, planning, spark_peers, streams, topics
from bench.client_peers import Clients, clients
from bench.errors import BenchError
from bench.host import Host
from bench.profiles import DECODER, FIRST_ROWS, PLANNED
from bench.results import Results
from bench.run import Failure, Hosts, run_cases
from bench.spark_peers import CONNECTOR_JARS, Spark, SparkSettings, spark
from bench.stream_summary import PLANNING
from bench.summary import OURS
from pyspark_kafka_direct.broker.embedded_kafka import DEFAULT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from bench.profiles import Profile
    from bench.run import Say

KAFKA_VERSION = DEFAULT_VERSION  # another one needs verify_jars=False; results name it
_CORES = 2
_BROKER_HEAP = "1g"


def measure(profile: Profile, peers: list[str], say: Say) -> Results:
    """Run a profile with those peers.

    What fails is named in ``Results.failures``; the rest continues.

    Raises:
        BenchError: The topics could not be loaded, or a process could not be started.
    """
    from pyspark_kafka_direct.broker import EmbeddedKafka, jars

    started = time.monotonic()
    connector = tuple(str(jar) for jar in jars(CONNECTOR_JARS, transitive=False))
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        EmbeddedKafka(version=KAFKA_VERSION, heap=_BROKER_HEAP, security=("SSL",)) as kafka,
    ):
        broker_pid = kafka.pids[1]
        staging = (Path(scratch) / "staging").as_uri()
        settings = SparkSettings(
            kafka.bootstrap_servers,
            connector,
            _CORES,
            broker_pid,
            staging,
            tls_servers=kafka.listener("SSL"),
            truststore=str(kafka.certificates.ca),
        )
        make_spark = partial(spark, settings)
        make_clients = partial(clients, Clients(kafka.bootstrap_servers, broker_pid))
        with (
            Host(make_spark, Path(scratch) / "spark.log") as spark_host,
            Host(make_clients, Path(scratch) / "clients.log") as clients_host,
        ):
            found = _begin(profile, spark_host)
            for topic in profile.topics:
                say(f"Loading {topic.records:,} records of {topic.label}")
                found.load_seconds |= topics.load([topic], kafka.bootstrap_servers)
            hosts = Hosts(spark_host, clients_host)
            found.series, found.failures = run_cases(profile.cases, hosts, profile.rounds, say)
            found.writes, failed = run_cases(profile.write_cases, hosts, profile.rounds, say)
            found.failures += failed
            if FIRST_ROWS in profile.beside:
                make_warm = partial(spark, replace(settings, daemon="pyspark_kafka_direct.daemon"))
                with Host(make_warm, Path(scratch) / "warm.log") as warm:
                    _measure_first_rows(profile, peers, hosts, warm, kafka.bootstrap_servers, found, say)
            if OURS in peers and DECODER in profile.beside:
                with _attempt("the decoder alone", "", found, say):
                    found.decoding = clients_host.call(decoding.measure)
            if PLANNED in profile.beside and profile.planning_partitions:
                _measure_planning(profile, peers, hosts, kafka.bootstrap_servers, found, say)
            if profile.stream_cases:
                _measure_streams(profile, peers, hosts, found, say)
        if profile.memory_topic is not None and OURS in peers:
            _measure_memory(profile.memory_topic, make_spark, Path(scratch) / "memory.log", found, say)
    found.minutes = (time.monotonic() - started) / 60
    return found


def _begin(profile: Profile, spark_host: Host[Spark]) -> Results:
    java = spark_host.call(spark_peers.java_version)
    return Results(
        profile=profile.name,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine.describe(java=java, kafka=KAFKA_VERSION, jars=CONNECTOR_JARS),
        rounds=profile.rounds,
    )


def _measure_first_rows(
    profile: Profile,
    peers: list[str],
    hosts: Hosts,
    warm: Host[Spark],
    bootstrap_servers: str,
    found: Results,
    say: Say,
) -> None:
    topic, rounds = profile.latency_topic, profile.latency_rounds
    with _attempt("show(), limit(10) and a tiny topic", topic.label, found, say):
        topics.load([latency.tiny_topic()], bootstrap_servers)
        found.latencies = latency.measure(hosts.spark, warm, hosts.clients, topic, rounds, peers)


def _measure_planning(
    profile: Profile, peers: list[str], hosts: Hosts, bootstrap_servers: str, found: Results, say: Say
) -> None:
    planned = planning.planned_topic(profile.planning_partitions)
    with _attempt("planning", f"{planned.partitions} partitions", found, say):
        topics.load([planned], bootstrap_servers)
        found.planning = planning.measure(hosts.spark, hosts.clients, planned, peers)


def _measure_streams(profile: Profile, peers: list[str], hosts: Hosts, found: Results, say: Say) -> None:
    for case in profile.stream_cases:
        with _attempt(case.label, "", found, say):
            found.streams += streams.measure(hosts.spark, case, peers, say)
        if case.kind == PLANNING and OURS in peers:
            with _attempt("the planner of a stream alone", "", found, say):
                found.planner = streams.plan_alone(hosts.clients, case)


def _measure_memory(
    topic: topics.Topic, make_spark: Callable[[], AbstractContextManager[Spark]], log: Path, found: Results, say: Say
) -> None:
    with _attempt("memory of a worker", topic.label, found, say), Host(make_spark, log) as fresh:
        found.memory = fresh.call(memory.measure, topic)


@contextmanager
def _attempt(what: str, topic: str, found: Results, say: Say) -> Iterator[None]:
    say(f"Measuring {what}")
    try:
        yield
    except BenchError as error:
        failure = Failure(topic, what, OURS, str(error))
        found.failures.append(failure)
        say(f"    failed: {failure.reason}")
