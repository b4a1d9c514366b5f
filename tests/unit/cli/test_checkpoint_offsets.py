"""``kafka-direct checkpoint`` with a cluster: two sources, topics and partitions."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import pytest
from tests.unit.cli.simulated_commands import CommandCluster, write_checkpoint

from pyspark_kafka_direct.cli.connection_arguments import PROFILES_VARIABLE
from pyspark_kafka_direct.cli.main import main
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandCluster]:
    """A cluster with ten records in each partition, each a second after the one before."""
    with CommandCluster(monkeypatch, capsys) as cluster:
        for _ in range(10):
            cluster.sleep(1)
            for tp in (T0, T1, U0):
                cluster.append(tp, 1)
        yield cluster


def test_show_names_each_problem(cluster: CommandCluster, tmp_path: Path) -> None:
    sources = [{"u": {"0": 2}}, {"t": {"0": 11, "1": 12}, "deleted": {"0": 1, "1": 1}}]
    checkpoint = write_checkpoint(tmp_path, [sources], committed=1)
    shown = cluster.run("checkpoint", "show", checkpoint, "--json")
    assert (shown.code, [(row["partition"], row["lag"]) for row in shown.rows]) == (
        1,
        [("u-0", 8), ("deleted-0", None), ("deleted-1", None), ("t-0", -1), ("t-1", -2)],
    )
    assert "behind the end of the log: t-0 at 11, t-1 at 12." in shown.errors
    assert "No longer in the cluster: deleted-0, deleted-1." in shown.errors


@pytest.mark.parametrize("ends", [(10, 9), (0, 10), (11, 10), (10, 11)])
@pytest.mark.parametrize("topic", ["u", "deleted"])
def test_show_fails_only_for_a_problem(
    cluster: CommandCluster, tmp_path: Path, ends: tuple[int, int], topic: str
) -> None:
    """A query that has read all records is not behind the end of the log."""
    checkpoint = write_checkpoint(tmp_path, [[{topic: {"0": 0}}, {"t": {"0": ends[0], "1": ends[1]}}]], committed=1)
    found = cluster.run("checkpoint", "show", checkpoint, "--json")
    is_beyond, is_deleted = max(ends) > 10, topic == "deleted"
    assert found.code == int(is_beyond or is_deleted)
    assert ("behind the end of the log" in found.errors, "No longer in" in found.errors) == (is_beyond, is_deleted)
    lags = [None if is_deleted else 10, *(10 - end for end in ends)]
    assert [(row["end"], row["lag"]) for row in found.rows] == [*zip((0, *ends), lags, strict=True)]


@pytest.mark.parametrize("form", ["-b", "-X", "--profile", "--command-config", "none"])
def test_show_has_the_lag_if_any_argument_names_brokers(
    cluster: CommandCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    form: str,
) -> None:
    (tmp_path / "profiles.toml").write_text(f'[p]\n"bootstrap.servers" = "{cluster.servers}"\n')
    (tmp_path / "client.properties").write_text(f"bootstrap.servers={cluster.servers}\n")
    monkeypatch.setenv(PROFILES_VARIABLE, str(tmp_path / "profiles.toml"))
    values = {
        "-b": cluster.servers,
        "-X": f"bootstrap.servers={cluster.servers}",
        "--profile": "p",
        "--command-config": str(tmp_path / "client.properties"),
    }
    arguments = [] if form == "none" else [form, values[form]]
    checkpoint = write_checkpoint(tmp_path / "q", [[{"t": {"0": 0, "1": 3}}]], committed=1)
    assert main(["checkpoint", "show", checkpoint, "--json", *arguments]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row.get("lag") for row in rows] == ([None, None] if form == "none" else [10, 7])


def test_json_without_rows_is_empty(cluster: CommandCluster, tmp_path: Path) -> None:
    """A program that reads the lines would fail at a sentence."""
    checkpoint = write_checkpoint(tmp_path, [[{"t": {"0": 1, "1": 1}}]], committed=1)
    cluster.cluster.create_topic("out", 1)
    cluster.sleep(60)  # until the broker knows it
    for arguments, code in (
        (("lag", "none"), 1),
        (("transactions", "list"), 0),
        (("dlq", "show", "out"), 0),
        (("dlq", "show", "out", "--count"), 0),
        (("dlq", "replay", "out"), 0),
        (("checkpoint", "rewind", checkpoint, "--to-offsets", '{"t":{"0":1}}'), 0),
    ):
        found = cluster.run(*arguments, "--json")
        assert (found.code, found.text) == (code, ""), arguments
        assert len(cluster.run(*arguments).text.splitlines()) == 1, arguments


def test_show_compares_each_of_the_last_batches(cluster: CommandCluster, tmp_path: Path) -> None:
    ends = [(1, 2, 3), (4, 5, 6), (7, 8, 9), (8, 9, 10)]
    batches = [[{"u": {"0": u}}, {"t": {"0": t0, "1": t1}}] for u, t0, t1 in ends]
    checkpoint = write_checkpoint(tmp_path, batches, committed=3, times_ms=[1000, 2000, 3000, 4000])
    shown = cluster.run("checkpoint", "show", checkpoint, "--batches", "3", "--json")
    columns = ("batch", "state", "time", "partition", "start", "end", "offsets", "lag")
    found = [tuple(row[name] for name in columns) for row in shown.rows]
    assert found == [
        (batch, "unfinished" if batch == 3 else "committed", f"1970-01-01T00:00:0{batch + 1}Z", partition,
         ends[batch - 1][index], ends[batch][index], ends[batch][index] - ends[batch - 1][index],
         10 - ends[batch][index])
        for batch in (1, 2, 3)
        for index, partition in enumerate(("u-0", "t-0", "t-1"))
    ]  # fmt: skip
    table = cluster.run("checkpoint", "show", checkpoint).text
    assert "committed batches  0 to 2\nunfinished batch   3\n" in table
    assert all(cluster.run("checkpoint", "show", checkpoint, "--batches", each).text == table for each in ("0", "-1"))
    assert [line for line in table.splitlines() if line.startswith("batch ")] == [
        "batch 2, committed, planned at 1970-01-01T00:00:03Z",
        "batch 3, unfinished, planned at 1970-01-01T00:00:04Z",
    ]


def test_a_time_moves_each_partition_of_each_source(cluster: CommandCluster, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, [[{"u": {"0": 9}}, {"t": {"0": 10, "1": 3}}]], committed=1)
    times = {tp: [batch.max_timestamp for batch in cluster.log(tp).batches] for tp in (T0, T1, U0)}
    assert times[T0] == times[T1] == times[U0]
    arguments = ("checkpoint", "rewind", checkpoint, "--to-time", str(times[T0][2]), "--json")
    moved = cluster.run(*arguments)
    assert moved.code == 0, moved.errors
    assert [(row["source"], row["partition"], row["end"], row["to"], row["expired"]) for row in moved.rows] == [
        ("0", "u-0", 9, 2, 0),
        ("1", "t-0", 10, 2, 0),
        ("1", "t-1", 3, 2, 0),
    ]
    for tp in (T0, T1):
        cluster.delete_records(tp, 3)
    offsets = '{"t":{"0":1,"1":-2},"u":{"0":-1}}'
    moved = cluster.run("checkpoint", "rewind", checkpoint, "--to-offsets", offsets, "--allow-skip", "--json")
    shown = ("partition", "to", "again", "expired", "skipped")
    assert [tuple(row[name] for name in shown) for row in moved.rows] == [("t-0", 1, 7, 2, 0), ("u-0", 10, 0, 0, 1)]
    wanted = '{"t":{"0":1,"1":0}}'
    refused = cluster.run("checkpoint", "rewind", checkpoint, "--to-offsets", wanted)
    assert "cannot be read: t-0: 1 to 2; t-1: 0 to 2." in refused.errors
    wanted = '{"u":{"0":11},"t":{"0":12,"1":13}}'
    refused = cluster.run("checkpoint", "rewind", checkpoint, "--to-offsets", wanted)
    assert "do not exist yet: u-0: 11, and the log ends at 10; t-0: 12, and the log ends at 10; t-1: 13" in (
        refused.errors
    )


def test_a_time_after_some_ends_does_not_move_them(cluster: CommandCluster, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, [[{"u": {"0": 9}}, {"t": {"0": 5, "1": 0}}]], committed=1)
    times = [batch.max_timestamp for batch in cluster.log(T0).batches]
    for index, expected in ((5, ["u-0"]), (4, ["u-0", "t-0"]), (0, ["u-0", "t-0"]), (9, [])):
        moved = cluster.run("checkpoint", "rewind", checkpoint, "--to-time", str(times[index]), "--json")
        assert (moved.code, [(row["partition"], row["to"]) for row in moved.rows]) == (
            0,
            [(partition, index) for partition in expected],
        )
    assert cluster.run("checkpoint", "rewind", checkpoint, "--to-time", "-1s").text == "No offset would change.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "t", "-e", "-o", "-3"),
        ("consume", "t", "-e", "--offset", "-3"),
        ("audit", "t", "--output-topic", "out", "--from", "-1s", "--output-from", "-1h", "--filtered"),
        ("audit", "t", "--output-topic", "out", "--to", "-1h", "--filtered"),
        ("dlq", "show", "t", "-o", "-2"),
        ("transactions", "abort", "--partition", "t-0", "--start-offset", "-1"),
        ("checkpoint", "rewind", "{}", "--to-time", "-2h"),
        ("checkpoint", "show", "{}", "--batches", "-1"),
    ],
    ids=" ".join,
)
def test_a_negative_value_is_no_option(cluster: CommandCluster, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    cluster.cluster.create_topic("out", 1)
    cluster.sleep(60)  # until the broker knows it
    checkpoint = write_checkpoint(tmp_path, [[{"t": {"0": 1, "1": 1}}]], committed=1)
    found = cluster.run(*(each.format(checkpoint) for each in arguments))
    assert found.code in (0, int(arguments[0] == "transactions")), found


@pytest.mark.parametrize("more", [(), ("--allow-skip",)])
def test_a_rewind_counts_each_offset_once(cluster: CommandCluster, tmp_path: Path, more: tuple[str, ...]) -> None:
    """Each wanted offset is read again, has expired or is skipped, for any bounds of the logs."""
    random = Random(len(more))
    for start in (0, 4, 8, 10):
        for tp in (T0, T1):
            cluster.delete_records(tp, start)
        for number in range(8):
            ends = {str(partition): random.randrange(11) for partition in (0, 1)}
            to = {str(partition): random.choice([0, start, 10, random.randrange(12)]) for partition in (0, 1)}
            checkpoint = write_checkpoint(tmp_path / f"{start}-{number}", [[{"t": ends}]], committed=1)
            found = cluster.run(
                "checkpoint", "rewind", checkpoint, "--to-offsets", json.dumps({"t": to}), "--json", *more
            )
            expected = []
            for each in ("0", "1"):
                end, wanted = ends[each], range(to[each], max(ends[each], start if to[each] > ends[each] else 0))
                expired, skipped = len(range(wanted.start, min(wanted.stop, start))), len(range(end, to[each]))
                again = len(range(max(to[each], start), end))
                expected.append((f"t-{each}", end, to[each], again, expired, skipped))
            expected = [each for each in expected if each[1] != each[2]]
            columns = ("partition", "end", "to", "again", "expired", "skipped")
            assert [tuple(row[name] for name in columns) for row in found.rows] == expected
            reasons = {
                "have expired": any(each[4] for each in expected),
                "do not exist yet": any(each[2] > 10 for each in expected),
                "would never read": any(each[5] for each in expected) and not more,
            }
            reason = next((text for text, applies in reasons.items() if applies), None)
            assert found.code == int(reason is not None), found
            assert [text for text in reasons if text in found.errors] == ([] if reason is None else [reason])


def test_preflight_of_two_topics(cluster: CommandCluster, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, [[{"t": {"0": 4, "1": 6}, "u": {"0": 5}}]], committed=1)
    cluster.append(T1, 1, producer_id=7)
    arguments = ("checkpoint", "preflight", checkpoint, "--json")
    both = ("--topic", "t", "--topic", "u")
    unknown = ("-X", "flavour=x", "-X", "colour=y")
    found = cluster.run(*arguments, *both, "-X", "isolation.level=read_committed", *unknown)
    assert (found.code, [tuple(row.values()) for row in found.rows]) == (
        0,
        [("t-0", "ok", 4, 10, 6, 0), ("t-1", "ok", 6, 10, 4, 0), ("u-0", "ok", 5, 10, 5, 0)],
    )
    assert "warning: the option flavour is unknown" in found.errors
    assert "warning: the option colour is unknown" in found.errors
    assert "the query fails" not in found.errors
    limited = cluster.run(*arguments, *both, "-X", "maxOffsetsPerTrigger=6")
    assert [row["offsets"] for row in limited.rows] == [2, 1, 1]
    one = cluster.run(*arguments, "--topic", "u")
    assert [(row["partition"], row["state"]) for row in one.rows] == [
        ("t-0", "not selected"),
        ("t-1", "not selected"),
        ("u-0", "ok"),
    ]
    cluster.cluster.create_topic("internal", 1, is_internal=True)
    cluster.cluster.create_topic("v", 1)
    cluster.cluster.create_topic("w", 1)
    cluster.sleep(60)  # until the broker knows them
    other = cluster.run(*arguments, "--topic", "v", "--topic", "w")
    assert "its source 0 reads t, u, but the options select v, w." in other.errors
    first = write_checkpoint(tmp_path / "first", [[{"t": {"0": 4}}]], committed=0)  # without a start
    other = cluster.run("checkpoint", "preflight", first, "--topic", "v")
    assert (other.code, "its source 0 reads t, but the options select v." in other.errors) == (1, True)
    every = cluster.run(*arguments, "--pattern", ".*")
    assert [row["partition"] for row in every.rows] == ["t-0", "t-1", "u-0", "v-0", "w-0"]


def test_preflight_of_an_unfinished_batch_starts_at_the_one_before(cluster: CommandCluster, tmp_path: Path) -> None:
    batches = [
        [{"u": {"0": u}}, {"t": {"0": t0, "1": t1}}] for u, t0, t1 in [(1, 1, 2), (2, 3, 4), (5, 6, 8), (6, 7, 9)]
    ]
    found = []
    for count, committed in ((3, 2), (4, 4)):
        folder = tmp_path / str(count)
        checkpoint = write_checkpoint(folder, batches[:count], committed)
        arguments = ("checkpoint", "preflight", checkpoint)
        refused = cluster.run(*arguments, "--topic", "t")
        assert "several Kafka sources; choose one with --source (it has: 0, 1)" in refused.errors
        for source, topic in (("0", "u"), ("1", "t")):
            of_source = (*arguments, "--source", source, "--topic", topic, "-X", "maxOffsetsPerTrigger=2")
            rows = cluster.run(*of_source, "--json").rows
            found += [(committed, row["partition"], row["start"], row["end"]) for row in rows]
        (folder / "state/0").mkdir(parents=True)
        text = cluster.run(*of_source, "-X", "maxBytesPerTrigger=9").text
        first = "2, planned and not committed" if committed == 2 else "4, not planned yet"
        assert f"query id     {count}\nsource       1\nfirst batch  {first}\nstate        yes\n" in text
        notes = ("The query repeats this batch", "State is independent of", "maxBytesPerTrigger may end the batch")
        assert [note in text for note in notes] == [committed == 2, True, True]
    assert found == [
        (2, "u-0", 2, 5), (2, "t-0", 3, 6), (2, "t-1", 4, 8),
        (4, "u-0", 6, 8), (4, "t-0", 7, 8), (4, "t-1", 9, 10),
    ]  # fmt: skip


@pytest.mark.parametrize("source", [0, 1])
def test_preflight_of_the_first_batch_of_all(cluster: CommandCluster, tmp_path: Path, source: int) -> None:
    """The other source of the query reads the same topics, and starts elsewhere."""
    sources = [{"t": {"0": 6, "1": 8}, "u": {"0": 9}}, {"t": {"0": 7, "1": 9}, "u": {"0": 10}}]
    starts = {source: {"t": {"0": 1, "1": 2}, "u": {"0": 3}}}
    checkpoint = write_checkpoint(tmp_path, [sources], committed=0, starts=starts)
    arguments = ("checkpoint", "preflight", checkpoint, "--topic", "t", "--topic", "u", "--source")
    by_spark = cluster.run(*arguments, str(source), "--json")
    assert [(row["start"], row["end"]) for row in by_spark.rows] == [(1, 6 + source), (2, 8 + source), (3, 9 + source)]
    assert 'Set startingOffsets to {"t":{"0":1,"1":2},"u":{"0":3}}' in by_spark.errors
    assert cluster.run(*arguments, str(source), "-X", "startingOffsets=earliest").code == 0
    assert f"source       {source}, started by Spark\n" in cluster.run(*arguments, str(source), "--to", "kafka").text
    assert cluster.run(*arguments, str(source), "--to", "kafka").code == 0  # Spark has the start in the checkpoint
    other = cluster.run(*arguments, str(1 - source), "--to", "kafka")
    assert other.code == 1
    assert "Spark's source would resolve startingOffsets again" in other.errors


def test_preflight_names_each_state_and_option(cluster: CommandCluster, tmp_path: Path) -> None:
    ends = {"t": {"0": 4, "1": 12}, "u": {"0": 2}, "x": {"0": 1}}
    checkpoint = write_checkpoint(tmp_path, [[ends]], committed=1)
    for tp in (T0, U0):
        cluster.delete_records(tp, 6)
    topics = ("--topic", "t", "--topic", "u", "--topic", "x", "--to", "kafka")
    options = [part for each in ("startingOffsets=-1h", "maxBytesPerTrigger=9") for part in ("-X", each)]
    found = cluster.run("checkpoint", "preflight", checkpoint, *topics, *options, "--json")
    assert found.code == 1
    assert [(row["partition"], row["state"]) for row in found.rows] == [
        ("t-0", "expired"),
        ("t-1", "beyond end"),
        ("u-0", "expired"),
        ("x-0", "deleted"),
    ]
    assert "With failOnDataLoss=true, the query fails." in found.errors
    tolerant = cluster.run("checkpoint", "preflight", checkpoint, *topics[:6], "-X", "failOnDataLoss=false")
    assert (tolerant.code, "failOnDataLoss" in tolerant.errors) == (1, False)
    for text in ("expired: ", "beyond end: ", "deleted: ", "rejects startingOffsets=-1h", "ignores maxBytesPerTrigger"):
        assert text in found.errors
