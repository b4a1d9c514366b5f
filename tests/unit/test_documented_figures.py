"""Figures on the pages are those of the last run of the benchmarks: who renders new results changes the pages too."""

from __future__ import annotations

import pytest
from tests.documentation import ROOT, text_of

FIGURES = [  # a page, what it says, the results, what they say
    (
        "README.md",
        "| read 100 B, all columns | 3.1 M | 3.0x | 0.52x |",
        "quick",
        "| 3.064 | 306 | 0.58 | 3.04x | 0.52x |",
    ),
    (
        "README.md",
        "| read 100 B, `value` only | 4.4 M | 4.5x | 0.34x |",
        "quick",
        "| 4.355 | 436 | 0.38 | 4.49x | 0.34x |",
    ),
    (
        "README.md",
        "| read 1 KiB, all columns | 0.76 M | 1.9x | 0.74x |",
        "quick",
        "| 0.762 | 780 | 2.31 | 1.94x | 0.74x |",
    ),
    (
        "README.md",
        "| write 100 B, at least once | 2.1 M | 2.6x | 0.37x |",
        "quick-sink",
        "| 2.136 | 214 | 0.56 | 2.58x | 0.37x |",
    ),
    (
        "README.md",
        "| write 1 KiB, at least once | 0.36 M | 2.2x | 0.65x |",
        "quick-sink",
        "| 0.360 | 368 | 3.07 | 2.23x | 0.65x |",
    ),
    (
        "README.md",
        "| 1.3 M | 1.6x | 0.50x |",
        "quick-sink",
        "exactly-once | 1.300 | 130 | 0.76 | 1.57x | 0.50x |",
    ),
    (
        "README.md",
        "| 0.20 M | 1.2x | 0.95x |",
        "quick-sink",
        "exactly-once | 0.198 | 203 | 4.47 | 1.23x | 0.95x |",
    ),
    ("README.md", "workers-that-start-at-once) it takes 157 ms", "quick", "warm daemon | 157 ms |"),
    ("README.md", "`show()` takes 434 ms (JVM: 137 ms)", "quick", "| show() | Spark, kafka-direct | 434 ms |"),
    ("README.md", "`show()` takes 434 ms (JVM: 137 ms)", "quick", "| show() | Spark, JVM kafka source | 137 ms |"),
    (
        "docs/deployment.md",
        "takes 2.6 s of processor time. Eight idle queries use 28 % of a core, and 1,623 MiB with Spark",
        "queries",
        "| kafka-direct | 17 | 1,623 MiB | 880 MiB | 2.62 s | 2.1 s | 28% |",
    ),
    (
        "docs/deployment.md",
        "so a query starts with 1.7 s of processor time",
        "queries",
        "| kafka-direct, no pyspark.zip | 17 | 1,568 MiB | 645 MiB | 1.66 s |",
    ),
    (
        "README.md",
        "over 1,000 partitions, the driver's planning takes 102 ms (JVM: 51 ms)",
        "quick",
        "partitions: Spark, kafka-direct | 102 ms |",
    ),
    (
        "docs/benchmarks.md",
        "| 100 B | all columns to `noop` | 3.1 M | 3.0x | 0.52x",
        "quick",
        "| 3.064 | 306 | 0.58 | 3.04x | 0.52x |",
    ),
    (
        "docs/benchmarks.md",
        "`value` only to `noop` | 4.4 M | 4.5x | 0.34x |",
        "quick",
        "| 0.38 | 4.49x | 0.34x |",
    ),
    (
        "docs/benchmarks.md",
        "| 1 KiB | all columns | 0.76 M | 1.9x |",
        "quick",
        "| 0.762 | 780 | 2.31 | 1.94x | 0.74x |",
    ),
    ("docs/benchmarks.md", "| 100 B, TLS | all columns | 3.0 M | 3.1x |", "quick", "| 3.042 | 304 | 0.52 | 3.14x |"),
    (
        "docs/benchmarks.md",
        "| two records, read to the log's end | 633 ms | 67 ms | 109 ms |",
        "quick",
        "log's end, to noop | Spark, kafka-direct | 67 ms |",
    ),
    ("docs/benchmarks.md", "| `show()` | 137 ms | 434 ms | 157 ms |", "quick", "warm daemon | 157 ms |"),
    ("bench/README.md", "the fetch takes 5 ms", "quick", "| show() | about one fetch | 434 ms (one fetch: 5 ms) |"),
    (
        "docs/benchmarks.md",
        "| `limit(10).collect()` | 121 ms | 442 ms |",
        "quick",
        "| limit(10).collect() | about one fetch | 442 ms",
    ),
    (
        "docs/benchmarks.md",
        "`triggerExecution` | 118 ms | 127 ms (1.08x)",
        "quick-streams",
        "kafka-direct | triggerExecution | 127 ms",
    ),
    (
        "docs/benchmarks.md",
        "20 M records | 1.34 M records/s | 3.07 M (2.3x)",
        "quick-streams",
        "| 3.065 | 0.54 | 2.28x |",
    ),
    (
        "docs/benchmarks.md",
        "| 100 B | 2.6x | 0.37x | 1.6x | 0.50x |",
        "quick-sink",
        "| 2.136 | 214 | 0.56 | 2.58x |",
    ),
    ("docs/benchmarks.md", "| 143 ms | 169 ms | 206 ms", "quick-sink", "exactly-once | triggerExecution | 206 ms |"),
    ("docs/benchmarks.md", "| `KafkaTable` | 1.3 | 1.3 us |", "log", "| KafkaTable | 1.32 | 0.75 | 1.30 | 5.2x |"),
    (
        "docs/benchmarks.md",
        "| kafka-python 3.0.12 | 6.9 | 6.6 us |",
        "log",
        "| kafka-python | 6.85 | 0.15 | 6.61 | 1.0x |",
    ),
    (
        "docs/benchmarks.md",
        "| `KafkaTable.put`, a future of each | 82,000 | 12.0 us |",
        "log",
        "| KafkaTable.put, a future of each | 3.03 | 82,478 | 11.96 | 0.27x |",
    ),
    (
        "docs/benchmarks.md",
        "epochs of 1 s | 2.7 | 16 | 90 |",
        "continuous",
        "| continuous runner | 2.7 | 15.6 | 90.3 |",
    ),
    ("docs/benchmarks.md", "at 2.6 M records/s: 6.9 times", "continuous", "| >= 2x | 6.85x | yes |"),
    (
        "README.md",
        "takes 127 ms to read (JVM: 118 ms)",
        "quick-streams",
        "kafka-direct | triggerExecution | 127 ms",
    ),
    (
        "README.md",
        "and 169 ms to write (JVM: 143 ms)",
        "quick-sink",
        "| triggerExecution | 169 ms |",
    ),
    (
        "README.md",
        "10 records from each of 1,000 partitions takes 5 s (JVM: 262 s",
        "partitions",
        "| 1,000 | 261.85 s | 5.28 s | 50x |",
    ),
    ("docs/benchmarks.md", "| 100 | 27.62 s | 1.01 s | 27x |", "partitions", "| 100 | 27.62 s | 1.01 s | 27x |"),
    (
        "docs/benchmarks.md",
        '| `arrow(columns=["value"])` | 8.9 M |',
        "rdd",
        "| KafkaRDD, arrow(columns=['value']) | 8.92 |",
    ),
    ("bench/README.md", "[2.4, 9.4 and 17 ms]", "continuous-ours", "| continuous runner | 2.4 | 9.4 | 17.3 |"),
    ("README.md", "is median 3 ms, p99 16 ms (at least once)", "continuous", "| continuous runner | 2.7 | 15.6 |"),
    ("README.md", "has median 0.9 ms, p99 101 ms", "continuous", "| JVM, real-time mode | 0.9 | 101.1 |"),
    ("README.md", "or median 61 ms (exactly once)", "continuous", "exactly-once | 61.3 | 112.9 |"),
    (
        "docs/benchmarks.md",
        "| JSON, 3 of 14 fields, group by | 1.8 | 5.9x | 0.21x |",
        "typed",
        "kafka-direct | 1.79 | 1.02 | 5.90x | 0.21x |",
    ),
    (
        "docs/benchmarks.md",
        "| JSON, VARIANT to `noop` | 1.9 | 5.4x | 0.21x |",
        "typed",
        "kafka-direct | 1.88 | 0.99 | 5.39x | 0.21x |",
    ),
    ("bench/README.md", "alone decodes 5.7 M records/s on one core", "typed", "| 14 fields | 5.7 |"),
    ("bench/README.md", "| 7.6 M, 1.6 M |", "typed", "| 14 fields, keys in random order | 1.6 |"),
    ("docs/benchmarks.md", "Avro, 3 of 14 fields, group by | | 3.6x | 0.32x |", "schemas", "1.64 | 3.58x | 0.32x |"),
    ("docs/benchmarks.md", "Avro, 14 fields to `noop` | | 2.8x | 0.46x |", "schemas", "1.64 | 2.77x | 0.46x |"),
    ("docs/benchmarks.md", "structs written as Avro | | 1.5x | 0.78x |", "schemas", "4.25 | 1.50x | 0.78x |"),
]


@pytest.mark.parametrize(("page", "said", "results", "row"), FIGURES, ids=[str(each) for each in range(len(FIGURES))])
def test_a_figure_is_that_of_the_results(page: str, said: str, results: str, row: str) -> None:
    measured = text_of(f"bench/results/{results}.md")
    assert (ROOT / page).is_file()
    assert said in " ".join(text_of(page).split()), f"{page} says something else now: change the row here"
    assert row in measured, f"bench/results/{results}.md has changed: change {page} ({said!r}), and the row here"
