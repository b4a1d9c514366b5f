"""What ``kafka-direct doctor`` says of several brokers, topics, partitions, groups and hosts.

The responses are those of real brokers in rare states, such as several partitions without a leader.
"""

from __future__ import annotations

import json
import re
import shlex
import threading
from concurrent.futures import Future
from dataclasses import replace
from importlib.metadata import version
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.unit.client.certified_keys import CertifiedKey

from pyspark_kafka_direct.cli.doctor import cluster_check, environment, spark_checks
from pyspark_kafka_direct.cli.doctor.broker_check import Broker, BrokerCheck, ClockOffset, Wanted
from pyspark_kafka_direct.cli.doctor.certificates import _is_for, _subject_text
from pyspark_kafka_direct.cli.doctor.environment import check_environment
from pyspark_kafka_direct.cli.doctor.executor_probe import probe
from pyspark_kafka_direct.cli.doctor.findings import Examined, Finding, has_problem, print_findings
from pyspark_kafka_direct.cli.doctor.permissions import check_permission
from pyspark_kafka_direct.cli.doctor.resources import check_group, check_topic
from pyspark_kafka_direct.cli.doctor.spark_checks import _findings as executor_findings
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.direct.location_strategies import Executor
from pyspark_kafka_direct.options.security_settings import SaslSettings, SecuritySettings
from pyspark_kafka_direct.options.settings import ConnectionSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark import SparkContext

    from pyspark_kafka_direct.cli.doctor.findings import Result

SETTINGS = ConnectionSettings((("b1", 1), ("b2", 2), ("b3", 3)))
MISSING, DENIED, NOT_COORDINATOR = 3, 29, 16
ALL = (1 << 3) | (1 << 8)  # Read and Describe


def checked(number: int, *, settings: ConnectionSettings = SETTINGS, **results: Any) -> BrokerCheck:
    """Return the check of broker ``number``, which has these results."""
    check = BrokerCheck(settings, f"b{number}", number, Wanted(), Deadline.after(60), found_brokers=lambda _: None)
    check.brokers = [Broker(each, f"b{each}", each) for each in (1, 2, 3)]
    for name, value in results.items():
        setattr(check, name, value)
    return check


def partition(index: int, *in_sync: int, leader: int = 1, replicas: Sequence[int] = (1, 2, 3)) -> Any:
    return SimpleNamespace(partition_index=index, leader_id=leader, replica_nodes=[*replicas], isr_nodes=[*in_sync])


def topic(*partitions: Any, error: int = 0) -> Any:
    return SimpleNamespace(error_code=error, partitions=partitions, topic_authorized_operations=ALL)


def texts(findings: Any) -> dict[str, str]:
    return {each.check: each.text for each in findings}


def test_each_partition_of_a_topic_counts() -> None:
    def partitions(*found: Any) -> str:
        checks = [checked(1, topics={"t": topic(*found)})]
        return texts(check_topic("t", checks, SETTINGS, writes=False))["partitions"]

    healthy = partition(0, 1, 2, 3)
    assert partitions(healthy, partition(1, 1, 2, replicas=(1, 2))) == "2, with 2, 3 replicas each, all in sync"
    lagging = partitions(healthy, partition(1, 1, 2), partition(2, 1), partition(3, 3, 2))
    assert lagging.startswith("Replicas of partitions 1, 2, 3 of 4 are not in sync, those on brokers 1, 2, 3:")
    leaderless = partitions(healthy, partition(1, leader=-1, replicas=(4, 5)), partition(2, leader=-1, replicas=(6,)))
    assert leaderless.startswith("No leader for partitions 1, 2 of 3, which can be neither read nor written. Start ")
    assert "Start brokers 4, 5, 6, with the replicas" in leaderless


def test_brokers_that_differ_about_a_topic() -> None:
    known = [checked(3, topics={"t": topic(partition(0, 1, 2, 3), partition(1, 1, 2, 3))})]
    behind = [checked(number, topics={"t": topic(error=MISSING)}, topic_names=["x", name])
              for number, name in ((1, "other"), (2, "ttt-1"))]  # fmt: skip
    found = texts(check_topic("t", [*behind, *known], SETTINGS, writes=False))
    assert found["exists"].startswith("b1:1, b2:2 does not know the topic")
    assert found["partitions"].startswith("2, with 3 replicas each")
    known.insert(0, checked(1, topics={"t": topic(partition(0, 1, 2, 3))}))
    assert texts(check_topic("t", known, SETTINGS, writes=False))["partitions"].startswith("2, ")
    missing = texts(check_topic("ttt-2", [_renamed(each, "t", "ttt-2") for each in behind], SETTINGS, writes=False))
    assert missing["exists"].endswith("did you mean 'ttt-1'?")
    mixed = [checked(1, topics={"t": topic(error=MISSING)}), checked(2, topics={"t": topic(error=DENIED)})]
    assert "The principal lacks Describe" in texts(check_topic("t", mixed, SETTINGS, writes=False))["acls"]


