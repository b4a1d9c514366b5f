from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from bench import results
from bench.decoding import Decoding
from bench.latency import FIRST_BATCH, LIMIT, Latency
from bench.measure import Sample
from bench.memory import Memory
from bench.planning import Planning
from bench.plot import draw, groups
from bench.report import markdown_table, render, text_table
from bench.results import Results
from bench.run import Failure
from bench.summary import CONFLUENT, EXACTLY_ONCE, JVM, KAFKA_PYTHON, OURS, Series
from bench.writers import WRITE
from tests.unit.bench.machines import MACHINE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def found() -> Results:
    def series(sink: str, peer: str, seconds: float, cpu: float) -> Series:
        samples = (Sample(seconds, cpu, 0.1), Sample(seconds * 1.5, cpu), Sample(seconds * 0.5, cpu))
        return Series("100 B none", sink, peer, 1_000_000, 100, "none", samples)

    return Results(
        profile="quick",
        started="2026-01-02T03:04:05+00:00",
        machine=MACHINE,
        rounds=3,
        minutes=4.4,
        load_seconds={"bench-100-none": 2.5},
        series=[
            series("noop", JVM, 1.0, 2.0),
            series("noop", OURS, 0.4, 1.0),
            series("noop", CONFLUENT, 2.0, 3.0),
            series("noop", KAFKA_PYTHON, 30.0, 60.0),
            series("value", JVM, 1.0, 2.0),
            series("value", OURS, 0.25, 0.5),
        ],
        writes=[series(WRITE, JVM, 2.0, 2.0), series(WRITE, EXACTLY_ONCE, 1.0, 1.0)],
        failures=[Failure("1 KiB zstd", "noop", OURS, "it broke")],
        decoding=Decoding(2e7, 2.0),
        planning=Planning(1000, {JVM: 0.2, OURS: 0.3}, 0.4, 0.02, {"Metadata": 1, "ListOffsets": 2}),
        memory=Memory(150_000_000, 2_048_000_000, 2_000_000, 9.0),
        latencies=[Latency(LIMIT, OURS, (0.2, 0.3, 0.1), 0), Latency(FIRST_BATCH, OURS, (0.01,), 0)],
    )


def test_json_reads_back_and_carries_the_figures(found: Results, tmp_path: Path) -> None:
    results.write(found, tmp_path / "deep" / "quick.json")
    assert results.read(tmp_path / "deep" / "quick.json") == found
    document = json.loads((tmp_path / "deep" / "quick.json").read_text())
    assert document["series"][1]["figures"]["jvm_ratio"] == {"speed": 2.5, "cpu": 0.5}
    assert document["writes"][1]["figures"]["jvm_ratio"] == {"speed": 2.0, "cpu": 0.5}
    assert document["goals"][0]["reached"] is True


def test_the_text_says_everything(found: Results) -> None:
    text = render(found)
    ours = next(line for line in text.splitlines() if "all columns to noop" in line and "kafka-direct" in line)
    assert ours.split()[-7:] == ["2.500", "250", "1.00", "2.50x", "0.50x", "0.40", "0.20-0.60"]
    for told in ("A processor", "REACHED".lower(), "150 MB", "1 Metadata, 2 ListOffsets", "it broke", "200 ms"):
        assert told in text


def test_markdown_has_the_same_rows(found: Results) -> None:
    text = render(found, markdown=True)
    assert "| 100 B none | all columns to noop | Spark, kafka-direct | 2.500 | 250 | 1.00 | 2.50x | 0.50x |" in text
    assert "| 100 B none | made rows into a topic | Spark, kafka-direct, exactly-once | 1.000 | 100 | 1.00 |" in text


def test_tables_align_numbers_to_the_right() -> None:
    header, rows = ("what", "how much"), [("a", "1.5x"), ("bcdef", "-")]
    assert text_table(header, rows) == ["what   how much", "-----  --------", "a          1.5x", "bcdef         -"]
    assert markdown_table(header, rows)[1] == "| --- | ---: |"


def test_bars_are_ratios_to_the_jvm_connector(found: Results) -> None:
    (group,) = groups(found.series, "speed")
    assert [(bar.kind, round(bar.value, 3), bar.goal) for bar in group.bars] == [
        ("noop", 2.5, 2.5),
        ("value", 4.0, 3.8),
        (CONFLUENT, 0.5, None),
        (KAFKA_PYTHON, 0.033, None),
    ]
    assert groups([series for series in found.series if series.peer != JVM], "speed") == []


@pytest.mark.slow
def test_the_plot_is_a_png(found: Results, tmp_path: Path) -> None:
    draw(found, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
