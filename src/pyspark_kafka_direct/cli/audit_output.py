"""The output of a query that ``kafka-direct audit`` reads: the columns or headers with its source offsets."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafka_direct.arrow.reader import read_arrow
from pyspark_kafka_direct.cli.source_offsets import RowComparison, is_number_or_text
from pyspark_kafka_direct.cli.table_files import open_table
from pyspark_kafka_direct.client.admin import describe_topic_config
from pyspark_kafka_direct.errors import AuthorizationError, OptionError, printable
from pyspark_kafka_direct.offsets import EARLIEST
from pyspark_kafka_direct.options.payload_formats import format_row
from pyspark_kafka_direct.producer.file_systems import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_kafka_direct.arrow.arrow_slice import ArrowSlice
    from pyspark_kafka_direct.cli.source_offsets import PartitionComparison, RowCounts
    from pyspark_kafka_direct.cli.table_files import Columns
    from pyspark_kafka_direct.client.cluster_client import ClusterClient

_MAX_SHOWN_NAMES: Final = 20
_MAX_SHOWN_FILES: Final = 3


class Output(NamedTuple):
    """A topic or table, as it was when it was opened."""

    name: str  # for messages
    names: Sequence[str]  # of the headers or columns with the topic (which may be left out), partition and offset
    what: str  # "headers" or "columns"
    known: Mapping[str, None]  # the headers or columns that rows have, once they were read
    losses: Sequence[str]  # why the output may have no longer all rows that the query wrote
    read: Callable[[], Columns]


def open_output_topic(
    topic: str, settings: Mapping[str, str], cluster: ClusterClient, *, headers: Sequence[str], start: str
) -> Output:
    """Return the present records of a topic; their source offsets are in headers."""
    records = _slice(topic, settings, "headers", start)
    known: dict[str, None] = {}

    def read() -> Columns:
        for batch in records:
            yield header_values(batch.column("headers"), headers, known)

    name = f"the topic {topic}"
    return Output(name, headers, "headers", known, _losses_of_topic(topic, records, cluster, start), read)


def open_output_values(
    topic: str, settings: Mapping[str, str], cluster: ClusterClient, *, columns: Sequence[str], start: str
) -> Output:
    """Return the present records of a topic; their source offsets are in fields of the value."""
    # The schema of JSON is the wanted fields, of which those of any type can be read as a string.
    chooses_fields = format_row(settings["valueFormat"]).registry_has_fields and "valueSchema" not in settings
    if chooses_fields:
        settings = {"valueSchema": ", ".join(f"`{name.replace('`', '``')}` STRING" for name in columns), **settings}
    records = _slice(topic, settings, "value", start)
    kind = records.schema.field("value").type
    if not pa.types.is_struct(kind):
        raise OptionError(f"valueFormat={settings['valueFormat']} has no fields; use json, avro or protobuf")
    fields_of_value = [kind.field(index).name for index in range(kind.num_fields)]
    known = dict.fromkeys(() if chooses_fields else fields_of_value)

    def read() -> Columns:
        for batch in records:
            values = batch.column("value")
            fields = dict(zip(fields_of_value, values.flatten(), strict=True))
            yield [fields.get(name, pa.nulls(len(values))) for name in columns]

    name = f"the values of the topic {topic}"
    return Output(name, columns, "fields", known, _losses_of_topic(topic, records, cluster, start), read)


def open_output_table(location: str, columns: Sequence[str]) -> Output:
    """Return the present files of a table."""
    table = open_table(location, columns)
    shown = printable(mask_secrets(location, location))
    deleted = ", ".join(map(printable, table.deleted_files[:_MAX_SHOWN_FILES]))
    count = len(table.deleted_files)
    losses = [f"{count} files are in the log of Spark's file sink, but do not exist: {deleted}"] if count else []
    name = f"the {table.kind} of {shown}" if table.kind.endswith("s") else f"the {table.kind} {shown}"
    return Output(name, columns, "columns", table.known_columns, losses, table.read)


def compare(output: Output, topic: str, partitions: dict[int, PartitionComparison]) -> RowCounts:
    """Add the rows of an output to the comparison.

    Raises:
        OptionError: The output has no source offsets, or a row stands for several records.
    """
    rows = RowComparison(topic, partitions)
    for columns in output.read():
        for name, column in zip(output.names, columns, strict=True):
            _check_type(output, name, column.type)
        rows.add(columns)
    if rows.counts.rows and rows.counts.rows == rows.counts.unreadable:
        known = ", ".join(printable(name, 100) for name in list(output.known)[:_MAX_SHOWN_NAMES])
        raise OptionError(
            f"No row of {output.name} has a source offset in the {output.what} {', '.join(output.names)}"
            + (f" (there are: {known})" if known else "")
            + ". Without them, rows cannot be compared with records. Let the query write the columns topic, partition "
            "and offset of its source, and name them with " + ("--headers" if output.what == "headers" else "--columns")
        )
    return rows.counts


def header_values(headers: pa.Array, names: Iterable[str], known: dict[str, None]) -> list[pa.Array]:
    """Return the values of the last header with each name; null if a record has none."""
    rows = len(headers)
    flat = headers.flatten()
    keys, values = flat.field("key"), flat.field("value")
    parents = pc.list_parent_indices(headers)
    if len(known) < _MAX_SHOWN_NAMES:
        known.update(dict.fromkeys(pc.unique(keys).to_pylist()[:_MAX_SHOWN_NAMES]))
    found = []
    for name in names:
        has_name = pc.equal(keys, name)
        of_name, rows_of_name = values.filter(has_name), parents.filter(has_name)
        is_last = pc.fill_null(pc.not_equal(pc.pairwise_diff(rows_of_name, -1), 0), True)
        of_name, rows_of_name = of_name.filter(is_last), rows_of_name.filter(is_last)
        if len(of_name) < rows:
            of_name = of_name.take(pc.index_in(pa.array(range(rows), rows_of_name.type), rows_of_name))
        found.append(of_name)
    return found


def _slice(topic: str, settings: Mapping[str, str], column: str, start: str) -> ArrowSlice:
    # Records of open and aborted transactions are not written.
    committed = {**settings, "isolation.level": "read_committed", "failOnDataLoss": "false"}
    return read_arrow(topic, committed, columns=[column], start=start, end="now")


def _losses_of_topic(topic: str, records: ArrowSlice, cluster: ClusterClient, start: str) -> list[str]:
    losses = []
    partitions = [each.topic_partition for each in records.ranges]
    starts = cluster.offsets(dict.fromkeys(partitions, EARLIEST)) if partitions else {}
    if start == "earliest" and any(starts.values()):
        losses.append(f"the first records of the topic {topic} have expired or were deleted")
    with contextlib.suppress(AuthorizationError):
        policy = describe_topic_config(cluster, topic, ["cleanup.policy"]).get("cleanup.policy") or ""
        if "compact" in policy:
            losses.append(f"the topic {topic} is compacted, which removes earlier records of a key")
    return losses


def _check_type(output: Output, name: str, kind: Any) -> None:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        raise OptionError(
            f"{name!r} of {output.name} is a list, so a row stands for several records, as after an aggregation. Such "
            "an output cannot be compared with its input by offsets"
        )
    if not is_number_or_text(kind):
        raise OptionError(
            f"{name!r} of {output.name} has the type {kind}, but must be an integer or a string; name the columns of "
            "the source's topic, partition and offset with --columns"
        )
