"""All runs of a profile: one broker, the topics loaded once, the peers in turn."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bench import client_peers, spark_peers, writers
from bench.errors import BenchError
from bench.summary import JVM, OURS, Series
from bench.writers import WRITE

if TYPE_CHECKING:
    from bench.client_peers import Clients
    from bench.host import Host
    from bench.measure import Sample
    from bench.profiles import Case
    from bench.spark_peers import Spark

_LEVEL = 0.05
_NAMES_AN_ERROR = re.compile(r"[\w.]+(Error|Exception): ")

CASE_LABELS = spark_peers.SINK_LABELS | {WRITE: "made rows into a topic"}

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hosts:
    """The processes that the peers live in."""

    spark: Host[Spark]
    clients: Host[Clients]


@dataclass(frozen=True, slots=True)
class Failure:
    """A peer that could not do a case."""

    topic: str
    sink: str
    peer: str
    error: str

    @property
    def reason(self) -> str:
        """What the error says in the end, without its stack trace."""
        lines = [line for line in self.error.splitlines() if _NAMES_AN_ERROR.match(line)]
        return lines[-1] if lines else self.error.strip()


def run_cases(cases: Sequence[Case], hosts: Hosts, rounds: int, say: Say) -> tuple[list[Series], list[Failure]]:
    """Run cases one after another; a peer that fails is left out of that case and named."""
    series: list[Series] = []
    failures: list[Failure] = []
    for number, case in enumerate(cases, 1):
        say(f"[{number}/{len(cases)}] {case.topic.label}, {CASE_LABELS[case.sink]}")
        if case.sink == WRITE:  # both sinks get faster for three to five runs
            done, failed = run_case(case, hosts, rounds, warm_up=3, max_warm_up=5)
        else:
            # The session's first case finds a JVM that has compiled nothing yet.
            done, failed = run_case(case, hosts, rounds, warm_up=1 if number > 1 else 3)
        for each in done:
            say(f"    {each.peer:26s} {each.records_per_second / 1e6:7.3f} M records/s")
        for failure in failed:
            say(f"    {failure.peer:26s} failed: {failure.reason}")
        series += done
        failures += failed
    return series, failures


def run_case(
    case: Case, hosts: Hosts, rounds: int, warm_up: int = 1, *, max_warm_up: int = 0
) -> tuple[list[Series], list[Failure]]:
    """Run the peers of a case in turn, each round begun by another one; the first ``warm_up`` rounds do not count.

    Up to ``max_warm_up`` rounds do not count, until no peer gets faster any more.
    """
    samples: dict[str, list[Sample]] = {peer: [] for peer in case.peers if _able(case, peer, hosts)}
    failures: list[Failure] = []
    number, first = 0, warm_up
    while number < first + rounds:
        for peer in turn(list(samples), number):
            try:
                samples[peer].append(_run(case, peer, hosts))
            except BenchError as error:
                failures.append(Failure(case.topic.label, case.sink, peer, str(error)))
                del samples[peer]
        number += 1
        if number == first < max_warm_up and not all(_is_level(taken) for taken in samples.values()):
            first += 1
    topic = case.topic
    series = [
        Series(topic.label, case.sink, peer, case.records(peer), topic.value_bytes, topic.codec, tuple(taken[first:]))
        for peer, taken in samples.items()
    ]
    return series, failures


def _is_level(taken: Sequence[Sample]) -> bool:
    """Whether the last run was hardly faster than the one before."""
    return taken[-1].seconds >= (1 - _LEVEL) * taken[-2].seconds


def turn(peers: Sequence[T], number: int) -> list[T]:
    """Return the peers in the order of that round: each comes first as often as the others."""
    if not peers:
        return []
    first = number % len(peers)
    return [*peers[first:], *peers[:first]]


def say_to_stderr(line: str) -> None:
    """Show progress."""
    print(line, file=sys.stderr, flush=True)


def _able(case: Case, peer: str, hosts: Hosts) -> bool:
    return (
        case.sink == WRITE or peer in (JVM, OURS) or hosts.clients.call(client_peers.can_read, peer, case.topic.codec)
    )


def _run(case: Case, peer: str, hosts: Hosts) -> Sample:
    if case.sink == WRITE:
        return hosts.spark.call(writers.write, peer, case.topic, case.records(peer))
    if peer in (JVM, OURS):
        return hosts.spark.call(spark_peers.read, peer, case.topic, case.sink)
    return hosts.clients.call(client_peers.read, peer, case.topic, case.records(peer))
