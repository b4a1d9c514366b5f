"""``kafka-direct consume``: positions, formats and help."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import time
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli.simulated_commands import CommandCluster
from tests.unit.cli.subcommands import subcommands_of

from pyspark_kafka_direct import OptionError
from pyspark_kafka_direct.cli.main import COMMANDS, main
from pyspark_kafka_direct.cli.record_lines import RecordLines
from pyspark_kafka_direct.cli.slice_arguments import Bounds, parse_bounds
from pyspark_kafka_direct.offsets import TopicPartition

END = 2**63 - 1
SUBCOMMANDS = [(command, name) for command in COMMANDS for name in subcommands_of(command)]


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("start", Bounds("earliest", None)),
        *((f"{name}{end}", Bounds("earliest", None)) for name in ("oldest", "beginning") for end in ("", ":")),
        *((f"{name}{end}", Bounds(END, None)) for name in ("newest", "end", "-0", "-00") for end in ("", ":")),
        ("end", Bounds(END, None)),
        ("47", Bounds(47, None)),
        ("47:", Bounds(47, None)),
        ("+3", Bounds(3, None, is_after_start=True)),
        ("-10", Bounds("last 10", None)),
        ("-10:end", Bounds("last 10", "now")),
        (":end", Bounds("earliest", "now")),
        (":47", Bounds("earliest", 47)),
        ("4:47", Bounds(4, 47)),
        ("@-1h", Bounds("-1h", None)),
        ("@-1h:end", Bounds("-1h", "now")),
        ("@-1h:-30m", Bounds("-1h", "-30m")),
        ("@:-30m", Bounds("earliest", "-30m")),
        ("@-1h:@-30m", Bounds("-1h", "-30m")),
        ("@2026-11-28:@2026-11-28T06:00Z", Bounds("2026-11-28T00:00Z", "2026-11-28T06:00Z")),
        (":@-30m", Bounds("earliest", "-30m")),
        ("@2026-11-28", Bounds("2026-11-28T00:00Z", None)),
        ("@2026-11-28T06:00Z", Bounds("2026-11-28T06:00Z", None)),
        ("@2026-11-28T06:00:01Z:2026-11-28T07:00+01:00", Bounds("2026-11-28T06:00:01Z", "2026-11-28T07:00+01:00")),
        ("@2026-11-28T06:00Z:end", Bounds("2026-11-28T06:00Z", "now")),
        ("@1700000000", Bounds("2023-11-14T22:13:20.000+00:00", None)),
        ("@0:1700000000002", Bounds("1970-01-01T00:00:00.000+00:00", "2023-11-14T22:13:20.002+00:00")),
    ],
)
def test_positions(text: str, bounds: Bounds) -> None:
    assert parse_bounds(text) == bounds


@pytest.mark.parametrize(
    "text", ["", "x", "1:x", "-", "+", "1.5", "@", "@yesterday", "@2026-11-28T06:00", "@-1h:x", "9" * 30]
)
def test_no_positions(text: str) -> None:
    with pytest.raises(OptionError, match=r"^-o: "):
        parse_bounds(text)


def batch(**changes: pa.Array) -> pa.RecordBatch:
    """Two records: one with everything, and one with nulls."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = {
        "topic": pa.array(["a", "a"]),
        "partition": pa.array([0, 1], pa.int32()),
        "offset": pa.array([7, 8], pa.int64()),
        "timestamp": pa.array([1_700_000_000_123_000, -1000], pa.timestamp("us", "UTC")),
        "headers": pa.array([[{"key": "h", "value": b"1"}, {"key": "i", "value": None}], None], pa.list_(header)),
        "key": pa.array([b"k", None], pa.binary()),
        "value": pa.array(["ä".encode(), None], pa.binary()),
    }
    return pa.record_batch(columns | changes)


