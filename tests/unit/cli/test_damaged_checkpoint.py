"""``kafka-direct checkpoint`` on damaged and hostile files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.cli.test_checkpoint_command import write

from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

DEEP = "[" * 100_000


@pytest.mark.parametrize("metadata", ["{", DEEP, "[]", '{"id":null}', ""])
def test_damaged_metadata_hides_only_the_query_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metadata: str
) -> None:
    write(tmp_path, 0, '{"t":{"0":5}}')
    (tmp_path / "metadata").write_text(metadata)
    assert main(["checkpoint", "show", str(tmp_path)]) == 0
    assert "query id           unknown\n" in capsys.readouterr().out
    assert main(["checkpoint", "diff", str(tmp_path), str(tmp_path)]) == 0


def test_control_characters_of_a_query_id_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0, '{"t":{"0":5}}')
    (tmp_path / "metadata").write_text('{"id":"\\u001b[31mred\\ud800"}')
    assert main(["checkpoint", "show", str(tmp_path)]) == 0
    assert "query id           \\x1b[31mred\\ud800\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("time", "shown"),
    [('"x"', None), ("true", None), ("1e400", None), ("-5", None), ("9" * 18, "9" * 18 + " ms"), ("9" * 400, None)],
)
def test_times_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], time: str, shown: str | None) -> None:
    write(tmp_path, 0, '{"t":{"0":5}}')
    entry = f'v1\n{{"batchTimestampMs":{time},"batchWatermarkMs":{time}}}\n{{"t":{{"0":5}}}}'
    (tmp_path / "offsets/0").write_text(entry)
    assert main(["checkpoint", "show", str(tmp_path)]) == 0
    assert f"watermark          {shown or 'none'}\n" in capsys.readouterr().out
    assert main(["checkpoint", "show", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["time"] == shown


def test_a_folder_instead_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0, '{"t":{"0":5}}')
    (tmp_path / "metadata").unlink()
    (tmp_path / "metadata").mkdir()
    assert main(["checkpoint", "show", str(tmp_path)]) == 3
    assert "metadata cannot be read: " in capsys.readouterr().err


def test_only_files_with_the_number_of_a_batch_are_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 3, '{"t":{"0":5}}')
    (tmp_path / "offsets/007").write_text("v1")
    (tmp_path / "offsets/8").mkdir()
    (tmp_path / "offsets/9").symlink_to("9")
    assert main(["checkpoint", "show", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batch"] == 3


@pytest.mark.parametrize("damaged", ['{"t":{"0":5', '{"t":' * 100_000, '{"t":{"0":' + "9" * 5_000 + "}}"])
def test_damaged_offsets_are_not_taken_for_another_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: str
) -> None:
    write(tmp_path, 0, damaged, "5")
    for arguments in (["show", str(tmp_path)], ["diff", str(tmp_path), str(tmp_path)]):
        assert main(["checkpoint", *arguments]) == 1
        error = capsys.readouterr().err
        assert "offsets/0 has damaged offsets: they are not valid JSON" in error
        assert len(error) < 1_000


def test_sources_of_other_kinds_have_no_offsets_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, offset in (("a", 5), ("b", 6)):
        write(tmp_path / name, 0, f'{{"logOffset":{offset}}}')
    assert main(["checkpoint", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    output = capsys.readouterr().out
    assert "No source of these batches is a Kafka source." in output
    assert "same" not in output
