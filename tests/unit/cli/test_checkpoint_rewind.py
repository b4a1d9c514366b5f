"""What ``kafka-direct checkpoint rewind`` writes, and when it changes nothing; no Kafka is needed."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000001000,"conf":{"a":"b"}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def write(checkpoint: Path, batch: int, *sources: str, version: str = "v1", commit: bool = True) -> None:
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    (checkpoint / f"offsets/{batch}").write_text("\n".join([version, METADATA, *sources]))
    if commit:
        (checkpoint / f"commits/{batch}").write_text(COMMIT)
        os.utime(checkpoint / f"commits/{batch}", (0, 0))


def rewind(checkpoint: Path, offsets: str, *more: str) -> int:
    return main(["checkpoint", "rewind", str(checkpoint), "--to-offsets", offsets, *more])


def names(checkpoint: Path) -> list[str]:
    return sorted(str(file.relative_to(checkpoint)) for file in checkpoint.rglob("*") if file.is_file())


def test_the_two_files_of_named_sources(tmp_path: Path) -> None:
    write(tmp_path, 6, 'b:{"x":{"0":2,"1":2},"y":{"0":2}}', "rate:-", 'a:{"x":{"0":2}}', version="v2")
    write(tmp_path, 7, 'b:{"x":{"0":5,"1":5},"y":{"0":5}}', "rate:-", 'a:{"x":{"0":9}}', version="v2")
    (tmp_path / "offsets/.8.crc").write_bytes(b"of a file that was deleted")
    assert rewind(tmp_path, '{"x":{"0":3,"1":4}}', "--source", "b", "--execute") == 0
    assert names(tmp_path) == [f"{name}/{batch}" for name in ("commits", "offsets") for batch in (6, 7, 8)]
    version, metadata, *sources = (tmp_path / "offsets/8").read_text().split("\n")
    assert version == "v2"
    assert sources == ['b:{"x":{"0":3,"1":4},"y":{"0":5},"(rewound)":{}}', "rate:-", 'a:{"x":{"0":9}}']
    fields = json.loads(metadata)
    assert fields["conf"] == {"a": "b", "pyspark_kafka_direct.rewound": "true"}
    assert (fields["batchWatermarkMs"], fields["batchTimestampMs"] > 1700000001000) == (0, True)
    assert (tmp_path / "commits/8").read_text() == COMMIT


@pytest.mark.parametrize(
    ("offsets", "more", "message"),
    [
        ('{"x":{"0":6,"1":7}}', [], "would never read these offsets: x-0: 5 to 5; x-1: 4 to 6. Add --allow-skip"),
        ('{"x":{"0":3,"1":7}}', [], "The query would never read these offsets: x-1: 4 to 6. Add --allow-skip"),
        ('{"x":{"0":1,"1":-1}}', [], "No brokers are given"),
        ('{"x":{"0":-2,"1":1}}', [], "No brokers are given"),
        ('{"x":{"0":1,"1":-3},"y":{"0":-4}}', [], "at least 0, or -2 (earliest) or -1 (latest), not x-1: -3"),
        ('{"x":{"0":-5,"1":2}}', [], "at least 0, or -2 (earliest) or -1 (latest), not x-0: -5"),
        ('{"z":{"0":1}}', [], "the last batch has no offset of z-0"),
        ('{"y":{"0":1}}', [], "the sources 0, 1 have y-0; choose one with --source"),
        ('{"x":{"0":1}}', ["--source", "7"], "the checkpoint has no Kafka source '7' (it has: 0, 1)"),
        ("x", [], "--to-offsets: offsets must look like"),
    ],
)
def test_wrong_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], offsets: str, more: list[str], message: str
) -> None:
    write(tmp_path, 7, '{"x":{"0":5,"1":4},"y":{"0":2}}', '{"y":{"0":3}}')
    before = names(tmp_path)
    assert rewind(tmp_path, offsets, "--execute", *more) in (1, 2)
    assert message in capsys.readouterr().err
    assert names(tmp_path) == before


@pytest.mark.parametrize("text", ["yesterday", "2026-11-28T06:00", "-1"])
def test_wrong_times(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["checkpoint", "rewind", str(tmp_path), "--to-time", text]) == 2
    assert "--to-time: " in capsys.readouterr().err


def test_a_checkpoint_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 6, '{"x":{"0":4}}')  # long ago
    write(tmp_path, 7, '{"x":{"0":5}}')
    tomorrow = time.time() + 86_400
    os.utime(tmp_path / "commits/7", (tomorrow, tomorrow))  # by the clock of another machine
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute") == 1
    assert "The last batch was committed 0 seconds ago" in capsys.readouterr().err
    os.utime(tmp_path / "commits/7")
    assert rewind(tmp_path, '{"x":{"0":1}}') == 0
    assert "Would append the empty batch 8." in capsys.readouterr().out
    for more in ((), ("--file-sink",), ("--json",)):
        assert rewind(tmp_path, '{"x":{"0":1}}', "--execute", *more) == 1
        assert "seconds ago, so the query may be running." in capsys.readouterr().err
    write(tmp_path, 8, '{"x":{"0":6}}', commit=False)
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute", "--force") == 1
    assert "Batch 8 is planned, but not committed" in capsys.readouterr().err
    assert names(tmp_path) == ["commits/6", "commits/7", "offsets/6", "offsets/7", "offsets/8"]


def test_a_continuous_query_and_a_watermark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 7, '{"x":{"0":5}}')
    (tmp_path / "transactions").mkdir()
    (tmp_path / "transactions/0").write_text("{}")
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute") == 1
    assert "a continuous query" in capsys.readouterr().err
    (tmp_path / "offsets/7").write_text('v1\n{"batchWatermarkMs":9}\n{"x":{"0":5,"1":4}}\n{"z":{"0":8}}')
    assert rewind(tmp_path, '{"x":{"0":1},"z":{"0":2}}', "--execute") == 1
    output = capsys.readouterr().out
    assert 'source 0: {"x":{"0":1,"1":4}}' in output
    assert 'source 1: {"z":{"0":2}}' in output
    assert names(tmp_path) == ["commits/7", "offsets/7", "transactions/0"]


@pytest.mark.parametrize("more", [(), ("--json",), ("--execute",)])
def test_a_query_with_state_gets_the_starts_of_all_its_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    """A new checkpoint has the offsets of no source, also not of those that stay where they are."""
    (tmp_path / "state/0").mkdir(parents=True)
    write(tmp_path, 7, '{"x":{"0":5,"1":0}}', "-", '{"z":{"0":8}}', '{"x":{"0":6}}')
    assert rewind(tmp_path, '{"x":{"1":0,"0":2},"z":{"0":8}}', "--source", "0", *more) == 2  # z is in no source 0
    capsys.readouterr()
    assert rewind(tmp_path, '{"x":{"1":0,"0":2}}', "--source", "0", *more) == 1
    lines = capsys.readouterr().out.splitlines()[1 if "--json" in more else 2 :]
    starts = {"0": {"x": {"0": 2, "1": 0}}, "2": {"z": {"0": 8}}, "3": {"x": {"0": 6}}}
    if "--json" in more:
        found = {row["source"]: json.loads(row["startingOffsets"]) for row in map(json.loads, lines)}
    else:
        found = {line.split()[1].rstrip(":"): json.loads(line.partition(": ")[2]) for line in lines}
    assert found == starts


def test_a_batch_that_the_query_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 7, '{"x":{"0":5}}')
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute", "--file-sink") == 0
    assert names(tmp_path) == ["commits/7", "offsets/7", "offsets/8"]
    assert rewind(tmp_path, '{"x":{"0":0}}', "--execute", "--file-sink") == 1
    assert "start the query" in capsys.readouterr().err
    assert rewind(tmp_path, '{"x":{"0":0}}') == 0
    assert names(tmp_path) == ["commits/7", "offsets/7", "offsets/8"]
    assert rewind(tmp_path, '{"x":{"0":0}}', "--execute") == 0
    assert names(tmp_path) == ["commits/7", "commits/8", "offsets/7", "offsets/8"]
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute") == 0
    assert "No offset would change." in capsys.readouterr().out


def test_a_query_that_replaces_the_batch_is_not_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a local disk, Spark checks that a file does not exist, and then renames its own, which replaces a new one."""
    write(tmp_path, 7, '{"x":{"0":5}}')
    link = os.link

    def link_and_replace(source: Path, target: Path) -> None:
        link(source, target)
        if target.parent.name == "offsets":
            target.unlink()
            write(tmp_path, 8, '{"x":{"0":6}}', commit=False)

    monkeypatch.setattr(os, "link", link_and_replace)
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute") == 1
    assert "The query is running: it has planned batch 8 meanwhile." in capsys.readouterr().err
    assert names(tmp_path) == ["commits/7", "offsets/7", "offsets/8"]


