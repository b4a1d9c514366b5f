"""Close matches and short lists."""

from __future__ import annotations

import tracemalloc

import pytest

from pyspark_kafka_direct.options.hints import did_you_mean, is_misspelt, listed

WORDS = ["earliest", "latest", "Committed"]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("earlist", "; did you mean 'earliest'?"),
        (" LATTEST ", "; did you mean 'latest'?"),
        ("comited", "; did you mean 'Committed'?"),
        ("late", "; did you mean 'latest'?"),
        ("lat", ""),
        ("newest", ""),
        ("", ""),
    ],
)
def test_the_closest_candidate(word: str, hint: str) -> None:
    assert did_you_mean(word, WORDS) == hint


def test_the_closest_of_several_with_a_prefix() -> None:
    assert did_you_mean("topicc", ["topics", "topic"], "kafka.") == "; did you mean 'kafka.topic'?"


def test_candidates_are_not_retained() -> None:
    """A cluster may have thousands of topics, and records may name many that do not exist."""
    tracemalloc.start()
    for number in range(30):
        did_you_mean(f"t{number}", [f"{number}-{topic}-" + 100 * "x" for topic in range(200)])
    retained, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert retained < 100_000


def test_misspelt_means_one_edit_apart() -> None:
    assert is_misspelt("subscrib", ["assign", "subscribe"])
    assert is_misspelt("SUBSCRIBEE", ["subscribe"])
    assert not is_misspelt("topic", ["assign", "subscribe"])


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("delivary", "delivery"),
        ("Delviery", "delivery"),
        ("topc", "topic"),
        ("otpic", "topic"),
        ("jobif", "jobId"),
        ("subscripe", "subscribe"),
    ],
)
def test_one_edit_of_a_short_word_counts(word: str, meant: str) -> None:
    """A misspelt ``deliveryGuarantee=exactly-once`` would write at least once, and few users would see the warning."""
    assert is_misspelt(word, ["assign", meant])


@pytest.mark.parametrize("word", ["tonc", "top", "opitc", "delivered", "delvirey"])
def test_two_edits_of_a_short_word_are_another_word(word: str) -> None:
    assert not is_misspelt(word, ["topic", "delivery"])


def test_lists_are_short() -> None:
    assert listed([]) == "none"
    assert listed([7]) == "7"
    assert listed(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert listed(range(11)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 1 more"
    assert listed("abcd", 2) == "a, b and 2 more"
