"""Changes of a table that are reported, and keys and values that cannot be deserialized."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import OptionError, RecordError
from pyspark_kafka_direct.log import KafkaTable, Serde
from pyspark_kafka_direct.log.table_state import TableContents, TableState
from pyspark_kafka_direct.offsets import TopicPartition

PARAMS = {"bootstrap.servers": "127.0.0.1:1"}
PARTITION = TopicPartition("t", 0)

Change = tuple[bytes, bytes | None]


def rows(*records: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    keys, values = ([record[index] for record in records] for index in (0, 1))
    return pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


class Changes(list[Change]):
    """Collects changes, and may fail for some keys."""

    failing: frozenset[bytes] = frozenset()

    def __call__(self, key: bytes, value: bytes | None) -> None:
        self.append((key, value))
        if key in self.failing:
            raise ValueError(f"on_change failed for {key!r}")

    def take(self) -> list[Change]:
        taken = list(self)
        self.clear()
        return taken


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def state(changes: Changes) -> TableState:
    state = TableState("t", None, changes)
    state.apply(PARTITION, rows((b"a", b"1"), (b"b", b"1")))
    assert changes.take() == [(b"a", b"1"), (b"b", b"1")]
    return state


def test_each_key_that_changed_is_reported_once(state: TableState, changes: Changes) -> None:
    state.apply(PARTITION, rows((b"a", b"2"), (b"b", b"1"), (b"a", b"3"), (b"c", b"1"), (b"c", None), (None, b"x")))
    assert changes.take() == [(b"a", b"3")]
    state.apply(PARTITION, rows((b"a", None), (b"d", b"1")))
    assert changes.take() == [(b"a", None), (b"d", b"1")]


def test_an_error_of_on_change_loses_nothing(
    state: TableState, changes: Changes, caplog: pytest.LogCaptureFixture
) -> None:
    changes.failing = frozenset({b"a"})
    state.apply(PARTITION, rows((b"a", b"2"), (b"b", b"2")))
    assert changes.take() == [(b"a", b"2"), (b"b", b"2")]
    assert state.contents.copy() == {b"a": b"2", b"b": b"2"}
    assert "on_change of the table of topic t raised an error" in caplog.text
    state.apply(PARTITION, rows((b"b", b"3")))
    assert changes.take() == [(b"b", b"3")]


def test_the_contents_have_a_change_when_it_is_reported() -> None:
    seen: list[bytes | None] = []
    own_state = TableState("t", None, lambda key, _: seen.append(own_state.contents.find(key)))
    own_state.apply(PARTITION, rows((b"a", b"1")))
    assert seen == [b"1"]


def test_a_reload_reports_what_is_different_afterwards(state: TableState, changes: Changes) -> None:
    state.begin_reload()
    state.apply(PARTITION, rows((b"a", b"1"), (b"c", b"0"), (b"c", b"1")))
    assert not changes
    state.end_reload()
    assert sorted(changes.take()) == [(b"b", None), (b"c", b"1")]
    assert state.contents.copy() == {b"a": b"1", b"c": b"1"}


def test_a_second_loss_during_a_reload_removes_what_was_loaded(state: TableState, changes: Changes) -> None:
    state.begin_reload()
    state.apply(PARTITION, rows((b"a", b"1"), (b"c", b"1")))
    state.begin_reload()
    state.apply(PARTITION, rows((b"b", b"2")))
    state.end_reload()
    assert sorted(changes.take()) == [(b"a", None), (b"b", b"2")]
    assert state.contents.copy() == {b"b": b"2"}


def test_changes_that_could_not_be_applied_are_reported_after_the_reload(
    state: TableState, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of them may have been applied, so that the contents before and after the reload are equal."""
    apply = TableContents.apply

    def fail_afterwards(contents: TableContents, *arguments: Any) -> None:
        apply(contents, *arguments)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(TableContents, "apply", fail_afterwards)
        with pytest.raises(MemoryError):
            state.apply(PARTITION, rows((b"a", b"2")))
    state.begin_reload()
    state.apply(PARTITION, rows((b"a", b"2"), (b"b", b"1")))
    state.end_reload()
    assert changes.take() == [(b"a", b"2")]


keys, values = st.sampled_from([b"a", b"b", b"c", b"d"]), st.sampled_from([None, b"", b"1", b"2"])
records = st.lists(st.tuples(keys, values), min_size=1, max_size=6)
steps = st.tuples(
    st.sampled_from(["apply", "apply", "apply", "begin_reload", "end_reload"]), st.integers(0, 2), records
)


