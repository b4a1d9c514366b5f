"""``kafka-direct checkpoint preflight``: whether a query with these options can continue from a checkpoint."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments, client_settings
from pyspark_kafka_direct.cli.output import add_output_argument, print_rows, to_stderr, wrapped
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark_kafka_direct.cli.preflight_plan import FirstBatch, Log, PartitionPlan
    from pyspark_kafka_direct.cli.query_checkpoint import QueryCheckpoint
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ReadSettings

DESCRIPTION: Final = """\
Show what a query with these options would read first from a checkpoint, and what is missing: before a restart, or
before a query moves from Spark's own Kafka source to this package or back. It changes nothing."""
EXAMPLES: Final = """
exit code 1: records are missing, or the query cannot continue from the checkpoint.

examples:
  kafka-direct checkpoint preflight flights.checkpoint -b localhost:9092 --topic flights
  kafka-direct checkpoint preflight flights.checkpoint -b localhost:9092 --pattern 'fli.*' --json
  kafka-direct checkpoint preflight flights.checkpoint -b localhost:9092 --topic flights --to kafka
"""

_COLUMNS: Final = ("partition", "state", "start", "end", "offsets", "missing")
_SPARK: Final = "kafka"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    parser.add_argument("location", metavar="CHECKPOINT", help="the checkpointLocation of a stopped query")
    parser.add_argument("--topic", action="append", default=[], help="the query subscribes to it; repeat it for more")
    parser.add_argument("--pattern", metavar="REGEX", help="or to the topics that match a subscribePattern")
    parser.add_argument("--source", metavar="NAME", help="the name or number of the source, if there are several")
    parser.add_argument(
        "--to", choices=("kafka-direct", _SPARK), default="kafka-direct", help="the format of the query (kafka-direct)"
    )
    add_output_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the first batch and the problems."""
    from pyspark_kafka_direct.cli.preflight_plan import ADVICE, State, is_other_query, plan_first_batch
    from pyspark_kafka_direct.cli.query_checkpoint import QueryCheckpoint
    from pyspark_kafka_direct.options.read_options import parse_stream_options

    options = _options(arguments)
    settings = parse_stream_options(options)
    checkpoint = QueryCheckpoint(arguments.location)
    source = _source(checkpoint, arguments.source)
    batch = _first_batch(checkpoint, source)
    cluster = _read_cluster(settings, batch)
    if is_other_query(batch, cluster.selected):
        topics = ", ".join(sorted({tp.topic for tp in (*batch.starts, *(batch.ends or {}))}))
        selected = ", ".join(sorted({tp.topic for tp in cluster.selected})) or "no topic that exists"
        to_stderr(
            f"This is the checkpoint of another query: its source {source} reads {topics}, but the options select "
            f"{selected}. Use the checkpointLocation of this query, or a new one."
        )
        return 1
    plans = _limited(plan_first_batch(batch, cluster.logs, cluster.selected), batch, settings)
    if not arguments.json:
        _print_summary(checkpoint, source, batch, settings)
    rows = [each.row() for each in plans]
    print_rows(rows, _COLUMNS, as_json=arguments.json, if_none="The source has no partitions.")
    problems = [
        *_start_problems(checkpoint, source, batch, settings, arguments.to),
        *_option_problems(options, arguments.to),
    ]
    found = {each.state for each in plans} - {State.OK, State.NEW}
    fails = settings.fetch.fail_on_data_loss and bool(found)
    for line in (*(f"{state}: {ADVICE[state]}" for state in sorted(found)), *problems):
        to_stderr(line)
    if fails:
        to_stderr("With failOnDataLoss=true, the query fails.")
    for warning in settings.warnings:
        to_stderr(f"warning: {warning}")
    return int(bool(found or problems))


class _Cluster(NamedTuple):
    logs: Mapping[TopicPartition, Log]  # of the partitions that exist
    selected: frozenset[TopicPartition]


def _options(arguments: argparse.Namespace) -> dict[str, str]:
    options = client_settings(arguments)
    if arguments.topic:
        options["subscribe"] = ",".join(arguments.topic)
    if arguments.pattern is not None:
        options["subscribePattern"] = arguments.pattern
    return options


def _source(checkpoint: QueryCheckpoint, name: str | None) -> str:
    """Return the source that is meant."""
    if not checkpoint.last_sources():
        raise OptionError("No source of the last batch is a Kafka source with offsets")
    source, *others = checkpoint.last_sources(name)
    if others:
        known = ", ".join((source, *others))
        raise OptionError(f"The query has several Kafka sources; choose one with --source (it has: {known})")
    return source


def _first_batch(checkpoint: QueryCheckpoint, source: str) -> FirstBatch:
    """Return the unfinished batch, or the start of the next one."""
    from pyspark_kafka_direct.cli.preflight_plan import FirstBatch

    last = checkpoint.planned[-1]
    ends = checkpoint.batch(last).sources[source]
    if last in checkpoint.committed:
        return FirstBatch(ends, None)
    before = checkpoint.batch(last - 1).sources if last - 1 in checkpoint.planned else {}
    return FirstBatch(before.get(source) or checkpoint.first_start(source) or {}, ends)


def _read_cluster(settings: ReadSettings, batch: FirstBatch) -> _Cluster:
    """Fetch the offsets of the selected partitions, and of those in the checkpoint."""
    from pyspark_kafka_direct.cli.preflight_plan import Log
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.offsets import LATEST, TopicPartition
    from pyspark_kafka_direct.options.subscription import SubscribePatternStrategy
    from pyspark_kafka_direct.planning.subscription import restrict_to_existing, select_partitions

    cluster = ClusterClient(settings.connection)
    deadline = cluster.deadline()
    selection = settings.source.selection
    known = {*batch.starts, *(batch.ends or {})}
    if isinstance(selection, SubscribePatternStrategy):
        metadata = cluster.all_topics(deadline=deadline)
    else:
        metadata = cluster.topics({*selection.topics, *(tp.topic for tp in known)}, deadline=deadline)
    topics = {name: topic.partitions.keys() for name, topic in metadata.items()}
    internal = {name for name, topic in metadata.items() if topic.internal}
    selected = frozenset(select_partitions(restrict_to_existing(selection, topics), topics, internal).partitions)
    existing = {TopicPartition(name, number) for name, numbers in topics.items() for number in numbers}
    partitions = existing & (known | selected)
    bounds = cluster.log_bounds(partitions, deadline)
    readable = {tp: end for tp, (_, end) in bounds.items()}
    if settings.fetch.read_committed and partitions:
        latest = dict.fromkeys(partitions, LATEST)
        readable = cluster.offsets(latest, isolation_level="read_committed", deadline=deadline)
    return _Cluster({tp: Log(*bounds[tp], readable[tp]) for tp in partitions}, selected)


def _limited(plans: Sequence[PartitionPlan], batch: FirstBatch, settings: ReadSettings) -> list[PartitionPlan]:
    """Apply ``maxOffsetsPerTrigger`` to a batch that is not planned yet."""
    from pyspark_kafka_direct.planning.read_limits import rate_limit

    limit = settings.source.limits.max_offsets
    if limit is None or batch.ends is not None:
        return list(plans)
    ranges = {
        each.partition: (each.start, each.end) for each in plans if each.start is not None and each.end is not None
    }
    ends = rate_limit(
        limit, {tp: start for tp, (start, _) in ranges.items()}, {tp: end for tp, (_, end) in ranges.items()}
    )
    return [each._replace(end=ends.get(each.partition, each.end)) for each in plans]


def _start_problems(
    checkpoint: QueryCheckpoint, source: str, batch: FirstBatch, settings: ReadSettings, to: str
) -> Iterator[str]:
    """Yield why the first batch of all cannot be repeated by the other source."""
    from pyspark_kafka_direct.offsets import partition_offsets_to_json
    from pyspark_kafka_direct.planning.offset_resolution import start_is_reproducible

    if batch.ends is None or checkpoint.planned[-1] != 0:
        return
    has_spark_start = checkpoint.has_spark_start(source)
    if to == _SPARK and not has_spark_start:
        yield (
            "The first batch of all is unfinished, and Spark's source would resolve startingOffsets again. Let "
            "kafka-direct finish the batch first."
        )
    elif to != _SPARK and has_spark_start and not start_is_reproducible(settings.source.start):
        yield (
            "The first batch of all is unfinished, and Spark's source has planned it. Set startingOffsets to "
            f"{partition_offsets_to_json(batch.starts)}"
        )


def _option_problems(options: Mapping[str, str], to: str) -> Iterator[str]:
    """Yield which options Spark's own source rejects or ignores."""
    from pyspark_kafka_direct.cli.preflight_plan import spark_accepts_start
    from pyspark_kafka_direct.options.option_parser import OPTION_TABLE

    if to != _SPARK:
        return
    own = {each.name.lower() for each in OPTION_TABLE.options if not each.is_client and not each.defined_by_spark}
    for name, value in options.items():
        if name.lower() == "startingoffsets" and not spark_accepts_start(value):
            yield f"Spark's source rejects startingOffsets={value}, although a query with a checkpoint does not use it."
        elif name.lower() in own:
            yield f"Spark's source ignores {name} without a warning. Remove it."


def _print_summary(checkpoint: QueryCheckpoint, source: str, batch: FirstBatch, settings: ReadSettings) -> None:
    last = checkpoint.planned[-1]
    first = f"{last + 1}, not planned yet" if batch.ends is None else f"{last}, planned and not committed"
    print(f"query id     {checkpoint.query_id or 'unknown'}")
    print(f"source       {source}{', started by Spark' if checkpoint.has_spark_start(source) else ''}")
    print(f"first batch  {first}")
    print(f"state        {'yes' if checkpoint.has_state else 'no'}")
    if batch.ends is not None:
        _print_note(
            "The query repeats this batch with the same offsets. The sink may have some of its rows already: a sink "
            "that is not idempotent then has them twice."
        )
    if checkpoint.has_state:
        _print_note("State is independent of the format of the source. Do not change the aggregations and joins.")
    if settings.source.limits.max_bytes is not None:
        _print_note("maxBytesPerTrigger may end the batch earlier.")
    print()


def _print_note(text: str) -> None:
    print(f"\n{wrapped(text, sys.stdout)}")
