"""``kafka-direct audit`` of outputs whose rows a test chooses: what is found, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.integration.cli.audits import Auditor, source_rows
from tests.integration.open_transactions import new_transactional_producer
from tests.integration.topics import Admin

from pyspark_kafka_direct import write_arrow

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeTopic
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture
def auditor(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Auditor:
    return Auditor(kafka.bootstrap_servers, capsys)


@pytest.fixture
def flights(bench: Workbench) -> str:
    """A topic with the offsets 0 to 99 in partition 0, and 0 to 49 in partition 1."""
    topic = bench.make_topic(2)
    for partition, count in ((0, 100), (1, 50)):
        bench.write(topic, [b"x"] * count, partition=partition)
    return topic


def all_of(topic: str) -> list[tuple[object, object, object]]:
    return [*source_rows(topic, 0, range(100)), *source_rows(topic, 1, range(50))]


def test_missing_duplicates_and_unknown_rows(auditor: Auditor, flights: str, make_topic: MakeTopic) -> None:
    output = make_topic(3)
    auditor.write(output, all_of(flights))
    complete = auditor.run(flights, "--output-topic", output)
    assert (complete.code, complete.problems, complete.stderr) == (0, [([], [], [])] * 2, "")
    assert [(row["expected"], row["found"]) for row in complete.rows] == [(100, 100), (50, 50)]

    damaged = make_topic(3)
    rows = [row for row in all_of(flights) if row not in source_rows(flights, 0, range(20, 35))]
    strangers = [("delays", 0, 5), (flights, 9, 1), (flights, 0, 100), (flights, 1, 2**62), (flights, 1, -1)]
    auditor.write(damaged, [*rows, *source_rows(flights, 1, [7, 7, 8]), *strangers, (flights, None, 3)])
    audit = auditor.run(flights, "--output-topic", damaged)
    assert audit.code == 1
    assert audit.problems == [([*range(20, 30)], [], [100]), ([], [7, 8], [2**62])]
    assert [(row["missing"], row["duplicates"], row["unknown"]) for row in audit.rows] == [(15, 0, 1), (0, 2, 1)]
    counts = {"rows": 144, "unreadable": 2, "other_topics": 1, "other_partitions": 1}
    assert audit.outputs == [{"output": f"the topic {damaged}", **counts}]
    code, text = auditor.text(flights, "--output-topic", damaged)
    assert code == 1
    table, details, summary = text.split("\n\n")
    assert table.splitlines()[1].split() == [f"{flights}-0", "100", "85", "15", "0", "1", "0"]
    assert details.splitlines()[0] == f"{flights}-0 missing: 20-29, ..."
    assert details.splitlines()[2] == f"{flights}-1 duplicates: 7-8"
    assert summary == (
        f"144 rows in the topic {damaged}, 2 without a readable source offset, 1 of other topics, 1 of other "
        "partitions\n"
    )
    # What one output lacks, another one may have.
    auditor.write(rest := make_topic(), source_rows(flights, 0, range(20, 35)))
    assert auditor.run(flights, "--output-topic", damaged, "--output-topic", rest).problems[0] == ([], [], [100])


def test_an_empty_output_lacks_each_record(auditor: Auditor, flights: str, make_topic: MakeTopic) -> None:
    audit = auditor.run(flights, "--output-topic", make_topic())
    assert (audit.code, [row["missing"] for row in audit.rows]) == (1, [100, 50])
    assert "Add --filtered" not in audit.stderr
    empty = auditor.run(make_topic(), "--output-topic", make_topic())
    assert (empty.code, [row["expected"] for row in empty.rows]) == (0, [0])


def test_a_part_of_the_topic(auditor: Auditor, flights: str, make_topic: MakeTopic) -> None:
    output = make_topic()
    auditor.write(output, source_rows(flights, 0, range(40, 100)))
    bounds = json.dumps({flights: {"0": 40, "1": 50}}), json.dumps({flights: {"0": 60, "1": 50}})
    audit = auditor.run(flights, "--output-topic", output, "--from", bounds[0], "--to", bounds[1])
    assert (audit.code, [(row["expected"], row["unknown"]) for row in audit.rows]) == (0, [(20, 0), (0, 0)])


def test_headers_with_other_names_and_several_with_one_name(
    auditor: Auditor, flights: str, make_topic: MakeTopic
) -> None:
    output = make_topic()
    rows = [[("p", b"x"), ("o", b"%d" % number), ("p", b"0"), ("other", None)] for number in range(100)]
    auditor.write_headers(output, [*rows, [], [("p", b"0")]])
    bounds = ["--to", json.dumps({flights: {"0": 100, "1": 0}})]
    audit = auditor.run(flights, "--output-topic", output, "--headers", "p,o", *bounds)
    assert (audit.code, audit.problems) == (0, [([], [], [])] * 2)
    refused = auditor.run(flights, "--output-topic", output, *bounds)
    assert (refused.code, refused.rows) == (2, [])
    assert (
        f"No row of the topic {output} has a source offset in the headers source.topic, source.partition, "
        "source.offset (there are: p, o, other). Without them, rows cannot be compared with records."
    ) in refused.stderr


def test_offsets_without_a_record_are_not_missing(
    auditor: Auditor, mixed: str, compacted: str, make_topic: MakeTopic
) -> None:
    committed = [0, 1, 2, 3, 4, 10, 11]
    auditor.write(output := make_topic(), source_rows(mixed, 0, committed))
    audit = auditor.run(mixed, "--output-topic", output)
    assert (audit.code, audit.rows[0]["expected"], audit.problems) == (0, 7, [([], [], [])])
    uncommitted = auditor.run(mixed, "--output-topic", output, "--isolation", "read_uncommitted")
    assert (uncommitted.code, uncommitted.problems) == (1, [([6, 7, 8, 13, 14], [], [])])
    # A query that reads aborted transactions.
    auditor.write(output, source_rows(mixed, 0, [6, 5]))
    assert auditor.run(mixed, "--output-topic", output).problems == [([], [], [5, 6])]

    kept = [*range(293, 300), 599]
    end = json.dumps({compacted: {"0": 600}})
    auditor.write(output := make_topic(), source_rows(compacted, 0, kept))
    audit = auditor.run(compacted, "--output-topic", output, "--to", end)
    assert (audit.code, audit.rows[0]["expected"], audit.problems) == (0, 8, [([], [], [])])


def test_rows_of_aborted_and_open_transactions_are_no_output(auditor: Auditor, bench: Workbench, flights: str) -> None:
    output = bench.make_topic()
    auditor.write(output, source_rows(flights, 0, range(100)))
    producer = new_transactional_producer(bench, output)
    for end in (producer.abort_transaction, None):
        producer.begin_transaction()
        for offset in range(50):
            headers = {"source.topic": flights, "source.partition": "1", "source.offset": str(offset)}
            producer.produce(output, b"x", headers=headers)
        assert producer.flush(300) == 0
        if end is not None:
            end(600)
    audit = auditor.run(flights, "--output-topic", output)
    assert (audit.code, [row["missing"] for row in audit.rows]) == (1, [0, 50])
    uncommitted = auditor.run(flights, "--output-topic", output, "--isolation", "read_uncommitted")  # of the query
    assert uncommitted.rows == audit.rows
    producer.commit_transaction(600)
    bench.wait_until(lambda: auditor.run(flights, "--output-topic", output).code == 0, "the transaction is committed")


def test_expired_records_are_not_judged(auditor: Auditor, bench: Workbench) -> None:
    topic, output = bench.make_topic(), bench.make_topic()
    bench.write(topic, [b"x"] * 10)
    auditor.write(output, source_rows(topic, 0, range(10)))
    admin = Admin(bench.bootstrap_servers)
    admin.delete_records(topic, 4)
    start = json.dumps({topic: {"0": 0}})
    audit = auditor.run(topic, "--output-topic", output, "--from", start)
    assert (audit.code, audit.rows[0]["expected"], audit.rows[0]["expired"], audit.problems) == (
        0,
        6,
        4,
        [([], [], [])],
    )
    assert "4 offsets have expired or were lost in the topic, so they are not compared." in audit.stderr
    admin.delete_records(output, 6)
    audit = auditor.run(topic, "--output-topic", output)
    assert (audit.code, audit.problems) == (1, [([4, 5], [], [])])
    assert f"the first records of the topic {output} have expired or were deleted" in " ".join(audit.stderr.split())


def test_rows_from_before_a_recreation(auditor: Auditor, bench: Workbench) -> None:
    topic, output = bench.make_topic(), bench.make_topic()
    bench.write(topic, [b"x"] * 10)
    auditor.write(output, source_rows(topic, 0, range(10)))
    Admin(bench.bootstrap_servers).recreate(topic, 1)
    bench.write(topic, [b"x"] * 3)
    audit = auditor.run(topic, "--output-topic", output)
    assert audit.problems == [([], [], [*range(3, 10)])]
    assert "An unknown row has an offset without a record" in audit.stderr


def test_the_output_of_a_filter_is_refused(auditor: Auditor, flights: str, make_topic: MakeTopic) -> None:
    output = make_topic()
    auditor.write(output, [row for row in all_of(flights) if int(str(row[2])) % 3])
    refused = auditor.run(flights, "--output-topic", output)
    assert (refused.code, [(row["found"], row["missing"]) for row in refused.rows]) == (2, [(66, None), (33, None)])
    message = " ".join(refused.stderr.split())
    assert "51 of 150 records have no row, in 51 places between records that have one" in message
    assert "Add --filtered if the query leaves out records, or --unfiltered" in message
    filtered = auditor.run(flights, "--output-topic", output, "--filtered")
    assert (filtered.code, filtered.problems) == (0, [([], [], [])] * 2)
    unfiltered = auditor.run(flights, "--output-topic", output, "--unfiltered")
    assert (unfiltered.code, [row["missing"] for row in unfiltered.rows]) == (1, [34, 17])
    auditor.write(output, source_rows(flights, 0, [1]))
    assert auditor.run(flights, "--output-topic", output, "--filtered").code == 1


def test_fields_of_values(auditor: Auditor, flights: str, make_topic: MakeTopic) -> None:
    output = make_topic()
    rows = [json.dumps({"partition": p, "offset": o, "flight": 7}) for _, p, o in all_of(flights)]
    hostile = ["", "null", "[1]", "{", '{"partition":"0","offset":"3"}', '{"partition":{},"offset":[1]}',
               '{"partition":0,"offset":1e3}', '{"partition":0,"offset":99999999999999999999999}']  # fmt: skip
    values = pa.array([*rows, *hostile, None], pa.string())
    write_arrow(output, pa.table({"value": values}), auditor.parameters)
    fields = ["--output-topic", output, "-X", "valueFormat=json"]
    audit = auditor.run(flights, *fields, "--columns", "partition,offset")
    assert (audit.code, audit.problems) == (1, [([], [3], []), ([], [], [])])
    _, text = auditor.text(flights, *fields, "--columns", "partition,offset")
    assert f"159 rows in the values of the topic {output}, 8 without a readable source offset\n" in text
    assert auditor.run(flights, *fields).code == 2
    assert auditor.run(flights, *fields, "--columns", "source", "--from", "earliest").code == 2


def test_fields_of_avro(auditor: Auditor, flights: str, make_topic: MakeTopic) -> None:
    output = make_topic()
    schema = json.dumps({
        "type": "record", "name": "Copy", "fields": [
            {"name": "topic", "type": "string"},
            {"name": "partition", "type": "int"},
            {"name": "offset", "type": "long"},
        ],
    })  # fmt: skip
    kind = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    rows = [{"topic": t, "partition": p, "offset": o} for t, p, o in all_of(flights)[1:]]
    write_arrow(
        output, pa.table({"value": pa.array(rows, kind)}), auditor.parameters, valueFormat="avro", valueSchema=schema
    )
    options = ["-X", "valueFormat=avro", "-X", f"valueSchema={schema}"]
    audit = auditor.run(flights, "--output-topic", output, *options)
    assert (audit.code, audit.problems) == (1, [([0], [], []), ([], [], [])])


def test_tables(auditor: Auditor, flights: str, tmp_path: Path) -> None:
    table = pa.table(
        dict(zip(("topic", "partition", "offset"), map(list, zip(*all_of(flights), strict=True)), strict=True))
    )
    pq.write_table(table.slice(0, 60), tmp_path / "one.parquet")
    pq.write_table(table.slice(60), tmp_path / "two.snappy.parquet")
    (tmp_path / "_SUCCESS").touch()
    arguments = [flights, "--output-table", str(tmp_path)]
    audit = auditor.run(*arguments)
    assert (audit.code, audit.problems) == (0, [([], [], [])] * 2)
    (tmp_path / "one.parquet").unlink()
    audit = auditor.run(*arguments)
    assert (audit.code, [row["missing"] for row in audit.rows]) == (1, [60, 0])
    refused = auditor.run(*arguments, "--columns", "source_partition,source_offset")
    assert (refused.code, refused.rows) == (2, [])
    assert "in the columns source_partition, source_offset (there are: topic, partition, offset)" in refused.stderr


def test_a_row_that_stands_for_several_records_is_refused(auditor: Auditor, flights: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"topic": [flights], "partition": [0], "offset": [[1, 2]]}), tmp_path / "x.parquet")
    refused = auditor.run(flights, "--output-table", str(tmp_path))
    assert refused.code == 2
    assert "is a list, so a row stands for several records, as after an aggregation" in refused.stderr


def write_checkpoint(folder: Path, offsets: dict[str, dict[str, int]], *, committed: bool = True) -> None:
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps(offsets)}"), ("commits", "v1\n{}")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        if name == "offsets" or committed:
            (folder / name / "7").write_text(text)


def test_offsets_of_a_checkpoint(auditor: Auditor, flights: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    auditor.write(output := make_topic(), [*source_rows(flights, 0, range(90)), *source_rows(flights, 1, range(25))])
    write_checkpoint(tmp_path, {flights: {"0": 80, "1": 30}, "other": {"0": 4}})
    (tmp_path / "offsets/8").write_text(f'v1\n{{}}\n{{"{flights}":{{"0":100,"1":50}}}}')  # not committed
    (tmp_path / "offsets/6").write_text(f'v1\n{{}}\n{{"{flights}":{{"0":1,"1":1}}}}')
    arguments = [flights, "--output-topic", output, "--checkpoint", str(tmp_path)]
    audit = auditor.run(*arguments)
    assert (audit.code, [(row["expected"], row["missing"], row["unknown"]) for row in audit.rows]) == (
        1, [(80, 0, 0), (30, 5, 0)])  # fmt: skip
    assert "The checkpoint has no longer the start of the query" in audit.stderr
    (tmp_path / "sources/0").mkdir(parents=True)
    (tmp_path / "sources/0/0").write_text(f'\0v1\n{{"{flights}":{{"0":70,"1":30}}}}')
    audit = auditor.run(*arguments)
    assert (audit.code, [row["expected"] for row in audit.rows], audit.stderr) == (0, [10, 0], "")
    assert [row["expected"] for row in auditor.run(*arguments, "--from", "earliest").rows] == [80, 30]
    assert auditor.run(*arguments, "--to", "now").code == 2
    (tmp_path / "state/0").mkdir(parents=True)
    refused = auditor.run(*arguments)
    assert refused.code == 2
    assert "has state: it aggregates, joins, or removes duplicates" in refused.stderr


@pytest.mark.parametrize(("before", "expected"), [(4, (6, 4)), (10, (0, 10))])
def test_committed_records_that_have_expired(
    auditor: Auditor, bench: Workbench, tmp_path: Path, before: int, expected: tuple[int, int]
) -> None:
    topic, output = bench.make_topic(), bench.make_topic()
    bench.write(topic, [b"x"] * 12)
    auditor.write(output, source_rows(topic, 0, range(10)))
    write_checkpoint(tmp_path, {topic: {"0": 10}})
    (tmp_path / "sources/0").mkdir(parents=True)
    (tmp_path / "sources/0/0").write_text(f'\0v1\n{{"{topic}":{{"0":0}}}}')
    Admin(bench.bootstrap_servers).delete_records(topic, before + 2 * (before == 10))
    audit = auditor.run(topic, "--output-topic", output, "--checkpoint", str(tmp_path))
    assert (audit.code, audit.problems) == (0, [([], [], [])])
    assert [(row["expected"], row["expired"]) for row in audit.rows] == [expected]


@pytest.mark.parametrize(
    ("offsets", "committed", "message"),
    [({"0": 1}, False, "has not committed a batch"), ({}, True, "has no offsets of the topic")],
)
def test_checkpoints_that_cannot_be_compared(
    auditor: Auditor, flights: str, tmp_path: Path, offsets: dict[str, int], committed: bool, message: str
) -> None:
    write_checkpoint(tmp_path, {flights: offsets}, committed=committed)
    refused = auditor.run(flights, "--output-topic", flights, "--checkpoint", str(tmp_path))
    assert (refused.code, message in refused.stderr) == (2, True), refused.stderr


def test_the_checkpoint_of_a_topic_that_was_recreated(auditor: Auditor, flights: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {flights: {"0": 150, "1": 50}})
    pq.write_table(pa.table({"partition": [0] * 150, "offset": list(range(150))}), tmp_path / "x.parquet")
    arguments = ["--output-table", str(tmp_path / "x.parquet"), "--columns", "partition,offset"]
    audit = auditor.run(flights, *arguments, "--checkpoint", str(tmp_path))
    assert [(row["expected"], row["unknown"]) for row in audit.rows] == [(100, 50), (50, 0)]
    assert "up to 150, but the log ends at 100" in " ".join(audit.stderr.split())


def test_usage(auditor: Auditor, flights: str) -> None:
    for arguments in (
        [],
        ["--output-topic", flights, "--headers", "a"],
        ["--output-topic", flights, "--headers", "a,a"],
    ):
        assert auditor.run(flights, *arguments).code == 2
    assert auditor.run(flights, "--output-table", "missing.parquet").code == 2
