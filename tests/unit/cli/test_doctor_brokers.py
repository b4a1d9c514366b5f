"""``kafka-direct doctor``: its requests to a broker, the brokers that it checks, and the command with several hosts."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyspark_kafka_direct.cli.doctor import broker_check, certificates, checks, cluster_check, spark_checks
from pyspark_kafka_direct.cli.doctor.broker_check import Broker, BrokerCheck, ClockOffset, Wanted
from pyspark_kafka_direct.cli.doctor.findings import Examined, Finding
from pyspark_kafka_direct.cli.doctor.resources import check_group, check_topic
from pyspark_kafka_direct.cli.main import main
from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.direct.location_strategies import Executor
from pyspark_kafka_direct.errors import BrokerTimeoutError, OptionError, TlsError
from pyspark_kafka_direct.options.security_settings import SaslSettings, SecuritySettings, TlsSettings
from pyspark_kafka_direct.options.settings import ConnectionSettings
from pyspark_kafka_direct.protocol.description_messages import (
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    DESCRIBE_QUORUM,
    LIST_GROUPS,
)
from pyspark_kafka_direct.protocol.messages import METADATA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark import SparkContext

    from pyspark_kafka_direct.cli.doctor.findings import Result
    from pyspark_kafka_direct.client.system import System

SETTINGS = ConnectionSettings((("b1", 1), ("b2", 2)))


def values(**fields: Any) -> Any:
    """Return the fields of a response."""
    return SimpleNamespace(**fields)


class ScriptedConnection:
    """Returns prepared responses, also those of a broker in a rare state."""

    api_versions: Mapping[int, tuple[int, int]] = {DESCRIBE_CLUSTER.key: (0, 2)}

    def __init__(self, responses: Mapping[int, Any]) -> None:
        self._responses = responses
        self.requests: list[tuple[int, Any]] = []
        self.is_closed = False

    def version(self, _: object) -> int:
        return 12

    def call(self, message: Any, request: Any, _: Deadline) -> Any:
        self.requests.append((message.key, request))
        response = self._responses[message.key]
        return response.pop(0) if isinstance(response, list) else response

    def close(self) -> None:
        self.is_closed = True


def broker(number: int, **more: Any) -> Any:
    return values(node_id=number, broker_id=number, host=f"b{number}", port=number, **more)


def test_each_topic_group_and_broker_of_the_responses_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [values(name=name, error_code=3 * (name == "s")) for name in ("t", "s")]
    known = [values(name=name, error_code=0) for name in ("t", "x", None, "y")]
    voters = [values(replica_id=number, last_caught_up_timestamp=1_000 * number) for number in (1, 2, 3)]
    partitions = [values(leader_id=-1, current_voters=[]), values(leader_id=2, current_voters=voters)]
    connection = ScriptedConnection({
        METADATA.key: [
            values(cluster_id="A", topics=topics, brokers=[broker(1), broker(2)]),
            values(topics=known),
        ],
        DESCRIBE_CLUSTER.key: values(brokers=[broker(number, is_fenced=number > 2) for number in (1, 2, 3, 4)]),
        DESCRIBE_GROUPS.key: values(groups=[values(group_id=name) for name in ("g", "h")]),
        LIST_GROUPS.key: values(groups=[values(group_id=name) for name in ("i", "g", "j")]),
        DESCRIBE_QUORUM.key: values(error_code=0, topics=[values(partitions=[]), values(partitions=partitions)]),
    })  # fmt: skip
    monkeypatch.setattr(BrokerCheck, "_connect", lambda _: connection)
    found: list[list[int]] = []  # the brokers at each notice
    check = BrokerCheck(
        SETTINGS,
        "b1",
        1,
        Wanted(("t", "s"), ("g", "h")),
        Deadline.after(60),
        found_brokers=lambda each: found.append([broker.id for broker in each.brokers]),
    )
    check.run()
    assert check.findings == []
    assert found == [[1, 2], [1, 2, 3, 4]]
    assert [each.is_fenced for each in check.brokers] == [False, False, True, True]
    assert (check.cluster_id, [*check.topics], check.topic_names) == ("A", ["t", "s"], ["t", "x", "y"])
    assert ([*check.groups], check.group_ids) == (["g", "h"], ["i", "g", "j"])
    assert check.clock is not None
    assert (check.clock.controller, check.clock.seconds > 1_000_000_000) == (2, True)
    requested = dict(connection.requests[:1])[METADATA.key]
    assert [each["name"] for each in requested["topics"]] == ["t", "s"]
    assert connection.is_closed


def test_each_address_and_defect_of_a_certificate_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors name the argument that limits the checks, and not the settings of a query."""
    addresses = [values(address=(ip, 1)) for ip in ("10.0.0.1", "::1", "10.0.0.1")]
    sock = values(getpeername=lambda: ("10.0.0.1", 1), close=lambda: None)

    def fail(error: Exception) -> BrokerCheck:
        def start_tls(*_: object) -> None:
            raise error

        monkeypatch.setattr(Connection, "start_tls", start_tls)
        settings = replace(SETTINGS, security=replace(SETTINGS.security, tls=TlsSettings()))
        check = BrokerCheck(settings, "b1", 1, Wanted(), Deadline.after(60), found_brokers=lambda _: None)
        check.run()
        return check

    monkeypatch.setattr(broker_check, "resolve_broker", lambda *_: addresses)
    monkeypatch.setattr(broker_check, "connect_addresses", lambda *_: sock)
    monkeypatch.setattr(certificates, "invalid_chain_texts", lambda *_: iter(["first", "second", "third"]))
    rejected = fail(TlsError("of the handshake"))
    assert rejected.ips == ["10.0.0.1", "::1"]
    assert rejected.findings == [
        ("dns", "ok", "10.0.0.1, ::1"),
        ("tcp", "ok", "connected to 10.0.0.1"),
        ("tls", "problem", "second"),
        ("tls", "problem", "third"),
        ("tls", "problem", "first"),
    ]
    limits = "kafka.socket.connection.setup.timeout.ms or kafka.request.timeout.ms"
    late = fail(BrokerTimeoutError(f"Raise {limits}."))
    assert late.findings[-1] == ("tls", "problem", "Raise --timeout or --timeout.")


