"""What is run: the quick profile of ``make bench`` and the whole matrix of ``make bench-full``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.errors import BenchError
from bench.spark_peers import NOOP, SINKS, TLS
from bench.stream_summary import (
    CATCH_UP,
    LARGE,
    LARGE_WRITTEN,
    PLANNING,
    SMALL,
    SMALL_WRITTEN,
    WRITTEN,
    StreamCase,
    scaled,
)
from bench.summary import CONFLUENT, EXACTLY_ONCE, JVM, KAFKA_PYTHON, OURS, PEERS
from bench.topics import CODECS, Topic
from bench.writers import WRITE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_SPARK_PEERS = (JVM, OURS)
# Only a share of a topic is read by the slow clients; their figures are per record.
_WRITTEN_CODECS = ("none", "lz4", "zstd")
_CLIENT_SHARE = {CONFLUENT: 0.25, KAFKA_PYTHON: 0.025}

# What can be measured beside the cases.
FIRST_ROWS, DECODER, PLANNED = "first rows", "decoder", "planning"


@dataclass(frozen=True, slots=True)
class Case:
    """One topic into one sink, by several peers in turn."""

    topic: Topic
    sink: str
    peers: tuple[str, ...]

    def records(self, peer: str) -> int:
        """How many records that peer reads."""
        share = _CLIENT_SHARE.get(peer, 1.0)
        return max(self.topic.partitions, int(self.topic.records * share))


@dataclass(frozen=True, slots=True)
class Profile:
    """A whole benchmark.

    Attributes:
        rounds: Measured runs of each peer on each case, after one that is not counted.
        planning_partitions: Partitions of the topic that is planned, 0 for none.
        memory_topic: Read by one task while its memory is watched, none for not.
        stream_cases: Streaming queries.
        write_cases: What is written.
        rows_topic: Its first rows are asked for; the one for memory, as it is the largest, or the first, if none.
        beside: What to measure beside the cases.
    """

    name: str
    cases: tuple[Case, ...]
    rounds: int = 5
    latency_rounds: int = 5
    planning_partitions: int = 1000
    memory_topic: Topic | None = None
    stream_cases: tuple[StreamCase, ...] = ()
    write_cases: tuple[Case, ...] = ()
    rows_topic: Topic | None = None
    beside: tuple[str, ...] = (FIRST_ROWS, DECODER, PLANNED)

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Every topic once, in the order of the cases."""
        topics = [case.topic for case in self.cases]
        topics += [case.topic for case in self.stream_cases if case.kind not in WRITTEN]
        if self.memory_topic is not None:
            topics.append(self.memory_topic)
        if self.rows_topic is not None:
            topics.append(self.rows_topic)
        return tuple(dict.fromkeys(topics))

    @property
    def latency_topic(self) -> Topic:
        """The topic whose first rows are asked for."""
        return self.rows_topic or self.memory_topic or self.cases[0].topic


def quick() -> Profile:
    """About eleven minutes on 2 cores: every sink at 100 B, every codec at 1 KiB, 10 KiB, and TLS.

    A run takes a second or more, so that the fixed cost of a query (0.1 s) does not blur what a record costs.
    """
    small, large = Topic(100, "none", 4_000_000), Topic(10240, "none", 120_000)
    cases = [Case(small, sink, _peers(sink, small)) for sink in SINKS]
    for codec in CODECS:
        topic = Topic(1024, codec, 800_000)
        cases.append(Case(topic, NOOP, _peers(NOOP, topic) if codec == "none" else _SPARK_PEERS))
    cases.append(Case(large, NOOP, _peers(NOOP, large)))
    cases += [Case(topic, TLS, _SPARK_PEERS) for topic in (small, Topic(1024, "none", 800_000))]
    return Profile("quick", tuple(cases))


def full() -> Profile:
    """Every size, codec and sink; an hour or two on 2 cores and 6 GB of disk."""
    records = {100: 6_000_000, 1024: 1_000_000, 10240: 100_000}
    topics = [Topic(size, codec, count) for size, count in records.items() for codec in CODECS]
    return Profile(
        "full",
        tuple(Case(topic, sink, _peers(sink, topic)) for topic in topics for sink in SINKS),
        memory_topic=Topic(1024, "none", 2_000_000, partitions=1, purpose="memory"),
    )


PROFILES = {"quick": quick, "full": full}


