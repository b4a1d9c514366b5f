"""The files of a checkpoint, with a fake of Hadoop's file system behind Spark's ``CheckpointFileManager``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.errors import CheckpointFencedError, OptionError
from pyspark_kafka_direct.spark import checkpoint_files
from pyspark_kafka_direct.spark.checkpoint_files import CheckpointFiles, OffsetSeq, RetryingFiles, parse_offset_seq

if TYPE_CHECKING:
    from collections.abc import Callable

FILE_EXISTS = ("org.apache.hadoop.fs.PathExistsException", "org.apache.hadoop.fs.FileAlreadyExistsException")


class JavaError(Exception):
    """An exception of the JVM, with the names of its class and of its base classes."""

    def __init__(self, *classes: str) -> None:
        super().__init__(classes[0])
        java_class = None
        for name in reversed(classes):
            java_class = SimpleNamespace(getName=lambda name=name: name, getSuperclass=lambda base=java_class: base)
        self.java_exception = SimpleNamespace(getClass=lambda: java_class)


class Stream:
    def __init__(self, manager: FakeManager, path: str) -> None:
        self._manager = manager
        self._path = path
        self._content = b""

    def write(self, content: bytes) -> None:
        self._manager.fail("write")
        self._content += content

    def close(self) -> None:
        self._manager.fail("close")
        self._manager.files[self._path] = self._content
        self._manager.open_streams -= 1

    def cancel(self) -> None:
        self._manager.open_streams -= 1


class FakeManager:
    """Files become visible when they are closed."""

    def __init__(self) -> None:
        self.files: dict[str, bytes | None] = {}  # None: a folder
        self.errors: dict[str, BaseException] = {}
        self.before_close: Callable[[], object] = lambda: None
        self.open_streams = 0

    def fail(self, operation: str) -> None:
        if operation == "close":
            self.before_close()
        if operation in self.errors:
            raise self.errors[operation]

    def createAtomic(self, path: str, overwrite: bool) -> Stream:
        self.fail("create")
        assert not overwrite
        if path in self.files:
            raise JavaError(*FILE_EXISTS)
        self.open_streams += 1
        return Stream(self, path)

    def open(self, path: str) -> Any:
        self.open_streams += 1
        return SimpleNamespace(path=path, close=self._closed)

    def exists(self, path: str) -> bool:
        return path in self.files

    def list(self, path: str) -> list[Any]:
        found = {name: content for name, content in self.files.items() if name.rpartition("/")[0] == path}
        return [self._status(name, is_file=content is not None) for name, content in found.items()]

    def mkdirs(self, path: str) -> None:
        self.files[path] = None

    def delete(self, path: str) -> None:
        self.files.pop(path, None)

    def _closed(self) -> None:
        self.open_streams -= 1

    def _status(self, name: str, *, is_file: bool) -> Any:
        path = SimpleNamespace(getName=lambda: name.rpartition("/")[2])
        return SimpleNamespace(isFile=lambda: is_file, getPath=lambda: path)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> FakeManager:
    manager = FakeManager()
    package = SimpleNamespace(CheckpointFileManager=SimpleNamespace(create=lambda root, conf: manager))
    monkeypatch.setattr(checkpoint_files, "checkpointing_package", lambda jvm: package)
    return manager


@pytest.fixture
def files(request: pytest.FixtureRequest, manager: FakeManager) -> CheckpointFiles:
    def to_string(stream: Any, charset: str) -> str:
        manager.fail("read")
        content = manager.files[stream.path]
        assert content is not None
        return content.decode(charset)

    apache = SimpleNamespace(
        hadoop=SimpleNamespace(fs=SimpleNamespace(Path=str)),
        commons=SimpleNamespace(io=SimpleNamespace(IOUtils=SimpleNamespace(toString=to_string))),
    )
    state = SimpleNamespace(newHadoopConf=lambda: None)
    spark: Any = SimpleNamespace(
        _jvm=SimpleNamespace(org=SimpleNamespace(apache=apache)),
        _jsparkSession=SimpleNamespace(sessionState=lambda: state),
    )
    return CheckpointFiles(spark, getattr(request, "param", "hdfs://n/check/"), "a continuous query")


def test_files_of_a_checkpoint(files: CheckpointFiles, manager: FakeManager) -> None:
    assert files.path("offsets/7") == "hdfs://n/check/offsets/7"
    assert files.list_names("offsets") == []
    assert (files.exists("offsets/7"), files.read("offsets/7")) == (False, None)
    files.mkdirs("offsets")
    files.mkdirs("offsets/folder")
    assert files.create("offsets/7", "seven ☾")
    assert files.create("offsets/8", "eight")
    assert (files.exists("offsets/7"), files.read("offsets/7")) == (True, "seven ☾")
    assert sorted(files.list_names("offsets")) == ["7", "8"]
    assert manager.files["hdfs://n/check/offsets/8"] == b"eight"
    files.delete("offsets/7")
    files.delete("offsets/7")
    assert files.list_names("offsets") == ["8"]
    assert manager.open_streams == 0


@pytest.mark.parametrize(
    ("entry", "names"),
    [('v1\n{}\n{"t":{"0":5}}\n-\n7', ()), ('v2\n{}\nkafka:{"t":{"0":5}}\nfiles:-\nrate:7', ("kafka", "files", "rate"))],
)
def test_an_entry_of_the_offset_log_has_a_line_for_each_source(entry: str, names: tuple[str, ...]) -> None:
    found = parse_offset_seq(entry, "offsets/3")
    assert found == OffsetSeq(entry[:2], "{}", ('{"t":{"0":5}}', None, "7"), names)
    assert found.names_or_numbers == (names or ("0", "1", "2"))


def test_a_file_is_not_replaced(files: CheckpointFiles, manager: FakeManager) -> None:
    assert files.create("commits/0", "first")
    assert not files.create("commits/0", "second")
    # Another process creates it while this one writes.
    manager.before_close = lambda: manager.files.update({"hdfs://n/check/commits/1": b"other"})
    manager.errors["close"] = JavaError(*FILE_EXISTS)
    assert not files.create("commits/1", "mine")
    assert (files.read("commits/0"), files.read("commits/1")) == ("first", "other")
    assert manager.open_streams == 0


@pytest.mark.parametrize("operation", ["create", "write", "close"])
@pytest.mark.parametrize(
    "error",
    [
        JavaError("java.io.IOException", "java.lang.Exception"),
        JavaError(*FILE_EXISTS),  # Hadoop throws it if the folder is a file
        ConnectionError("the JVM has exited"),
        KeyboardInterrupt(),
    ],
)
def test_an_incomplete_file_is_discarded(
    files: CheckpointFiles, manager: FakeManager, operation: str, error: BaseException
) -> None:
    manager.errors[operation] = error
    with pytest.raises(type(error)) as raised:
        files.create("commits/0", "text")
    assert raised.value is error
    assert (manager.files, manager.open_streams) == ({}, 0)


def test_a_file_that_cannot_be_read_is_closed(files: CheckpointFiles, manager: FakeManager) -> None:
    files.create("metadata", "{}")
    manager.errors["read"] = JavaError("java.io.IOException")
    with pytest.raises(JavaError):
        files.read("metadata")
    assert manager.open_streams == 0


@pytest.mark.parametrize("files", ["s3x://key:se%2Fcret@n/check/"], indirect=True)
def test_messages_have_no_password_of_the_uri(files: CheckpointFiles, manager: FakeManager) -> None:
    assert files.path("offsets/7") == "s3x://key:***@n/check/offsets/7"
    files.mkdirs("offsets")
    files.create("offsets/7", "seven")
    assert files.read("offsets/7") == "seven"
    assert "s3x://key:se%2Fcret@n/check/offsets/7" in manager.files


def test_spark_connect_has_no_checkpoint_files() -> None:
    spark: Any = SimpleNamespace()
    with pytest.raises(OptionError, match="a continuous query needs Spark's JVM on the driver"):
        CheckpointFiles(spark, "/check", "a continuous query")


class UnreliableFiles(CheckpointFiles):
    """Files in a dictionary; each attempt to create one has the next outcome, the last ones succeed."""

    def __init__(self, outcomes: list[str]) -> None:
        self.files: dict[str, str] = {}
        self.attempts = 0
        self._outcomes = outcomes

    def path(self, name: str) -> str:
        return f"disk:/{name}"

    def read(self, name: str) -> str | None:
        return self.files.get(name)

    def exists(self, name: str) -> bool:
        return name in self.files

    def create(self, name: str, text: str) -> bool:
        self.attempts += 1
        outcome = self._outcomes.pop(0) if self._outcomes else "succeeds"
        if outcome == "fails":
            raise OSError(f"attempt {self.attempts}")
        if outcome == "overtaken":
            self.files.setdefault(name, "of another process")
        is_new = name not in self.files
        self.files.setdefault(name, text)
        if outcome == "lost response":
            raise OSError(f"attempt {self.attempts}")
        return is_new


@examples(60)
@given(
    outcomes=st.lists(st.sampled_from(["fails", "lost response", "overtaken", "succeeds"]), max_size=7),
    fenced_at=st.integers(1, 8),
)
def test_a_file_is_created_as_often_as_it_takes_unless_another_process_was_earlier(
    outcomes: list[str], fenced_at: int
) -> None:
    """The response to a rename may be lost, and another driver may acquire the checkpoint between two attempts."""
    files, system, checks = UnreliableFiles([*outcomes]), FakeTimeSystem(), []
    retrying = RetryingFiles(files, system)
    failures = next(
        (number for number, each in enumerate(outcomes) if each in ("overtaken", "succeeds")), len(outcomes)
    )

    def check() -> None:
        checks.append(files.attempts)
        if len(checks) == fenced_at:
            raise CheckpointFencedError("Another run has acquired the checkpoint.")

    if fenced_at <= min(failures, 4) + 1:
        with pytest.raises(CheckpointFencedError):
            retrying.create("offsets/7", "mine", check)
        assert files.attempts == fenced_at - 1
    elif failures > 4:
        with pytest.raises(OSError, match="attempt 5"):
            retrying.create("offsets/7", "mine", check)
    else:
        assert retrying.create("offsets/7", "mine", check) is (files.files["offsets/7"] == "mine")
    assert checks == [*range(len(checks))], "before each attempt"
    assert system.slept == [0.1, 0.2, 0.4, 0.8][: len(checks) - 1]
