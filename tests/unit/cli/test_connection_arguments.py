"""Settings of Kafka's clients on a command line."""

from __future__ import annotations

import argparse
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct import OptionError
from pyspark_kafka_direct.cli.connection_arguments import (
    PROFILES_VARIABLE,
    add_connection_arguments,
    client_settings,
    parse_properties,
)

if TYPE_CHECKING:
    from pathlib import Path

PROPERTIES = rf"""# a comment
! another one
bootstrap.servers = a:9092,\
    b:9092
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
  username="alice" password="it\\'s = \u00e9";
key\ with\:signs value with blanks{"  "}
  empty
last: one
last=two
"""


def settings(*arguments: str) -> dict[str, str]:
    parser = argparse.ArgumentParser()
    add_connection_arguments(parser)
    return client_settings(parser.parse_args(arguments))


def test_properties_are_those_of_java() -> None:
    assert parse_properties(PROPERTIES) == {
        "bootstrap.servers": "a:9092,b:9092",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="it\\\'s = é";',
        "key with:signs": "value with blanks  ",
        "empty": "",
        "last": "two",
    }


@pytest.mark.slow  # starts a JVM
def test_random_properties_are_those_of_java(tmp_path: Path) -> None:
    texts: list[str] = []

    @given(st.text(st.sampled_from("ab=: \t\f\\\n\r#!u0041"), max_size=30))
    def collect(text: str) -> None:
        if "\\u" not in text:  # Java rejects a file with an incomplete escape
            texts.append(text)

    collect()
    (tmp_path / "Load.java").write_text(
        """
        import java.nio.file.*; import java.util.*;
        public class Load { public static void main(String[] a) throws Exception {
          for (int i = 0; i < Integer.parseInt(a[1]); i++) {
            Properties p = new Properties();
            p.load(Files.newBufferedReader(Path.of(a[0], i + ".properties")));
            List<String> out = new ArrayList<>();
            for (String k : new TreeSet<>(p.stringPropertyNames())) { out.add(hex(k)); out.add(hex(p.getProperty(k))); }
            System.out.println(String.join(",", out)); } }
          static String hex(String s) throws Exception { return "x" + HexFormat.of().formatHex(s.getBytes("UTF-8")); } }
        """
    )
    for index, text in enumerate(texts):
        (tmp_path / f"{index}.properties").write_text(text, newline="")
    java = subprocess.run(
        ["java", tmp_path / "Load.java", tmp_path, str(len(texts))], check=True, capture_output=True, text=True
    )
    for text, line in zip(texts, java.stdout.splitlines(), strict=True):
        values = [bytes.fromhex(each[1:]).decode() for each in line.split(",") if each]
        assert parse_properties(text) == dict(zip(values[::2], values[1::2], strict=True)), repr(text)


def test_later_settings_take_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(
        '[prod]\n"bootstrap.servers" = "p:1"\n"client.id" = "p"\n'
        '"request.timeout.ms" = 7\n"exclude.internal.topics" = true\n'
    )
    monkeypatch.setenv(PROFILES_VARIABLE, str(profiles))
    config = tmp_path / "client.properties"
    config.write_text("bootstrap.servers=f:1\nclient.id=f\nsasl.password=s\n")
    given_settings = ("--profile", "prod", "--command-config", str(config), "-X", "client.id=x=y")
    assert settings(*given_settings) == {
        "bootstrap.servers": "f:1",
        "client.id": "x=y",
        "request.timeout.ms": "7",
        "exclude.internal.topics": "true",
        "sasl.password": "s",
    }
    assert settings(*given_settings, "-b", "b:1")["bootstrap.servers"] == "b:1"


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "kafka.sasl.jaas.config",
        "SSL.key.pem",
        "ssl.key.password",
        "schema.registry.basic.auth.user.info",
    ],
)
def test_secrets_are_rejected_on_the_command_line(name: str) -> None:
    with pytest.raises(OptionError, match="--command-config") as caught:
        settings("-b", "b:1", "-X", f"{name}=hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "No brokers are given; add -b HOST:PORT"),
        (("-X", "client.id"), "-X needs NAME=VALUE, got 'client.id' without a value"),
        (("-X", "=x"), "-X needs NAME=VALUE"),
        (("--command-config", "/nowhere"), "--command-config: /nowhere cannot be read: No such file"),
        (("--profile", "prdo"), r"has no table \[prdo\]; did you mean 'prod'\? \(it has: flat, nested, prod\)"),
        (("--profile", "flat"), r"has no table \[flat\]"),
        (("--profile", "nested"), 'write names with dots in quotes in .*, such as "bootstrap.servers"'),
    ],
)
def test_mistakes(arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text('flat = 1\n[prod]\n[nested]\nbootstrap.servers = "b:1"\n')
    monkeypatch.setenv(PROFILES_VARIABLE, str(profiles))
    with pytest.raises(OptionError, match=message):
        settings(*arguments)


def test_a_profile_file_that_is_no_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text("[prod\n")
    monkeypatch.setenv(PROFILES_VARIABLE, str(profiles))
    with pytest.raises(OptionError, match="is not valid TOML"):
        settings("--profile", "prod")
