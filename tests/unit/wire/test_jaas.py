"""The parser of sasl.jaas.config, checked against what Kafka's own JaasConfig gives for the same texts."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._jaas import parse_jaas

# Each text was run through kafka-clients 4.3.0's JaasConfig, which gave these options.
AS_JAVA = [
    (r"""a.B required u="x\"y" p='q\tz\101';""", {"u": 'x"y', "p": "q\tzA"}),
    ("a.B required u=a1-b_c$d.e;", {"u": "a1-b_c$d.e"}),
    ('a.B required // c\nu="v"; /* x */', {"u": "v"}),
    ('a.B Required u="v";', {"u": "v"}),
    ('a.B required u = "v" u="w";', {"u": "w"}),
    ('a.B required u="a/b=c;d";', {"u": "a/b=c;d"}),
    ('a.B required u="";', {"u": ""}),
    ("a.B required u=é;", {"u": "é"}),
    ('a.B required a-b="1" unsecuredLoginStringClaim_sub="z";', {"a-b": "1", "unsecuredLoginStringClaim_sub": "z"}),
    (r'a.B required u="a\\b\q";', {"u": r"a\bq"}),
    ("a.B required;", {}),
]

# Java refuses these too; what is expected is ours.
REFUSED = [
    ("", "class name"),
    ("   // nothing", "class name"),
    ("a.B", "control flag"),
    ('a.B username="x";', "control flag"),
    ('a.B required u="v"', "; at the end"),
    ("a.B required u;", "= after"),
    ("a.B required u=;", "value"),
    ("a.B required u=", "value"),
    ("a.B required u=/x;", "quotes"),
    ("a.B required u='it\nx';", "closing quote"),
    ('a.B required "u"="x";', "option's name"),
    ("a.B required; b.C optional;", "first log-in module"),
    ('a.B required # comment\nu="x";', "= after"),
]


@pytest.mark.parametrize(("text", "options"), AS_JAVA)
def test_reads_what_java_reads(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert module.name == "a.B"
    assert module.options == options


def test_reads_more_unquoted_values_than_java() -> None:
    assert parse_jaas("a.B required u=12 p=p@ss;").options == {"u": "12", "p": "p@ss"}


@pytest.mark.parametrize(("text", "expected"), REFUSED)
def test_says_what_was_expected(text: str, expected: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.sasl\.jaas\.config") as caught:
        parse_jaas(text)
    assert expected in caught.value.message


@pytest.mark.parametrize("broken", ['u="hunter2', "u=hunter2 hunter2;", "hunter2", "u=/hunter2;", "'hunter2'=x;"])
def test_never_quotes_the_text(broken: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_jaas(f"a.B required {broken}")
    assert "hunter2" not in str(caught.value)


def test_repr_shows_names_only() -> None:
    assert "hunter2" not in repr(parse_jaas('a.B required password="hunter2";'))


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), st.text(max_size=20), max_size=4))
def test_quoted_values_come_back(options: dict[str, str]) -> None:
    text = " ".join(f'{key}="{_quote(value)}"' for key, value in options.items())
    assert parse_jaas(f"a.B required {text};").options == options


@given(st.text(alphabet="ab=;\"'\\/* \n7", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(OptionError):
        parse_jaas(text)


def _quote(value: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return "".join(escapes.get(character, character) for character in value)
