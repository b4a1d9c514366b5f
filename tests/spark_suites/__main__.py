"""Run Spark's own tests of its Kafka connector on the JVM connector and on this package: ``make spark-suites``."""

from __future__ import annotations

import argparse
import time

import pyspark
from tests.spark_suites.jars import prepare
from tests.spark_suites.results import load, merge, save
from tests.spark_suites.run import log_of, run
from tests.spark_suites.suites import SOURCES, SUITES, TESTS_OF


def main() -> None:
    """Run the chosen suites one after another, and store their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=SUITES, action="append", help="only this suite; may be repeated")
    parser.add_argument("--source", choices=SOURCES, action="append", help="only this source; may be repeated")
    parser.add_argument("--test", action="append", default=[], help="only this test; may be repeated")
    parser.add_argument("--again", action="store_true", help="only tests that did not pass when they ran last")
    options = parser.parse_args()
    prepared = prepare(TESTS_OF.get(pyspark.__version__, pyspark.__version__))
    for suite in options.suite or SUITES:
        for source in options.source or SOURCES:
            tests = options.test
            if options.again:
                tests = [row.test for row in load(pyspark.__version__) if row.suite == suite and not row.passed(source)]
                if not tests:
                    continue
            started = time.monotonic()
            recorded = run(prepared, suite, source, tests)
            minutes = (time.monotonic() - started) / 60
            save(pyspark.__version__, merge(load(pyspark.__version__), suite, source, recorded))
            passed = sum(each.outcome == "passed" for each in recorded.values())
            print(f"{suite}, {source}: {passed} of {len(recorded)} passed in {minutes:.1f} minutes", flush=True)
            print(f"  {log_of(prepared, suite, source)}", flush=True)


if __name__ == "__main__":
    main()