def _renamed(check: BrokerCheck, before: str, after: str) -> BrokerCheck:
    check.topics[after] = check.topics[before]
    return check


def group(*clients: str, error: int = 0, state: str = "Stable") -> Any:
    members = [SimpleNamespace(client_id=client) for client in clients]
    return SimpleNamespace(error_code=error, group_state=state, members=members, authorized_operations=ALL)


def test_only_the_coordinator_describes_a_group() -> None:
    others = [checked(number, groups={"g": group(error=NOT_COORDINATOR)}) for number in (1, 2)]
    coordinator = checked(3, groups={"g": group("one", "two")}, group_ids=["g"])
    found = texts(check_group("g", [*others, coordinator], SETTINGS))
    assert "The group has 2 active members (client ids: one, two)" in found["exists"]
    dead = checked(3, groups={"gruop-1": group(state="Dead")}, group_ids=["a", "group-1"])
    assert "did you mean 'group-1'?" in texts(check_group("gruop-1", [*others, dead], SETTINGS))["exists"]
    failed = checked(2, groups={"g": group(error=NOT_COORDINATOR)}, findings=[("x", "ok", ""), ("y", "problem", "")])
    assert "was not reached" in texts(check_group("g", [others[0], failed], SETTINGS))["exists"]


@pytest.mark.parametrize(
    ("sasl", "principal"),
    [
        (None, "User:NAME"),
        (SaslSettings("PLAIN", "alice"), "User:alice"),
        (SaslSettings("SCRAM-SHA-256", "it's a b"), "User:it's a b"),
        (SaslSettings("SCRAM-SHA-256", "token-id", is_delegation_token=True), "User:NAME"),
        (SaslSettings("OAUTHBEARER"), "User:NAME"),
    ],
)
def test_the_principal_that_needs_a_permission(sasl: SaslSettings | None, principal: str) -> None:
    """The user name of a delegation token is not that of its owner."""
    settings = replace(SETTINGS, security=SecuritySettings(sasl=sasl))
    text = check_permission("topic t", 1 << 8, "Write", "--topic t", settings).text
    assert f"--allow-principal {shlex.quote(principal)} --operation Write --topic t" in text


@pytest.mark.parametrize(
    ("error", "check", "result"),
    [(0, "exists", "ok"), (14, "exists", "problem"), (30, "acls", "problem"), (35, "exists", "problem")],
)
def test_each_error_of_a_group(error: int, check: str, result: str) -> None:
    found = {
        each.check: each.result for each in check_group("g", [checked(1, groups={"g": group(error=error)})], SETTINGS)
    }
    assert (found[check], len(found)) == (result, 2 if error == 0 else 1)


@pytest.mark.parametrize(
    ("operations", "result"), [(0, "problem"), (1 << 8, "problem"), (1 << 3, "ok"), (-(1 << 31), "unknown")]
)
@pytest.mark.parametrize("writes", [False, True])
def test_the_operation_that_a_query_needs(operations: int, result: str, writes: bool) -> None:
    shift = int(writes) if operations == 1 << 3 else 0  # Write is the operation after Read
    responses = []
    for found in (operations << shift, (1 << 3) | (1 << 4)):
        responses.append(topic(partition(0, 1, 2, 3)))
        responses[-1].topic_authorized_operations = found
    checks = [checked(1, topics=dict(zip(("t", "u"), responses, strict=True)))]
    results = [
        next(each for each in check_topic(name, checks, SETTINGS, writes=writes) if each.check == "acls")
        for name in ("t", "u")
    ]
    assert [each.result for each in results] == [result, "ok"]
    if result == "problem":
        assert (
            f"lacks {'Write' if writes else 'Read'} (allowed: {'Describe' if operations else 'nothing'})"
            in results[0].text
        )
        assert "--topic t" in results[0].text


