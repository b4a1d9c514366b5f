"""Shared logs and tables: a read to the end is complete, and each callback is called once and in order.

Several processes open the same compacted topic, each as a log or as a table, and use it from several threads. A process
may be killed and started again, and a log may be stopped while others wait for it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.drawing import MAX_REPEATS, WITHOUT_REUSE, draw_cluster, draw_events, draw_log
from tests.simulation.environment import Environment
from tests.simulation.history import Event, Plan
from tests.simulation.scenarios.offset_stores import draw_stores, run_stores
from tests.simulation.scenarios.shared_log_checks import TopicTruth, raise_first
from tests.simulation.scenarios.shared_log_idle import IDLE_SECONDS, draw_idle_writers, expire_writers
from tests.simulation.scenarios.shared_log_member import LogMember
from tests.simulation.scenarios.shared_log_reports import LogReports
from tests.simulation.scenarios.shared_log_writers import SingleWriters, draw_single_writers

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.simulation.history import Size
    from tests.simulation.scheduler import Task, World

NAME = "shared_log"
SHRINKABLE = {"steps": 1, "log": (), "append_list": (), "members": (), "kills": (), "expires_at": ()}
_TOPIC = "settings"
_WAITING = "delayed"  # the role of a log whose reads are delayed
_DISRUPTIONS = ("truncated", "truncated", "deposed leader", "recreated")
_LATE_SECONDS = 100.0  # after which no late request arrives, and no transaction is open
_STEPS = ("send", "send", "send", "read_to_end", "read_to_end", "read_to_end", "wait_for", "flush")


_LAST_STEPS = tuple(
    {"kind": "send", "pause": 0.0, "records": 3, "keys": 3, "tombstones": False, "timeout": 10.0, "as_future": waits}
    for waits in (True, False)
)


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    cluster = draw_cluster(rng)
    partitions = rng.randint(1, 3)
    seconds = rng.choice((0.5, 2.0, 8.0)) * (10 if long else 1)
    steps = rng.randint(20, 40) if long else rng.randint(1, 4)
    disruption = rng.choice(_DISRUPTIONS) if cluster["brokers"] > 1 and not long and rng.random() < 0.5 else None
    if disruption is not None:
        seconds, steps = rng.choice((4.0, 8.0)), rng.randint(4, 6)
    members = [_draw_member(rng, seconds, steps) for _ in range(rng.randint(2, 4) if long else rng.choice((1, 1, 2)))]
    keys = rng.choice((1, 3, 20))
    log = [
        {**each, "keys": 0 if rng.random() < 0.1 else keys}
        for each in draw_log(rng, batches=rng.randint(0, 40 if long else 5))
    ]
    appends = [
        {**each, "keys": keys, "at": round(rng.random() * seconds, 3)}
        for each in draw_log(rng, batches=rng.choice((0, 2, 40 if long else 4)))
    ]
    requests = 1500 if long else 60
    events = draw_events(rng, {_TOPIC: partitions}, seconds=seconds, requests=requests, long=long, kinds=WITHOUT_REUSE)
    if disruption is not None:
        changes, more = _draw_disruption(rng, disruption, partitions, seconds, cluster)
        events, appends = (*events, *changes), appends + [{**each, "keys": keys} for each in more]
        if disruption == "truncated" and rng.random() < 0.4:
            events = (*changes, _let_tables_wait_while_they_reload(rng, members, changes))
        elif disruption == "truncated" and rng.random() < 0.5:
            members = [members[0], dict(members[-1])]
            events = (*changes, _let_a_log_wait_for_records_of_another(rng, members, changes))
        elif disruption == "truncated" and (choice := rng.random()) < 0.7:
            changes = [each for each in changes if each.kind != "withhold_records"]  # the lost records are read before
            members = [members[0]]
            if choice < 0.35:
                events = (*changes, _let_a_log_wait_for_its_offsets(rng, members[0], changes))
            else:
                log = [{**each, "keys": 20} for each in (*log, *draw_log(rng, batches=5))]
                lost = _lose_records_of_a_reload(rng, members[0], changes, partitions, seconds)
                events = (*changes, *lost)
    parameters = {
        **cluster,
        "partitions": partitions,
        "log": log,
        "append_list": sorted(appends, key=lambda each: each["at"]),
        "steps": steps,
        "members": members,
        "kills": [_draw_kill(rng, seconds) for _ in range(rng.choice((0, 0, 0, 1, 3 if long else 1)))],
    }
    if disruption is None and not long and rng.random() < 0.2:
        _let_a_log_stop_while_reads_are_added(rng, members[0], seconds)
        parameters |= {"steps": 2, "kills": []}
        events = () if rng.random() < 0.7 else events
    elif disruption is None and not long and rng.random() < 0.15:
        parameters, events = {**parameters, "kills": []}, ()
        if rng.random() < 0.3:  # the topic is created after the logs have started
            members = [{**each, "stop_at": None, "start_timeout": 300.0, "create": None} for each in members]
            parameters |= {"created_at": round(rng.choice((0.5, 3.0)) * rng.random(), 3), "members": members}
    elif disruption is None and not long and rng.random() < 0.12:
        seconds = 4.0
        appends, events = _let_records_expire_unread(rng, members[0], partitions, seconds)
        parameters |= {"append_list": appends, "members": members[:1], "kills": []}
    elif disruption is None and not long and rng.random() < 0.2:
        parameters, events, seconds = draw_idle_writers(rng, parameters), (), IDLE_SECONDS
    elif disruption is None and rng.random() < 0.3:
        parameters, events = draw_single_writers(rng, parameters, events, seconds=seconds, long=long)
    if disruption is None and not long and rng.random() < 0.2:
        parameters, events, seconds = draw_stores(rng, parameters)
    return Plan(NAME, parameters, events, quiet_after=seconds)


def run(world: World, plan: Plan) -> None:
    if "stores" in plan.parameters:
        run_stores(world, plan)
        return
    environment = Environment(world, plan)
    parameters = plan.parameters
    partitions = parameters["partitions"]
    if created_at := parameters.get("created_at"):
        world.at(environment.started_at + created_at, _create_topic, environment)
    else:
        _create_topic(environment)
    for number, batch in enumerate(parameters["append_list"], len(parameters["log"])):
        append = partial(environment.write_log, first_number=number, partition_keys=True)
        world.at(environment.started_at + batch["at"], append, _TOPIC, partitions, [batch])
    members = _Members(environment)
    for number, values in enumerate(parameters["members"]):
        members.start(f"{values.get('role', 'member')}-{number}", values)
    for at in parameters.get("expires_at", ()):
        world.at(environment.started_at + at, members.expire_writers)
    for kill in parameters["kills"]:
        world.at(environment.started_at + kill["at"], members.kill, kill["member"])
    with members.reports.collected():
        world.run(members.tasks)
        members.check()
        if any(each.get("transactional") for each in parameters["members"]):
            world.run_for(_LATE_SECONDS)
            members.check_single_writers()


def _create_topic(environment: Environment) -> None:
    parameters = environment.plan.parameters
    environment.cluster.create_topic(_TOPIC, parameters["partitions"], configs={"cleanup.policy": "compact"})
    environment.write_log(_TOPIC, parameters["partitions"], parameters["log"], partition_keys=True)


def _draw_disruption(
    rng: random.Random, kind: str, partitions: int, seconds: float, cluster: dict[str, Any]
) -> tuple[list[Event], list[dict[str, Any]]]:
    """Draw a log that loses records, or a leader that was deposed, while records are appended."""
    settings = cluster["cluster"]
    settings["replication_factor"] = cluster["brokers"]
    first, second = (round(seconds * (begin + 0.2 * rng.random()), 3) for begin in (0.1, 0.5))
    partition = {"topic": _TOPIC, "partition": rng.randrange(partitions)}
    appends = [
        {**each, "partition": partition["partition"], "at": round(at, 3)}
        for begin, end in ((first, second), (second, seconds))
        for each in draw_log(rng, batches=3)
        for at in (rng.uniform(begin + 0.6, end),)
    ]
    match kind:
        case "truncated":
            stuck = {**partition, "seconds": seconds, "choice": rng.randrange(3)}
            events = [
                Event("stick_follower", at=first, args=stuck),
                Event("elect_unclean_leader", at=second, args={**partition, "choice": 0, "shortest": True}),
            ]
            if rng.random() < 0.5:  # the new leader knows nothing of the epoch whose records are lost
                again = {**partition, "choice": rng.randrange(3)}
                events.insert(1, Event("elect_leader", at=round(first + 0.3, 3), args=again))
            if rng.random() < 0.5:  # the lost records are not read before
                events.insert(1, Event("withhold_records", at=first, args={**partition, "seconds": 3.0}))
        case "deposed leader":
            events = [Event("isolate_broker", at=first, args={"broker": rng.randrange(3), "seconds": seconds})]
        case _:
            if rng.random() < 0.5:  # only its partitions tell that it is another one
                settings["topic_ids"], settings["transaction_version"] = False, 0
            recreated = {"topic": _TOPIC, "partitions": rng.randint(1, partitions), "seconds": 0.0}
            events = [Event("recreate_topic", at=second, args=recreated)]
            if rng.random() < 0.5:  # the new topic knows nothing of the epochs of the earlier one
                events.insert(0, Event("elect_leader", at=first, args={**partition, "choice": rng.randrange(3)}))
    return events, appends


def _let_tables_wait_while_they_reload(
    rng: random.Random, members: Sequence[dict[str, Any]], changes: Sequence[Event]
) -> Event:
    """Let tables wait for their writes while they are read again; return the pause of a broker that delays that."""
    truncated_at = changes[-1].at
    assert truncated_at is not None
    step = {"records": 1, "keys": 1, "tombstones": False, "timeout": 10.0, "again": False, "as_future": True}
    for member in members:
        member |= {"at": 0.0, "table": True, "reread": False, "fails_at": None, "stop_at": None, "linger": 0.0}
        member["threads"] = [
            [
                {**step, "kind": kind, "pause": pause}
                for first in (truncated_at + 0.1 * rng.random(), 0.2 * rng.random(), 0.5 * rng.random())
                for kind, pause in (("send", round(first, 3)), ("wait_for", 0.05))
            ]
            for _ in range(2)
        ]
    pause = {"broker": rng.randrange(3), "seconds": rng.choice((0.5, 2.0))}
    return Event("pause_broker", at=round(truncated_at + 0.3 * rng.random(), 3), args=pause)


def _let_a_log_wait_for_records_of_another(
    rng: random.Random, members: Sequence[dict[str, Any]], changes: Sequence[Event]
) -> Event:
    """Let a log wait for records of another one that are written before it notices that its topic was truncated.

    Return the event that delays what the log reads.
    """
    truncated_at = changes[-1].at
    assert truncated_at is not None
    step = {"records": 3, "keys": 3, "tombstones": False, "timeout": 10.0, "again": False, "as_future": True}
    for member, kind, role in zip(members, ("send", "wait_for"), ("member", _WAITING), strict=True):
        member |= {"at": 0.0, "table": False, "reread": False, "fails_at": None, "stop_at": None, "linger": 0.0}
        first = truncated_at + 0.3 * rng.random()
        member["role"] = role
        member["threads"] = [
            [
                {
                    **step,
                    "kind": kind,
                    "pause": round(first if number == 0 else 0.2 * rng.random(), 3),
                    "of_others": True,
                }
                for number in range(6)
            ]
            for _ in range(2)
        ]
    delay = {"api": f"{_WAITING}:Fetch", "occurrence": 0, "repeats": MAX_REPEATS, "seconds": rng.choice((0.3, 1.0))}
    return Event("delay_response", args=delay)


def _let_a_log_wait_for_its_offsets(rng: random.Random, member: dict[str, Any], changes: Sequence[Event]) -> Event:
    """Let a log wait for the offsets of its records before its reads show that its topic was truncated.

    Return the event that delays what the log reads.
    """
    truncated_at = changes[-1].at
    assert truncated_at is not None
    step = {"records": 3, "keys": 3, "tombstones": False, "timeout": 10.0, "again": False, "as_future": True}
    member |= {"at": 0.0, "table": False, "fails_at": None, "stop_at": None, "linger": 0.0, "role": _WAITING}
    pauses = [truncated_at + 0.1 * rng.random(), 0.05, 0.1, 0.05, 0.1, 0.05]
    kinds = ("send", "wait_for") * 3
    member["threads"] = [
        [
            {**step, "kind": kind, "pause": round(pause, 3), "of_others": False, "by_offset": True}
            for kind, pause in zip(kinds, pauses, strict=True)
        ]
    ]
    delay = {"api": f"{_WAITING}:Fetch", "occurrence": 0, "repeats": MAX_REPEATS, "seconds": rng.choice((0.3, 0.8))}
    return Event("delay_response", args=delay)


def _lose_records_of_a_reload(
    rng: random.Random, member: dict[str, Any], changes: Sequence[Event], partitions: int, seconds: float
) -> list[Event]:
    """Let a table lose its topic while it is read again slowly, after its log was truncated."""
    truncated_at = changes[-1].at
    assert truncated_at is not None
    step = {"records": 1, "keys": 1, "tombstones": False, "timeout": 10.0, "again": False, "as_future": True}
    member |= {"at": 0.0, "table": True, "fails_at": None, "stop_at": None, "role": _WAITING, "fetch_bytes": 150}
    pauses = (truncated_at, 2.0, 2.0)
    member["threads"] = [[{**step, "kind": "read_to_end", "pause": each, "of_others": False} for each in pauses]]
    delay = {"api": f"{_WAITING}:Fetch", "occurrence": 0, "repeats": MAX_REPEATS, "seconds": rng.choice((0.1, 0.2))}
    at = min(truncated_at + rng.choice((0.5, 1.0, 1.5)) + 0.5 * rng.random(), seconds - 0.1)
    recreated = {"topic": _TOPIC, "partitions": partitions, "seconds": 0.0}
    return [Event("recreate_topic", at=round(at, 3), args=recreated), Event("delay_response", args=delay)]


def _let_records_expire_unread(
    rng: random.Random, member: dict[str, Any], partitions: int, seconds: float
) -> tuple[list[dict[str, Any]], tuple[Event, ...]]:
    """Let records be deleted before a slow log has read them; return batches that are appended, and the events."""
    member |= {"at": 0.0, "stop_at": None, "role": _WAITING, "fetch_bytes": 150, "used_when_quiet": False}
    step = {"records": 1, "keys": 1, "tombstones": False, "timeout": 10.0, "again": False, "as_future": True}
    member["threads"] = [[{**step, "kind": "read_to_end", "pause": 1.0, "of_others": False} for _ in range(2)]]
    batches = draw_log(rng, batches=8, transactions=False)
    appends = [{**each, "keys": 3, "at": round(0.3 + 0.2 * rng.random(), 3)} for each in batches]
    delay = {"api": f"{_WAITING}:Fetch", "occurrence": 0, "repeats": MAX_REPEATS, "seconds": rng.choice((0.1, 0.3))}
    deletions = [
        Event(
            rng.choice(("delete_records", "expire_records")),
            at=round(0.6 + (seconds - 1.0) * rng.random(), 3),
            args={"topic": _TOPIC, "partition": rng.randrange(partitions), "fraction": rng.choice((0.5, 1.0))},
        )
        for _ in range(rng.randint(1, 3))
    ]
    return sorted(appends, key=lambda each: each["at"]), (*deletions, Event("delay_response", args=delay))


def _let_a_log_stop_while_reads_are_added(rng: random.Random, member: dict[str, Any], seconds: float) -> None:
    """Let threads be preempted in calls during which another thread stops the log."""
    at = 0.2 + 0.5 * seconds * rng.random()
    member |= {"at": 0.0, "stop_at": round(at, 3), "stop_timeout": 5.0, "fails_at": None}
    step = {"records": 1, "keys": 1, "tombstones": False, "timeout": 10.0, "of_others": False, "as_future": True}
    member["threads"] = [
        [
            {**step, "kind": "send", "pause": 0.0, "again": False},
            {
                **step,
                "kind": rng.choice(("read_to_end", "read_to_end", "read_to_end", "wait_for", "send", "flush")),
                "pause": round(max(at - 0.1 * rng.random(), 0.0), 3),
                "again": False,
                "stall": (rng.choice((0, 0, 1, 1, 2, 3)), rng.choice((0.2, 0.4))),
            },
        ]
        for _ in range(rng.randint(2, 4))
    ]


def _draw_member(rng: random.Random, seconds: float, steps: int) -> dict[str, Any]:
    return {
        **_draw_options(rng),
        "at": round(rng.choice((0.0, 0.3)) * rng.random() * seconds, 3),
        "table": rng.random() < 0.4,
        "committed": rng.random() < 0.6,
        "reread": rng.random() < 0.3,  # what on_reset returns
        "fails_at": rng.choice((None, None, None, rng.randint(1, 20))),  # the call of on_record that raises an error
        "start_timeout": rng.choice((4.0, 300.0)),
        "stop_at": round(rng.random() * seconds, 3) if rng.random() < 0.2 else None,
        "stop_timeout": rng.choice((0.3, 5.0, 30.0)),
        "linger": rng.choice((0.0, 0.0, 0.05)),
        "fetch_wait_ms": rng.choice((500, 3_000, 5_000)),
        "fetch_bytes": rng.choice((150, 4_194_304)),
        "in_flight": rng.choice((1, 5)),
        "threads": [
            [_draw_step(rng, 2 * seconds / steps) for _ in range(steps)] for _ in range(rng.choice((1, 2, 2, 3)))
        ],
    }


def _draw_options(rng: random.Random) -> dict[str, Any]:
    """Draw what few logs have; a read-only log or table writes nothing."""
    return {
        "batches": rng.random() < 0.2,
        "raises": rng.random() < 0.15,  # on_reset, on_error and on_change
        "reenters_at": rng.randint(1, 12) if rng.random() < 0.2 else None,  # the call of on_record that uses the log
        "stops_at": rng.randint(3, 20) if rng.random() < 0.05 else None,  # the call that stops it
        "max_age_ms": rng.choice((300_000, 300_000, 300_000, 2_000)),
        "create": rng.choice((None, None, None, {})),
        "used_when_quiet": rng.random() < 0.4,
        "only_even": rng.random() < 0.1,  # the partitions that a log reads
    }


def _draw_step(rng: random.Random, pause: float) -> dict[str, Any]:
    return {
        "kind": rng.choice(_STEPS),
        "pause": round(rng.choice((0.0, 0.2, 1.0)) * rng.random() * pause, 3),
        "records": rng.choice((1, 1, 3, 10)),
        "keys": rng.choice((1, 3)),
        "tombstones": rng.random() < 0.15,
        "timeout": rng.choice((0.1, 2.0, 10.0)),
        "of_others": rng.random() < 0.4,  # wait_for may wait for a record of another process
        "again": rng.random() < 0.2,  # the callback of a read to the end starts another one
        "as_future": rng.random() < 0.3,
    }


def _draw_kill(rng: random.Random, seconds: float) -> dict[str, Any]:
    return {"at": round(rng.random() * seconds, 3), "member": rng.randrange(4)}


class _Members:
    """The processes of a history; one that dies is started again."""

    def __init__(self, environment: Environment) -> None:
        self.tasks: list[Task] = []
        self._environment = environment
        self._members: list[LogMember] = []
        truth = TopicTruth(environment, _TOPIC, "read_committed")
        self._writers = SingleWriters(environment, truth)
        is_calm = not environment.plan.events and not environment.plan.parameters["kills"]
        self.reports = LogReports(environment.world, truth, is_calm=is_calm)

    def start(self, name: str, values: dict[str, Any]) -> LogMember:
        member = LogMember(self._environment, _TOPIC, name, values, self._writers, self.reports)
        self._members.append(member)
        self.tasks.append(member.process.spawn("main", partial(self._run, member)))
        return member

    def kill(self, number: int) -> None:
        alive = [each for each in self._members if not each.process.dead]
        member = alive[number % len(alive)]
        if not member.ended:
            self._environment.world.trace("kill", member.name)
            member.process.kill()

    def expire_writers(self) -> None:
        """Let brokers delete the transactional id of idle tables."""
        self._writers.expired_at.append(self._environment.world.now)
        expire_writers(self._environment)

    def check(self) -> None:
        self._environment.raise_errors()
        for member in self._members:
            member.raise_violations()
        raise_first(self.reports.violations)
        self._environment.check_released([each.process for each in self._members if not each.process.dead])

    def check_single_writers(self) -> None:
        """Check all writes of single writers, and that a last one can write."""
        values = {"at": 0.0, "stop_at": None, "start_timeout": 300.0, "threads": (_LAST_STEPS,)}
        if self._writers.truth.exists:
            member = self.start("last", {**self._environment.plan.parameters["members"][0], **values})
            self._environment.world.run(self.tasks)
            self.check()
            self._writers.check_last(member.name)
        self._writers.check()

    def _run(self, member: LogMember) -> None:
        try:
            member.run()
        finally:
            if member.process.dead:
                at = self._environment.plan.parameters.get("restart_seconds", 0.0)
                self.start(f"{member.name}+", {**member.values, "at": at})