def test_a_query_that_replaces_the_batch_late_is_not_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query has checked before the rewind creates its file, and renames its own after the rewind has read it."""
    write(tmp_path, 7, '{"x":{"0":5}}')
    link, entry = os.link, "\n".join(["v1", METADATA, '{"x":{"0":6}}'])
    unfinished = tmp_path / "offsets/.8.0a1b.tmp"

    def rename() -> None:
        deadline = time.monotonic() + 0.5
        while not (tmp_path / "commits/8").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        unfinished.rename(tmp_path / "offsets/8")

    query = threading.Thread(target=rename)

    def link_after_check(source: Path, target: Path) -> None:
        if target.parent.name == "offsets":
            unfinished.write_text(entry)
            assert not target.exists()
        link(source, target)
        if target.parent.name == "offsets":
            query.start()

    monkeypatch.setattr(os, "link", link_after_check)
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute") == 1
    query.join()
    assert "The query is running: it has planned batch 8 meanwhile." in capsys.readouterr().err
    assert names(tmp_path) == ["commits/7", "offsets/7", "offsets/8"]
    assert (tmp_path / "offsets/8").read_text() == entry


def test_an_unfinished_file_of_a_query(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_kafka_direct.cli.query_rewind._RENAME_SECONDS", 0.05)
    write(tmp_path, 7, '{"x":{"0":5}}')
    unfinished = tmp_path / "offsets/.8.0a1b.tmp"
    unfinished.write_text("v1")
    (tmp_path / "offsets/.80.0a1b.tmp").write_text("of another batch")
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute") == 1
    assert f"killed while it planned batch 8. Stop it, and delete {unfinished}." in capsys.readouterr().err
    assert not (tmp_path / "offsets/8").exists()
    unfinished.unlink()
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute", "--file-sink") == 0
    unfinished.write_text("v1")
    (tmp_path / "offsets/.8.0a1c.tmp").write_text("v1")
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute") == 1
    assert f"may replace it by {unfinished}." in capsys.readouterr().err
    assert not (tmp_path / "commits/8").exists()
    for file in (tmp_path / "offsets").glob(".8.*.tmp"):
        file.unlink()
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute") == 0
    assert (tmp_path / "commits/8").read_text() == COMMIT


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("offsets/7", METADATA.encode() + b"\xff", "the file offsets/7 is damaged: it is not UTF-8"),
        ("commits/7", b"\xff", "the file commits/7 is damaged: it is not UTF-8"),
    ],
)
def test_damaged_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, content: bytes, message: str
) -> None:
    write(tmp_path, 7, '{"x":{"0":5}}')
    (tmp_path / file).write_bytes(content)
    before = names(tmp_path)
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute", "--force") == 1
    assert message in capsys.readouterr().err
    assert names(tmp_path) == before


@pytest.mark.parametrize("field", ['"batchWatermarkMs":"1"', '"batchTimestampMs":99999999999999999999'])
def test_damaged_metadata_is_shown_as_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str) -> None:
    write(tmp_path, 7, '{"x":{"0":5}}')
    (tmp_path / "offsets/7").write_text(f'v1\n{{{field}}}\n{{"x":{{"0":5}}}}')
    (tmp_path / "metadata").write_text("{damaged")
    assert main(["checkpoint", "show", str(tmp_path)]) == 0
    assert "query id           unknown" in capsys.readouterr().out
    assert main(["checkpoint", "diff", str(tmp_path), str(tmp_path)]) == 0


def test_a_setting_with_half_of_a_surrogate_pair_is_kept(tmp_path: Path) -> None:
    write(tmp_path, 7, '{"x":{"0":5}}')
    (tmp_path / "offsets/7").write_text('v1\n{"conf":{"a":"\\ud800"}}\n{"x":{"0":5}}')
    assert rewind(tmp_path, '{"x":{"0":1}}', "--execute") == 0
    conf = json.loads((tmp_path / "offsets/8").read_text().split("\n")[1])["conf"]
    assert conf == {"a": "\ud800", "pyspark_kafka_direct.rewound": "true"}