PLAIN, SCRAM, TOKEN = SaslSettings("PLAIN", "alice"), SaslSettings("SCRAM-SHA-512", "bob"), SaslSettings("OAUTHBEARER")


@pytest.mark.parametrize(
    ("tls", "sasl", "warnings"),
    [
        (None, None, []),
        (None, PLAIN, ["sasl: The password crosses"]),
        (None, TOKEN, ["sasl: The token crosses"]),
        (None, SCRAM, []),
        (TlsSettings(), PLAIN, []),
        (TlsSettings(), TOKEN, []),
        (TlsSettings(), None, []),
        (TlsSettings(check_hostname=False), SCRAM, ["tls: The name in the certificate is not checked"]),
        (TlsSettings(check_hostname=False), PLAIN, ["tls: The name in the certificate is not checked"]),
    ],
)
def test_what_a_listener_does_not_protect(
    monkeypatch: pytest.MonkeyPatch, tls: TlsSettings | None, sasl: SaslSettings | None, warnings: list[str]
) -> None:
    """The socket is closed if the login fails."""
    closed: list[bool] = []
    sock = values(getpeername=lambda: ("10.0.0.1", 1), close=lambda: closed.append(True))
    connection = values(
        api_versions={}, negotiate_versions=lambda _: None, authenticate=lambda _: None, close=lambda: None
    )
    monkeypatch.setattr(broker_check, "resolve_broker", lambda *_: [values(address=("10.0.0.1", 1))])
    monkeypatch.setattr(broker_check, "connect_addresses", lambda *_: sock)
    monkeypatch.setattr(certificates, "valid_chain_finding", lambda _: ("valid", False))

    class FakeConnection:
        def __new__(cls, *_: object) -> Any:
            return connection

        start_tls = staticmethod(lambda *_: sock)

    monkeypatch.setattr(broker_check, "Connection", FakeConnection)
    settings = replace(SETTINGS, security=SecuritySettings(tls=tls, sasl=sasl))
    check = BrokerCheck(settings, "b1", 1, Wanted(), Deadline.after(60), found_brokers=lambda _: None)
    check.run()
    found = {(name, text) for name, result, text in check.findings if result == "ok"}
    assert {("dns", "10.0.0.1"), ("tcp", "connected to 10.0.0.1")} <= found
    assert (("tls", "valid") in found) == (tls is not None)
    names = {"PLAIN": "PLAIN as 'alice'", "SCRAM-SHA-512": "SCRAM-SHA-512 as 'bob'", "OAUTHBEARER": "OAUTHBEARER"}
    assert [text for name, text in found if name == "sasl"] == ([] if sasl is None else [names[sasl.mechanism]])
    shown = [f"{name}: {text}" for name, result, text in check.findings if result == "warning"]
    assert not closed
    connection.authenticate = lambda _: b"".index(b"x")  # raises an error
    failed = BrokerCheck(settings, "b1", 1, Wanted(), Deadline.after(60), found_brokers=lambda _: None)
    failed.run()
    assert closed
    assert (failed.has_failed, failed.step) == (True, "sasl" if sasl else "api versions")
    assert (len(shown), [text.startswith(start) for text, start in zip(shown, warnings, strict=True)]) == (
        len(warnings),
        [True] * len(warnings),
    )


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("skew", [-70.0, -3.0, 0.0, 3.0, 70.0])
def test_the_clock_is_compared_with_the_leaders_in_the_middle_of_the_request(
    monkeypatch: pytest.MonkeyPatch, order: int, skew: float
) -> None:
    """The request takes 4 seconds; the other voters have caught up before, or report no time."""
    now = [1_700_000_000.0]
    system = values(wall_time=lambda: now[0], monotonic=lambda: now[0] - 1e9)
    at_middle = now[0] + 2
    times = {1: at_middle - skew - 5, 2: at_middle - skew, 3: at_middle - skew - 9, 4: -0.001}
    voters = [values(replica_id=number, last_caught_up_timestamp=int(time * 1000)) for number, time in times.items()][
        ::order
    ]
    partitions = [values(leader_id=2, current_voters=voters)]

    class SlowConnection(ScriptedConnection):
        def call(self, message: Any, request: Any, deadline: Deadline) -> Any:
            response = super().call(message, request, deadline)
            now[0] += 4
            return response

    quorum = values(error_code=0, topics=[values(partitions=partitions)])
    check = BrokerCheck(
        SETTINGS, "b1", 1, Wanted(), Deadline.after(60, "x", cast("System", system)), found_brokers=lambda _: None
    )
    check._request_clock(cast("Connection", SlowConnection({DESCRIBE_QUORUM.key: quorum})))
    assert check.clock is not None
    assert check.clock.seconds == pytest.approx(skew, abs=0.002)
    assert check.clock[1:] == (2.0, 2)
    check.brokers = [Broker(1, "b1", 1)]
    monkeypatch.setattr(cluster_check, "_check_brokers", lambda *_: [check])
    (found,) = (each for each in cluster_check.check_cluster(SETTINGS, Wanted(), 10) if each.check == "clock")
    assert found.result == ("problem" if abs(skew) > 62 else "ok")  # 3 seconds are within the uncertainty
    assert ("ahead of" in found.text) == (skew > 0)


