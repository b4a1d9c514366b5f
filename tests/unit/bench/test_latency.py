"""First rows of a topic: who runs in which session, and what counts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import pytest
from bench import latency
from bench.latency import ACTIONS, FIRST_BATCH, SHOW, WHOLE
from bench.spark_peers import NOOP, TLS, Spark, SparkSettings, frame
from bench.summary import JVM, OURS, WARM
from bench.topics import Topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC = Topic(100, "none", 1000)


class Session:
    """Stands where the process of a session is; each of its runs takes as long as the session says."""

    def __init__(self, output: Path, seconds: float) -> None:
        self.output = output
        self.output.write_text("")
        self.seconds = seconds
        self.calls: Counter[tuple[object, ...]] = Counter()

    def call(self, _: Callable[..., Any], *arguments: object) -> float:
        self.calls[arguments[:2]] += 1
        return self.seconds


def test_both_sources_run_in_both_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "wait_until_quiet", lambda _: None)
    spark, warm, clients = (Session(tmp_path / name, seconds) for name, seconds in (("a", 1.0), ("b", 2.0), ("c", 3.0)))
    found = latency.measure(cast("Any", spark), cast("Any", warm), cast("Any", clients), TOPIC, 3, [JVM, OURS])
    times = {(each.action, each.peer): sorted(each.seconds) for each in found}
    for action in ACTIONS:
        assert times[action, OURS] == [1.0] * 3
        assert times[action, WARM] == [2.0] * 3
        assert times[action, JVM] == [1.0] * 3 + [2.0] * 3
    assert times[FIRST_BATCH, OURS] == [3.0] * 3
    assert spark.calls == warm.calls
    assert spark.calls[WHOLE, JVM] > spark.calls[SHOW, JVM] > 3, "the first action warms up for all"


class Reader:
    """Notes the options of a reader of frames."""

    def __init__(self) -> None:
        self.options_given: dict[str, str] = {}
        self.read = self

    def format(self, _: str) -> Reader:
        return self

    def option(self, name: str, value: str) -> Reader:
        self.options_given[name] = value
        return self

    def options(self, **options: str) -> Reader:
        self.options_given |= options
        return self

    def load(self) -> Reader:
        return self


@pytest.mark.parametrize("peer", [JVM, OURS])
def test_both_sources_read_over_tls_with_the_same_options(peer: str) -> None:
    settings = SparkSettings("plain:1", (), tls_servers="secure:2", truststore="/ca.pem")
    given = {}
    for sink in (NOOP, TLS):
        reader = Reader()
        frame(Spark(cast("Any", reader), settings), peer, TOPIC, sink)
        given[sink] = {name: value for name, value in reader.options_given.items() if name.startswith("kafka.")}
    assert given == {
        NOOP: {"kafka.bootstrap.servers": "plain:1"},
        TLS: {
            "kafka.bootstrap.servers": "secure:2",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": "/ca.pem",
        },
    }
