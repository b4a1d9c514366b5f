"""Close matches, and lists that stay short."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.planning.hints import did_you_mean, is_misspelt, listed

WORDS = ["earliest", "latest", "Committed"]


@pytest.mark.parametrize(
    ("word", "said"),
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
def test_the_closest_candidate(word: str, said: str) -> None:
    assert did_you_mean(word, WORDS) == said


def test_the_closest_of_several_with_what_comes_before_it() -> None:
    assert did_you_mean("topicc", ["topics", "topic"], "kafka.") == "; did you mean 'kafka.topic'?"


def test_misspelt_is_a_letter_apart() -> None:
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
def test_a_letter_of_a_short_word_counts_too(word: str, meant: str) -> None:
    """``delivary=exactly-once`` would write at least once, and few would see the warning."""
    assert is_misspelt(word, ["assign", meant])


@pytest.mark.parametrize("word", ["tonc", "top", "opitc", "delivered", "delvirey"])
def test_two_letters_of_a_short_word_are_another_word(word: str) -> None:
    assert not is_misspelt(word, ["topic", "delivery"])


def test_lists_stay_short() -> None:
    assert listed([]) == "none"
    assert listed([7]) == "7"
    assert listed(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert listed(range(11)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 1 more"
    assert listed("abcd", 2) == "a, b and 2 more"
