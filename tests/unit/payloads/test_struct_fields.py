"""The fields of a schema and those of a struct are matched by name."""

from __future__ import annotations

import time

import pytest

from pyspark_kafka_direct.payloads.struct_fields import UnmatchedFieldError, match_fields


@pytest.mark.parametrize(
    ("wanted", "names", "found"),
    [
        (["a", "b"], ["b", "a"], {"a": 1, "b": 0}),
        (["a", "A"], ["A", "a"], {"a": 1, "A": 0}),
        (["a", "A"], ["A"], {"A": 0}),
        (["userId", "other"], ["userid"], {"userId": 0}),
    ],
)
def test_case_matters_only_if_it_has_to(wanted: list[str], names: list[str], found: dict[str, int]) -> None:
    assert match_fields(wanted, names, "value", "R") == found


@pytest.mark.parametrize(
    ("wanted", "names", "message"),
    [
        (["a"], ["a", "a"], "value.a of R fits several fields of the struct"),
        (["ab"], ["Ab", "aB"], "value.ab of R fits several fields of the struct"),
        (["ab", "AB"], ["Ab"], "value.Ab fits several fields of R"),
        (["a"], ["a", "A"], "R has no field for value.A"),
    ],
)
def test_names_that_do_not_fit(wanted: list[str], names: list[str], message: str) -> None:
    with pytest.raises(UnmatchedFieldError, match=message):
        match_fields(wanted, names, "value", "R")


def test_the_time_for_wide_structs() -> None:
    names = [f"field_{index}" for index in range(100_000)]
    start = time.process_time()
    assert len(match_fields(names, names, "value", "R")) == 100_000
    assert time.process_time() - start < 120
