from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from bench.errors import BenchError
from bench.measure import Sample
from bench.profiles import Case
from bench.run import Failure, Hosts, run_case, turn
from bench.spark_peers import NOOP
from bench.summary import CONFLUENT, EXACTLY_ONCE, JVM, KAFKA_PYTHON, OURS
from bench.topics import Topic
from bench.writers import WRITE

if TYPE_CHECKING:
    from collections.abc import Callable

CASE = Case(Topic(100, "lz4", 100), NOOP, (JVM, OURS, CONFLUENT, KAFKA_PYTHON))


class Recorder:
    """Stands where the peers' processes are and notes who was asked."""

    def __init__(self, broken: str | None = None) -> None:
        self.asked: list[str] = []
        self.broken = broken

    def call(self, function: Callable[..., Any], peer: str, *_: object) -> object:
        if function.__name__ == "can_read":
            return peer != KAFKA_PYTHON
        self.asked.append(peer)
        if peer == self.broken:
            raise BenchError("no")
        return Sample(float(len(self.asked)), 0.5)


def run(recorder: Recorder, rounds: int, warm_up: int = 1) -> tuple[list[Any], list[Failure]]:
    return run_case(CASE, Hosts(cast("Any", recorder), cast("Any", recorder)), rounds, warm_up)


def test_each_peer_comes_first_as_often_as_the_others() -> None:
    assert [turn("abc", number) for number in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]
    assert turn([], 3) == []


def test_peers_take_turns_and_the_first_round_does_not_count() -> None:
    recorder = Recorder()
    series, failures = run(recorder, rounds=2)
    assert recorder.asked == [JVM, OURS, CONFLUENT, OURS, CONFLUENT, JVM, CONFLUENT, JVM, OURS]
    assert [(each.peer, [sample.seconds for sample in each.samples]) for each in series] == [
        (JVM, [6.0, 8.0]),
        (OURS, [4.0, 9.0]),
        (CONFLUENT, [5.0, 7.0]),
    ]
    assert failures == []


def test_more_rounds_to_warm_up() -> None:
    series, _ = run(Recorder(), rounds=1, warm_up=3)
    assert [len(each.samples) for each in series] == [1, 1, 1]


class Paced(Recorder):
    """Peers that take the given seconds, run by run."""

    def __init__(self, seconds: dict[str, list[float]]) -> None:
        super().__init__()
        self.seconds = seconds

    def call(self, function: Callable[..., Any], peer: str, *_: object) -> object:
        super().call(function, peer)
        return Sample(self.seconds[peer][self.asked.count(peer) - 1], 0.5)


def test_writing_warms_up_until_the_rates_are_level() -> None:
    case = Case(CASE.topic, WRITE, (JVM, OURS))

    def counted(ours: list[float]) -> tuple[int, list[float]]:
        spark = Paced({JVM: [5.0, 4.0, 3.9, 4.1, 3.9, 4.0], OURS: ours})
        series, _ = run_case(case, Hosts(cast("Any", spark), cast("Any", spark)), 1, 3, max_warm_up=5)
        return spark.asked.count(OURS), [sample.seconds for sample in series[1].samples]

    assert counted([3.0, 2.0, 1.99, 1.98]) == (4, [1.98])  # three rounds are enough
    assert counted([3.0, 2.0, 1.5, 1.49, 1.48]) == (5, [1.48])  # the third was faster by a quarter
    assert counted([3.0, 2.5, 2.0, 1.5, 1.0, 0.5]) == (6, [0.5])  # it is not level after five


def test_a_failure_gives_its_reason_without_the_trace() -> None:
    trace = "read failed:\nTraceback (most recent call last):\na.OuterError: \nb.InnerError: too big\n SQLSTATE: 1"
    assert Failure("", "", "", trace).reason == "b.InnerError: too big"
    assert Failure("", "", "", "read took longer than 9 s").reason == "read took longer than 9 s"


def test_a_peer_that_fails_is_named_and_left_out() -> None:
    recorder = Recorder(broken=OURS)
    series, failures = run(recorder, rounds=2)
    assert [each.peer for each in series] == [JVM, CONFLUENT]
    assert failures == [Failure("100 B lz4", NOOP, OURS, "no")]
    assert recorder.asked.count(OURS) == 1


def test_writing_is_done_by_spark_for_all_peers() -> None:
    spark, clients = Recorder(), Recorder()
    case = Case(CASE.topic, WRITE, (JVM, OURS, EXACTLY_ONCE, CONFLUENT))
    run_case(case, Hosts(cast("Any", spark), cast("Any", clients)), 1, 0)
    assert (spark.asked, clients.asked) == ([JVM, OURS, EXACTLY_ONCE, CONFLUENT], [])