def test_only_so_many_addresses_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may return any number of them, and another one the same."""
    monkeypatch.setattr(cluster_check, "_MAX_ADDRESSES", 5)
    checked: list[int] = []

    def run(check: BrokerCheck) -> None:
        checked.append(check.port)
        check.brokers = [Broker(number, f"b{number}", number) for number in range(1, 20)]
        check._found_brokers(check)

    monkeypatch.setattr(BrokerCheck, "run", run)
    found = cluster_check.check_cluster(SETTINGS, Wanted(), 60)
    assert sorted(checked) == [1, 2, 3, 4, 5]
    (addresses,) = (each.text for each in found if each.check == "addresses")
    assert addresses == "The cluster has 19 addresses, of which the first 5 were checked."


def test_every_broker_that_another_one_returns_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that it returns in a second response."""
    returned = {1: [[1], [1, 3, 4]], 2: [[2, 5]], 3: [[3, 6]]}
    lock = threading.Lock()
    checked: list[int] = []

    def run(check: BrokerCheck) -> None:
        with lock:
            checked.append(check.port)
        for numbers in returned.get(check.port, []):
            check.brokers = [Broker(number, f"b{number}", number) for number in numbers]
            check._found_brokers(check)
        check.findings.append(("dns", "ok", "ip"))
        check.findings.append(("tcp", "problem" if check.port > 3 else "ok", "text"))
        check.step = "tcp"

    monkeypatch.setattr(BrokerCheck, "run", run)
    found = cluster_check.check_cluster(SETTINGS, Wanted(), 60)
    assert sorted(checked) == [1, 2, 3, 4, 5, 6]
    unreachable = {each.subject: each.text for each in found if each.result == "problem"}
    assert [*sorted(unreachable)] == [f"broker {number} at b{number}:{number}" for number in (4, 5, 6)]
    assert all(text.startswith("text Broker ") and "advertises this" in text for text in unreachable.values())
    (brokers,) = (each.text for each in found if each.check == "brokers")
    assert brokers == "6: 1, 2, 3, 4, 5, 6"


