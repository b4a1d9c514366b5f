"""``kafka-direct consume`` of several topics and partitions, whose records arrive while it waits."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.unit.cli.simulated_commands import CommandCluster, Pipe

from pyspark_kafka_direct.cli.main import main
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
FORMAT = ("-f", r"%t%p@%o\n")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandCluster]:
    """A cluster with 6, 5 and 2 records in the partitions, each a second after the one before."""
    with CommandCluster(monkeypatch, capsys) as cluster:
        for number in range(6):
            cluster.sleep(1)
            for tp in [T0, T1, U0][: 3 if number < 2 else 2 if number < 5 else 1]:
                cluster.append(tp, 1)
        yield cluster


def while_it_waits(monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]) -> None:
    """Run an action instead of each pause, and interrupt the command after them."""
    remaining = iter(actions)

    def sleep(_: float) -> None:
        action = next(remaining, None)
        if action is None:
            raise KeyboardInterrupt
        action()

    monkeypatch.setattr(time, "sleep", sleep)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("4:", "t0@4 t0@5 t1@4"),
        ("1:5", "t0@1 t0@2 t0@3 t0@4 t1@1 t1@2 t1@3 t1@4 u0@1"),
        ("+4:", "t0@4 t0@5 t1@4"),
        ("+1:end", "t0@1 t0@2 t0@3 t0@4 t0@5 t1@1 t1@2 t1@3 t1@4 u0@1"),
        ("-1:", "t0@5 t1@4 u0@1"),
        ("-2:end", "t0@4 t0@5 t1@3 t1@4 u0@0 u0@1"),
        (":2", "t0@0 t0@1 t1@0 t1@1 u0@0 u0@1"),
        ("0:0", ""),
        ("0:1", "t0@0 t1@0 u0@0"),
        ("4:2", ""),
        ("+4:3", ""),
        ("-1:5", "t1@4 u0@1"),
        ("end:", ""),
        ("-0:", ""),
        ("-00:5", ""),
        ("9:", ""),
        ("+0:1", "t0@0 t1@0 u0@0"),
    ],
)
def test_positions_apply_to_each_partition(cluster: CommandCluster, position: str, expected: str) -> None:
    found = cluster.run("consume", "t", "u", *FORMAT, "-e", "-o", position)
    assert (found.code, sorted(found.text.split())) == (0, expected.split())


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (":3", "t1@1 t1@2 u0@1"),
        ("0:5", "t0@4 t1@1 t1@2 t1@3 t1@4 u0@1"),
        ("+1:", "t0@5 t1@2 t1@3 t1@4"),
        ("+1:2", ""),
        ("2:", "t0@4 t0@5 t1@2 t1@3 t1@4"),
        ("-9:", "t0@4 t0@5 t1@1 t1@2 t1@3 t1@4 u0@1"),
    ],
)
def test_positions_of_partitions_whose_first_records_have_expired(
    cluster: CommandCluster, position: str, expected: str
) -> None:
    for tp, start in ((T0, 4), (T1, 1), (U0, 1)):
        cluster.delete_records(tp, start)
    found = cluster.run("consume", "t", "u", *FORMAT, "-e", "-o", position)
    assert (found.code, sorted(found.text.split())) == (0, expected.split())


def test_records_are_flushed_before_it_waits(cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, found = Pipe(), []

    def append() -> None:
        found.append(sorted(pipe.read().split()))
        for tp in (T1, U0):
            cluster.append(tp, 1)

    while_it_waits(monkeypatch, append, append, append)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", pipe.stream)
        code = main(["consume", "t", "u", *FORMAT, "-o", "4", "-b", cluster.servers])
    assert (code, found) == (130, [["t0@4", "t0@5", "t1@4"], ["t1@5"], ["t1@6"]])


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_loss_in_each_partition_fails_only_if_that_is_wanted(cluster: CommandCluster, fails: str) -> None:
    def expire() -> None:
        for tp in (T0, T1):
            cluster.delete_records(tp, 3)

    cluster.before("Fetch", expire)
    found = cluster.run("consume", "t", *FORMAT, "-o", "1:", "-e", "-X", f"failOnDataLoss={fails}")
    losses = [line for line in found.errors.splitlines() if "2 offsets were skipped" in line]
    assert (found.code, len(losses)) == ((3, 0) if fails == "true" else (0, 2))


def test_lost_records_do_not_count_for_a_limit(cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def expire() -> None:
        for tp in (T0, T1):
            cluster.delete_records(tp, 3)

    def append() -> None:
        for tp in (T0, T1):
            cluster.append(tp, 1)

    cluster.before("Fetch", expire)
    while_it_waits(monkeypatch, *[append] * 9)
    found = cluster.run("consume", "t", *FORMAT, "-o", "1", "-n", "9")
    assert (found.code, len(found.text.split()), "2 offsets were skipped" in found.errors) == (0, 9, True)


def test_times_apply_to_each_partition(cluster: CommandCluster) -> None:
    times = [batch.max_timestamp for batch in cluster.log(T0).batches]
    found = cluster.run("consume", "t", "u", *FORMAT, "-o", f"@{times[1]}:{times[4]}")
    assert sorted(found.text.split()) == ["t0@1", "t0@2", "t0@3", "t1@1", "t1@2", "t1@3", "u0@1"]


def test_the_positions_of_each_partition_apply_while_it_waits(
    cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start is behind the ends of some partitions, and no record is printed twice or left out."""

    def append(*partitions: TopicPartition) -> Callable[[], object]:
        def change() -> None:
            for tp in partitions:
                cluster.append(tp, 2)

        return change

    for start, first in (("5", "t0@5"), ("+5", "t0@5"), ("end", "")):
        ends = {tp: cluster.log(tp).end for tp in (T0, T1, U0)}
        while_it_waits(monkeypatch, append(T1), append(U0, T0), append(U0, T1))
        found = cluster.run("consume", "t", "u", *FORMAT, "-o", start)
        assert found.code == 130
        lowest = dict.fromkeys(ends, 5) if first else ends
        expected = [
            f"{tp.topic}{tp.partition}@{offset}"
            for tp in (T0, T1, U0)
            for offset in range(lowest[tp], cluster.log(tp).end)
        ]
        assert sorted(found.text.split()) == sorted(expected)
        assert found.text.startswith(first)


