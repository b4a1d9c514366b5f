"""Checks a cluster: its bootstrap servers and every broker at the same time, then topics, groups and the clock."""

from __future__ import annotations

import ipaddress
import queue
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.doctor.broker_check import BrokerCheck
from pyspark_kafka_direct.cli.doctor.findings import Finding
from pyspark_kafka_direct.cli.doctor.resources import check_group, check_topic
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.options.hints import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_kafka_direct.cli.doctor.broker_check import Broker, Wanted
    from pyspark_kafka_direct.cli.doctor.findings import Result
    from pyspark_kafka_direct.options.settings import ConnectionSettings

_MAX_ADDRESSES: Final = 200  # each has a thread, and brokers may return any number
_REQUEST_FRACTION: Final = 0.9  # of the timeout; the rest is for the findings about what did not respond
_SKEW_WARNING: Final = 2.0  # seconds
_SKEW_PROBLEM: Final = 60.0  # logins with Kerberos and with tokens fail when clocks differ by minutes


def check_cluster(settings: ConnectionSettings, wanted: Wanted, timeout: float) -> list[Finding]:
    """Check the cluster in at most so many seconds."""
    checks = _check_brokers(settings, wanted, timeout)
    # A broker that was frozen returns old metadata at first, in which it is not fenced: so the fenced ones are last.
    returned = sorted((broker for check in checks for broker in check.brokers), key=lambda broker: broker.is_fenced)
    brokers = {(broker.host, broker.port): broker for broker in returned}
    findings = [finding for check in checks for finding in _broker_findings(check, checks, brokers, settings)]
    reached = [check for check in checks if check.has_responded]
    findings += _cluster_findings(reached, brokers)
    for topic in wanted.topics:
        findings += check_topic(topic, reached, settings, writes=wanted.writes)
    for group in wanted.groups:
        findings += check_group(group, reached, settings)
    return findings


def _check_brokers(settings: ConnectionSettings, wanted: Wanted, timeout: float) -> list[BrokerCheck]:
    """Check the bootstrap servers, and each broker that they return as soon as they do."""
    end = Deadline.after(timeout, "--timeout")
    deadline = Deadline.after(timeout * _REQUEST_FRACTION, "--timeout")
    checks: dict[tuple[str, int], BrokerCheck] = {}
    unfinished: set[BrokerCheck] = set()
    events: queue.SimpleQueue[tuple[BrokerCheck, bool]] = queue.SimpleQueue()  # with whether the check has finished

    def start(host: str, port: int) -> None:
        if (host, port) in checks or len(checks) >= _MAX_ADDRESSES:
            return
        check = BrokerCheck(
            settings, host, port, wanted, deadline, found_brokers=lambda found: events.put((found, False))
        )
        checks[host, port] = check
        unfinished.add(check)

        def run() -> None:
            check.run()
            events.put((check, True))

        SYSTEM.start_thread(run, "kafka-direct-doctor")

    for host, port in settings.bootstrap_servers:
        start(host, port)
    while unfinished:
        try:
            check, has_finished = events.get(timeout=max(end.remaining(), 0.001))
        except queue.Empty:
            break
        if has_finished:
            unfinished.discard(check)
        for broker in check.brokers:
            start(broker.host, broker.port)
    for check in unfinished:
        text = "No result within --timeout: the address is unresponsive, or this machine is too busy."
        check.findings.append((check.step, "problem", text))
    return list(checks.values())