def checked(number: int, **results: Any) -> BrokerCheck:
    check = BrokerCheck(SETTINGS, f"b{number}", number, Wanted(), Deadline.after(60), found_brokers=lambda _: None)
    check.brokers = [Broker(each, f"b{each}", each) for each in (1, 2)]
    for name, value in results.items():
        setattr(check, name, value)
    return check


@pytest.mark.parametrize("order", [1, -1])
def test_any_broker_may_return_what_the_others_do_not(monkeypatch: pytest.MonkeyPatch, order: int) -> None:
    ok: list[tuple[str, Result, str]] = [("dns", "ok", "ip")]

    def findings(one: dict[str, Any], two: dict[str, Any]) -> dict[tuple[str, str], str]:
        each = [checked(1, findings=ok, **one), checked(2, findings=ok, **two)][::order]
        monkeypatch.setattr(cluster_check, "_check_brokers", lambda *_: each)
        found = cluster_check.check_cluster(SETTINGS, Wanted(), 10)
        return {(finding.subject, finding.check): finding.text for finding in found}

    def topic(error: int) -> Any:
        part = values(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        return values(error_code=error, partitions=[part], topic_authorized_operations=1 << 3)

    clock = findings({}, {"clock": ClockOffset(3.0, 0.1, 2)})
    assert "3.000 s ahead" in clock["cluster", "clock"]
    unknown = findings({}, {"clock_error": "No time"})
    assert unknown["cluster", "clock"].startswith("No time.")
    # The bootstrap server that is not local shows that the cluster is not.
    loopback = findings({"ips": ["127.0.0.1", "10.0.0.1"][::order]}, {"ips": ["127.0.0.1", "127.0.0.2"]})
    assert [subject for subject, check in loopback if check == "advertised"] == ["broker 2 at b2:2"]
    local = findings({"ips": ["127.0.0.1"]}, {"ips": ["::1"]})
    assert [check for _, check in local if check == "advertised"] == []

    both = [checked(1, topics={"t": topic(0)}), checked(2, topics={"t": topic(3)})][::order]
    known = {each.check: each.text for each in check_topic("t", both, SETTINGS, writes=False)}
    assert known["partitions"] == "1, with 1 replica each, all in sync"
    names = [
        checked(1, topics={"tt": topic(3)}, topic_names=["ttt"]),
        checked(2, topics={"tt": topic(3)}, topic_names=["u"]),
    ]
    (missing,) = check_topic("tt", names[::order], SETTINGS, writes=False)
    assert missing.text.endswith("did you mean 'ttt'?")
    denied = [checked(1, topics={"t": topic(29)}), checked(2, topics={"t": topic(3)})][::order]
    (lacking,) = check_topic("t", denied, SETTINGS, writes=False)
    assert "lacks Describe on the topic" in lacking.text
    others = {"g": values(error_code=16)}
    failed = [checked(1, groups=others, findings=[("x", "problem", "")]), checked(2, groups=others)][::order]
    assert [each.result for each in check_group("g", failed, SETTINGS)] == ["unknown"]
    misspelt = {"gruop-1": values(error_code=16)}
    ids = [checked(1, groups=misspelt, group_ids=["a", "group-1", "b"]), checked(2, groups=misspelt, group_ids=["c"])]
    missing_group = next(iter(check_group("gruop-1", ids[::order], SETTINGS)))
    assert missing_group.text.endswith("did you mean 'group-1'?")
    group = values(error_code=0, group_state="Empty", members=[], authorized_operations=1 << 3)
    coordinated = [checked(1, groups={"g": group}), checked(2, groups={"g": values(error_code=16)})][::order]
    assert next(each.text for each in check_group("g", coordinated, SETTINGS)) == "exists, without active members"


@pytest.mark.parametrize("login_fails", [False, True])
def test_the_command_checks_executors_unless_a_login_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], login_fails: bool
) -> None:
    calls: list[tuple[Any, ...]] = []

    def check_all(settings: Mapping[str, str], wanted: Wanted, timeout: float) -> list[Finding]:
        calls.append((settings["client.id"], wanted, timeout))
        sasl: Result = "problem" if login_fails else "ok"
        return [Finding("b1", "tls", "problem", ""), Finding("b1", "sasl", sasl, ""), Finding("b2", "sasl", "ok", "")]

    def check_executors(master: str, conf: Mapping[str, str], settings: Any, wanted: Wanted, timeout: float) -> Any:
        calls.append((master, conf, wanted))
        results: Sequence[Result] = ("ok", "problem", "ok")
        return [Examined(f"executor {number}", [Finding("s", "tcp", each, "")]) for number, each in enumerate(results)]

    monkeypatch.setattr(checks, "check_all", check_all)
    monkeypatch.setattr(spark_checks, "check_executors", check_executors)
    topics = [part for each in ("t", "u", "t") for part in ("--topic", each)]
    groups = [part for each in ("g", "h", "g") for part in ("--group", each)]
    conf = ["--conf", "spark.a=b=c", "--conf", "spark.d=e"]
    command = ["doctor", "-b", "b1:1", "-X", "client.id=x", *topics, *groups, "--spark", "m", *conf, "--json"]
    assert main(command) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wanted = Wanted(("t", "u"), ("g", "h"))
    assert calls[0] == ("x", wanted, 10.0)
    if login_fails:
        assert [row["host"] for row in rows] == ["driver"] * 3 + ["executors"]
        assert len(calls) == 1
    else:
        assert [row["host"] for row in rows] == ["driver"] * 3 + ["executor 0", "executor 1", "executor 2"]
        assert calls[1] == ("m", {"spark.a": "b=c", "spark.d": "e"}, wanted)