def streams(profile: Profile) -> Profile:
    """Only streaming queries: a quarter of an hour."""
    topic = Topic(100, "none", 20_000_000, purpose="stream")
    many = Topic(100, "none", 200_000, partitions=100, padding=0, purpose="stream-partitions")
    cases = (
        StreamCase(SMALL, topic, per_trigger=1000, batches=40, warm_up=5),
        StreamCase(LARGE, topic, per_trigger=1_000_000, batches=4, warm_up=1),
        StreamCase(CATCH_UP, topic),
        StreamCase(PLANNING, many, per_trigger=10_000, batches=8, warm_up=2, rounds=3),
    )
    return replace(profile, name=f"{profile.name}-streams", cases=(), memory_topic=None, stream_cases=cases, beside=())


def sink(profile: Profile) -> Profile:
    """Only writing: a quarter of an hour."""
    records = {100: 4_000_000, 1024: 600_000}
    cases = [
        _writing(Topic(size, codec, count, padding=0)) for size, count in records.items() for codec in _WRITTEN_CODECS
    ]
    made = Topic(100, "none", 2, padding=0)  # no more than what values are like
    streams = (
        StreamCase(SMALL_WRITTEN, made, per_trigger=1000, batches=20, warm_up=5),
        StreamCase(LARGE_WRITTEN, made, per_trigger=1_000_000, batches=3, warm_up=1),
    )
    return replace(
        profile,
        name=f"{profile.name}-sink",
        cases=(),
        memory_topic=None,
        write_cases=tuple(cases),
        stream_cases=streams,
        beside=(),
    )


def tls(profile: Profile) -> Profile:
    """Only reading over TLS, beside the same without: five minutes."""
    topics = (Topic(100, "none", 2_000_000), Topic(1024, "none", 400_000))
    cases = tuple(Case(topic, sink, _SPARK_PEERS) for topic in topics for sink in (NOOP, TLS))
    return replace(profile, name=f"{profile.name}-tls", cases=cases, memory_topic=None, beside=())


def first_rows(profile: Profile) -> Profile:
    """Only the first rows of a topic: two minutes."""
    return replace(
        profile,
        name=f"{profile.name}-first-rows",
        cases=(),
        memory_topic=None,
        rows_topic=Topic(100, "none", 2_000_000),
        latency_rounds=9,
        beside=(FIRST_ROWS,),
    )


PARTS = {"streams": streams, "sink": sink, "tls": tls, "first-rows": first_rows}


def narrowed(profile: Profile, *, peers: Iterable[str], scale: float, rounds: int | None) -> Profile:
    """Return a smaller profile for trying things out; its figures mean nothing.

    Args:
        peers: Only these.
        scale: Of every number of records.
        rounds: Instead of the profile's own.

    Raises:
        BenchError: A peer that does not exist, or none left.
    """
    chosen = set(peers)
    if unknown := chosen - set(PEERS):
        raise BenchError(f"There is no peer {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    if OURS in chosen:
        chosen.add(EXACTLY_ONCE)
    kept, write_cases = (_kept(cases, chosen, scale) for cases in (profile.cases, profile.write_cases))
    if not kept and not write_cases and not ((profile.stream_cases or profile.rows_topic) and chosen & {JVM, OURS}):
        raise BenchError("No case is left with these peers")
    return replace(
        profile,
        cases=kept,
        write_cases=write_cases,
        rounds=rounds or profile.rounds,
        latency_rounds=min(rounds or profile.latency_rounds, profile.latency_rounds),
        memory_topic=_scaled(profile.memory_topic, scale) if profile.memory_topic else None,
        rows_topic=_scaled(profile.rows_topic, scale) if profile.rows_topic else None,
        stream_cases=tuple(replace(scaled(case, scale), rounds=rounds or case.rounds) for case in profile.stream_cases),
    )


def _writing(topic: Topic) -> Case:
    return Case(topic, WRITE, (JVM, OURS, EXACTLY_ONCE, CONFLUENT))


def _peers(sink: str, topic: Topic) -> tuple[str, ...]:
    if sink != NOOP:  # the clients know no sinks: they are shown beside "all columns"
        return _SPARK_PEERS
    return PEERS


def _kept(cases: Iterable[Case], peers: Collection[str], scale: float) -> tuple[Case, ...]:
    narrow = (
        replace(case, topic=_scaled(case.topic, scale), peers=tuple(peer for peer in case.peers if peer in peers))
        for case in cases
    )
    return tuple(case for case in narrow if case.peers)


def _scaled(topic: Topic, scale: float) -> Topic:
    each = max(1, int(topic.records * scale) // topic.partitions)
    return replace(topic, records=each * topic.partitions)
