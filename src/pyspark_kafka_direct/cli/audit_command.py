"""``kafka-direct audit``: whether each record of a topic has one row in the output of a query."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments, client_settings
from pyspark_kafka_direct.cli.main import FOUND_PROBLEM, WRONG_USAGE
from pyspark_kafka_direct.cli.output import add_output_argument, print_rows, to_stderr
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.cli.audit_output import Output
    from pyspark_kafka_direct.cli.source_offsets import PartitionComparison, RowCounts
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.offsets import TopicPartition

DESCRIPTION: Final = """\
Compare a topic with the output of a query, by the source topic, partition and offset that the query wrote into the
output as columns or headers. It shows which records have no row, and which have several. Offsets without a record
(compaction, transactions) are known from the topic, which is read again."""
EXAMPLES: Final = """
An output without source offsets, and that of an aggregation, a join or a deduplication, cannot be compared. If the
query has a filter, add --filtered: then records without a row are not missing.

exit code 1: records are missing, or have several rows. 2: the output cannot be compared.

examples:
  kafka-direct audit flights --output-topic copies -b localhost:9092
  kafka-direct audit flights --output-topic copies --checkpoint copies.checkpoint -b localhost:9092
  kafka-direct audit flights --output-table flights.parquet -b localhost:9092 --json
  kafka-direct audit flights --output-topic copies -b localhost:9092 -X valueFormat=json --columns partition,offset
"""

_HEADERS: Final = "source.topic,source.partition,source.offset"
_FIELDS: Final = "topic,partition,offset"
_COLUMNS: Final = ("partition", "expected", "found", "missing", "duplicates", "unknown", "expired")
_KINDS: Final = ("missing", "duplicates", "unknown")
_LINE_CHARS: Final = 80
# Options about keys and values, which are those of the output.
_PAYLOAD_OPTION: Final = re.compile(r"(key|value)[A-Z][A-Za-z]*|mode|columnNameOfCorruptRecord|schema\.registry\..*")
# More stretches of missing records than this, and a larger part than one in twenty, look like a filter: what a query
# loses is a file, a batch or a task, which are consecutive records.
_FILTERED_STRETCHES: Final = 10
_FILTERED_PART: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("topic", metavar="TOPIC", help="the topic that the query reads")
    output = parser.add_argument_group("output")
    output.add_argument("--output-topic", metavar="OUT", action="append", default=[], help="a topic that it writes")
    output.add_argument(
        "--output-table",
        metavar="PATH",
        action="append",
        default=[],
        help="a path or URI that it writes: files of Parquet, JSON or CSV, or a Delta table",
    )
    output.add_argument(
        "--headers",
        metavar="NAMES",
        default=_HEADERS,
        help=f"headers of OUT with the source's topic (may be left out), partition and offset ({_HEADERS})",
    )
    output.add_argument(
        "--columns",
        metavar="NAMES",
        default=_FIELDS,
        help=f"the same for columns of a table, and for fields of values if -X valueFormat is given ({_FIELDS})",
    )
    output.add_argument(
        "--output-from", metavar="POSITION", default="earliest", help="where to start in OUT (earliest)"
    )
    chosen = parser.add_argument_group("input")
    chosen.add_argument("--from", dest="start", metavar="POSITION", help="where to start in TOPIC (earliest)")
    chosen.add_argument("--to", dest="end", metavar="POSITION", help="where to end (now)")
    chosen.add_argument("--checkpoint", metavar="CHECKPOINT", help="compare what the query has committed")
    chosen.add_argument("--source", metavar="NAME", help="the number or name of the source in the checkpoint")
    chosen.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        help="that of the query (read_committed, unless -X isolation.level is given)",
    )
    query = parser.add_mutually_exclusive_group()
    query.add_argument("--filtered", action="store_true", help="the query has a filter: no record is missing")
    query.add_argument("--unfiltered", action="store_true", help="the query has no filter, although it looks like one")
    add_output_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison."""
    from pyspark_kafka_direct.cli.audit_input import InputArguments, plan_input, read_records
    from pyspark_kafka_direct.cli.audit_output import compare
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.offsets import LATEST
    from pyspark_kafka_direct.options.kafka_params import parse_kafka_params

    if not arguments.output_topic and not arguments.output_table:
        raise OptionError("Add --output-topic or --output-table, which the query writes")
    settings = client_settings(arguments)
    if arguments.isolation is not None:
        settings["isolation.level"] = arguments.isolation
    settings.setdefault("isolation.level", "read_committed")
    plain = {name: value for name, value in settings.items() if not _PAYLOAD_OPTION.fullmatch(name)}
    cluster = ClusterClient(parse_kafka_params(plain).connection)
    chosen = InputArguments(arguments.topic, arguments.start, arguments.end, arguments.checkpoint, arguments.source)
    topic = plan_input(chosen, plain, cluster)
    outputs = _outputs(arguments, settings, plain, cluster)
    # After the outputs were opened: a row whose offset is not before these ends is not that of a record.
    positions = {each.topic_partition: LATEST for each in topic.records.ranges}
    ends = cluster.offsets(positions) if positions else {}
    partitions = read_records(topic, cluster, ends)
    counts = [compare(each, arguments.topic, partitions) for each in outputs]
    return _report(
        arguments, _Compared(partitions, topic.expired, list(zip(outputs, counts, strict=True)), topic.notes)
    )