def test_executors_are_in_order_and_all_settings_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executor 10 is after executor 2, and the settings of the user are applied last."""
    import pyspark.sql

    from pyspark_kafka_direct.direct import location_strategies

    class Builder:
        def __init__(self) -> None:
            self.settings: dict[str, str] = {}

        def master(self, _: str) -> Builder:
            return self

        appName = master  # noqa: N815

        def config(self, name: str, value: str) -> Builder:
            self.settings[name] = value
            return self

        def getOrCreate(self) -> Any:
            return values(sparkContext=values(setLogLevel=lambda _: None))

    builder = Builder()
    monkeypatch.setattr(pyspark.sql.SparkSession, "builder", builder)
    spark_checks._start_session("m", {"spark.task.maxFailures": "4", "spark.a": "b"})
    assert builder.settings == {**spark_checks._SESSION, "spark.task.maxFailures": "4", "spark.a": "b"}
    executors = [Executor("h", number) for number in ("10", "2", "1")]
    monkeypatch.setattr(location_strategies, "list_executors", lambda _: executors)
    found = spark_checks._wait_for_executors(cast("SparkContext", None), "local-cluster[3,1,1024]")
    assert [each.id for each in found] == ["1", "2", "10"]


def waited(monkeypatch: pytest.MonkeyPatch, counts: Sequence[int], master: str, instances: str = "") -> tuple[int, int]:
    """Return how many executors are found, and after how many seconds; each second another number is registered."""
    from pyspark_kafka_direct.direct import location_strategies

    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def list_executors(_: object) -> list[Executor]:
        return [Executor("h", str(number)) for number in range(counts[min(int(now[0]), len(counts) - 1)])]

    monkeypatch.setattr(spark_checks, "time", values(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(location_strategies, "list_executors", list_executors)
    conf = values(get=lambda name, default: instances if name == "spark.executor.instances" else default)
    context = cast("SparkContext", values(getConf=lambda: conf))
    found = spark_checks._wait_for_executors(context, master)
    return len(found), round(now[0])


@pytest.mark.parametrize(
    ("counts", "master", "instances", "expected"),
    [
        ([0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3], "local-cluster[3,1,1024]", "", (3, 11)),
        ([1, 1, 1, 1, 1, 1, 1, 1, 1, 2], "spark://m", "2", (2, 9)),
        ([1, 2, 3, 3, 3, 3, 3, 3, 3, 3], "spark://m", "", (3, 7)),
        ([3, 3, 3, 2, 2, 2, 2, 2, 2, 2], "spark://m", "", (2, 8)),  # an executor was lost
        ([0, 1, 0, 0, 0, 0, 0, 0, 0, 4], "spark://m", "", (4, 14)),
        ([2, 0], "spark://m", "3", (0, 120)),
        ([1], "yarn", "2", (1, 120)),
        ([5], "local[4]", "", (0, 0)),
    ],
)
def test_all_executors_that_are_expected_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, counts: list[int], master: str, instances: str, expected: tuple[int, int]
) -> None:
    assert waited(monkeypatch, counts, master, instances) == expected


@pytest.mark.parametrize(("executors", "rounds"), [(0, 1), (1, 1), (2, 1), (3, 2), (7, 4)])
def test_executors_that_have_to_wait_for_others_have_more_time(
    monkeypatch: pytest.MonkeyPatch, executors: int, rounds: int
) -> None:
    limits: list[float] = []

    def wait(futures: Sequence[Any], timeout: float) -> tuple[set[Any], set[Any]]:
        limits.append(timeout)
        for future in futures:
            future.exception(300)
        return {*futures}, set()

    def run_task(*_: object) -> None:
        raise OptionError("failed")

    monkeypatch.setattr(spark_checks, "wait", wait)
    monkeypatch.setattr(spark_checks, "_run_task", run_task)
    monkeypatch.setattr(spark_checks, "_MAX_JOBS", 2)
    each = [Executor("h", str(number)) for number in range(executors)]
    found = spark_checks._run_tasks(cast("SparkContext", None), each, {}, 5.0)
    assert (len(found), limits) == (max(executors, 1), [rounds * 125.0])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("\n  first\nsecond\n", "first"),
        ("Job aborted\nTraceback\n  ValueError: one: x\norg.b.SomeException: two: y\n", "ValueError: one: x"),
        ("", "OptionError"),
        ("a" * 600 + "b" * 600, "a" * 600 + "b" * 400),
    ],
)
def test_the_first_line_that_names_a_cause_is_shown(error: str, line: str) -> None:
    assert spark_checks._first_line(OptionError(error)) == line


@pytest.mark.parametrize(
    ("of_executor", "text"),
    [(100.0, "within 2.0 s"), (91.0, "8.0 s behind"), (111.0, "10.0 s ahead of"), (99.0, "within")],
)
def test_the_clock_of_an_executor(of_executor: float, text: str) -> None:
    assert text in spark_checks._clock(of_executor, 99.0, 101.0).text


def test_all_findings_of_an_executor_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Finding("s", name, "ok", "") for name in ("dns", "tcp", "tls")]
    monkeypatch.setattr(checks, "check_all", lambda *_: found)
    assert [each[1] for each in checks.check_on_executor({}, ((), (), False), 1)] == ["dns", "tcp", "tls"]