def written(line_format: str | None, records: pa.RecordBatch, *, is_terminal: bool = False) -> bytes:
    output = io.BytesIO()
    lines = RecordLines(line_format, is_terminal=is_terminal)
    lines.write(records.select(list(lines.columns)), output)
    return output.getvalue()


@pytest.mark.parametrize(
    ("line_format", "expected"),
    [
        (r"%s\n", "ä\n\n".encode()),
        (r"%t %p %o %T %k %K %s %S %h\n", "a 0 7 1700000000123 k 1 ä 2 h=1,i=\na 1 8 -1  -1  -1 \n".encode()),
        (r"%o%%\t\\\x41é\q;", "7%\t\\Aé\\q;8%\t\\Aé\\q;".encode()),
        ("x", b"xx"),
        ("x%o;", b"x7;x8;"),
        ("", b""),
    ],
)
def test_formats(line_format: str, expected: bytes) -> None:
    assert written(line_format, batch()) == expected


def test_an_unknown_letter() -> None:
    with pytest.raises(OptionError, match="-f: %x is unknown; use %t, %p, %o, %T, %k, %K, %s, %S, %h or %%"):
        RecordLines("%x", is_terminal=False)


def test_batches_of_slices_are_written_without_the_rows_around() -> None:
    records = pa.concat_tables([pa.table([batch()[name] for name in batch().schema.names], batch().schema.names)] * 3)
    assert written("%o,", records.to_batches()[0].slice(1, 1)) == b"8,"
    assert written("%h;", records.combine_chunks().to_batches()[0].slice(1, 3)) == b";h=1,i=;;"
    assert json.loads(written(None, records.combine_chunks().to_batches()[0].slice(2, 1)))["offset"] == 7


def test_json_leaves_out_nulls_and_encodes_bytes_that_are_no_text() -> None:
    first, second = written(None, batch()).splitlines()
    assert json.loads(first) == {
        "topic": "a",
        "partition": 0,
        "offset": 7,
        "timestamp": "2023-11-14T22:13:20.123Z",
        "headers": [{"key": "h", "value": "1"}, {"key": "i"}],
        "key": "k",
        "value": "ä",
    }
    assert json.loads(second) == {"topic": "a", "partition": 1, "offset": 8, "timestamp": "1969-12-31T23:59:59.999Z"}
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    broken = batch(
        value=pa.array([b"\xff", b"fine"], pa.binary()),
        headers=pa.array([None, [{"key": "h", "value": b"\xfe"}]], pa.list_(header)),
    )
    first, second = (json.loads(line) for line in written(None, broken).splitlines())
    assert (first["valueBase64"], first.get("value")) == ("/w==", None)
    assert (second.get("valueBase64"), second["value"]) == (None, "fine")
    assert second["headers"] == [{"key": "h", "valueBase64": "/g=="}]


def test_decoded_values_are_json() -> None:
    decoded = batch(value=pa.array([{"id": 1}, None], pa.struct([("id", pa.int64())])), key=pa.array([5, None]))
    assert written(r"%k %s\n", decoded) == b'5 {"id":1}\n \n'
    assert json.loads(written(None, decoded).splitlines()[0])["value"] == {"id": 1}


def test_a_terminal_gets_no_control_characters_of_records() -> None:
    """A record could otherwise change the title, the colours or earlier lines of the terminal."""
    hostile = batch(value=pa.array([b"\x1b]0;title\x07\tb\r\xc2\x9b2J", b"\x7f"], pa.binary()))
    assert written(r"%s\n", hostile, is_terminal=True) == b"\\x1b]0;title\\x07\tb\\x0d\\xc2\\x9b2J\n\\x7f\n"
    assert written(r"%s\n", hostile) == b"\x1b]0;title\x07\tb\r\xc2\x9b2J\n\x7f\n"