class _Compared(NamedTuple):
    partitions: Mapping[int, PartitionComparison]
    expired: Mapping[TopicPartition, int]
    outputs: Sequence[tuple[Output, RowCounts]]
    notes: Sequence[str]


def _outputs(
    arguments: argparse.Namespace, settings: Mapping[str, str], plain: Mapping[str, str], cluster: ClusterClient
) -> list[Output]:
    from pyspark_kafka_direct.cli.audit_output import open_output_table, open_output_topic, open_output_values

    headers, columns = _names(arguments.headers, "--headers"), _names(arguments.columns, "--columns")
    start = arguments.output_from
    has_fields = "valueFormat" in settings
    topics = [
        open_output_values(topic, settings, cluster, columns=columns, start=start)
        if has_fields
        else open_output_topic(topic, plain, cluster, headers=headers, start=start)
        for topic in arguments.output_topic
    ]
    return [*topics, *(open_output_table(location, columns) for location in arguments.output_table)]


def _names(text: str, argument: str) -> list[str]:
    names = text.split(",")
    if len(names) not in (2, 3) or not all(names) or len({*names}) < len(names):
        raise OptionError(f"{argument} must be TOPIC,PARTITION,OFFSET or PARTITION,OFFSET, got {text!r}")
    return names


def _report(arguments: argparse.Namespace, compared: _Compared) -> int:
    """Print the report, and return the exit code."""
    from pyspark_kafka_direct.offsets import TopicPartition

    partitions = compared.partitions.values()
    records, missing = sum(each.records for each in partitions), sum(each.missing for each in partitions)
    stretches = sum(each.missing_stretches for each in partitions)
    looks_filtered = stretches >= _FILTERED_STRETCHES and missing * _FILTERED_PART >= records
    is_refused = looks_filtered and not arguments.filtered and not arguments.unfiltered
    judges_missing = not is_refused and not arguments.filtered
    rows = [
        _row(TopicPartition(arguments.topic, number), each, compared.expired, judges_missing=judges_missing)
        for number, each in sorted(compared.partitions.items())
    ]
    print_rows(rows, _COLUMNS, as_json=arguments.json, if_none="The topic has no partitions.")
    if arguments.json:
        for output, count in compared.outputs:
            print(json.dumps({"output": output.name, **count._asdict()}))
    else:
        _print_offsets(rows)
        _print_rows_of_outputs(compared.outputs)
    for note in [*compared.notes, *_notes(rows, compared.outputs)]:
        to_stderr(textwrap.fill(note, _LINE_CHARS))
    if is_refused:
        to_stderr(textwrap.fill(_refusal(missing, records, stretches), _LINE_CHARS))
        return WRONG_USAGE
    has_problem = any(each.duplicates for each in partitions) or (judges_missing and missing > 0)
    return FOUND_PROBLEM if has_problem else 0


