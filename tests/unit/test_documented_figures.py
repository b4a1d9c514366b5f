"""Figures on the pages are those of the last run of the benchmarks: who renders new results changes the pages too."""

from __future__ import annotations

import pytest
from tests.documentation import ROOT, text_of

FIGURES = [  # a page, what it says, the results, what they say
    (
        "README.md",
        "| 100 B, all columns to `noop` | 2.5 M | 2.8x | 0.54x |",
        "quick",
        "| 2.488 | 249 | 0.72 | 2.81x | 0.54x |",
    ),
    (
        "README.md",
        "| 100 B, `value` only to `noop` | 3.8 M | 4.0x | 0.38x |",
        "quick",
        "| 3.815 | 382 | 0.45 | 3.96x | 0.38x |",
    ),
    ("README.md", "take 71 ms against 593 ms", "quick", "log's end, to noop | Spark, kafka-direct | 71 ms |"),
    ("README.md", "take 71 ms against 593 ms", "quick", "log's end, to noop | Spark, JVM kafka source | 593 ms |"),
    ("docs/benchmarks.md", "0.04 us of the 0.72 us per record", "quick", "| 2.488 | 249 | 0.72 |"),
    (
        "docs/benchmarks.md",
        "the fetch takes 11 ms",
        "quick",
        "| show() | about one fetch | 611 ms (one fetch: 11 ms) |",
    ),
    ("docs/benchmarks.md", "rest of the 0.45 to 0.6 s", "quick", "| limit(10).collect() | about one fetch | 454 ms"),
    (
        "README.md",
        "takes 127 ms, where the JVM connector takes 118 ms",
        "quick-streams",
        "kafka-direct | triggerExecution | 127 ms",
    ),
    ("README.md", "Catching up on 20 million with `AvailableNow`: 2.3x", "quick-streams", "| 3.065 | 0.54 | 2.28x |"),
    (
        "README.md",
        "1,000 rows takes 209 ms to write, against the JVM sink's 140 ms",
        "quick-sink",
        "| triggerExecution | 209 ms |",
    ),
    (
        "docs/sink.md",
        "it writes 1.1 M records of 100 B a second, 1.8 times",
        "quick-sink",
        "exactly-once | 1.068 | 107 | 1.23 | 1.84x |",
    ),
    (
        "docs/sink.md",
        "A small batch takes 5 ms more than at least once",
        "quick-sink",
        "kafka-direct, exactly-once | triggerExecution | 214 ms |",
    ),
    (
        "README.md",
        "A batch query over 1,000 partitions takes 5 s against 262 s",
        "partitions",
        "| 1,000 | 261.85 s | 5.28 s | 50x |",
    ),
    ("docs/benchmarks.md", "| 100 | 27.62 s | 1.01 s | 27x |", "partitions", "| 100 | 27.62 s | 1.01 s | 27x |"),
    ("README.md", "`KafkaRDD` brings 3.3 M records/s", "rdd", "| KafkaRDD, records | 3.32 |"),
    ("README.md", "and 11 M as Arrow", "rdd", "| KafkaRDD, arrow() | 11.48 |"),
    (
        "docs/benchmarks.md",
        '| `arrow(columns=["value"])` | 8.9 M records/s',
        "rdd",
        "| KafkaRDD, arrow(columns=['value']) | 8.92 |",
    ),
    ("docs/benchmarks.md", "| `show()` | 218 ms | 233 ms | 856 ms |", "quick-first-rows", "warm daemon | 233 ms |"),
    ("docs/benchmarks.md", "2.4 times the JVM", "quick-tls", "| 1.346 | 135 | 1.24 | 2.44x | 0.51x |"),
    ("docs/benchmarks.md", "63, 120 and 150 ms", "continuous-ours", "exactly-once | 63.3 | 119.8 | 150.1 |"),
    ("README.md", "in 4 ms (median; 99 % in 18 ms)", "continuous", "| continuous runner | 3.8 | 18.2 |"),
]


@pytest.mark.parametrize(("page", "said", "results", "row"), FIGURES, ids=[str(each) for each in range(len(FIGURES))])
def test_a_figure_is_that_of_the_results(page: str, said: str, results: str, row: str) -> None:
    measured = text_of(f"bench/results/{results}.md")
    assert (ROOT / page).is_file()
    assert said in " ".join(text_of(page).split()), f"{page} says something else now: change the row here"
    assert row in measured, f"bench/results/{results}.md has changed: change {page} ({said!r}), and the row here"
