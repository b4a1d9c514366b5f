"""The tables of Spark's own suites on the acceptance page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.spark_suites import jars, page
from tests.spark_suites.reasons import REASONS, Kind, missing_reasons, unused_reasons
from tests.spark_suites.recording import LONGEST, Recorded, read_recording, text_of
from tests.spark_suites.results import Row, load, merge, versions
from tests.spark_suites.suites import SOURCES, SUITES

PASSED = Recorded("passed", 1.0, "", ())
FAILED = Recorded("failed", 1.0, "TestFailedException: 1 did not equal 2", ())


def row(ours: Recorded, jvm: Recorded = PASSED, test: str = "a test") -> Row:
    return Row("KafkaRelationSuiteV2", test, {"jvm": jvm, "ours": ours})


def test_the_page_has_the_stored_results() -> None:
    """Written by ``python -m tests.spark_suites.page``."""
    text = page.PAGE.read_text("utf-8")
    assert page.page_with_tables(text) == text


@pytest.mark.parametrize("version", versions())
def test_each_suite_ran_with_each_source(version: str) -> None:
    rows = load(version)
    for suite in SUITES:
        ran = [set(row.results) for row in rows if row.suite == suite]
        assert ran
        assert all(each == set(SOURCES) for each in ran)


@pytest.mark.parametrize("version", versions())
def test_each_difference_has_a_reason(version: str) -> None:
    assert missing_reasons(load(version)) == []


def test_each_reason_is_needed() -> None:
    assert unused_reasons([row for version in versions() for row in load(version)]) == []


@pytest.mark.parametrize("version", versions())
def test_each_other_error_is_stored_with_that_of_the_jvm_connector(version: str) -> None:
    for each in load(version):
        reason = REASONS.get(each.suite, {}).get(each.test)
        if reason and reason.kind is Kind.ERROR and reason.since <= version and each.differs:
            jvm, ours = page.errors_of(each)
            assert jvm
            assert ours
            assert jvm != ours


def test_a_difference_without_a_reason_is_found() -> None:
    rows = [row(PASSED), row(FAILED, test="b"), row(PASSED, FAILED, "c"), row(FAILED, FAILED, "d")]
    assert missing_reasons(rows) == ["KafkaRelationSuiteV2: b", "KafkaRelationSuiteV2: c", "KafkaRelationSuiteV2: d"]


def test_a_reason_that_is_not_needed_is_found() -> None:
    suite, tests = next(iter(REASONS.items()))
    test = next(iter(tests))
    assert f"{suite}: {test}" in unused_reasons([Row(suite, test, {"jvm": PASSED, "ours": PASSED})])


def test_a_run_replaces_only_its_own_results() -> None:
    rows = merge([row(FAILED), row(FAILED, test="b")], "KafkaRelationSuiteV2", "ours", {"a test": PASSED})
    assert [each.passed("ours") for each in rows] == [True, False]
    assert [tuple(each.results) for each in rows] == [SOURCES, SOURCES]


def test_a_recording_is_read(tmp_path: Path) -> None:
    """An exception belongs to the test that ran when it was intercepted."""
    wrong = ["java.lang.IllegalStateException", "wrong"]
    lines = [
        {"time": 1000, "intercepted": [wrong]},
        {"time": 1001, "intercepted": [wrong]},
        {"time": 1500, "test": "a", "outcome": "passed", "milliseconds": 600, "error": []},
        {"time": 1600, "intercepted": [["a.B$C", "other"]]},
        {
            "time": 1700,
            "test": "b",
            "outcome": "failed",
            "milliseconds": 150,
            "error": [["x.Y", "why"], ["z.Z", "cause"]],
        },
    ]
    path = tmp_path / "recording.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines), "utf-8")
    assert read_recording(path) == {
        "a": Recorded("passed", 0.6, "", ("IllegalStateException: wrong",)),
        "b": Recorded("failed", 0.1, "Y: why", ("C: other",)),
    }


@pytest.mark.parametrize(
    ("chain", "text"),
    [
        ([["a.B", "one"]], "B: one"),
        ([["a.B", "one"], ["org.apache.spark.D", "two"], ["java.lang.F", "three"]], "B: D: two"),
        ([["java.B", "one"], ["java.F", "two\n  a.b.C$.d(C.scala:12)\n\tjava.base/e.F.g(F.java:1)"]], "B: F: two"),
        (
            [
                [
                    "a.AnalysisException",
                    'Traceback:\n  File "/x/y.py"\nMistake: pyspark_kafka_direct.errors.OptionError: bad\n SQLSTATE',
                ]
            ],
            "AnalysisException: OptionError: bad",
        ),
        (
            [["a.B", "at 127.0.0.1:40123, in /tmp/x/y, 8e79de58-8f27-4569-8ad2-f9e5b297bc93"]],
            "B: at 127.0.0.1:9092, in .../y, ...",
        ),
        ([["a.B", "x" * (LONGEST + 1)]], "B: " + "x" * LONGEST + " ..."),
    ],
    ids=[
        "one",
        "the last cause of Spark",
        "the last cause, without its stack",
        "an error of Python",
        "changes with each run",
        "long",
    ],
)
def test_the_text_of_an_exception(chain: list[list[str]], text: str) -> None:
    assert text_of(chain) == text


def test_jars_that_pyspark_has_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "PYSPARK", tmp_path / "pyspark")
    prepared = jars.Prepared(tmp_path / "suites", "4.2.0")
    for folder, names in {
        tmp_path / "pyspark" / "jars": ["spark-sql_2.13-4.2.0.jar", "guava-33.0.0-jre.jar", "metrics-core-4.2.0.jar"],
        prepared.folder / "lib": [
            "spark-sql_2.13-4.2.0-tests.jar",
            "spark-sql_2.13-4.2.0.jar",
            "guava-31.0.0-jre.jar",
            "metrics-core-2.2.0.jar",
            prepared.connector.name,
        ],
    }.items():
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    assert [Path(each).name for each in prepared.class_path(ours=False).split(":")] == [
        "resources",
        prepared.classes("recorder").name,
        "metrics-core-2.2.0.jar",
        prepared.connector.name,
        "spark-sql_2.13-4.2.0-tests.jar",
        "*",
    ]
    assert str(prepared.unregistered) in prepared.class_path(ours=True)
    assert str(prepared.connector) not in prepared.class_path(ours=True)