def test_long_texts_are_complete(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(f"b{number}:9092" for number in range(300))
    for as_json in (False, True):
        print_findings([Examined("driver", [Finding("cluster", "brokers", "ok", text)])], as_json=as_json)
        assert text in capsys.readouterr().out


def test_all_operations_are_named() -> None:
    finding = check_permission("topic t", (1 << 3) | (1 << 8) | (1 << 11), "Write", "--topic t", SETTINGS)
    assert "(allowed: Read, Describe, AlterConfigs)" in finding.text


@pytest.mark.parametrize("name", ["g", "my group", "it's", "$(id)", "a;b", "ü"])
def test_the_command_that_allows_an_operation_can_be_run(name: str) -> None:
    denied = SimpleNamespace(error_code=30, group_state="", members=[], authorized_operations=0)
    finding = next(check_group(name, [checked(1, groups={name: denied})], SETTINGS))
    command = shlex.split(finding.text.partition("Allow it: ")[2])
    options = dict(pairwise(command))
    assert (options["--group"], options["--operation"], options["--allow-principal"]) == (name, "Read", "User:NAME")
    assert options["--bootstrap-server"] == "b1:1,b2:2,b3:3"


def test_findings_of_each_broker_and_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    ok: list[tuple[str, Result, str]] = [("dns", "ok", "ip"), ("tcp", "ok", "connected")]
    checks = [
        checked(1, findings=ok, cluster_id="A", ips=["127.0.0.1"], clock=ClockOffset(5.0, 1.0, 1)),
        checked(2, findings=[*ok, ("api versions", "problem", "broken")], cluster_id="B"),
        checked(3, findings=ok, cluster_id="B", clock=ClockOffset(3.0, 0.1, 3), ips=["127.0.0.1", "10.0.0.1"]),
    ]
    checks[2].brokers.append(Broker(4, "b4", 4, is_fenced=True))
    checks.append(checked(4, brokers=[], findings=ok))
    checks[0].topics = checks[1].topics = {name: topic(partition(0, 1, 2, 3)) for name in ("s", "t")}
    monkeypatch.setattr(cluster_check, "_check_brokers", lambda *_: checks)
    found = cluster_check.check_cluster(SETTINGS, Wanted(("s", "t"), ("g", "h")), 10)
    by_subject: dict[str, dict[str, str]] = {}
    for each in found:
        by_subject.setdefault(each.subject, {})[each.check] = each.text
    assert by_subject["broker 2 at b2:2"] == {"dns": "ip", "tcp": "connected", "api versions": "broken"}
    assert by_subject["broker 4 at b4:4"].keys() == {"dns", "tcp", "heartbeats"}
    assert "(A: b1:1; B: b2:2, b3:3)" in by_subject["cluster A"]["brokers"]
    assert "3.000 s ahead of the active controller's (node 3)" in by_subject["cluster A"]["clock"]
    assert by_subject["broker 1 at b1:1"].keys() == {"dns", "tcp", "advertised"}
    assert "advertised" not in by_subject["broker 3 at b3:3"]
    assert {"topic s", "topic t", "group g", "group h"} <= by_subject.keys()


def test_a_broker_that_does_not_know_that_it_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was frozen, and the others return that it is fenced; the order of the checks has no effect."""
    checks = [checked(number) for number in (1, 2, 3)]
    for number in (1, 3):
        checks[number - 1].brokers = [Broker(each, f"b{each}", each, is_fenced=each == 2) for each in (1, 2, 3)]
    for order in (checks, checks[::-1], [checks[0], checks[2], checks[1]]):
        monkeypatch.setattr(cluster_check, "_check_brokers", lambda *_, order=order: order)
        found = cluster_check.check_cluster(SETTINGS, Wanted(), 10)
        assert [each.subject for each in found if each.check == "heartbeats"] == ["broker 2 at b2:2"]


def test_each_check_that_does_not_end_has_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    has_ended = threading.Event()
    monkeypatch.setattr(BrokerCheck, "run", lambda _: has_ended.wait(300))
    found = cluster_check.check_cluster(SETTINGS, Wanted(), 0.1)
    has_ended.set()
    unresponsive = [each.subject for each in found if each.text.startswith("No result within --timeout")]
    assert sorted(unresponsive) == [f"bootstrap server b{number}:{number}" for number in (1, 2, 3)]


def test_each_codec_that_cannot_be_read_back_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert texts(check_environment(SETTINGS))["codecs"] == "gzip, snappy, lz4, zstd"
    monkeypatch.setattr(environment, "_can_read_back", lambda codec: codec not in ("lz4", "zstd"))
    assert "compressed with lz4, zstd cannot be read back" in texts(check_environment(SETTINGS))["codecs"]


def test_findings_of_each_host_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def of(host: str, *results: Result) -> Examined:
        return Examined(
            host, [Finding(f"s{n // 2}", f"check {n}", each, f"text {n}") for n, each in enumerate(results)]
        )

    hosts = [of("driver", "ok", "ok", "ok"), of("one", "ok", "warning", "ok"), of("two", "ok", "warning", "problem")]
    assert has_problem(hosts)
    print_findings(hosts, as_json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["host"], row["check"]) for row in rows] == [
        (host, f"check {number}") for host in ("driver", "one", "two") for number in range(3)
    ]
    print_findings(hosts, as_json=False)
    blocks = capsys.readouterr().out.split("\n\n")
    assert re.findall(r"(?:check \d|^s\d)", blocks[0], re.MULTILINE) == ["s0", "check 0", "check 1", "s1", "check 2"]
    assert [block.splitlines()[0] for block in blocks[1:3]] == [
        "one: 2 of 3 checks are ok",
        "two: 1 of 3 checks are ok",
    ]
    assert re.findall(r"check \d", blocks[2]) == ["check 1", "check 2"]
    assert blocks[3] == "1 problem, 2 warnings found in 9 checks.\n"
    columns = [Finding("s", name, "ok", "text") for name in ("dns", "api versions", "tcp")]
    print_findings([Examined("driver", columns)], as_json=False)
    _, *lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert {line.index("text") for line in lines} == {len("  ok       api versions  ")}


def test_names_of_certificates() -> None:
    from cryptography import x509

    key = CertifiedKey("broker", hosts="a.example.com b.example.com *.example.org 10.0.0.1 10.0.0.2")
    certificate = x509.load_pem_x509_certificate(key.pem.encode())
    hosts = ["a.example.com", "B.example.com", "c.example.org", "10.0.0.1", "10.0.0.2", "x.example.com"]
    assert [host for host in hosts if _is_for(certificate, host)] == hosts[:-1]
    others = ["a.c.example.org", "example.org", "cexample.org", "b.example.com.", "10.0.0.3", "*.example.com", "org"]
    assert [host for host in others if _is_for(certificate, host)] == ["b.example.com."]
    subject = ((("countryName", "DE"),), (("organizationName", "O"), ("commonName", "the CA")))
    assert _subject_text({"subject": subject}) == _subject_text({"subject": subject[::-1]}) == "CN=the CA"


def test_each_finding_and_version_of_an_executor_is_reported() -> None:
    distributions = ["pyarrow", "no-such-distribution", "pytest"]
    settings = {"bootstrap.servers": "no address"}
    task = {"distributions": distributions, "settings": settings, "wanted": ((), (), False), "timeout": 1}
    (report,) = probe([task])
    assert [report["versions"][name] for name in distributions] == [version("pyarrow"), None, version("pytest")]
    assert [check for _, check, _, _ in report["findings"]] == ["options"]
    report["versions"] |= {"pyspark": "0.1", "cryptography": "0.2"}
    report["findings"] += [("broker", "dns", "ok", "text"), ("broker", "tcp", "of another version", "text")]
    future: Future[Any] = Future()
    future.set_result((report, report["time"], report["time"]))
    found = [(each.check, each.result) for each in executor_findings(future)]
    assert found == [
        ("interpreter", "ok"),
        ("pyspark-kafka-direct", "ok"),
        ("pyspark", "warning"),
        ("pyarrow", "ok"),
        ("cryptography", "warning"),
        ("clock", "ok"),
        ("options", "problem"),
        ("dns", "ok"),
        ("tcp", "problem"),
    ]


def test_each_executor_runs_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[str | None] = []

    def run_task(_: object, location: str | None, task: dict[str, Any]) -> tuple[dict[str, Any], float, float]:
        tasks.append(location)
        report = next(probe([task]))
        return report, report["time"], report["time"]

    monkeypatch.setattr(spark_checks, "_run_task", run_task)
    task = {"distributions": spark_checks._DISTRIBUTIONS, "settings": {}, "wanted": ((), (), False), "timeout": 1}
    executors = [Executor("h", "0"), Executor("i", "1")]
    examined = spark_checks._run_tasks(cast("SparkContext", None), executors, task, 1)
    assert [each.host for each in examined] == ["executor 0 on h", "executor 1 on i"]
    assert sorted(map(str, tasks)) == ["executor_h_0", "executor_i_1"]
    assert [each.check for each in examined[0].findings] == [each.check for each in examined[1].findings]
