"""The API of topic patterns, and rejected constructs; tests/integration/test_java_patterns.py compares with Java.

The patterns of that test must have the same results as when it last passed. To record them again, run
``python -m tests.unit.planning.test_topic_pattern``, and that test.
"""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

import pytest
from tests.integration.test_java_patterns import HANDWRITTEN, RECORD, recorded_result

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError, PatternTimeoutError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options import topic_pattern
from pyspark_kafka_direct.options.subscription import parse_subscribe_pattern
from pyspark_kafka_direct.options.topic_pattern import TopicPattern
from pyspark_kafka_direct.planning.subscription import select_partitions

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_whole_name_must_match() -> None:
    names = ["flights", "my.flights-2", "clicks"]
    assert TopicPattern("flights").matches(names) == ["flights"]
    assert TopicPattern("flights").occurs_in(names) == ["flights", "my.flights-2"]


def test_alternatives_are_anchored_as_a_whole() -> None:
    assert TopicPattern("a|ab").matches(["abc", "ab", "xa"]) == ["ab"]


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("\\Qa.b\\E.*", "a.b-1", "axb-1"),
        ("(?<eu>eu)-(us)", "eu-us", "eu-eu"),
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
        ("(?d:a)b", "ab", "b"),
        ("\\H+\\z", "abc", ""),
        (".*(?<!offsets)", "topic", "__consumer_offsets"),
        ("[a&&b]*a", "a", "b"),
        (".(?<=[a&&b]|b)a", "ba", "aa"),
        (".*(?<=a|bc)d", "bcd", "cd"),
        ("(?i)[a-z&&[A-C]]", "B", "d"),
        ("[a]*b", "aab", "ac"),
        (".(?<=[a]|b)c", "ac", "cc"),
        (".(?<=(?i)A|b)c", "ac", "cc"),
        ("[a-a]", "a", "b"),
        ("(?:\\b[a]-?)+", "a-a", "aa"),
        ("a{1,999999999}", "aaa", "b"),
        ("a{0}b", "b", "ab"),
        ("prod\\x2E.*", "prod.a", "prodXa"),
        ("a\\u002eb|a\\tb", "a.b", "atb"),
        ("\\0141[\\x{62}-\\c#]", "ab", "ad"),
    ],
)
def test_constructs_python_writes_differently(pattern: str, matching: str, other: str) -> None:
    assert TopicPattern(pattern).matches([matching, other] if other else [matching]) == [matching]


@pytest.mark.parametrize(
    ("pattern", "reason", "position"),
    [
        ("a**", "'\\*' has nothing to repeat", 2),
        ("*a", "'*' has nothing to repeat", 0),
        ("a{,2}", "'{,2' is malformed", 1),
        ("a{3,2}", "illegal repetition range", 1),
        ("a(b", "unclosed group", 1),
        ("ab)", "unmatched '\\)'", 2),
        ("[ab", "unclosed character class", 0),
        ("x[b-a]", "illegal character range", 2),
        ("[a&&]", "operand of &&", 4),
        ("[a&&&b]", "'&&&' is malformed or not supported", 2),
        ("[]a]", "an empty class", 1),
        ("ab\\y", "y' is malformed or not supported", 2),
        ("[\\b]", "b\\]' is malformed or not supported", 1),
        ("\\x2", "x2' is malformed or not supported", 0),
        ("a\\x{110000}", "x\\{' is malformed or not supported", 1),
        ("\\ud83d\\ude00?", "ud' is malformed or not supported", 0),
        ("[\\0141-\\d]", "01' is malformed or not supported", 1),
        ("\\0", "0' is malformed or not supported", 0),
        ("\\p{IsGreek}", "the property 'IsGreek' is not supported", 0),
        ("(?i)\\p{Lower}", "between Java versions", 4),
        ("(?i)\\p{javaUpperCase}", "between Java versions", 4),
        ("(?x)a", "'\\(\\?x' is malformed or not supported", 0),
        ("(?P<n>a)", "not supported", 0),
        ("\\Ga", "not supported", 0),
        ("\\Xa", "not supported", 0),
        ("(a)\\1", "not supported", 3),
        ("(?<n>a)\\k<n>", "not supported", 7),
        ("(?<n>a)(?<n>b)", "used twice", 7),
        ("(?<=a*)d", "a quantifier within a look-behind", 5),
        ("(?<!x(?>a|b))d", "an atomic group within a look-behind", 5),
        ("(?=a)*b", "nothing to repeat", 5),
        ("(?:(?=a)|a){3}", "an anchor or look-around in a repetition", 11),
        ("(?:(?i)\\b){3}", "an anchor or look-around in a repetition", 10),
        ("(?i)\u212a", "outside ASCII", 4),
        ("a\\", "malformed", 1),
        ("a\\Q\\E", "malformed or not supported", 1),
        ("a{2147483648}", "malformed", 1),
        ("(" * 5000, "nested deeper than 50", 50),
        ("[" * 5000, "nested deeper than 50", 50),
        ("a" * 10_001, "more than 10000 characters", 0),
        ("(a{1000}){1000}", "repetitions are copied", 9),
        ("(?:" * 20 + "a" + ")+" * 20, "repetitions are copied", 84),
        ("a{9" + "9" * 5000 + "}", "malformed", 1),
    ],
)
def test_an_untranslatable_construct_is_rejected_with_its_position(pattern: str, reason: str, position: int) -> None:
    with pytest.raises(OptionError, match=reason) as caught:
        TopicPattern(pattern, "subscribePattern")
    assert "subscribePattern=" in str(caught.value)
    assert f"(at position {position})" in str(caught.value)


