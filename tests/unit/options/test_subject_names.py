"""The names of subjects."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.options.payload_settings import subject_name


@pytest.mark.parametrize(
    ("strategy", "side", "subject"),
    [
        ("topic", "value", "orders-value"),
        ("topic", "key", "orders-key"),
        ("record", "value", "shop.Order"),
        ("topic-record", "value", "orders-shop.Order"),
        ("topic-record", "key", "orders-shop.Order"),
    ],
)
def test_subjects_have_the_names_of_confluents_strategies(strategy: str, side: str, subject: str) -> None:
    assert subject_name(strategy, "orders", side, "shop.Order") == subject  # type: ignore[arg-type]