@given(st.text(), st.binary())
def test_a_terminal_gets_only_tabs_and_line_ends_as_controls(text: str, key: bytes) -> None:
    values = batch(value=pa.array([text.encode("utf-8", "replace"), None]), key=pa.array([key, None], pa.binary()))
    shown = written(r"%s|%k", values, is_terminal=True).decode("utf-8", "replace")
    assert [each for each in shown if unicodedata.category(each) == "Cc" and each not in "\t\n"] == []
    if text.isprintable() and key.isalnum():
        assert shown == f"{text.encode('utf-8', 'replace').decode()}|{key.decode()}|"


def test_keys_and_values_that_are_no_text_have_separate_fields() -> None:
    for names in (("key",), ("value",), ("key", "value")):
        broken = batch(**{name: pa.array([name[:1].encode() + b"\xff", b"fine"], pa.binary()) for name in names})
        first, second = (json.loads(line) for line in written(None, broken).splitlines())
        for name in names:
            encoded = base64.b64encode(name[:1].encode() + b"\xff").decode()
            assert (first[f"{name}Base64"], first.get(name), second[name]) == (encoded, None, "fine")
        assert {each for each in first if each.endswith("Base64")} == {f"{name}Base64" for name in names}


def test_the_help_of_a_subcommand_has_only_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    own = {("dlq", "show"): "--count", ("dlq", "replay"): "--to", ("transactions", "abort"): "--force"}
    for command in SUBCOMMANDS:
        with pytest.raises(SystemExit, match="0"):
            main([*command, "--help"])
        shown = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  --")}
        assert {each for each, argument in own.items() if argument in shown and each[0] == command[0]} == (
            {command} & own.keys()
        )


def test_each_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    overview = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert f"  {name:14}{summary}\n" in overview
        with pytest.raises(SystemExit, match="0"):
            main([name, "--help"])
        assert f"  kafka-direct {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command", [[], *([name] for name in COMMANDS), *(list(each) for each in SUBCOMMANDS)], ids=" ".join
)
def test_help_has_no_long_lines_except_examples(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80 and not line.startswith("  kafka-direct ")] == []
    long_lines = [line for line in lines if len(line) > 50]
    assert len(long_lines) == len({*long_lines})  # no paragraph is shown twice


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["consum"], ["consume", "--unknown"]):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
    assert main(["consume", "t"]) == 2
    assert "kafka-direct consume: No brokers are given" in capsys.readouterr().err
    assert main(["consume", "-b", "localhost:1"]) == 2
    assert "Name topics, or set --pattern" in capsys.readouterr().err
    assert main(["consume", "-b", "localhost:1", "t", "-o", "x"]) == 2
    assert main(["consume", "-b", "localhost:1", "--pattern", "("]) == 2


def test_the_help_imports_neither_arrow_nor_a_command() -> None:
    program = (
        "import sys, pyspark_kafka_direct.cli.main as m\n"
        "try: m.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'pyarrow', 'pyspark', 'tomllib', 'pyspark_kafka_direct.options'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_records_and_losses_of_each_partition(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [TopicPartition("t", 0), TopicPartition("t", 1)]
    with CommandCluster(monkeypatch, capsys) as cluster:
        for tp in places:
            cluster.append(tp, 6)

        def append(_: float) -> None:
            for tp in places:
                cluster.append(tp, 1)

        monkeypatch.setattr(time, "sleep", append)
        arguments = ("consume", "t", "-f", r"%p@%o\n")
        assert sorted(cluster.run(*arguments, "-o", "2:4").text.split()) == ["0@2", "0@3", "1@2", "1@3"]
        every = cluster.run(*arguments, "-n", "14").text.split()
        assert sorted(every) == [f"{partition}@{offset}" for partition in (0, 1) for offset in range(7)]

        def expire() -> None:
            for tp in places:
                cluster.delete_records(tp, 3)

        cluster.before("Fetch", expire)
        losses = cluster.run(*arguments, "-o", "0", "-e").errors.splitlines()
    assert sorted(line.split(" were")[0] for line in losses if "were skipped" in line) == [
        f"t-{partition}: 3 offsets" for partition in (0, 1)
    ]
