"""``kafka-direct checkpoint diff``: the offsets that one of two checkpoints has and the other one has not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.output import add_output_argument, print_rows, to_stderr

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition

DESCRIPTION: Final = """\
Compare the last planned batches of two checkpoints, such as a copy from before, or those of this package and of Spark's
own Kafka source."""
EXAMPLES: Final = """
exit code 1: the offsets differ.

examples:
  kafka-direct checkpoint diff flights.checkpoint flights.checkpoint
  kafka-direct checkpoint diff flights.checkpoint flights.checkpoint --json
"""

_COLUMNS: Final = ("source", "partition", "end_a", "end_b", "only_in_a", "only_in_b")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    parser.add_argument("a", metavar="A", help="the checkpointLocation of a query")
    parser.add_argument("b", metavar="B", help="another one")
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the partitions whose offsets differ."""
    from pyspark_kafka_direct.cli.query_checkpoint import QueryCheckpoint

    a, b = QueryCheckpoint(arguments.a), QueryCheckpoint(arguments.b)
    if a.query_id != b.query_id:
        to_stderr("The checkpoints have different query ids: they are not copies of one checkpoint.")
    of_a, of_b = (each.batch(each.planned[-1]).sources for each in (a, b))
    rows = list(differing_ends(of_a, of_b))
    if not arguments.json:
        for name, each in (("A", a), ("B", b)):
            state = "committed" if each.planned[-1] in each.committed else "unfinished"
            print(f"{name}  batch {each.planned[-1]}, {state}")
        print()
    same = "The offsets are the same." if of_a else "No source of these batches is a Kafka source."
    print_rows(rows, _COLUMNS, as_json=arguments.json, if_none=same)
    return int(bool(rows))


def differing_ends(
    a: Mapping[str, Mapping[TopicPartition, int]], b: Mapping[str, Mapping[TopicPartition, int]]
) -> Iterator[dict[str, object]]:
    """Yield a row for each partition of a source whose end differs; ``None`` is an end that is not there."""
    for source in sorted({*a, *b}):
        of_a, of_b = a.get(source, {}), b.get(source, {})
        for partition in sorted({*of_a, *of_b}):
            end_a, end_b = of_a.get(partition), of_b.get(partition)
            if end_a == end_b:
                continue
            both = None if end_a is None or end_b is None else end_a - end_b
            yield {
                "source": source,
                "partition": str(partition),
                "end_a": end_a,
                "end_b": end_b,
                "only_in_a": None if both is None else max(both, 0),
                "only_in_b": None if both is None else max(-both, 0),
            }