def _broker_findings(
    check: BrokerCheck,
    checks: Sequence[BrokerCheck],
    brokers: dict[tuple[str, int], Broker],
    settings: ConnectionSettings,
) -> Iterator[Finding]:
    broker = brokers.get((check.host, check.port))
    is_bootstrap = (check.host, check.port) in settings.bootstrap_servers
    kind = "bootstrap server" if broker is None else f"broker {broker.id} at"
    subject = f"{kind} {check.address}"
    is_unreachable = check.has_failed and check.step in ("dns", "tcp")
    for name, result, given in check.findings:
        text = given
        if result == "problem" and is_unreachable and broker is not None and not is_bootstrap:
            text += (
                f" Broker {broker.id} advertises this address (advertised.listeners), so clients connect to it after "
                "the bootstrap server. Set it to a name and a port that the driver and all executors can reach."
            )
        elif result == "problem" and check.timed_out and broker is not None:
            known = "It has returned metadata" if check.has_responded else "The metadata of the cluster contains it"
            text = (
                f"The broker accepts connections, but does not respond within --timeout. {known}, so it is frozen or "
                "overloaded: check its process and its log."
            )
        yield Finding(subject, name, result, text)
    if broker is not None and broker.is_fenced:
        text = (
            "The controller has fenced this broker, because its heartbeats are missing: it is stopped, frozen or cut "
            "off. Check the broker and its log."
        )
        yield Finding(subject, "heartbeats", "problem", text)
    if broker is not None and _is_loopback(check) and not _is_only_local(checks, settings):
        text = (
            f"Broker {broker.id} advertises an address of the machine of each client (advertised.listeners). Set it "
            "to a name that the driver and all executors can reach."
        )
        yield Finding(subject, "advertised", "problem", text)


def _is_loopback(check: BrokerCheck) -> bool:
    return bool(check.ips) and all(ipaddress.ip_address(ip.partition("%")[0]).is_loopback for ip in check.ips)


def _is_only_local(checks: Sequence[BrokerCheck], settings: ConnectionSettings) -> bool:
    """Return whether the bootstrap servers that were reached are on this machine, too."""
    bootstrap = [check for check in checks if (check.host, check.port) in settings.bootstrap_servers]
    return all(_is_loopback(check) for check in bootstrap if check.has_responded)


def _cluster_findings(reached: Sequence[BrokerCheck], brokers: dict[tuple[str, int], Broker]) -> Iterator[Finding]:
    if not reached:
        yield Finding("cluster", "brokers", "unknown", "No broker has returned metadata: see the findings above.")
        return
    ids = sorted({broker.id for broker in brokers.values()})
    cluster_ids = list(dict.fromkeys(check.cluster_id for check in reached if check.cluster_id is not None))
    subject = f"cluster {cluster_ids[0]}" if cluster_ids else "cluster"
    if len(cluster_ids) > 1:
        members = "; ".join(
            f"{name}: {', '.join(check.address for check in reached if check.cluster_id == name)}"
            for name in cluster_ids
        )
        text = (
            f"The addresses belong to several clusters ({members}). Check kafka.bootstrap.servers and "
            "advertised.listeners: all of them have to be of one cluster."
        )
        yield Finding(subject, "brokers", "problem", text)
    else:
        yield Finding(subject, "brokers", "ok", f"{len(ids)}: {listed(ids)}")
    if len(brokers) > _MAX_ADDRESSES:
        text = f"The cluster has {len(brokers)} addresses, of which the first {_MAX_ADDRESSES} were checked."
        yield Finding(subject, "addresses", "unknown", text)
    yield _clock_finding(subject, reached)


def _clock_finding(subject: str, reached: Sequence[BrokerCheck]) -> Finding:
    offsets = [check.clock for check in reached if check.clock is not None]
    if not offsets:
        reason = next((check.clock_error for check in reached if check.clock_error), "No broker has returned the time")
        return Finding(
            subject, "clock", "unknown", f"{reason}. Check that NTP runs on the brokers and on this machine."
        )
    best = min(offsets, key=lambda each: each.uncertainty)
    skew = abs(best.seconds)
    direction = "ahead of" if best.seconds > 0 else "behind"
    measured = f"{skew:.3f} s {direction} the active controller's (node {best.controller}), ± {best.uncertainty:.3f} s"
    if skew - best.uncertainty < _SKEW_WARNING:
        return Finding(subject, "clock", "ok", f"{measured}")
    result: Result = "problem" if skew - best.uncertainty >= _SKEW_PROBLEM else "warning"
    text = (
        f"This machine's clock is {measured}. Timestamps, watermarks and logins depend on it: synchronize both clocks "
        "(NTP)."
    )
    return Finding(subject, "clock", result, text)
