"""The parser of sasl.jaas.config, compared with Kafka's own JaasConfig."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.jaas import parse_jaas

# These are the options that JaasConfig of kafka-clients 4.3.0 returns for each text.
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

# Java rejects these too, with other messages.
REJECTED = [
    ("", "class name"),
    ("   // nothing", "class name"),
    ("a.B", "control flag"),
    ('a.B username="x";', "control flag"),
    ('KafkaClient {\n  a.B required u="v";\n};', "without the name of its section"),
    ('a.B required u="v"', "; at the end"),
    ("a.B required u;", "= after"),
    ("a.B required u=;", "value"),
    ("a.B required u=", "value"),
    ("a.B required u=/x;", "quotes"),
    ("a.B required u='it\nx';", "closing quote"),
    ('a.B required "u"="x";', "name of an option"),
    ("a.B required; b.C optional;", "first login module"),
    ('a.B required # comment\nu="x";', "= after"),
]


@pytest.mark.parametrize(("text", "options"), AS_JAVA)
def test_results_are_those_of_java(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert module.name == "a.B"
    assert module.options == options


def test_more_unquoted_values_than_in_java() -> None:
    assert parse_jaas("a.B required u=12 p=p@ss;").options == {"u": "12", "p": "p@ss"}


@pytest.mark.parametrize(("text", "expected"), REJECTED)
def test_errors_name_what_is_expected(text: str, expected: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.sasl\.jaas\.config") as caught:
        parse_jaas(text)
    assert expected in caught.value.message


@pytest.mark.parametrize("invalid", ['u="hunter2', "u=hunter2 hunter2;", "hunter2", "u=/hunter2;", "'hunter2'=x;"])
def test_errors_never_quote_the_text(invalid: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_jaas(f"a.B required {invalid}")
    assert "hunter2" not in str(caught.value)


def test_repr_shows_names_only() -> None:
    module = parse_jaas('a.B required username="alice" password="hunter2";')
    assert re.fullmatch(r"LoginModule\(a\.B username=\S+ password=\S+\)", repr(module))
    assert "hunter2" not in repr(module)


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), st.text(max_size=20), max_size=4))
def test_quoted_values_are_unescaped(options: dict[str, str]) -> None:
    text = " ".join(f'{key}="{_quote(value)}"' for key, value in options.items())
    assert parse_jaas(f"a.B required {text};").options == options


@given(st.text(alphabet="ab=;\"'\\/* \n7", max_size=40))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    with contextlib.suppress(OptionError):
        parse_jaas(text)


def _quote(value: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return "".join(escapes.get(character, character) for character in value)
