"""The file systems of URIs as Hadoop and Spark write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import fs

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.producer.file_systems import arrow_uri, open_file_system

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "FILE:{}", "file://localhost{}"])
def test_local_folders(form: str, tmp_path: Path) -> None:
    files, path = open_file_system(form.format(tmp_path))
    assert isinstance(files, fs.LocalFileSystem)
    assert path == str(tmp_path)


def test_an_escaped_uri_and_a_path_of_hadoop_differ() -> None:
    """``Path.as_uri`` escapes, and Hadoop does not."""
    assert open_file_system("file:///tmp/a%20b")[1] == "/tmp/a b"
    assert arrow_uri("file:///tmp/a%20b", is_escaped=False) == "/tmp/a%20b"
    assert open_file_system("/tmp/a%20b")[1] == "/tmp/a%20b"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3a://bucket/a", "s3://bucket/a"),
        ("S3A://Bucket/A", "s3://Bucket/A"),
        ("s3n://bucket/a", "s3://bucket/a"),
        ("s3://bucket/a", "s3://bucket/a"),
        ("ABFSS://c@a/x", "abfss://c@a/x"),
        ("dbfs:/a/b", "/dbfs/a/b"),
        ("dbfs:///a/b", "/dbfs/a/b"),
    ],
)
def test_schemes_of_hadoop(uri: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Files:
        @staticmethod
        def from_uri(uri: str) -> tuple[Any, str]:
            opened.append(uri)
            return None, ""

    monkeypatch.setattr(fs, "FileSystem", Files)
    open_file_system(uri)
    assert opened == [expected]


@pytest.mark.parametrize("uri", ["nosuch://host/x", "relative/path", "topic:x"])
def test_other_uris_are_errors(uri: str) -> None:
    with pytest.raises(OptionError, match="cannot be opened"):
        open_file_system(uri)
