"""The warm daemon of the tests' sessions, which has also imported pandas.

PySpark imports pandas in each worker that writes, with its first Arrow array from a list: 0.4 s of CPU time. The tests
start hundreds of workers.
"""

from __future__ import annotations

import pandas  # noqa: F401

from pyspark_kafka_direct.daemon import main

if __name__ == "__main__":
    main()
