from __future__ import annotations

import pytest
from bench.errors import BenchError
from bench.goals import GOALS
from bench.profiles import FIRST_ROWS, PARTS, PROFILES, full, narrowed, quick
from bench.spark_peers import NOOP, SINKS, TLS
from bench.summary import EXACTLY_ONCE, JVM, KAFKA_PYTHON, OURS, PEERS
from bench.topics import CODECS, SIZES


@pytest.mark.parametrize("name", PROFILES)
def test_every_goal_is_measured(name: str) -> None:
    measured = {(case.topic.value_bytes, case.topic.codec, case.sink) for case in PROFILES[name]().cases}
    assert {(goal.value_bytes, goal.codec, goal.sink) for goal in GOALS} <= measured


@pytest.mark.parametrize("name", PROFILES)
def test_both_spark_sources_run_every_case(name: str) -> None:
    assert all({JVM, OURS} <= set(case.peers) for case in PROFILES[name]().cases)


def test_the_full_profile_is_the_whole_matrix() -> None:
    measured = [(case.topic.value_bytes, case.topic.codec, case.sink) for case in full().cases]
    assert sorted(measured) == sorted((size, codec, sink) for size in SIZES for codec in CODECS for sink in SINKS)
    largest = full().memory_topic
    assert largest is not None
    assert largest.total_bytes > 2e9


def test_topics_are_loaded_once_and_have_names_of_their_own() -> None:
    topics = full().topics
    assert len({topic.name for topic in topics}) == len(topics) == len(SIZES) * len(CODECS) + 1


def test_slow_clients_read_a_share() -> None:
    case = quick().cases[0]
    assert case.records(OURS) == case.topic.records
    assert 0 < case.records(KAFKA_PYTHON) < case.topic.records


def test_narrowed() -> None:
    small = narrowed(quick(), peers=[OURS], scale=0.001, rounds=2)
    assert {case.peers for case in small.cases} == {(OURS,)}
    assert small.cases[0].topic.records == quick().cases[0].topic.records // 1000
    assert (small.rounds, small.latency_rounds) == (2, 2)


@pytest.mark.parametrize("peers", [["nobody"], []])
def test_narrowed_refuses_what_leaves_nothing(peers: list[str]) -> None:
    with pytest.raises(BenchError):
        narrowed(quick(), peers=peers, scale=1, rounds=None)


def test_peers_are_known() -> None:
    assert {peer for case in full().cases for peer in case.peers} == set(PEERS)


def test_the_sink_is_a_part_of_its_own() -> None:
    profile = PARTS["sink"](quick())
    assert profile.topics == (), "nothing is loaded"
    measured = {(case.topic.value_bytes, case.topic.codec) for case in profile.write_cases}
    assert measured == {(size, codec) for size in (100, 1024) for codec in ("none", "lz4", "zstd")}
    small = narrowed(profile, peers=[OURS], scale=0.1, rounds=1)
    assert {case.peers for case in small.write_cases} == {(OURS, EXACTLY_ONCE)}


def test_tls_is_measured_beside_the_same_without() -> None:
    assert {case.topic.value_bytes for case in quick().cases if case.sink == TLS} == {100, 1024}
    profile = PARTS["tls"](quick())
    measured = {(case.topic, case.sink, case.peers) for case in profile.cases}
    assert measured == {(topic, sink, (JVM, OURS)) for topic in profile.topics for sink in (NOOP, TLS)}
    assert profile.beside == ()


def test_first_rows_are_a_part_of_their_own() -> None:
    profile = PARTS["first-rows"](full())
    assert (profile.cases, profile.topics) == ((), (profile.latency_topic,))
    assert profile.beside == (FIRST_ROWS,)
    small = narrowed(profile, peers=[OURS], scale=0.1, rounds=1)
    assert small.latency_topic.records == profile.latency_topic.records // 10
    assert small.latency_rounds == 1
    with pytest.raises(BenchError):
        narrowed(profile, peers=[KAFKA_PYTHON], scale=1, rounds=None)