@given(st.lists(steps, max_size=25))
def test_who_applies_all_changes_has_the_table(drawn: list[tuple[str, int, list[Change]]]) -> None:
    """Also after reloads, of which one may interrupt another, and with keys in several partitions."""
    mirror: dict[bytes, bytes] = {}
    reported: list[bytes] = []

    def on_change(key: bytes, value: bytes | None) -> None:
        reported.append(key)
        assert value != mirror.get(key), "nothing has changed"
        mirror[key] = value  # type: ignore[assignment]
        if value is None:
            del mirror[key]

    state = TableState("t", None, on_change)
    contents: dict[bytes, bytes] = {}
    reloaded: dict[bytes, bytes] | None = None
    for kind, number, found in drawn:
        reported.clear()
        if kind == "apply":
            state.apply(TopicPartition("t", number), rows(*found))
            latest = contents if reloaded is None else reloaded
            latest.update({key: value for key, value in found if value is not None})
            for key, value in dict(found).items():
                if value is None:
                    latest.pop(key, None)
                else:
                    latest[key] = value
        elif kind == "begin_reload":
            state.begin_reload()
            reloaded = {}
        else:
            state.end_reload()
            contents, reloaded = contents if reloaded is None else reloaded, None
        assert state.contents.copy() == contents == mirror
        assert {key: state.contents.find(key) for key in (b"a", b"b", b"c", b"d")} == {
            key: contents.get(key) for key in (b"a", b"b", b"c", b"d")
        }
        assert len(state.contents) == len(contents)
        assert len(set(reported)) == len(reported), "each key is reported once"


def test_a_key_in_two_partitions_is_logged_once(state: TableState, caplog: pytest.LogCaptureFixture) -> None:
    state.apply(TopicPartition("t", 1), rows((b"c", b"1")))
    assert caplog.records == []
    for key in (b"a", b"b"):
        state.apply(TopicPartition("t", 1), rows((key, b"2")))
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "topic t has records of a key in several partitions"
    ]
    assert state.contents.copy() == {b"a": b"2", b"b": b"2", b"c": b"1"}


def test_a_value_that_cannot_be_deserialized_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    changes: list[tuple[str, Any]] = []
    table = KafkaTable(
        *("t", PARAMS),
        key_serde=Serde.string(),
        value_serde=Serde.json(),
        on_change=lambda key, value: changes.append((key, value)),
    )
    table.log._thread.state = "started"
    caplog.set_level(logging.ERROR)
    table._state.apply(PARTITION, rows((b"a", b'{"rate":1}'), (b"bad\n", b"{"), (b"c", b"null"), (b"\xff", b"1")))
    assert table["a"] == {"rate": 1}
    assert table["c"] is None
    assert ("c" in table, "d" in table, len(table)) == (True, False, 4)
    with pytest.raises(KeyError):
        table["d"]
    message = r"The value of the key 'bad\\n' cannot be deserialized by value_serde.*raw_snapshot"
    with pytest.raises(RecordError, match=message) as caught:
        table["bad\n"]
    assert caught.value.topic == "t"
    with pytest.raises(RecordError, match=r"The key b'\\xff' cannot be deserialized by key_serde"):
        list(table)
    with pytest.raises(RecordError):
        table.snapshot()
    assert table.raw_snapshot()[b"bad\n"] == b"{"
    assert changes == [("a", {"rate": 1}), ("c", None)]
    assert len([record for record in caplog.records if "on_change" in record.getMessage()]) == 2


def test_an_empty_value_is_a_value() -> None:
    changes = Changes()
    table = KafkaTable("t", PARAMS, on_change=changes)
    table.log._thread.state = "started"
    table._state.apply(PARTITION, rows((b"a", b""), (b"", b"1"), (b"b", b"1")))
    table._state.apply(PARTITION, rows((b"b", b"")))
    assert changes.take() == [(b"a", b""), (b"", b"1"), (b"b", b"1"), (b"b", b"")]
    assert dict(table) == {key: table[key] for key in table} == {b"a": b"", b"": b"1", b"b": b""}
    assert all(key in table for key in (b"a", b"", b"b"))


def test_serdes() -> None:
    text, values = Serde.string(), Serde.json()
    assert (text.serialize("ä"), text.deserialize("ä".encode())) == ("ä".encode(), "ä")
    assert values.serialize({"b": [1, None], "a": "ä"}) == '{"a":"ä","b":[1,null]}'.encode()
    assert values.deserialize(b' {"b": 1}') == {"b": 1}
    with pytest.raises(TypeError, match="needs a str, got int"):
        text.serialize(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="JSON"):
        values.serialize(float("nan"))


def test_only_one_serde_or_none() -> None:
    ids: Serde[uuid.UUID] = Serde(lambda each: each.bytes, lambda data: uuid.UUID(bytes=data))
    by_id = KafkaTable("t", PARAMS, key_serde=ids)
    by_id.log._thread.state = "started"
    key = uuid.uuid4()
    by_id._state.apply(PARTITION, rows((key.bytes, b"1")))
    assert (dict(by_id), by_id[key]) == ({key: b"1"}, b"1")
    typed = KafkaTable("t", PARAMS, value_serde=Serde.string())
    typed.log._thread.state = "started"
    typed._state.apply(PARTITION, rows((b"k", b"v")))
    assert dict(typed) == {b"k": "v"}


@pytest.mark.parametrize("options", [{"transactional_id": ""}, {"transactional_id": "w", "read_only": True}])
def test_a_single_writer_needs_an_id_and_writes(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="transactional_id must be a non-empty string, and needs read_only=False"):
        KafkaTable("t", PARAMS, **options)