@pytest.mark.parametrize(
    ("position", "known"),
    [("-1", "t0@5 t1@4 u0@1"), ("+4", "t0@4 t0@5 t1@4"), ("end", ""), ("-0", ""), ("0", "all"), ("start", "all")],
)
def test_new_topics_of_a_pattern_are_read_from_their_beginning(
    cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch, position: str, known: str
) -> None:
    """The pattern matches whole names."""

    def create(name: str) -> Callable[[], object]:
        def change() -> None:
            cluster.cluster.create_topic(name, 2)
            cluster.sleep(60)  # until the broker knows it
            for number in (0, 1):
                cluster.append(TopicPartition(name, number), 1)

        return change

    every = " ".join([*(f"t0@{n}" for n in range(6)), *(f"t1@{n}" for n in range(5)), "u0@0", "u0@1"])
    while_it_waits(monkeypatch, create("tx"), create("xu"), create("ux"), create("ty"))
    found = cluster.run("consume", "--pattern", "t.*|u", *FORMAT, "-o", position)
    expected = [*(every if known == "all" else known).split(), "tx0@0", "tx1@0", "ty0@0", "ty1@0"]
    assert sorted(found.text.split()) == sorted(expected)


@pytest.mark.parametrize("position", ["start", "4", "-1", "+4", "end"])
def test_new_partitions_are_read_from_their_beginning(
    cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch, position: str
) -> None:
    def expand() -> None:
        cluster.event("expand_topic", topic="u", count=2)
        cluster.sleep(60)  # until the broker knows them
        for number in (1, 2):
            cluster.append(TopicPartition("u", number), 5)
        cluster.append(T1, 1)

    while_it_waits(monkeypatch, expand)
    found = cluster.run("consume", "t", "u", *FORMAT, "-o", position).text.split()
    first = 4 if position == "4" else 0  # an offset applies to all partitions
    assert [each for each in found if each[:2] in ("u1", "u2")] == [
        f"u{partition}@{offset}" for partition in (1, 2) for offset in range(first, 5)
    ]
    assert (found.count("t1@5"), len(found)) == (1, len({*found}))


def test_a_limit_counts_the_records_of_all_slices(cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def append() -> None:
        for tp in (T0, U0):
            cluster.append(tp, 2)

    while_it_waits(monkeypatch, append, append)
    assert len(cluster.run("consume", "t", "u", *FORMAT, "-n", "12").text.split()) == 12
    ends = {tp: cluster.log(tp).end for tp in (T0, T1, U0)}
    assert ends == {T0: 6, T1: 5, U0: 2}  # these were enough
    found = cluster.run("consume", "t", "u", *FORMAT, "-n", "20").text.split()
    assert (len(found), len({*found})) == (20, 20)


def test_records_of_open_transactions_in_each_partition_are_left_out(cluster: CommandCluster) -> None:
    cluster.cluster.create_topic("v", 2)
    for number in (0, 1):
        cluster.append(TopicPartition("v", number), 1)
        cluster.append(TopicPartition("v", number), 1, producer_id=7)
    every = [f"v{partition}@{offset}" for partition in (0, 1) for offset in (0, 1)]
    assert sorted(cluster.run("consume", "v", *FORMAT, "-e").text.split()) == every
    committed = ("-X", "isolation.level=read_committed")
    for more in (("--read-committed",), committed, (*committed, "--read-committed")):
        assert sorted(cluster.run("consume", "v", *FORMAT, "-e", *more).text.split()) == every[::2]


@pytest.mark.parametrize("position", ["start", "1", "+1", "-3", "0:5", "-9:4", "@0:end"])
def test_a_limit_applies_to_each_kind_of_position(cluster: CommandCluster, position: str) -> None:
    every = cluster.run("consume", "t", "u", *FORMAT, "-e", "-o", position).text.split()
    assert len(every) >= 6
    for limit in (0, 1, 4, len(every), 99):
        found = cluster.run("consume", "t", "u", *FORMAT, "-e", "-o", position, "-n", str(limit)).text.split()
        assert (len(found), {*found} <= {*every}, len({*found})) == (min(limit, len(every)), True, len(found))


@pytest.mark.parametrize("is_terminal", [False, True])
def test_only_a_terminal_is_protected_from_controls(
    cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    cluster.write("u", pa.table({"key": [b"\x1b[1m"], "value": [b"\x07"]}))
    pipe = Pipe(is_terminal=is_terminal)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", pipe.stream)
        assert main(["consume", "u", "-f", r"%k %s\n", "-o", "-1", "-e", "-b", cluster.servers]) == 0
    assert pipe.read() == ("\\x1b[1m \\x07\n" if is_terminal else "\x1b[1m \x07\n")
