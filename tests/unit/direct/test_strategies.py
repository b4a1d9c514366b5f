"""What consumer strategies take, and what they keep."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from pyspark_kafka_direct.direct import ConsumerStrategies, TopicPartition
from pyspark_kafka_direct.direct._carried import CarriedStream
from pyspark_kafka_direct.direct._registry import stream_of
from pyspark_kafka_direct.direct._spec import StreamSpec
from pyspark_kafka_direct.direct.locations import LocationStrategies
from pyspark_kafka_direct.direct.rates import PerPartitionConfig
from pyspark_kafka_direct.direct.strategies import DiscoversPartitions, start_of
from pyspark_kafka_direct.errors import OffsetPlanError, OptionError

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
        (lambda: ConsumerStrategies.Subscribe(["a b"], PARAMS), OptionError, "'a b' cannot be a topic's name"),
        (lambda: ConsumerStrategies.Subscribe([1], PARAMS), OptionError, "names of topics"),  # type: ignore[list-item]
        (lambda: ConsumerStrategies.Subscribe(None, PARAMS), OptionError, "names of topics"),  # type: ignore[arg-type]
        (lambda: ConsumerStrategies.Subscribe(["a,b"], PARAMS), OptionError, "names of topics"),
        (lambda: ConsumerStrategies.Subscribe(["a", ""], PARAMS), OptionError, "names of topics"),
        (lambda: ConsumerStrategies.Assign(None, PARAMS), OptionError, "list of topic-partitions"),  # type: ignore[arg-type]
        (lambda: ConsumerStrategies.Subscribe(["a"], PARAMS, []), OffsetPlanError, "must map"),  # type: ignore[arg-type]
        (lambda: ConsumerStrategies.Subscribe(["a"], "x"), OptionError, "must be a dict, or a function"),  # type: ignore[arg-type]
        (lambda: ConsumerStrategies.SubscribePattern("(", PARAMS), OptionError, "SubscribePattern"),
        (lambda: ConsumerStrategies.SubscribePattern(" ", PARAMS), OptionError, "regular expression"),
        (lambda: ConsumerStrategies.Assign([], PARAMS), OptionError, "at least one topic-partition"),
        (lambda: ConsumerStrategies.Assign(["a"], PARAMS), OptionError, "TopicPartition"),  # type: ignore[list-item]
        (lambda: ConsumerStrategies.Assign([("a", -1)], PARAMS), OptionError, "TopicPartition"),  # type: ignore[list-item]
        (
            lambda: ConsumerStrategies.Subscribe(["a"], PARAMS, {TopicPartition("a", 0): -1}),
            OffsetPlanError,
            "from 0 on, got -1",
        ),
        (lambda: ConsumerStrategies.Subscribe(["a"], PARAMS, [1]), OffsetPlanError, "must map"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (None, OptionError, "on_start of Own must give a dict.*it gave NoneType"),
        ({"a": 0}, OptionError, "a topic-partition is"),
        ({("a", 0): "5"}, OffsetPlanError, "got '5'"),
        ({("a", 0): -1}, OffsetPlanError, "got -1"),
    ],
)
def test_a_strategy_of_ones_own_is_not_trusted(answer: Any, error: type[Exception], text: str) -> None:
    class Own:
        executor_params = PARAMS

        def on_start(self, cluster: Any, current_offsets: Any) -> Any:
            return answer

    with pytest.raises(error, match=text):
        start_of(Own(), None)  # type: ignore[arg-type]
    answer = {("a", 0): 5, ("a", 1): None}
    assert start_of(Own(), None) == {TopicPartition("a", 0): 5, TopicPartition("a", 1): None}  # type: ignore[arg-type]


def test_the_callers_dict_is_copied() -> None:
    params: dict[str, object] = dict(PARAMS)
    strategy = ConsumerStrategies.Subscribe(["a"], params)
    params["group.id"] = "other"
    assert strategy.executor_params["group.id"] == "g"


def test_all_three_discover_partitions() -> None:
    partition = TopicPartition("a", 0)
    for strategy in (
        ConsumerStrategies.Subscribe("a", PARAMS),
        ConsumerStrategies.SubscribePattern("a.*", PARAMS),
        ConsumerStrategies.Assign([partition, ("a", 0)], PARAMS),  # type: ignore[list-item]
    ):
        assert isinstance(strategy, DiscoversPartitions)
        assert strategy.on_start(None, {partition: 7}) == {partition: 7}, "a checkpoint comes first"  # type: ignore[arg-type]


def test_parameters_are_not_shown() -> None:
    assert SECRET not in repr(ConsumerStrategies.Subscribe(["a"], SECURE))


def carried(parameters: Any) -> CarriedStream:
    strategy = ConsumerStrategies.Subscribe(["a"], parameters)
    made = CarriedStream("id-1", StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0), None)
    assert made.wire.parameters.group_id == "g"
    return made


class NoLimits(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 0

    def minRatePerPartition(self, topicPartition: TopicPartition) -> int:  # noqa: N803
        return 1


def dumps(stream: CarriedStream) -> bytes:
    """As Spark's checkpoint holds it."""
    return bytes(cloudpickle.dumps(stream))  # type: ignore[no-untyped-call]


def test_parameters_of_a_function_are_not_in_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAAS", JAAS)
    stream = carried(lambda: {**PLAIN, "sasl.jaas.config": os.environ["JAAS"]})
    written = dumps(stream)
    assert SECRET.encode() not in written
    assert "passwords in clear" not in caplog.text
    assert SECRET.encode() in dumps(carried(SECURE)), "that they are seen where they are"
    assert "passwords in clear" in caplog.text
    caplog.clear()
    dumps(carried(PARAMS))
    assert caplog.text == "", "nothing to tell"
    back = cloudpickle.loads(written)
    monkeypatch.delenv("JAAS")
    with pytest.raises(KeyError):  # the function is called again, when the parameters are first needed
        back.wire  # noqa: B018


def test_a_stream_of_another_process_is_not_known() -> None:
    with pytest.raises(OptionError, match="only be used on the driver"):
        stream_of("nobody")
