"""``kafka-direct checkpoint show`` on checkpoints in the formats of Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

START_MS = 1_700_000_000_000  # 22:13:20


def write(checkpoint: Path, batch: int, *sources: str, version: str = "v1", commit: bool = True) -> None:
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text('{"id":"3fa1c1a5"}')
    # A batch a second, with a watermark that is a second older.
    times = {"batchWatermarkMs": START_MS + 1000 * (batch - 1), "batchTimestampMs": START_MS + 1000 * batch}
    (checkpoint / f"offsets/{batch}").write_text("\n".join([version, json.dumps({**times, "conf": {}}), *sources]))
    (checkpoint / f"offsets/.{batch}.crc").write_bytes(b"\0")
    if commit:
        (checkpoint / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[object, ...]]:
    assert main(["checkpoint", "show", *arguments, "--json"]) == 0
    return [tuple(json.loads(line).values()) for line in capsys.readouterr().out.splitlines()]


def test_the_last_batches_of_two_topics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 9, '{"a":{"0":1},"b":{"1":4}}')
    write(tmp_path, 10, '{"a":{"0":3},"b":{"1":4}}')
    write(tmp_path, 11, '{"a":{"0":7,"1":2},"b":{"1":4}}', commit=False)
    time_10, time_11 = "2023-11-14T22:13:30Z", "2023-11-14T22:13:31Z"
    of_10 = [
        (10, "committed", time_10, "0", "a-0", 1, 3, 2),
        (10, "committed", time_10, "0", "b-1", 4, 4, 0),
    ]
    of_11 = [
        (11, "unfinished", time_11, "0", "a-0", 3, 7, 4),
        (11, "unfinished", time_11, "0", "a-1", None, 2, None),
        (11, "unfinished", time_11, "0", "b-1", 4, 4, 0),
    ]
    assert rows(capsys, str(tmp_path)) == of_10 + of_11
    assert rows(capsys, f"file://{tmp_path}", "--batches", "3")[2:] == of_10 + of_11
    (tmp_path / "commits/9").unlink()
    assert rows(capsys, str(tmp_path)) == of_10 + of_11  # batch 9 still has the starts
    assert main(["checkpoint", "show", str(tmp_path)]) == 0
    assert "committed batches  10 to 10\nunfinished batch   11\n" in capsys.readouterr().out
    (tmp_path / "commits/9").touch()
    assert main(["checkpoint", "show", str(tmp_path)]) == 0
    summary, _, table = capsys.readouterr().out.partition("\n\n")
    assert dict(line.split("  ", 1) for line in summary.splitlines()) == {
        "query id": "         3fa1c1a5",
        "committed batches": "9 to 10",
        "unfinished batch": " 11",
        "watermark": "        2023-11-14T22:13:30Z",
        "state": "            no",
    }
    shown_10, shown_11 = (each.splitlines() for each in table.split("\n\n"))
    assert shown_10[0] == "batch 10, committed, planned at 2023-11-14T22:13:30Z"
    assert shown_10[1].split() == ["SOURCE", "PARTITION", "START", "END", "OFFSETS"]
    assert [line.split() for line in shown_11[2:]] == [
        ["0", "a-0", "3", "7", "4"],
        ["0", "a-1", "-", "2", "-"],
        ["0", "b-1", "4", "4", "0"],
    ]


def test_named_sources_and_sources_of_other_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "0").mkdir()
    write(tmp_path, 0, 'orders:{"a":{"0":1}}', "rate:5", 'late:{"b":{"0":2}}', version="v2")
    write(tmp_path, 1, 'late:{"b":{"0":5}}', 'orders:{"a":{"0":1}}', "rate:-", version="v2")
    assert [each[3:] for each in rows(capsys, str(tmp_path))] == [
        ("late", "b-0", 2, 5, 3),
        ("orders", "a-0", 1, 1, 0),
    ]
    write(tmp_path, 2, "rate:6", version="v2")
    assert main(["checkpoint", "show", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "state              yes" in output
    assert "No source of these batches is a Kafka source." in output


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("{}", "has no batch in a folder offsets; name the checkpointLocation of a query that has started"),
        ("nowhere://user:hunter2@host/x", "cannot be opened"),
    ],
)
def test_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str], location: str, message: str) -> None:
    assert main(["checkpoint", "show", location.format(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "hunter2" not in error


def test_an_unknown_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0, "{}", version="v3")
    assert main(["checkpoint", "show", str(tmp_path)]) == 1
    assert "offsets/0 has version 'v3'" in capsys.readouterr().err


def test_a_query_without_a_watermark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0, '{"a":{"0":1}}')
    (tmp_path / "offsets/0").write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":0}\n{"a":{"0":0}}')
    for location in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        assert main(["checkpoint", "show", location]) == 0
        shown = capsys.readouterr().out
        assert "watermark          none\n" in shown
        assert "batch 0, committed, planned at 1970-01-01T00:00:00Z\n" in shown


def test_damaged_files_of_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0, '{"a":{"0":1}}')
    (tmp_path / "metadata").write_text("{")
    assert main(["checkpoint", "show", str(tmp_path)]) == 0
    assert "query id           unknown" in capsys.readouterr().out
    (tmp_path / "offsets/0").write_text("")
    assert main(["checkpoint", "show", str(tmp_path)]) == 1
    assert "offsets/0" in capsys.readouterr().err


def test_a_file_in_place_of_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["checkpoint", "show", str(tmp_path / "file")]) == 2
    assert "has no batch in a folder offsets" in capsys.readouterr().err


def test_a_file_system_that_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    location = "s3://user:hunter2@bucket/x?endpoint_override=127.0.0.1:9&scheme=http&region=x"
    assert main(["checkpoint", "show", location]) == 3
    error = capsys.readouterr().err
    assert "cannot be read" in error
    assert "hunter2" not in error
    assert error.count("\n") == 1


WITHOUT_PYSPARK = """
import json, sys
sys.modules["pyspark"] = None
from pyspark_kafka_direct.cli.main import main
for arguments in json.loads(sys.argv[1]):
    print(f"\\nexit code {main(['checkpoint', *arguments])}\\n--", flush=True)
"""


def test_checkpoints_need_no_pyspark(tmp_path: Path) -> None:
    write(tmp_path, 0, '{"a":{"0":1}}')
    rewind = ["rewind", str(tmp_path), "--to-offsets", '{"a":{"0":0}}']
    preflight = ["preflight", str(tmp_path), "-b", "localhost:1", "--topic", "a", "-X", "default.api.timeout.ms=10"]
    expected = (
        (["show", str(tmp_path)], 0, "a-0"),
        (["diff", str(tmp_path), str(tmp_path)], 0, "The offsets are the same."),
        (rewind, 1, "Start it with a new checkpoint"),
        (preflight, 3, "localhost:1"),
    )
    command = [sys.executable, "-c", WITHOUT_PYSPARK, json.dumps([arguments for arguments, *_ in expected])]
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    *outputs, rest = done.stdout.split("\n--\n")
    assert (done.returncode, rest) == (0, ""), done
    for (_, code, shown), output in zip(expected, outputs, strict=True):
        assert (output.endswith(f"\nexit code {code}"), shown in output) == (True, True), output
