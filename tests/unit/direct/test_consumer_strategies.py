"""The arguments of consumer strategies, and what is pickled of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.planning.planner_cluster import PlannerCluster

from pyspark_kafka_direct.direct import ConsumerStrategies, TopicPartition
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
from pyspark_kafka_direct.direct.checkpointed_stream import CheckpointedStream, find_stream
from pyspark_kafka_direct.direct.consumer_strategies import DiscoversPartitions, requested_starting_offsets
from pyspark_kafka_direct.direct.location_strategies import LocationStrategies
from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig
from pyspark_kafka_direct.errors import AuthorizationError, InvalidOffsetsError, OptionError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

PARAMS = {"bootstrap.servers": "localhost:1", "group.id": "g"}
SECRET = "open-sesame"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="{SECRET}";'
PLAIN = {**PARAMS, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
SECURE = {**PLAIN, "sasl.jaas.config": JAAS}


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ConsumerStrategies.Subscribe([], PARAMS), OptionError, "Subscribe"),
        (lambda: ConsumerStrategies.Subscribe(["a b"], PARAMS), OptionError, "'a b' is not a valid topic name"),
        (lambda: ConsumerStrategies.Subscribe([1], PARAMS), OptionError, "list of topic names"),  # type: ignore[list-item]
        (lambda: ConsumerStrategies.Subscribe(None, PARAMS), OptionError, "list of topic names"),  # type: ignore[arg-type]
        (lambda: ConsumerStrategies.Subscribe(["a,b"], PARAMS), OptionError, "list of topic names"),
        (lambda: ConsumerStrategies.Subscribe(["a", ""], PARAMS), OptionError, "list of topic names"),
        (lambda: ConsumerStrategies.Assign(None, PARAMS), OptionError, "list of topic-partitions"),  # type: ignore[arg-type]
        (lambda: ConsumerStrategies.Subscribe(["a"], PARAMS, []), InvalidOffsetsError, "must map"),  # type: ignore[arg-type]
        (lambda: ConsumerStrategies.Subscribe(["a"], "x"), OptionError, "must be a dict, or a function"),  # type: ignore[arg-type]
        (lambda: ConsumerStrategies.SubscribePattern("(", PARAMS), OptionError, "SubscribePattern"),
        (lambda: ConsumerStrategies.SubscribePattern(" ", PARAMS), OptionError, "regular expression"),
        (lambda: ConsumerStrategies.Assign([], PARAMS), OptionError, "at least one topic-partition"),
        (lambda: ConsumerStrategies.Assign(["a"], PARAMS), OptionError, "TopicPartition"),  # type: ignore[list-item]
        (lambda: ConsumerStrategies.Assign([("a", -1)], PARAMS), OptionError, "TopicPartition"),  # type: ignore[list-item]
        (lambda: ConsumerStrategies.Assign([("a", 1 << 31)], PARAMS), OptionError, "TopicPartition"),  # type: ignore[list-item]
        (
            lambda: ConsumerStrategies.Subscribe(["a"], PARAMS, {TopicPartition("a", 0): -1}),
            InvalidOffsetsError,
            "of at least 0, got -1",
        ),
        (lambda: ConsumerStrategies.Subscribe(["a"], PARAMS, [1]), InvalidOffsetsError, "must map"),  # type: ignore[arg-type]
    ],
)
def test_invalid_arguments_are_rejected(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        (None, OptionError, "on_start of Custom must return a dict.*it returned NoneType"),
        ({"a": 0}, OptionError, "a topic-partition must be"),
        ({("a", 0): "5"}, InvalidOffsetsError, "got '5'"),
        ({("a", 0): -1}, InvalidOffsetsError, "got -1"),
    ],
)
def test_the_result_of_a_custom_strategy_is_checked(result: Any, error: type[Exception], text: str) -> None:
    class Custom:
        executor_params = PARAMS

        def on_start(self, cluster: Any, current_offsets: Any) -> Any:
            return result

    with pytest.raises(error, match=text):
        requested_starting_offsets(Custom(), None)  # type: ignore[arg-type]
    result = {("a", 0): 5, ("a", 1): None}
    assert requested_starting_offsets(Custom(), None) == {TopicPartition("a", 0): 5, TopicPartition("a", 1): None}  # type: ignore[arg-type]


def test_the_callers_dict_is_copied() -> None:
    params: dict[str, object] = dict(PARAMS)
    strategy = ConsumerStrategies.Subscribe(["a"], params)
    params["group.id"] = "other"
    assert strategy.executor_params["group.id"] == "g"


def test_all_strategies_discover_partitions() -> None:
    partition = TopicPartition("a", 0)
    for strategy in (
        ConsumerStrategies.Subscribe("a", PARAMS),
        ConsumerStrategies.SubscribePattern("a.*", PARAMS),
        ConsumerStrategies.Assign([partition, ("a", 0)], PARAMS),  # type: ignore[list-item]
    ):
        assert isinstance(strategy, DiscoversPartitions)
        assert strategy.on_start(None, {partition: 7}) == {partition: 7}, "the offsets of a checkpoint take precedence"  # type: ignore[arg-type]


def test_parameters_are_not_in_the_repr() -> None:
    assert SECRET not in repr(ConsumerStrategies.Subscribe(["a"], SECURE))


def stream_with(kafka_params: Any) -> CheckpointedStream:
    strategy = ConsumerStrategies.Subscribe(["a"], kafka_params)
    stream = CheckpointedStream(
        "id-1", StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0), None
    )
    assert stream.client.parameters.group_id == "g"
    return stream


class NoLimits(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 0

    def minRatePerPartition(self, topicPartition: TopicPartition) -> int:  # noqa: N803
        return 1


def dumps(stream: CheckpointedStream) -> bytes:
    """As in Spark's checkpoint."""
    return bytes(cloudpickle.dumps(stream))  # type: ignore[no-untyped-call]


