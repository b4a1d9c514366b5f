"""The API of topic patterns, and rejected constructs; tests/integration/test_java_patterns.py compares with Java.

The patterns of that test must have the same results as when it last passed. To record them again, run
``python -m tests.unit.planning.test_topic_pattern``, and that test.
"""

from __future__ import annotations

import json
import pickle

import pytest
from tests.integration.test_java_patterns import HANDWRITTEN, RECORD, recorded_result

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.planning.topic_pattern import TopicPattern


def test_the_whole_name_must_match() -> None:
    pattern = TopicPattern("flights")
    assert pattern.matches("flights")
    assert not pattern.matches("flights-2")
    assert pattern.occurs_in("my.flights-2")
    assert not pattern.occurs_in("clicks")


def test_alternatives_are_anchored_as_a_whole() -> None:
    pattern = TopicPattern("a|ab")
    assert pattern.matches("ab")
    assert not pattern.matches("abc")
    assert not pattern.matches("xa")


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("\\Qa.b\\E.*", "a.b-1", "axb-1"),
        ("(?<eu>eu)-\\k<eu>", "eu-eu", "eu-us"),
        ("[a-z&&[^b]]+", "ac", "ab"),
        ("[a-c[0-9]]+", "a1", "d1"),
        ("a*+a?", "aaa", "b"),
        ("(?>a|ab)c", "ac", "abc"),
        ("\\p{Lower}+", "abc", "Abc"),
        ("(?i)abc", "ABC", "ABD"),
        ("(?:(?i)a)b", "Ab", "AB"),
        ("(?:a|ab){2}+c", "aac", "abac"),
        ("[a-z&&[^b]&&[^c]]+", "ad", "ab"),
        ("a(?i:b)", "aB", "AB"),
        ("\\H+\\z", "abc", ""),
        (".*(?<!offsets)", "topic", "__consumer_offsets"),
        ("[a&&b]*a", "a", "b"),
        (".(?<=[a&&b]|b)a", "ba", "aa"),
        ("[a]*b", "aab", "ac"),
        (".(?<=[a]|b)c", "ac", "cc"),
        (".(?<=(?i)A|b)c", "ac", "cc"),
        ("[a-a]", "a", "b"),
        ("(?:\\b[a&&b]){2}|b", "b", "a"),
        ("(?:\\b[a]-?){2}", "a-a", "aa"),
        ("a{1,2147483647}", "aaa", "b"),
        ("(?:a{2147483647})?b", "b", "ab"),
        ("a{0}b", "b", "ab"),
    ],
)
def test_constructs_python_writes_differently(pattern: str, matching: str, other: str) -> None:
    assert TopicPattern(pattern).matches(matching)
    assert not other or not TopicPattern(pattern).matches(other)


@pytest.mark.parametrize(
    ("pattern", "reason", "position"),
    [
        ("a**", "a quantifier on a quantifier", 2),
        ("*a", "'*' has nothing to repeat", 0),
        ("a{,2}", "illegal repetition", 1),
        ("a{3,2}", "illegal repetition range", 1),
        ("a(b", "unclosed group", 1),
        ("ab)", "unmatched '\\)'", 2),
        ("[ab", "unclosed character class", 0),
        ("x[b-a]", "illegal character range", 2),
        ("[a&&]", "needs both operands", 4),
        ("ab\\y", "\\\\y is not supported", 2),
        ("[\\b]", "\\\\b is not supported within a class", 1),
        ("\\p{IsGreek}", "the property 'IsGreek' is not supported", 0),
        ("(?i)\\p{Lower}", "between Java versions", 4),
        ("(?x)a", "inline flag 'x'", 0),
        ("(?P<n>a)", "inline flag 'P'", 0),
        ("\\Ga", "\\\\G is not supported", 0),
        ("\\Xa", "\\\\X is not supported", 0),
        ("(a)*\\1", "back reference to a group within a quantifier", 4),
        ("\\1(a)", "group that is not closed", 0),
        ("(?<n>a)(?<n>b)", "used twice", 7),
        ("(?<=a|bc)d", "one fixed width", 0),
        ("(?=a)*b", "something without width", 5),
        ("(?:(?=a)|a){3}", "assertions only", 11),
        ("(?iu)\u212a", "outside ASCII", 6),
        ("a\\", "ends too early", 2),
        ("a{2147483648}", "illegal repetition", 1),
        ("(?:(?i)\\b){3}", "assertions only", 10),
        ("\\x{110000}", "illegal \\\\x", 0),
        ("\\x{61", "illegal \\\\x", 0),
        ("\\x{}", "illegal \\\\x", 0),
        ("(" * 5000, "nested too deeply", 0),
    ],
)
def test_an_untranslatable_construct_is_rejected_with_its_position(pattern: str, reason: str, position: int) -> None:
    with pytest.raises(OptionError, match=reason) as caught:
        TopicPattern(pattern, "subscribePattern")
    assert "subscribePattern=" in str(caught.value)
    assert f"(at position {position})" in str(caught.value)


def test_patterns_can_be_pickled() -> None:
    pattern = pickle.loads(pickle.dumps(TopicPattern("a.*")))
    assert pattern == TopicPattern("a.*")
    assert pattern.matches("ab")


def test_an_illegal_topic_name_is_rejected() -> None:
    with pytest.raises(InvalidOffsetsError, match="not a legal topic name"):
        TopicPattern(".*").matches("a b")


def test_the_patterns_compared_with_java_have_the_same_meaning() -> None:
    recorded = json.loads(RECORD.read_text("utf-8"))
    assert {pattern: recorded_result(pattern) for pattern in HANDWRITTEN} == recorded
    assert sum(answer[0] in "0123" for answer in recorded.values()) > 200


if __name__ == "__main__":
    RECORD.write_text(json.dumps({each: recorded_result(each) for each in HANDWRITTEN}, indent=0) + "\n", "utf-8")