def test_a_pattern_may_have_ten_thousand_characters() -> None:
    assert TopicPattern("a" * 10_000).matches(["a"]) == []


def test_patterns_can_be_pickled() -> None:
    pattern = pickle.loads(pickle.dumps(TopicPattern("a.*")))
    assert pattern == TopicPattern("a.*")
    assert pattern.matches(["ab"]) == ["ab"]


def test_an_illegal_topic_name_is_rejected() -> None:
    with pytest.raises(InvalidOffsetsError, match="not a legal topic name"):
        TopicPattern(".*").matches(["a b"])


@pytest.mark.parametrize("name", ["abcdefghijklmnopqrstuvwxyzabcdefgh", "ab-cd_ef.gh" * 20 + ".event"])
def test_a_nested_repetition_with_a_final_literal_ends_at_once(name: str) -> None:
    pattern = TopicPattern("^([a-z]+[-_.]?)+\\.events$")
    assert pattern.occurs_in([name, "a.events"]) == ["a.events"]
    assert pattern.matches([name, "a.events"]) == ["a.events"]


@pytest.mark.parametrize("select", [TopicPattern.matches, TopicPattern.occurs_in])
def test_matching_a_hostile_name_is_stopped(
    select: Callable[[TopicPattern, list[str]], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_pattern, "_MAX_SECONDS", 0.2)
    with pytest.raises(PatternTimeoutError) as caught:
        select(TopicPattern("^(?:a|aa)+$", "SubscribePattern"), ["aa", "a" * 200 + "-", "a"])
    message = str(caught.value)
    assert message.startswith("SubscribePattern='^(?:a|aa)+$': matching all topic names took more than 0.2 seconds")
    assert f"up to the topic '{'a' * 80}...'" in message
    assert "Write a pattern that matches each name in only one way" in message


def test_all_names_share_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_pattern, "_MAX_SECONDS", 0.2)
    pattern, slow_name = TopicPattern("^(?:a|aa)+$"), "a" * 22 + "-"
    assert pattern.occurs_in([slow_name]) == []
    with pytest.raises(PatternTimeoutError):
        pattern.occurs_in([slow_name] * 1000)  # they take seconds


def test_a_name_that_cannot_be_decided_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_pattern, "_MAX_SECONDS", 0.2)
    strategy = parse_subscribe_pattern("^(?:a|aa)+$")
    assert select_partitions(strategy, {"a": [0]}).partitions == (TopicPartition("a", 0),)
    with pytest.raises(OptionError, match="subscribePattern="):
        select_partitions(strategy, {"a": [0], "a" * 60 + "-": [0]})


def test_the_patterns_compared_with_java_have_the_same_meaning() -> None:
    recorded = json.loads(RECORD.read_text("utf-8"))
    assert {pattern: recorded_result(pattern) for pattern in HANDWRITTEN} == recorded
    assert sum(answer[0] in "0123" for answer in recorded.values()) > 200


if __name__ == "__main__":
    RECORD.write_text(json.dumps({each: recorded_result(each) for each in HANDWRITTEN}, indent=0) + "\n", "utf-8")
