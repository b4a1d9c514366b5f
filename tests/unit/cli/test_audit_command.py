"""``kafka-direct audit`` of two partitions, batches, outputs and sources of a checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.cli.simulated_commands import CommandCluster, write_checkpoint

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandCluster]:
    """A cluster whose topic ``t`` has 6 records in each partition, and empty outputs ``u`` and ``out``."""
    with CommandCluster(monkeypatch, capsys) as cluster:
        cluster.cluster.create_topic("out", 2)
        for tp in (T0, T1):
            cluster.append(tp, 6)
        yield cluster


def write_copies(cluster: CommandCluster, output: str, rows: Iterable[tuple[int, int]], partition: int = 0) -> None:
    """Write rows with the partition and offset of their source in headers."""
    headers = [
        [("source.topic", b"t"), ("source.partition", b"%d" % number), ("source.offset", b"%d" % offset)]
        for number, offset in rows
    ]
    cluster.write_headers(output, headers, partition)


def copies(partition: int, *offsets: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in offsets]


def test_what_only_the_second_partition_lacks_or_repeats_is_found(cluster: CommandCluster) -> None:
    write_copies(cluster, "out", copies(0, *range(6)), 0)
    write_copies(cluster, "out", copies(1, 0, 1, 2, 4), 1)
    audit = cluster.run("audit", "t", "--output-topic", "out")
    assert audit.code == 1
    table, details, _ = audit.text.split("\n\n")
    assert [line.split() for line in table.splitlines()[1:]] == [
        ["t-0", "6", "6", "0", "0", "0", "0"],
        ["t-1", "6", "4", "2", "0", "0", "0"],
    ]
    assert details == "t-1 missing: 3, 5"
    write_copies(cluster, "u", copies(1, 3, 5, 5))
    repeated = cluster.run("audit", "t", "--output-topic", "out", "--output-topic", "u")
    assert repeated.code == 1
    assert repeated.text.split("\n\n")[1:] == [
        "t-1 duplicates: 5",
        "10 rows in the topic out\n3 rows in the topic u\n",
    ]


def test_details_of_both_partitions(cluster: CommandCluster) -> None:
    write_copies(cluster, "out", [*copies(0, 0, 2, 3, 3), *copies(1, *range(6), 9)])
    details = cluster.run("audit", "t", "--output-topic", "out").text.split("\n\n")[1]
    assert details.splitlines() == ["t-0 missing: 1, 4-5", "t-0 duplicates: 3", "t-1 unknown: 9"]
    both = cluster.run("audit", "t", "--output-topic", "out", "--output-topic", "u", "--json")
    assert [row["output"] for row in both.rows if "output" in row] == ["the topic out", "the topic u"]


def test_the_records_of_all_partitions_count_for_what_looks_like_a_filter(cluster: CommandCluster) -> None:
    for partition, tp in enumerate((T0, T1)):
        cluster.append(tp, 24)
        write_copies(cluster, "out", copies(partition, *range(0, 30, 2)), partition)
    refused = cluster.run("audit", "t", "--output-topic", "out")
    message = " ".join(refused.errors.split())
    assert (refused.code, "30 of 60 records have no row, in 30 places" in message) == (2, True)


@pytest.mark.parametrize("flag", [(), ("--filtered",), ("--unfiltered",)])
@pytest.mark.parametrize(
    ("records", "stretches", "refused"), [(100, 9, False), (100, 10, True), (100, 11, True), (101, 10, False)]
)
def test_many_gaps_look_like_a_filter_unless_an_argument_says_what_they_are(
    cluster: CommandCluster, flag: tuple[str, ...], records: int, stretches: int, refused: bool
) -> None:
    """These are 10 stretches and one record in 20. A record with two rows is a problem also with a filter."""
    cluster.append(T0, records - 6)
    cluster.append(T1, records - 6)
    missing = {*range(3, 3 * stretches + 3, 3)}  # in t-0
    written = [*copies(0, *(offset for offset in range(records) if offset not in missing)), *copies(1, *range(records))]
    write_copies(cluster, "out", written)
    audit = cluster.run("audit", "t", "--output-topic", "out", "--json", *flag)
    shown = [row["missing"] for row in audit.rows[:2]]
    if flag == ("--filtered",):
        assert (audit.code, shown) == (0, [None, None])
    elif refused and not flag:
        assert (audit.code, shown) == (2, [None, None])
        assert f"{stretches} of {2 * records} records have no row, in {stretches} places" in " ".join(
            audit.errors.split()
        )
    else:
        assert (audit.code, shown) == (1, [stretches, 0])
    write_copies(cluster, "u", copies(1, 0))
    repeated = cluster.run("audit", "t", "--output-topic", "out", "--output-topic", "u", "--json", *flag)
    assert repeated.code == (2 if refused and not flag else 1)
    assert [row["duplicates"] for row in repeated.rows[:2]] == [0, 1]


@pytest.mark.parametrize("column", ["topic", "partition", "offset"])
def test_each_column_of_a_table_has_one_value_in_a_row(cluster: CommandCluster, tmp_path: Path, column: str) -> None:
    columns: dict[str, list[Any]] = {"topic": ["t"], "partition": [0], "offset": [1]}
    pq.write_table(pa.table({**columns, column: [[1, 2]]}), tmp_path / "x.parquet")
    refused = cluster.run("audit", "t", "--output-table", str(tmp_path))
    assert (refused.code, "is a list, so a row stands for several records" in refused.errors) == (2, True)


def test_the_last_committed_of_several_batches_is_the_end(cluster: CommandCluster, tmp_path: Path) -> None:
    write_copies(cluster, "out", [*copies(0, *range(6)), *copies(1, *range(6))])
    batches = [[{"u": {"0": 1}}, {"t": ends}] for ends in ({"0": 2, "1": 1}, {"0": 5, "1": 4}, {"0": 6, "1": 6})]
    checkpoint = write_checkpoint(tmp_path, batches, committed=2, starts={1: {"t": {"0": 1, "1": 2}}})
    arguments = ("audit", "t", "--output-topic", "out", "--json", "--checkpoint", checkpoint)

    def bounds(*more: str) -> list[tuple[int, int]]:
        found = cluster.run(*arguments, *more)
        assert found.code == 0, found.errors
        return [(row["from"], row["until"]) for row in found.rows[:2]]

    assert bounds() == [(1, 5), (2, 4)]
    assert bounds("--from", "last 3") == [(3, 5), (3, 4)]


def test_records_that_expire_while_they_are_read_are_not_compared(cluster: CommandCluster, tmp_path: Path) -> None:
    # The rows of records that have expired are not unknown.
    write_copies(cluster, "out", [*copies(0, *range(1, 6)), *copies(1, 2, 5)])
    starts = {0: {"t": {"0": 0, "1": 0}}}
    checkpoint = write_checkpoint(tmp_path, [[{"t": {"0": 6, "1": 6}}]], committed=1, starts=starts)

    def expire() -> None:
        cluster.delete_records(T0, 3)
        cluster.delete_records(T1, 4)

    cluster.before("Fetch", expire)
    audit = cluster.run("audit", "t", "--output-topic", "out", "--checkpoint", checkpoint, "--json")
    shown = ("expected", "missing", "unknown", "expired")
    assert [tuple(row[name] for name in shown) for row in audit.rows[:2]] == [(3, 0, 0, 3), (2, 1, 0, 4)]
    assert "7 offsets have expired or were lost in the topic" in " ".join(audit.errors.split())


def test_offsets_without_a_record_are_not_missing(cluster: CommandCluster) -> None:
    for tp in (T0, T1):
        cluster.append_gap(tp, 2)
        cluster.append(tp, 3)
        cluster.append_gap(tp, 4)
        cluster.append(tp, 1)
    offsets = [*range(6), *range(8, 11), 15]
    write_copies(cluster, "out", [*copies(0, *offsets), *copies(1, *offsets[:-2], 12)])
    audit = cluster.run("audit", "t", "--output-topic", "out", "--json")
    shown = ("until", "expected", "first_missing", "first_unknown")
    assert [tuple(row[name] for name in shown) for row in audit.rows[:2]] == [
        (16, 10, [], []),
        (16, 10, [10, 15], [12]),
    ]


def test_rows_of_other_topics_and_partitions_are_counted_in_each_output(cluster: CommandCluster) -> None:
    def row(topic: str, partition: int, offset: str) -> list[tuple[str, bytes | None]]:
        names = ("source.topic", "source.partition", "source.offset")
        return list(zip(names, (topic.encode(), b"%d" % partition, offset.encode()), strict=True))

    earlier = [("source.partition", b"1"), ("source.offset", b"5")]  # of the query before this one
    for partition in (0, 1):
        of_topic = [[*earlier, *row("t", partition, str(offset)), ("trace", b"1")] for offset in range(6)]
        cluster.write_headers("out", [*of_topic[:4], row("x", 0, "0"), row("y", 1, "1")], partition)
        cluster.write_headers("out", [*of_topic[4:], row("t", 2, "1"), row("t", 3, "2"), row("t", 0, "?")], partition)
    write_copies(cluster, "u", [(2, 0), (3, 1), (7, 1)])
    audit = cluster.run("audit", "t", "--output-topic", "out", "--output-topic", "u")
    assert audit.code == 0, audit
    assert audit.text.splitlines()[-2:] == [
        "22 rows in the topic out, 2 without a readable source offset, 4 of other topics, 4 of other partitions",
        "3 rows in the topic u, 3 of other partitions",
    ]
    refused = cluster.run("audit", "t", "--output-topic", "out", "--headers", "a,b")
    assert "(there are: source.partition, source.offset, source.topic, trace)" in refused.errors


def test_files_of_a_sink_that_were_deleted_are_named(cluster: CommandCluster, tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    for batch in range(8):
        count = 3 if batch < 4 else 0
        rows = {"partition": [batch % 2] * count, "offset": [batch // 2 * 3 + index for index in range(count)]}
        path = tmp_path / f"{batch}.parquet"
        pq.write_table(pa.table({"value": [1] * count, **rows}), path)
        (tmp_path / f"_spark_metadata/{batch}").write_text("v1\n" + json.dumps({"path": str(path)}))
    arguments = ("audit", "t", "--output-table", str(tmp_path), "--columns", "partition,offset")
    assert cluster.run(*arguments).code == 0
    refused = cluster.run(*arguments[:-1], "a,b")
    assert "in the columns a, b (there are: value, partition, offset)" in refused.errors
    for batch in (1, 2, 4, 5):
        (tmp_path / f"{batch}.parquet").unlink()
    audit = cluster.run(*arguments, "--json")
    assert [row["first_missing"] for row in audit.rows[:2]] == [[3, 4, 5], [0, 1, 2]]
    three = ", ".join(f"{tmp_path}/{batch}.parquet" for batch in (1, 2, 4))
    deleted = f"4 files are in the log of Spark's file sink, but do not exist: {three}."
    assert "".join(deleted.split()) in "".join(audit.errors.split())  # it is wrapped also in names with a hyphen


def test_duplicates_of_one_partition_are_a_problem_and_each_note_is_printed(cluster: CommandCluster) -> None:
    write_copies(cluster, "out", [*copies(0, *range(6), 3), *copies(1, *range(6), 9)])
    duplicates = cluster.run("audit", "t", "--output-topic", "out", "--json")
    assert (duplicates.code, [row["duplicates"] for row in duplicates.rows[:2]]) == (1, [1, 0])
    write_copies(cluster, "u", copies(1, *range(5), 9))
    unfiltered = cluster.run("audit", "t", "--output-topic", "u", "--unfiltered")
    assert "A record without a row was lost" in unfiltered.errors
    assert "An unknown row has an offset without a record" in unfiltered.errors
    filtered = cluster.run("audit", "t", "--output-topic", "u", "--filtered", "--json")
    assert (filtered.code, [row["missing"] for row in filtered.rows[:2]]) == (0, [None, None])


def test_tables_and_topics_are_outputs_together(cluster: CommandCluster, tmp_path: Path) -> None:
    for partition, name in enumerate(("one", "two")):
        (tmp_path / name).mkdir()
        rows = {"topic": ["t"] * 3, "partition": [partition] * 3, "offset": [0, 1, 2]}
        pq.write_table(pa.table(rows), tmp_path / name / "x.parquet")
    write_copies(cluster, "out", [*copies(0, 3, 4), *copies(1, 4, 5)])
    write_copies(cluster, "u", [*copies(0, 5), *copies(1, 3)])
    topics = ("--output-topic", "out", "--output-topic", "u")
    tables = [part for name in ("one", "two") for part in ("--output-table", str(tmp_path / name))]
    audit = cluster.run("audit", "t", *topics, *tables, "--json")
    assert audit.code == 0, audit.errors
    assert [(row["output"].split()[1], row["rows"]) for row in audit.rows[2:]] == [
        ("topic", 4),
        ("topic", 2),
        ("files", 3),
        ("files", 3),
    ]


def test_records_of_transactions_are_those_that_the_query_reads(cluster: CommandCluster) -> None:
    for tp in (T0, T1):
        cluster.append(tp, 2, producer_id=7)
        cluster.end_transaction(tp, 7, commit=False)
    write_copies(cluster, "out", [*copies(0, *range(6)), *copies(1, *range(6))])
    arguments = ("audit", "t", "--output-topic", "out", "--json")
    settings = ("-X", "isolation.level=read_uncommitted")
    found = [
        [row["expected"] for row in cluster.run(*arguments, *more).rows[:2]]
        for more in ((), settings, ("--isolation", "read_uncommitted"), (*settings, "--isolation", "read_committed"))
    ]
    assert found == [[6, 6], [8, 8], [8, 8], [6, 6]]


def test_the_first_of_many_names_are_shown(cluster: CommandCluster) -> None:
    names = [f"h{number:02}" for number in range(30)]
    cluster.write_headers("out", [[(name, b"1") for name in names]])
    refused = cluster.run("audit", "t", "--output-topic", "out")
    assert f"(there are: {', '.join(names[:20])})" in refused.errors
    for wrong in ("a,,b", ",a,b", "a,b,", "a,b,a", "a", "a,b,c,d"):
        refused = cluster.run("audit", "t", "--output-topic", "out", "--headers", wrong)
        assert (refused.code, "--headers must be TOPIC,PARTITION,OFFSET" in refused.errors) == (2, True)


@pytest.mark.parametrize("expired", [0, 1])
def test_losses_of_the_second_output_are_named(cluster: CommandCluster, expired: int) -> None:
    write_copies(cluster, "u", copies(0, 0, 1))
    write_copies(cluster, "out", copies(0, 2, 3))
    write_copies(cluster, "out", copies(0, 1), 1)
    cluster.delete_records(TopicPartition("out", expired), 1)
    cluster.cluster.topics["out"].configs["cleanup.policy"] = "compact"
    audit = cluster.run("audit", "t", "--output-topic", "u", "--output-topic", "out", "--json")
    assert [row["missing"] for row in audit.rows[:2]] == [3 - expired, 6]
    errors = " ".join(audit.errors.split())
    assert "because the first records of the topic out have expired or were deleted." in errors
    assert "because the topic out is compacted" in errors
    assert "topic u" not in errors


def test_expired_records_of_both_partitions_add_up(cluster: CommandCluster, tmp_path: Path) -> None:
    write_copies(cluster, "out", [*copies(0, *range(6)), *copies(1, *range(6))])
    batches = [[{"u": {"0": 3}}, {"t": {"0": 6, "1": 5}}]]
    checkpoint = write_checkpoint(tmp_path, batches, committed=1)
    cluster.delete_records(T0, 2)
    cluster.delete_records(T1, 1)
    arguments = ("audit", "t", "--output-topic", "out", "--json", "--checkpoint", checkpoint)
    audit = cluster.run(*arguments)
    found = [(row.get("from"), row.get("until"), row.get("expired")) for row in audit.rows]
    assert found == [(2, 6, 0), (1, 5, 0), (None, None, None)]
    assert "The checkpoint has no longer the start of the query" in audit.errors
    write_checkpoint(tmp_path, batches, committed=1, starts={1: {"t": {"0": 0, "1": 0}}})
    audit = cluster.run(*arguments)
    assert (audit.code, [row.get("expired") for row in audit.rows]) == (0, [2, 1, None])
    assert "3 offsets have expired" in audit.errors


def test_all_records_that_were_committed_have_expired(cluster: CommandCluster, tmp_path: Path) -> None:
    """The second partition was added after the start of the query, so its start is 0."""
    checkpoint = write_checkpoint(tmp_path, [[{"t": {"0": 3, "1": 4}}]], committed=1, starts={0: {"t": {"0": 1}}})
    cluster.delete_records(T0, 5)
    write_copies(cluster, "out", [*copies(0, 1, 2, 5), *copies(1, 1, 2, 3)])
    audit = cluster.run("audit", "t", "--output-topic", "out", "--checkpoint", checkpoint, "--json")
    shown = ("from", "until", "expected", "missing", "unknown", "expired", "first_missing")
    assert [tuple(row[name] for name in shown) for row in audit.rows[:2]] == [
        (3, 3, 0, 0, 0, 2, []),
        (0, 4, 4, 1, 0, 0, [0]),
    ]
    assert audit.code == 1


def test_what_cannot_be_compared(cluster: CommandCluster, tmp_path: Path) -> None:
    sources = [{"t": {"0": 6, "1": 6}}, {"t": {"0": 5}, "u": {"0": 0}}]
    stateful, stateless = (write_checkpoint(tmp_path / name, [sources], committed=1) for name in ("a", "b"))
    planned = write_checkpoint(tmp_path / "c", [sources], committed=0)
    (tmp_path / "a/state/0").mkdir(parents=True)
    for arguments, reason in (
        ((stateful,), "has state: it aggregates, joins, or removes duplicates"),
        ((stateful, "--source", "1"), "has state: it aggregates, joins, or removes duplicates"),
        ((stateless,), "Several sources of the query read 't'; add --source 0 or 1"),
        ((stateless, "--source", "7"), "has no offsets of the topic 't' in the source '7'"),
        ((stateless, "--source", "1", "--to", "latest"), "--to: the end follows from --checkpoint"),
        ((planned, "--source", "0"), "has not committed a batch"),
    ):
        refused = cluster.run("audit", "t", "--output-topic", "out", "--checkpoint", *arguments)
        assert (refused.code, refused.text, reason in refused.errors) == (2, "", True), refused
    assert cluster.run("audit", "t", "--output-topic", "out", "--checkpoint", stateless, "--source", "1").code == 1


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete", "delete,compact"])
def test_the_losses_of_an_output_that_is_read_from_a_position(cluster: CommandCluster, policy: str) -> None:
    write_copies(cluster, "out", [*copies(0, *range(5)), *copies(1, *range(6))])
    cluster.delete_records(TopicPartition("out", 0), 1)
    cluster.cluster.topics["out"].configs["cleanup.policy"] = policy
    for start in ("earliest", "last 100"):
        audit = cluster.run("audit", "t", "--output-topic", "out", "--output-from", start)
        errors = " ".join(audit.errors.split())
        assert audit.code == 1
        assert ("the first records of the topic out have expired" in errors) == (start == "earliest")
        assert ("the topic out is compacted" in errors) == ("compact" in policy)


def test_ends_behind_both_logs_and_several_sources(cluster: CommandCluster, tmp_path: Path) -> None:
    write_copies(cluster, "out", [*copies(0, *range(6)), *copies(1, *range(6))])
    ends = {"t": {"0": 7, "1": 8}}
    checkpoint = write_checkpoint(tmp_path, [[ends, {"u": {"0": 1}}, ends]], committed=1)
    arguments = ("audit", "t", "--output-topic", "out", "--checkpoint", checkpoint)
    refused = cluster.run(*arguments)
    assert (refused.code, "Several sources of the query read 't'; add --source 0 or 2" in refused.errors) == (2, True)
    audit = cluster.run(*arguments, "--source", "2")
    errors = " ".join(audit.errors.split())
    assert "t-0: the query has committed offsets up to 7, but the log ends at 6." in errors
    assert "t-1: the query has committed offsets up to 8, but the log ends at 6." in errors


def test_fields_of_values_in_several_batches(cluster: CommandCluster) -> None:
    for partition in (0, 1):
        values = [json.dumps({"topic": "t", "partition": partition, "offset": offset}) for offset in range(6)]
        for value in values:
            cluster.write("out", pa.table({"value": [value], "partition": pa.array([partition], pa.int32())}))
    settings = ("valueFormat=json", "mode=PERMISSIVE", "columnNameOfCorruptRecord=c", "keyFormat=string")
    more = [part for each in settings for part in ("-X", each)]
    audit = cluster.run("audit", "t", "--output-topic", "out", "--json", *more)
    assert audit.code == 0, audit.errors
    assert [row.get("found") for row in audit.rows] == [6, 6, None]
