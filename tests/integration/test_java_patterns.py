"""``subscribePattern`` compared with ``java.util.regex``: the same result for every pattern, or a rejection."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.topic_pattern import TopicPattern

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD = Path(__file__).parents[1] / "unit" / "planning" / "data" / "java_patterns.json"

# Reads lines of base64 words: a pattern and topics. Prints per line "E" (the pattern is malformed), or a digit per
# topic: 0 no match, 1 a part of the name matches, 2 the whole and a part, 3 the whole but no part; "X" ends a line if
# Java itself fails with a valid pattern. The results are printed at an empty line.
JAVA = """
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.regex.*;

public class Matches {
    static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String line; (line = in.readLine()) != null; ) {
            if (line.isEmpty()) {
                System.out.print(out);
                System.out.flush();
                out.setLength(0);
                continue;
            }
            String[] words = line.split(" ");
            try {
                Pattern pattern = Pattern.compile(text(words[0].substring(1)));
                for (int i = 1; i < words.length; i++) {
                    Matcher matcher = pattern.matcher(text(words[i]));
                    boolean whole = matcher.matches();
                    matcher.reset();
                    boolean part = matcher.find();
                    out.append(whole ? (part ? '2' : '3') : (part ? '1' : '0'));
                }
            } catch (PatternSyntaxException e) {
                out.append('E');
            } catch (RuntimeException | StackOverflowError e) {
                out.append('X');
            }
            out.append('\\n');
        }
    }
}
"""

TOPICS = [
    "a", "b", "A", "k", "aa", "ab", "ba", "aA", "Ab", "aab", "aba", "abab", "aabb", "abcab", "a1", "1", "12", "0",
    "a.b", "a-b", "a_b", ".", "..x", "-", "_", "--", "a.", ".a", "-a", "a-", "_a", "aaa", "aaaa", "bbb", "abba", "z9",
    "flights", "flights-1", "flights_2", "Flights.v3", "my.flights", "__consumer_offsets", "i", "I", "s", "S", "K",
    "clicks.eu-west-1", "clicks.us", "E", "Q", "cafe", "CAFE", "x.y.z", "b.a", "ab.ab", "a-z",
]  # fmt: skip

HANDWRITTEN = [
    # usual topic names
    "flights", "flights.*", "flights-\\d+", "(?i)FLIGHTS.*", "my\\..+", "clicks\\.(eu|us).*", "[a-z]+", "[\\w.-]+",
    "^flights$", "\\Aflights\\z", "flights\\Z", "(?!__).*", "(?!.*offsets).+", ".*(?<!offsets)", "(flights|clicks).*",
    "[^._-]+", "\\w+", "\\W+", "\\S+", "\\s*", ".*", ".+", "", "|", "a|b", "a|", "|a", "()", "(?:)", "(a)|b",
    # classes
    "[a-c&&[b-d]]+", "[a-z&&[^b]]+", "[^a-z&&[def]]+", "[a[b]]", "[^a[b]]", "[a-]", "[-a]", "[a-b-]", "[\\w-]+",
    "[\\w-z]+", "[]a]+", "[^]a]+", "[a&]", "[a&b]", "[a&&b]", "[a&&&b]", "[a&&]", "[&&a]", "[a-z&&b&&b]", "[a-[b]]",
    "[\\[^a]", "[[^a]]", "[a^]", "[\\^a]", "[a-z&&^b]", "[--/]", "[+--]", "[.-a]", "[a-\\d]", "[\\d-a]", "[\\v-a]",
    "[]", "[^]", "[", "[a", "[\\b]", "[\\Qa-z\\E]+", "[\\Q^\\Ea]+", "[a\\Q-\\Ez]+", "[a-\\Qz\\E]+", "[\\Q[\\E^a]",
    "[\\x61-c]", "[a-c[0-9]&&[b1]]+", "[a-c&&[b]1]+", "(?i)[a-c]+", "(?i)[^a]+", "(?i)[A-z]", "(?iu)[a-k]+",
    "[a-\\p{L}]", "[\\pL1]+",
    # properties and escapes
    "\\p{Lower}+", "\\P{Lower}+", "\\p{Upper}", "\\p{ASCII}+", "\\p{Alpha}+", "\\p{Digit}+", "\\p{Alnum}+",
    "\\p{Punct}+", "\\p{Graph}+", "\\p{Print}+", "\\p{Blank}", "\\p{Cntrl}", "\\p{XDigit}+", "\\p{Space}", "\\p{L}+",
    "\\pL+", "\\PL+", "\\p{Lu}", "\\p{IsL}+", "\\p{Nd}+", "\\p{P}+", "\\p{Pd}+", "\\p{Pc}", "\\p{Po}",
    "\\p{IsAlphabetic}+", "\\p{IsDigit}", "\\p{IsLetter}+", "\\p{IsLowercase}+", "\\p{IsUppercase}+",
    "\\p{javaLowerCase}+", "\\p{javaUpperCase}+", "\\p{javaLetter}+", "\\p{javaDigit}+", "\\p{javaLetterOrDigit}+",
    "(?i)\\p{Lower}+", "\\p{Nonsense}", "\\p{", "\\p", "\\p{M}", "\\p{Z}", "\\p{S}", "\\p{Lt}", "\\p{Lm}", "\\p{Lo}",
    "\\p{Nl}", "\\p{No}", "\\p{N}", "\\p{Ps}", "\\p{Pe}", "\\x61", "\\x{61}", "\\x6", "\\u0061", "\\u006", "\\0141",
    "\\061", "\\0", "\\08", "\\0477", "\\cn", "\\c", "\\t|a", "\\n?a", "\\ea?", "\\.", "\\-", "\\_", "\\@?a", "\\y",
    "\\i", "\\E", "\\h*a", "\\H+", "\\v*a", "\\V+", "\\R?a", "\\X", "\\N{DIGIT ONE}", "\\G", "\\b\\w+\\b", "a\\b.*",
    "prod\\x2E.*|b\\x2Ea", "b\\u002ea", "a\\tb", "\\x2a", "a\\x2a|b", "\\x61+", "\\0141{2}", "\\06109|1", "\\00",
    "\\0400", "\\c-|a", "\\cx", "\\c\\a", "\\x{2E}", "\\x{00002E}", "\\x{10FFFF}?a", "\\x{110000}", "\\x{}", "\\x{ 2E}",
    "\\u2E", "\\ud83d\\ude00?a", "(?i)\\x61+", "(?i)[\\x41-\\x5a]+", "(?i)\\xe9|a", "[\\x26\\x26a]", "[\\x5ea]",
    "[a\\x2dc]+", "[\\0141-c]+", "[\\0141-\\d]+", "[\\01412]+", "[\\cM-a]+", "[^\\x2e]+", "[\\t-\\u007e&&[^\\x61]]+",
    ".*(?<=\\x2e)a", "\\f|\\r|\\a|b", "\\06\\Q1\\E|k",
    "\\Ba", "a\\B.", "\\b{g}a", "é?a", "(?iu)é?a", "(?iu)\\u212a", "K",
    # quoting
    "\\Qa.b\\E", "\\Qa.b", "a\\Q\\E*", "\\Qab\\E*", "\\Qa\\Eb+", "a\\Q.\\Eb", "\\Q\\E", "\\\\Q", "a{\\Q2\\E}",
    "\\Qa|b\\E|k", "(a)(b)(a)(b)(a)(b)(a)(b)(a)(b)(k)?\\1\\Q0\\E", "\\c\\QA\\E", "\\x4\\Q1\\E", "(?\\Qi\\E)a",
    "\\Q\\\\E",
    # quantifiers
    "a?", "a*", "a+", "a??b", "a*?b", "a+?b", "a?+b", "a*+b", "a++b", "a{2}", "a{1,2}", "a{2,}", "a{,2}", "a{ 2}",
    "a{2}?", "a{1,2}?b", "a{1,2}+b", "a{2}{2}", "a**", "a{2}*", "*a", "+", "?a", "{2}", "a{", "a{2", "a}", "a{2,1}",
    "a{99999999999}", "(?:a|ab){2}+", "(?:a|ab)*+b", "(?:a|ab)++a", "(?:ab?){2}+", "(?:a?){3}", "(a*)*", "(a*)+b",
    "(?:|a){2}", "(?:a|)*b", "(?:(?=a)|a){3}", "^*a", "$?", "\\b?a", "(?=a)?a", "(?i)*", "(?:a*?)*b", "(?>a|ab)b",
    "(?>a*)ab", "(?>a|ab)*", "((?:a|b)+)b", "(?:a{1,2}){2}b", "(?:(?:a|b)?){2,3}", "(ab?)*+", "(?:ab|a)?+b",
    # groups, flags, look-around, back references
    "(?<n>a)\\k<n>", "(?<n>a)b\\k<n>", "(?<1n>a)", "(?<n_>a)", "(?<n>a)(?<n>b)", "\\k<n>a", "(a)\\1", "(a|b)\\1",
    "\\1(a)", "(a\\1)", "(a)\\11", "(a)\\2", "(?:(a)|b)\\1", "(?:(a)b|ab)\\1", "(?=(a))\\1", "(?:(?=(a))b|a)\\1",
    "(a*)\\1", "(a)*\\1", "(?:(a))+\\1", "(?>(a)|b)\\1", "(?i)(a)\\1", "(a)(?i)\\1", "(?i)a", "a(?i)b", "(?:a(?i)b)a",
    "(?:a(?i)b|c)a", "(?i:a)b", "(?-i)a", "(?i-i)a", "(?i)(?-i:a)b", "(?s).+", "(?m)^a$", "(?d)a", "(?x) a", "(?-x)a",
    "(?u)a", "(?U)\\w+", "(?iU)a", "(?)a", "(?-)a", "(?c)a", "(?y)a", "(?i", "(?", "(", ")", "a)", "(a", "(?#a)a",
    "(?P<n>a)", "(?<=a)b", "a(?<=a)b", "a(?<!a)b", ".*(?<=ab|ba)", ".*(?<=a|ab)", ".*(?<=a*)", ".*(?<=a{1,2})",
    ".*(?<=a{2})", ".+(?<![.-])", "(?=a).*", "(?=.*b)(?=.*a).*", "(?!a)\\w+", ".*(?=b).", "(?<=\\s)a", "(?<!\\s)a",
    "(?<=(?:a|\\s))b.*", "a(?<=\\w)b", "(?m)^", "(?m)a$", "a$b", "a^b", "$", "^", "^^a$$", "\\Aa|b\\z", "(^a|b$)+",
    "(?:a|b){0}", "(a){0}b", "(?<=^)a", "a(?<=^a)", "a b", " a", "#a", "a#", "]", "}", "a]", "\\", "a\\", "\\]",
    "\\}", "\\{", "a\\+", "a,b", "@",
]  # fmt: skip

PARTS = [
    "a", "b", "A", "1", ".", "\\.", "-", "_", "\\w", "\\W", "\\d", "\\D", "\\s", "\\S", "\\h", "\\b", "\\B", "^", "$",
    "\\A", "\\z", "\\Z", "[ab]", "[^a]", "[a-c]", "[^a-c.]", "[\\w-]", "[\\W_]", "[a[b]]", "[a-z&&[^b]]", "[^\\s]",
    "(?i)", "(?-i)", "(?s)", "\\Qa.\\E", "\\Q\\E", "\\Q-\\E", "\\p{L}", "\\P{Alpha}", "\\p{Lower}", "\\x61", "\\0141",
    "\\u002e", "\\t", "\\1", "\\2", "\\k<n>", "|", "|", "K", "i",
]  # fmt: skip
OPENINGS = ["(", "(", "(?:", "(?:", "(?>", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?-i:", "(?<n>"]
QUANTIFIERS = [
    "*",
    "+",
    "?",
    "*?",
    "+?",
    "??",
    "*+",
    "++",
    "?+",
    "{2}",
    "{1,2}",
    "{0,1}?",
    "{1,}",
    "{2}+",
    "{0}",
    "{1,3}+",
]
CLASS_PARTS = [
    "a",
    "b",
    "A",
    "1",
    ".",
    "-",
    "_",
    "^",
    "&",
    "&&",
    "[",
    "]",
    "a-c",
    "\\w",
    "\\W",
    "\\d",
    "\\-",
    "\\]",
    "\\p{L}",
]
CLASS_PARTS += ["\\Q-\\E", "[b]", "[^b]", "[a-c&&b]", "\\[", "\\^", "z-", "--", "&&["]


def random_pattern(choice: random.Random, depth: int = 0) -> str:
    text = ""
    for _ in range(choice.randint(1, 4)):
        kind = choice.random()
        if kind < 0.25 and depth < 4:
            text += choice.choice(OPENINGS) + random_pattern(choice, depth + 1) + ")"
        elif kind < 0.4:
            text += "[" + "".join(choice.choices(CLASS_PARTS, k=choice.randint(1, 4))) + "]"
        else:
            text += choice.choice(PARTS)
        if choice.random() < 0.35:
            text += choice.choice(QUANTIFIERS)
    return text


def random_topics(choice: random.Random, count: int) -> list[str]:
    return ["".join(choice.choices("aabbA1._-cK", k=choice.randint(1, 7))) for _ in range(count)]


class Java:
    """The program above, for all tests."""

    def __init__(self, folder: Path) -> None:
        source = folder / "Matches.java"
        source.write_text(JAVA, encoding="utf-8")
        command = ["java", "-Xss8m", str(source)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii")

    def results(self, cases: list[tuple[str, list[str]]]) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None

        def word(text: str) -> str:
            return base64.b64encode(text.encode()).decode()

        for pattern, topics in cases:
            self._process.stdin.write(f"-{word(pattern)} {' '.join(map(word, topics))}\n")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return [self._process.stdout.readline().removesuffix("\n") for _ in cases]

    def close(self) -> None:
        self._process.communicate(timeout=900)
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    with closing(Java(tmp_path_factory.mktemp("java"))) as program:
        yield program


def our_result(pattern: str, topics: list[str]) -> str:
    """The digits as Java prints them, or ``R`` if the pattern is rejected."""
    try:
        translated = TopicPattern(pattern)
    except OptionError:
        return "R"
    whole, part = set(translated.matches(topics)), set(translated.occurs_in(topics))
    return "".join(("2" if each in part else "3") if each in whole else str(int(each in part)) for each in topics)


def recorded_result(pattern: str) -> str:
    """The recorded result of a handwritten pattern: the digits, or why and where it is rejected."""
    try:
        TopicPattern(pattern)
    except OptionError as error:
        return str(error).removeprefix(f"subscribePattern={pattern!r}: ").partition(";")[0]
    return our_result(pattern, TOPICS)


def differences(program: Java, cases: list[tuple[str, list[str]]]) -> tuple[list[str], int, int]:
    """The differences from Java, the number of translated patterns, and the number that Java accepts."""
    wrong, translated, valid = [], 0, 0
    for (pattern, topics), java in zip(cases, program.results(cases), strict=True):
        ours = our_result(pattern, topics)
        translated += ours != "R"
        valid += not java.endswith(("E", "X"))
        if ours not in ("R", java) and not java.endswith("X"):
            example = next((t for t, x, y in zip(topics, ours, java, strict=False) if x != y), "")
            wrong.append(f"{pattern!r} on {example!r}: java {java}, ours {ours}")
    return wrong, translated, valid


def test_handwritten_patterns_agree_with_java(java: Java) -> None:
    wrong, translated, valid = differences(java, [(pattern, TOPICS) for pattern in HANDWRITTEN])
    assert wrong == []
    assert translated > 0.8 * valid


def test_the_record_for_unit_tests_has_these_patterns() -> None:
    """So the record equals Java's results, except for rejected patterns."""
    assert list(json.loads(RECORD.read_text("utf-8"))) == list(dict.fromkeys(HANDWRITTEN))


@pytest.mark.parametrize("seed", [1, 2])
def test_random_patterns_agree_with_java(java: Java, seed: int) -> None:
    choice = random.Random(seed)
    cases = [(random_pattern(choice), random_topics(choice, 25)) for _ in range(5_000)]
    wrong, translated, valid = differences(java, cases)
    assert wrong == []
    assert translated > 0.5 * valid > 1_000