def test_parameters_returned_by_a_function_are_not_in_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAAS", JAAS)
    stream = stream_with(lambda: {**PLAIN, "sasl.jaas.config": os.environ["JAAS"]})
    pickled = dumps(stream)
    assert SECRET.encode() not in pickled
    assert "passwords in plain text" not in caplog.text
    literal = stream_with(SECURE)
    for _ in range(2):
        assert SECRET.encode() in dumps(literal), "a literal password is in the checkpoint"
    assert caplog.text.count("passwords in plain text") == 1
    caplog.clear()
    dumps(stream_with(PARAMS))
    assert caplog.text == "", "there is no password"
    restored = cloudpickle.loads(pickled)
    monkeypatch.delenv("JAAS")
    with pytest.raises(KeyError):  # the function is called again, when the parameters are first needed
        restored.client  # noqa: B018


def test_a_stream_of_another_process_is_not_found() -> None:
    with pytest.raises(OptionError, match="only be used on the driver"):
        find_stream("unknown")


def test_topics_that_do_not_exist_are_an_error_unless_others_are_read() -> None:
    with UnitCluster({"a": 2, "b": 1}) as cluster:
        client = cluster.client()
        both = ConsumerStrategies.Subscribe(["a", "b"], PARAMS, {TopicPartition("a", 1): 7, TopicPartition("b", 0): 0})
        a0, a1, b0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
        assert requested_starting_offsets(both, client) == {a0: None, a1: 7, b0: 0}
        assert cluster.sent("Metadata") == 1
        with pytest.raises(TopicNotFoundError):
            requested_starting_offsets(ConsumerStrategies.Subscribe(["a", "missing"], PARAMS), client)
        assert requested_starting_offsets(ConsumerStrategies.SubscribePattern("missing.*", PARAMS), client) == {}
        unread = ConsumerStrategies.Subscribe(["a"], PARAMS, {a0: 3, TopicPartition("c", 0): 2, b0: 1})
        with pytest.raises(InvalidOffsetsError, match="partitions that are not read: b-0, c-0") as caught:
            requested_starting_offsets(unread, client)
        assert (caught.value.topic, caught.value.partition) == b0
        cluster.event("deny_topic", topic="c", seconds=1000)
        with pytest.raises(AuthorizationError, match="c"):
            requested_starting_offsets(unread, client)


def test_topics_that_the_first_broker_lacks_are_read() -> None:
    with PlannerCluster(5) as cluster:
        t0, u0 = TopicPartition("t", 0), TopicPartition("u", 0)
        cluster.hide(u0, 5)
        for strategy in (ConsumerStrategies.Subscribe(["t", "u"], PARAMS), ConsumerStrategies.Assign([t0, u0], PARAMS)):
            assert requested_starting_offsets(strategy, cluster.client()) == {t0: None, u0: None}


def test_assigned_partitions_are_read_as_far_as_they_exist() -> None:
    with UnitCluster({"a": 2, "b": 3}) as cluster:
        client = cluster.client()
        a0, a1, b2, missing = (TopicPartition(*each) for each in (("a", 0), ("a", 1), ("b", 2), ("a", 2)))
        strategy = ConsumerStrategies.Assign([a1, b2], PARAMS, {b2: 7})
        assert isinstance(strategy, DiscoversPartitions)
        assert dict(strategy.assigned(client)) == {a1: cluster.topic_id("a"), b2: cluster.topic_id("b")}
        before = cluster.sent("Metadata")
        assert requested_starting_offsets(strategy, client) == {a1: None, b2: 7}
        assert cluster.sent("Metadata") == before + 1
        larger = ConsumerStrategies.Assign([a0, missing], PARAMS)
        assert isinstance(larger, DiscoversPartitions)
        assert set(larger.assigned(client)) == {a0}
        with pytest.raises(TopicNotFoundError, match="partition") as caught:
            requested_starting_offsets(larger, client)
        assert caught.value.topic == "a"


@pytest.mark.parametrize("partition", [0, (1 << 31) - 1])
def test_any_partition_that_kafka_can_number_may_be_assigned(partition: int) -> None:
    tp = TopicPartition("a", partition)
    assert repr(tp) in repr(ConsumerStrategies.Assign([tp], PARAMS, {tp: 0}))
