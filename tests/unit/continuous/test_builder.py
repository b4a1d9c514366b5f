"""What can be said of a continuous query before it is started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.continuous import continuous_query
from pyspark_kafka_direct.continuous.builder import _composed
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings import _messages

if TYPE_CHECKING:
    from pyspark_kafka_direct.continuous import ContinuousQueryBuilder


class Conf:
    """Stands for a session's, which is asked for defaults only."""

    def get(self, name: str, default: str | None) -> str | None:
        return default


class Session:
    conf = Conf()


@pytest.fixture
def begun() -> ContinuousQueryBuilder:
    session: Any = Session()
    return continuous_query(session).read({"kafka.bootstrap.servers": "broker:9092"}, subscribe="t")


def test_each_step_is_a_new_builder(begun: ContinuousQueryBuilder) -> None:
    one = begun.select("key")
    two = begun.select("value").map_batches(lambda batch: batch)
    assert (begun._columns, one._columns, two._columns) == (None, ("key",), ("value",))
    assert (len(begun._functions), len(two._functions), len(two.map_batches(len)._functions)) == (0, 1, 2)
    assert begun.to_kafka("out") is not begun
    assert begun._output is None


def test_secrets_do_not_show() -> None:
    session: Any = Session()
    options = {
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "t",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "u",
        "kafka.sasl.password": "hunter2",
    }
    assert "hunter2" not in repr(continuous_query(session).read(options).to_kafka("out"))


def test_topic_and_options_by_name(begun: ContinuousQueryBuilder) -> None:
    for built in (
        begun.to_kafka(topic="out", options={"kafka.linger.ms": 5}),
        begun.to_kafka("out", {"TOPIC": "another"}),
        begun.to_kafka(topic="out"),
    ):
        assert built._output is not None
        assert built._output.description == "Kafka[topic out]"
    anywhere = begun.to_kafka()._output
    assert anywhere is not None
    assert anywhere.description == "Kafka[the topics of the column topic]"


def test_what_the_output_ignores_is_told(begun: ContinuousQueryBuilder, caplog: pytest.LogCaptureFixture) -> None:
    _messages.warn_once.cache_clear()
    begun.to_kafka("out", {"kafka.fetch.min.bytes": "5"})
    assert "the option kafka.fetch.min.bytes is ignored" in caplog.text


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ((), "select() needs the names of columns"),
        (("valeu",), "a record has no column 'valeu'; it has key, value, "),
        (("valeu",), "did you mean 'value'?"),
        (("leaderEpoch",), "has no column 'leaderEpoch'"),
        (("key", "key"), "a column is named twice: key, key"),
    ],
)
def test_columns_that_cannot_be(begun: ContinuousQueryBuilder, columns: tuple[str, ...], says: str) -> None:
    with pytest.raises(OptionError) as caught:
        begun.select(*columns)
    assert says in str(caught.value)


def test_what_has_to_be_said(begun: ContinuousQueryBuilder) -> None:
    session: Any = Session()
    empty = continuous_query(session)
    with pytest.raises(OptionError, match=r"call read\(...\) before to_kafka"):
        empty.to_kafka("out")
    with pytest.raises(OptionError, match="there is no output"):
        begun.start(checkpointLocation="/c")
    with pytest.raises(OptionError, match="nothing is read"):
        empty.foreach_batch(lambda batch, epoch: None).start(checkpointLocation="/c")
    with pytest.raises(OptionError, match=r"call read\(...\) before the output"):
        begun.to_kafka("out").read(subscribe="t")
    with pytest.raises(OptionError, match="checkpointLocation is missing"):
        begun.to_kafka("out").start()
    with pytest.raises(OptionError, match=r"has no setting 'epochIntervall'; did you mean 'epochInterval'"):
        begun.to_kafka("out").start(checkpointLocation="/c", epochIntervall=1)
    wrong: Any = "text"
    with pytest.raises(OptionError, match=r"map_batches\(\) needs a function, got str"):
        begun.map_batches(wrong)
    with pytest.raises(OptionError, match=r"foreach_batch\(\) needs a function, got str"):
        begun.foreach_batch(wrong)
    with pytest.raises(OptionError, match="is no sink"):
        begun.to(wrong)


def test_functions_one_after_the_other() -> None:
    called: list[Any] = []

    def keep(batch: Any) -> Any:
        called.append(batch)
        return f"{batch}+"

    def drop(batch: Any) -> Any:
        called.append(batch)

    assert _composed(()) is None
    assert _composed((keep,)) is keep
    three: Any = _composed((keep, drop, keep))
    assert three("it") is None
    assert called == ["it", "it+"]
    assert _composed((keep, keep))("it") == "it++"  # type: ignore[misc]
