"""The definition of a continuous query."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.continuous.test_checkpoint_logs import FakeFileManager, open_logs_on

from pyspark_kafka_direct.continuous import active, checkpoint_logs, continuous_execution, continuous_query
from pyspark_kafka_direct.continuous.map_function import MapFunction, open_functions
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.security_settings import DelegationTokenLogin
from pyspark_kafka_direct.options.token_clusters import TokenCluster
from pyspark_kafka_direct.spark import delegation_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.continuous import ContinuousQueryBuilder


class Conf:
    """A session's configuration without values."""

    def get(self, name: str, default: str | None) -> str | None:
        return default


class Session:
    conf = Conf()
    sparkContext = None  # noqa: N815 - Spark's name


class MySink:
    """A sink of a user."""

    def __init__(self, *_: object) -> None:
        pass

    def write(self, batch: object) -> None:
        """Write a batch."""

    def flush(self, positions: object) -> None:
        """Flush."""

    def close(self) -> None:
        """Close the sink."""


class StartedSession:
    """A session that can start queries, whose configuration has some values."""

    def __init__(self, **values: str) -> None:
        self.conf = self
        self.values = {name.replace("_", "."): value for name, value in values.items()}
        self.sparkContext = SimpleNamespace(getConf=lambda: self.values)

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.values.get(name, default)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The definitions of the queries that were started; each runs until it is stopped."""
    definitions: list[Any] = []

    class Execution:
        def __init__(self, _: object, definition: Any, settings: Any, logs: object, state: Any, pool: object) -> None:
            definitions.append(definition)
            self._state = state

        def run(self) -> None:
            self._state.wait(lambda: self._state.stopping, 120)
            self._state.end(None)

    disk = FakeFileManager()
    monkeypatch.setattr(checkpoint_logs, "open_checkpoint_logs", lambda spark, checkpoint: open_logs_on(disk))
    monkeypatch.setattr(continuous_execution, "ContinuousExecution", Execution)
    yield definitions
    for query in active():
        query.stop()


@pytest.fixture
def new_builder() -> ContinuousQueryBuilder:
    session: Any = Session()
    return continuous_query(session).read({"kafka.bootstrap.servers": "broker:9092"}, subscribe="t")


def test_each_step_is_a_new_builder(new_builder: ContinuousQueryBuilder) -> None:
    one = new_builder.select("key")
    two = new_builder.select("value").map_batches(lambda batch: batch)
    assert (new_builder._columns, one._columns, two._columns) == (None, ("key",), ("value",))
    assert (len(new_builder._functions), len(two._functions), len(two.map_batches(len)._functions)) == (0, 1, 2)
    assert new_builder.to_kafka("out") is not new_builder
    assert new_builder._output is None


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


def test_topic_and_options_by_name(new_builder: ContinuousQueryBuilder) -> None:
    for built in (
        new_builder.to_kafka(topic="out", options={"kafka.linger.ms": 5}),
        new_builder.to_kafka("out", {"TOPIC": "another"}),
        new_builder.to_kafka(topic="out"),
    ):
        assert built._output is not None
        assert built._output.description == "Kafka[topic out]"
    by_column = new_builder.to_kafka()._output
    assert by_column is not None
    assert by_column.description == "Kafka[topics of the topic column]"


def test_options_that_the_output_ignores_are_logged(
    new_builder: ContinuousQueryBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    option_messages.warn_once.cache_clear()
    names = ("kafka.fetch.min.bytes", "kafka.fetch.max.wait.ms")
    new_builder.to_kafka("out", dict.fromkeys(names, "5"))
    assert [f"the option {name} is ignored" in caplog.text for name in names] == [True, True]


@pytest.mark.parametrize("name", ["kafka.linger.ms", "Kafka.Transaction.Timeout.ms"])
def test_a_transaction_timeout_is_found_among_other_options(new_builder: ContinuousQueryBuilder, name: str) -> None:
    output: Any = new_builder.to_kafka("out", {"kafka.batch.size": "1000", name: "5000"})._output
    assert output.create_delivery.keywords == {"has_timeout_option": "Transaction" in name}


def test_tasks_have_the_delegation_tokens_of_input_and_output(
    started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = tuple(TokenCluster(DelegationTokenLogin("app", name), target=f"{name}:1") for name in ("a", "b"))
    monkeypatch.setattr(delegation_tokens, "start_delegation_tokens", lambda _: clusters)
    session: Any = StartedSession()
    builder = continuous_query(session).read({"kafka.bootstrap.servers": "a:1"}, subscribe="t")
    for servers in ("a:1", "b:1"):
        builder.to_kafka("out", {"kafka.bootstrap.servers": servers}).start(checkpointLocation="/c")
    logins = [cluster.login for cluster in clusters]
    assert [definition.token_logins for definition in started] == [{logins[0]}, {*logins}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((), "select() needs column names"),
        (("valeu",), "a record has no column 'valeu'; it has key, value, "),
        (("key", "valeu"), "did you mean 'value'?"),
        (("leaderEpoch",), "has no column 'leaderEpoch'"),
        (("key", "key"), "a column is repeated: key, key"),
    ],
)
def test_invalid_columns(new_builder: ContinuousQueryBuilder, columns: tuple[str, ...], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        new_builder.select(*columns)
    assert message in str(caught.value)


def test_incomplete_definitions(new_builder: ContinuousQueryBuilder) -> None:
    session: Any = Session()
    empty = continuous_query(session)
    with pytest.raises(OptionError, match=r"call read\(...\) before to_kafka"):
        empty.to_kafka("out")
    with pytest.raises(OptionError, match="the query has no output"):
        new_builder.start(checkpointLocation="/c")
    with pytest.raises(OptionError, match="the query has no input"):
        empty.foreach_batch(lambda batch: None).start(checkpointLocation="/c")
    with pytest.raises(OptionError, match=r"call read\(...\) before the output"):
        new_builder.to_kafka("out").read(subscribe="t")
    with pytest.raises(OptionError, match="checkpointLocation is missing"):
        new_builder.to_kafka("out").start()
    with pytest.raises(OptionError, match=r"has no parameter 'epochIntervall'; did you mean 'epochInterval'"):
        new_builder.to_kafka("out").start(checkpointLocation="/c", epochIntervall=1)
    wrong: Any = "text"
    with pytest.raises(OptionError, match=r"map_batches\(\) needs a function, got str"):
        new_builder.map_batches(wrong)
    with pytest.raises(OptionError, match=r"setup of map_batches\(\) needs a function, got str"):
        new_builder.map_batches(len, setup=wrong)
    for rows in (0, True, wrong):
        with pytest.raises(OptionError, match=r"max_rows of map_batches\(\) must be a positive integer, got"):
            new_builder.map_batches(len, max_rows=rows)
    with pytest.raises(OptionError, match=r"foreach_batch\(\) needs a function, got str"):
        new_builder.foreach_batch(wrong)
    with pytest.raises(OptionError, match="is not a sink"):
        new_builder.to(wrong)


@pytest.mark.parametrize(
    ("options", "selected", "columns"),
    [
        ({}, (), ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")),
        (
            {"includeHeaders": "true"},
            (),
            ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"),
        ),
        ({}, ("offset", "headers"), ("offset", "headers")),
    ],
)
def test_a_query_starts_with_the_columns_that_were_selected(
    started: list[Any], options: dict[str, str], selected: tuple[str, ...], columns: tuple[str, ...]
) -> None:
    session: Any = StartedSession()
    builder = continuous_query(session).read({"kafka.bootstrap.servers": "b:1", **options}, subscribe="t,u")
    builder = builder.select(*selected) if selected else builder
    query = builder.map_batches(len).to_kafka("out").start(checkpointLocation="/c", queryName="copies")
    (definition,) = started
    assert (definition.columns, definition.decoded) == (columns, None)
    assert [step.function for step in definition.functions] == [len]
    assert (query.name, query.isActive, query.recentProgress) == ("copies", True, [])
    builder.to_kafka("out").start(checkpointLocation="/d", queryName="more")
    for name in ("copies", "more"):
        with pytest.raises(OptionError, match=f"queryName: a continuous query named '{name}' is running; stop it"):
            builder.to_kafka("out").start(checkpointLocation="/e", queryName=name)
    query.stop()
    assert not query.isActive
    again = builder.to_kafka("out").start(checkpointLocation="/c")
    assert (again.id == query.id, again.runId == query.runId) == (True, False), "the checkpoint has the id"


@pytest.mark.parametrize(
    ("selection", "described"),
    [
        ({"subscribe": "t,u"}, "KafkaDirect[Subscribe[t, u]]"),
        ({"subscribePattern": "t.*"}, "KafkaDirect[SubscribePattern[t.*]]"),
        ({"assign": '{"t":[1,0]}'}, "KafkaDirect[Assign[t-0, t-1]]"),
    ],
)
def test_the_names_of_source_and_sink(started: list[Any], selection: dict[str, str], described: str) -> None:
    session: Any = StartedSession()
    builder = continuous_query(session).read({"kafka.bootstrap.servers": "b:1", **selection})
    for output, sink in (
        (builder.to_kafka("out"), "Kafka[topic out]"),
        (builder.foreach_batch(print), "foreach_batch"),
        (builder.to(MySink()), "MySink"),
        (builder.to(MySink), "MySink"),
    ):
        info = output.start(checkpointLocation="/c")._state.query_info
        assert info.source == described
        assert info.sink == sink


@pytest.mark.parametrize(("speculation", "is_rejected"), [(" TRUE", True), ("false", False), ("", False)])
def test_a_query_is_not_started_twice_by_speculation(started: list[Any], speculation: str, is_rejected: bool) -> None:
    session: Any = StartedSession(spark_speculation=speculation)
    builder = continuous_query(session).read({"kafka.bootstrap.servers": "b:1"}, subscribe="t").to_kafka("out")
    if is_rejected:
        with pytest.raises(OptionError, match=r"spark\.speculation=true cannot be used with a continuous query"):
            builder.start(checkpointLocation="/c")
    assert len(started) == 0
    if not is_rejected:
        assert builder.start(checkpointLocation="/c").isActive


def test_a_function_that_cannot_be_sent_to_executors(started: list[Any]) -> None:
    session: Any = StartedSession()
    lock = threading.Lock()
    builder = continuous_query(session).read({"kafka.bootstrap.servers": "b:1"}, subscribe="t")
    with pytest.raises(OptionError, match=r"the function of map_batches\(\) cannot be sent to the executors: .*lock"):
        builder.map_batches(lambda batch: lock).to_kafka("out").start(checkpointLocation="/c")
    assert started == []


def test_functions_are_applied_in_order() -> None:
    called: list[Any] = []

    def keep(batch: Any) -> Any:
        called.append(batch)
        return f"{batch}+"

    def drop(batch: Any) -> Any:
        called.append(batch)

    def loaded(batch: Any, model: str) -> Any:
        return f"{batch}{model}"

    assert open_functions(()) is None
    three: Any = open_functions([MapFunction(keep), MapFunction(drop), MapFunction(keep)])
    assert three("it") is None
    assert called == ["it", "it+"]
    two: Any = open_functions([MapFunction(keep), MapFunction(loaded, lambda: "!")])
    assert two("it") == "it+!"


def test_a_setup_runs_once_in_each_task() -> None:
    calls: list[str] = []
    step = MapFunction(lambda batch, resource: resource, lambda: calls.append("setup"))
    function: Any = open_functions([step])
    assert [function("x"), function("y")] == [None, None]
    assert calls == ["setup"]