def _row(
    tp: TopicPartition,
    compared: PartitionComparison,
    expired: Mapping[TopicPartition, int],
    *,
    judges_missing: bool,
) -> dict[str, Any]:
    missing = compared.missing
    return {
        "partition": str(tp),
        "from": compared.from_offset,
        "until": compared.until_offset,
        "expected": compared.records,
        "found": compared.records - missing,
        "missing": missing if judges_missing else None,
        "duplicates": compared.duplicates,
        "unknown": compared.unknown,
        "expired": expired.get(tp, 0),
        "first_missing": compared.first_missing() if judges_missing else [],
        "first_duplicates": compared.first_duplicates(),
        "first_unknown": compared.first_unknown(),
    }


def _print_offsets(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the first offsets of each kind."""
    lines = []
    for row in rows:
        for kind in _KINDS:
            if offsets := row[f"first_{kind}"]:
                more = ", ..." if row[kind] > len(offsets) else ""
                text = f"{row['partition']} {kind}: {', '.join(_spans(offsets))}{more}"
                lines.append(textwrap.fill(text, _LINE_CHARS, subsequent_indent="  ", break_long_words=False))
    if lines:
        print("", *lines, sep="\n")


def _spans(offsets: Sequence[int]) -> list[str]:
    """Return offsets as text; consecutive ones as the first and the last."""
    groups = groupby(enumerate(offsets), key=lambda pair: pair[1] - pair[0])
    ends = [(span[0][1], span[-1][1]) for span in (list(group) for _, group in groups)]
    return [str(first) if first == last else f"{first}-{last}" for first, last in ends]


def _print_rows_of_outputs(outputs: Sequence[tuple[Output, RowCounts]]) -> None:
    print()
    for output, count in outputs:
        parts = [f"{count.rows} rows in {output.name}"]
        if count.unreadable:
            parts.append(f"{count.unreadable} without a readable source offset")
        if count.other_topics:
            parts.append(f"{count.other_topics} of other topics")
        if count.other_partitions:
            parts.append(f"{count.other_partitions} of other partitions")
        print(", ".join(parts))


def _notes(rows: Sequence[Mapping[str, Any]], outputs: Sequence[tuple[Output, RowCounts]]) -> list[str]:
    notes = []
    totals: Counter[str] = Counter()
    for row in rows:
        totals.update({name: row[name] or 0 for name in ("missing", "unknown", "expired")})
    if totals["expired"]:
        notes.append(f"{totals['expired']} offsets have expired or were lost in the topic, so they are not compared.")
    if totals["missing"]:
        notes.append(
            "A record without a row was lost, or the query leaves it out: by a filter, a join or "
            "mode=DROPMALFORMED. If so, add --filtered."
        )
        notes += [f"Rows may be absent because {loss}." for output, _ in outputs for loss in output.losses]
    if totals["unknown"]:
        notes.append(
            "An unknown row has an offset without a record: it is from another cluster, from before the topic was "
            "recreated, from an aborted transaction, or its record was compacted since."
        )
    return notes


def _refusal(missing: int, records: int, stretches: int) -> str:
    return (
        f"Not compared: {missing} of {records} records have no row, in {stretches} places between records that have "
        "one. This is how the output of a filter, a join or an aggregation looks, but also loss in an output that was "
        "written by key. The data do not show which. Add --filtered if the query leaves out records, or --unfiltered "
        "if it has to write each of them."
    )
