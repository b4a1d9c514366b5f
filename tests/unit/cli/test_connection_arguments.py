"""Settings of Kafka's clients on a command line."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
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
from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

MAIN = "import sys; from pyspark_kafka_direct.cli.main import main; sys.exit(main())"

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


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("\\\n# a comment\na=b", {"a": "b"}),
        ("\\\n\na=b", {"a": "b"}),
        ("a=b\n\\\r ", {"a": "b"}),
        ("a=\\\n#b\n", {"a": "#b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\n c\\\\", {"a": "b\\c\\"}),
        ("a=b\nc=d\\", {"a": "b", "c": "d"}),
        ("a=b\\\n  c\\\n", {"a": "bc"}),
    ],
)
def test_a_line_that_continues_with_nothing_is_none(text: str, entries: dict[str, str]) -> None:
    assert parse_properties(text) == entries


@pytest.mark.slow  # starts a JVM
def test_random_properties_are_those_of_java(tmp_path: Path) -> None:
    texts: list[str] = []

    @given(st.text(st.sampled_from("ab=: \t\f\\\n\r#!u0041"), max_size=30))
    def collect(text: str) -> None:
        if "\\u" not in text:  # Java rejects a file with an incomplete escape
            texts.append(text)

    collect()
    texts += ["\\\r ", "\\\n", "\\", "\\\r\n", "\\\n#x\na=b", "\\\n\na=b", "\\\n\\\n", "a\\\r\n", "a\\\n\nb"]
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
    # One simple compiler and collector halve the CPU time of a JVM that ends at once.
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command = ["java", *options, str(tmp_path / "Load.java"), str(tmp_path), str(len(texts))]
    java = subprocess.run(command, check=True, capture_output=True, text=True)
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
        "my.password",
        "an.app.secret",
        "key.passphrase",
        "jaas.x",
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
    profiles.write_text('flat = 1\n[prod]\n[nested]\n"client.id" = "x"\nbootstrap.servers = "b:1"\n"x" = "y"\n')
    monkeypatch.setenv(PROFILES_VARIABLE, str(profiles))
    with pytest.raises(OptionError, match=message):
        settings(*arguments)


def test_the_file_of_profiles_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ".config/kafka-direct"
    folder.mkdir(parents=True)
    (folder / "profiles.toml").write_text('[p]\n"bootstrap.servers" = "p:1"\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("", "~/.config/kafka-direct/profiles.toml"):
        monkeypatch.setenv(PROFILES_VARIABLE, variable)
        assert settings("--profile", "p") == {"bootstrap.servers": "p:1"}
    monkeypatch.delenv(PROFILES_VARIABLE)
    assert settings("--profile", "p") == {"bootstrap.servers": "p:1"}


def test_a_profile_file_that_is_no_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text("[prod\n")
    monkeypatch.setenv(PROFILES_VARIABLE, str(profiles))
    with pytest.raises(OptionError, match="is not valid TOML"):
        settings("--profile", "prod")


def test_escapes_of_surrogate_pairs_are_one_character_as_in_java() -> None:
    assert parse_properties(r"sasl.password=\ud83d\ude00") == {"sasl.password": "\N{GRINNING FACE}"}
    with pytest.raises(OptionError, match="half of a character") as raised:
        parse_properties(r"sasl.password=hush\ud83d")
    assert "hush" not in str(raised.value)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="cannot be read"):
        settings("--command-config", "~no-such-user/client.properties")
    profiles = tmp_path / "profiles.toml"
    monkeypatch.setenv(PROFILES_VARIABLE, str(profiles))
    profiles.write_text("[p]\nx=" + "[" * 100_000)
    with pytest.raises(OptionError, match="is not valid TOML"):
        settings("--profile", "p")
    profiles.write_text('["\\u001b[31mq"]\n')
    with pytest.raises(OptionError, match=r"it has: \\x1b\[31mq"):
        settings("--profile", "p")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e300"])
def test_times_that_nothing_can_wait(capsys: pytest.CaptureFixture[str], seconds: str) -> None:
    for arguments in (["doctor", f"--timeout={seconds}"], ["lag", "group", f"--interval={seconds}"]):
        assert main([*arguments, "-b", "127.0.0.1:1"]) == 2
        assert "must be more than 0 seconds, and at most 86400" in capsys.readouterr().err


def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "doctor", "-b", "127.0.0.1:1"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 3
    assert done.stderr == "kafka-direct doctor: OSError: [Errno 28] No space left on device\n"


def test_characters_that_the_encoding_of_the_output_lacks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "doctor", "-b", "127.0.0.1:1", "--topic", "\N{GREEK SMALL LETTER PI}"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert r"topic \u03c0" in done.stdout
