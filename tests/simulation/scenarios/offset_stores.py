"""Offset stores: each run of a query resumes at the last offsets that were saved, and ends the saves of earlier runs.

Each save has other offsets, so that an offset names its save.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from tests.simulation.cluster.coordinator_events import draw_coordinator_event
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.drawing import (
    READ_APIS,
    draw_aimed_crash,
    draw_events,
    draw_spread_faults,
    draw_transactional_cluster,
)
from tests.simulation.environment import Environment
from tests.simulation.errors import ViolationError
from tests.simulation.history import Event
from tests.simulation.oracle import READ_COMMITTED
from tests.simulation.scenarios.exactly_once import SAFE_EVENTS

from pyspark_kafka_direct.errors import (
    KafkaDirectError,
    OutcomeUnknownError,
    ProducerFencedError,
    TopicRecreatedError,
)
from pyspark_kafka_direct.log import KafkaOffsetStore
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings, ProducerSettings

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from tests.simulation.history import Plan
    from tests.simulation.scheduler import World

_STORE: Final = "offsets"
_TOPICS: Final = ("flights", "trains")
_APIS: Final = (*READ_APIS, "FindCoordinator", "InitProducerId", "Produce", "EndTxn", "CreateTopics")
_SECONDS: Final = (2.0, 8.0)
_CALM_SECONDS: Final = 3.0
_LIVENESS_SECONDS: Final = 300.0
_LATE_SECONDS: Final = 100.0
_LAG_SECONDS: Final = 2.0


def draw_stores(rng: random.Random, parameters: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Event, ...], float]:
    """Return parameters, events and the length of a history of offset stores."""
    cluster = draw_transactional_cluster(rng)
    seconds = rng.choice(_SECONDS)
    topics = {name: rng.randint(1, 3) for name in _TOPICS[: rng.choice((1, 2, 2))]}
    runs = [
        {
            "query": rng.choice(("a", "a", "b")),
            "at": round(seconds * rng.random(), 3) if number else 0.0,
            "discards": rng.random() < 0.5,
            "steps": [_draw_step(rng, topics, seconds / 4) for _ in range(rng.randint(1, 4))],
        }
        for number in range(rng.choice((1, 2, 2, 3)))
    ]
    events: tuple[Event, ...] = ()
    if rng.random() < 0.7:
        kinds = [each for each in SAFE_EVENTS if each not in ("expand_topic", "compact_log")]
        events = draw_events(rng, {_STORE: 1}, seconds=seconds, requests=60, long=False, kinds=kinds, apis=_APIS)
        events += tuple(draw_spread_faults(rng, _APIS, count=rng.choice((0, 0, 1, 3)), occurrences=5))
        events += tuple(draw_aimed_crash(rng, _APIS, long=False) for _ in range(rng.choice((0, 0, 1, 1))))
        if rng.random() < 0.2:
            kind = "move_transaction_coordinators"
            args = draw_coordinator_event(rng, kind, "", seconds)
            events += (Event(kind, round(rng.random() * seconds, 3), args=args),)
    return (
        {
            **cluster,
            "stores": runs,
            "topics": topics,
            "store_exists": rng.random() < 0.5,
            "expires_at": [round(seconds * (0.3 + 0.6 * rng.random()), 3)] if rng.random() < 0.3 else [],
            "changes": _draw_changes(rng, topics, seconds),
            "log": (),
            "append_list": (),
            "members": (),
            "kills": (),
            "steps": parameters["steps"],
        },
        events,
        seconds,
    )


def run_stores(world: World, plan: Plan) -> None:
    history = _History(world, plan)
    history.run()


def _draw_step(rng: random.Random, topics: Mapping[str, int], pause: float) -> dict[str, Any]:
    partitions = [[name, index] for name, count in topics.items() for index in range(count)]
    return {
        "kind": rng.choice(("save", "save", "save", "save", "again", "delete", "load")),
        "pause": round(pause * rng.random(), 3),
        "partitions": rng.sample(partitions, rng.randint(1, len(partitions))),
    }


def _draw_changes(rng: random.Random, topics: Mapping[str, int], seconds: float) -> list[dict[str, Any]]:
    """Draw topics that get partitions, or are deleted and recreated."""
    return [
        {
            "at": round(seconds * rng.random(), 3),
            "topic": rng.choice(tuple(topics)),
            "kind": rng.choice(("expand", "recreate")),
        }
        for _ in range(rng.choice((0, 0, 1, 1, 2)))
    ]


class _Save:
    """One call that saves or deletes offsets."""

    def __init__(self, run: _Run, offsets: Mapping[TopicPartition, int | None], began_at: float) -> None:
        self.run = run
        self.offsets = dict(offsets)
        self.began_at = began_at
        self.ended_at: float | None = None  # None: it is in flight, or its process died
        self.error: BaseException | None = None

    @property
    def is_acknowledged(self) -> bool:
        return self.ended_at is not None and self.error is None

    @property
    def may_be_saved(self) -> bool:
        # The first attempt of a fenced run may have been committed.
        return self.error is None or isinstance(self.error, (OutcomeUnknownError, ProducerFencedError))


class _Run:
    """One run of a query."""

    def __init__(self, history: _History, values: Mapping[str, Any], name: str) -> None:
        self._history = history
        self.values = values
        self.name = name
        self.query: str = values["query"]
        self.process = history.environment.process(name)
        self.opened_at: float | None = None
        self.is_opening = False
        self.began_at = 0.0
        self._model: dict[TopicPartition, int] = {}
        self._discards: bool = values["discards"]

    def run(self) -> None:
        self.process.sleep(self.values["at"])
        store = self._open()
        if store is None:
            return
        try:
            for step in self.values["steps"]:
                self.process.sleep(step["pause"])
                self._step(store, step)
        finally:
            store.close()

    def _open(self) -> KafkaOffsetStore | None:
        """Open the store; after errors again, as a new run of the application would."""
        history, world = self._history, self._history.environment.world
        while True:
            store, began = self._build(), world.now
            self.began_at = began
            is_quiet, self.is_opening = history.environment.is_quiet, True
            try:
                with world.operation():
                    store.open()
            except TopicRecreatedError as error:
                history.check_recreated(error)
                self._discards = True  # what the message advises
            except ProducerFencedError as error:
                # An InitProducerId that arrives late fences its sender.
                if (history.is_calm or self.name.startswith("last")) and not history.others_open(self, began):
                    raise ViolationError(f"nobody else opens the store of {self.query}: {error!r}") from error
                return None
            except KafkaDirectError as error:
                is_alone = history.is_calm and not history.others_open(self, began)
                if is_alone or (is_quiet and world.now > history.environment.quiet_at + _LIVENESS_SECONDS):
                    raise ViolationError(f"a store does not open though no fault is left: {error!r}") from error
                self.process.sleep(0.5)
            else:
                self.opened_at, self.is_opening = world.now, False
                history.check_time("open()", began, self)
                self._model = store.load()
                history.check_loaded(self, began, self._model)
                return store

    def _build(self) -> KafkaOffsetStore:
        clients = LogClients(
            self._history.environment.client(self.process),
            FetchSettings("read_committed"),
            produce=ProducerSettings(),
        )
        action: Literal["discard", "error"] = "discard" if self._discards else "error"
        return KafkaOffsetStore(
            _STORE,
            self.query,
            clients,
            on_topic_recreated=action,
            transaction_timeout_ms=20_000,
        )

    def _step(self, store: KafkaOffsetStore, step: Mapping[str, Any]) -> None:
        history, began = self._history, self._history.environment.world.now
        partitions = [TopicPartition(*each) for each in step["partitions"]]
        if step["kind"] == "load":
            self._load(store, sorted({tp.topic for tp in partitions}))
            return
        offsets: dict[TopicPartition, int | None] = {}
        for tp in partitions:
            match step["kind"]:
                case "save":
                    offsets[tp] = history.next_offset()
                case "again" if tp in self._model:
                    offsets[tp] = self._model[tp]
                case "delete":
                    offsets[tp] = None
        # What does not change writes nothing, so that a fenced run notices nothing.
        unknown = {tp for each in history.saves if each.run is self and each.error is not None for tp in each.offsets}
        changed = {tp: new for tp, new in offsets.items() if tp in unknown or self._model.get(tp) != new}
        save = _Save(self, changed, began)
        history.saves.append(save)
        try:
            with history.environment.world.operation():
                if step["kind"] == "delete":
                    store.delete(partitions)
                else:
                    store.save({tp: offset for tp, offset in offsets.items() if offset is not None})
        except KafkaDirectError as error:
            save.error = error
            self._check_error(save, error)
        else:
            for tp, offset in offsets.items():
                if offset is None:
                    self._model.pop(tp, None)
                else:
                    self._model[tp] = offset
        save.ended_at = history.environment.world.now
        history.check_time(step["kind"], began, self)
        if (loaded := store.load()) != self._model:
            raise ViolationError(f"load() returns {loaded} after {step['kind']}, not {self._model}")

    def _check_error(self, save: _Save, error: KafkaDirectError) -> None:
        history = self._history
        if history.is_calm and not history.others_open(self, self.began_at):
            raise ViolationError(f"{save.offsets} are not saved without any fault: {error!r}") from error

    def _load(self, store: KafkaOffsetStore, topics: list[str]) -> None:
        """Check the offsets of some topics, with the starts of partitions without saved offsets."""
        history = self._history
        before = {name: history.common_partitions(name) for name in topics}
        try:
            loaded = store.load(topics)
            positions = json.loads(store.starting_offsets_json(topics, "latest"))
        except KafkaDirectError as error:
            if history.is_calm:
                raise ViolationError(f"load({topics}) fails without any fault: {error!r}") from error
            return
        known = {tp: offset for tp, offset in self._model.items() if tp.topic in topics}
        for tp, offset in loaded.items():
            if offset != known.get(tp, 0):
                raise ViolationError(f"load({topics}) returns {offset} for {tp}, not {known.get(tp, 0)}")
        for name, count in before.items():
            has_saved = any(tp.topic == name for tp in known)
            expected = {TopicPartition(name, index) for index in range(count)} if has_saved else set()
            if missing := (expected | known.keys()) - loaded.keys():
                raise ViolationError(f"load({topics}) lacks {sorted(missing)}")
            for index in range(count):
                default = -2 if has_saved else -1
                offset = known.get(TopicPartition(name, index), default)
                if positions[name].get(str(index)) != offset:
                    raise ViolationError(f"partition {index} of {name} starts at {positions[name]}, not at {offset}")


class _History:
    def __init__(self, world: World, plan: Plan) -> None:
        self.environment = Environment(world, plan)
        self._parameters = plan.parameters
        self.is_calm = not plan.events
        self.saves: list[_Save] = []
        self._runs: list[_Run] = []
        self._offset = 0
        self._recreated_at: dict[str, list[float]] = {}
        self._tasks: list[Any] = []

    def run(self) -> None:
        environment, parameters = self.environment, self._parameters
        world, cluster = environment.world, environment.cluster
        for name, count in parameters["topics"].items():
            cluster.create_topic(name, count)
        if parameters["store_exists"]:
            cluster.create_topic(_STORE, 1, configs={"cleanup.policy": "compact"})
        for at in parameters["expires_at"]:
            world.at(environment.started_at + at, self._expire_ids)
        for change in parameters["changes"]:
            world.at(environment.started_at + change["at"], self._change, change)
        for number, values in enumerate(parameters["stores"]):
            self._start(f"run-{number}", values)
        world.run(self._tasks)
        environment.raise_errors()
        world.run_for(max(0.0, environment.quiet_at - world.now) + _LATE_SECONDS)
        for query in ("a", "b"):
            last = {"query": query, "at": 0.0, "discards": True, "steps": _last_steps(parameters["topics"])}
            self._start(f"last-{query}", last)
            world.run(self._tasks)
            environment.raise_errors()
        self._check_log()
        environment.check_released([each.process for each in self._runs if not each.process.dead])

    def _start(self, name: str, values: Mapping[str, Any]) -> None:
        run = _Run(self, values, name)
        self._runs.append(run)
        self._tasks.append(run.process.spawn("main", partial(self._use, run)))

    def _use(self, run: _Run) -> None:
        try:
            run.run()
        finally:
            if run.process.dead:
                self._start(f"{run.name}+", {**run.values, "at": 0.3})

    def next_offset(self) -> int:
        self._offset += 1
        return self._offset

    def _expire_ids(self) -> None:
        """Let brokers delete the transactional ids of idle runs."""
        coordinator = TransactionCoordinator.of(self.environment.cluster)
        for query in ("a", "b"):
            name = f"{_STORE}:{query}.store"
            is_used = any(each.is_opening for each in self._runs)
            is_used = is_used or any(each.ended_at is None and each.error is None for each in self.saves)
            metadata = coordinator.transaction(name)
            if metadata is None or name in coordinator.ongoing or is_used:
                continue
            coordinator.expire(name)
            for target in self.environment.cluster.all_partitions():
                for log in target.replicas.values():
                    log.producers.pop(metadata.producer_id, None)

    def _change(self, change: Mapping[str, Any]) -> None:
        cluster, name = self.environment.cluster, change["topic"]
        count = len(cluster.topics[name].partitions)
        if change["kind"] == "expand":
            cluster.expand_topic(name, count + 1)
        else:
            cluster.delete_topic(name)
            cluster.create_topic(name, count)
            self._recreated_at.setdefault(name, []).append(self.environment.world.now)
        cluster.notify()

    # Checks.

    def check_time(self, name: str, began: float, run: _Run) -> None:
        settings = self.environment.cluster.settings
        passed = self.environment.world.now - began
        if self.is_calm and not self._others_write(run) and passed > _CALM_SECONDS + 8 * settings.replication_delay:
            raise ViolationError(f"{name} takes {passed:.2f} s without any fault")

    def others_open(self, run: _Run, since: float) -> bool:
        """Return whether another run of the query may have opened its store since a time.

        A save whose transaction the broker aborted for this run opens the store again, unless it reads the other run.
        """
        others = [each for each in self._runs if each.query == run.query and each is not run]
        return any(each.opened_at is None or each.opened_at >= since for each in others) or any(
            save.run in others and (save.ended_at is None or save.ended_at >= since) for save in self.saves
        )

    def _others_write(self, run: _Run) -> bool:
        return any(each is not run for each in self._runs)

    def common_partitions(self, topic: str) -> int:
        """Return how many partitions all brokers know, unless they may have another topic."""
        images = [broker.image.topics.get(topic) for broker in self.environment.cluster.brokers.values()]
        return min(0 if each is None else len(each.partitions) for each in images)

    def check_recreated(self, error: TopicRecreatedError) -> None:
        if error.topic not in self._recreated_at:
            raise ViolationError(f"{error.topic} was not recreated: {error!r}")

    def check_loaded(self, run: _Run, began: float, loaded: Mapping[TopicPartition, int]) -> None:
        """Check that a run has the last offsets that were saved before, or those of a save that is not decided."""
        saves = [each for each in self.saves if each.run.query == run.query]
        for tp in {tp for each in saves for tp in each.offsets} | loaded.keys():
            acknowledged = [
                each for each in saves if tp in each.offsets and each.is_acknowledged and (each.ended_at or 0.0) < began
            ]
            last = max(acknowledged, key=lambda each: each.ended_at or 0.0, default=None)
            allowed = {None if last is None else last.offsets[tp]}
            allowed |= {
                each.offsets[tp]
                for each in saves
                if tp in each.offsets and each.may_be_saved and (last is None or each.began_at >= last.began_at)
            }
            recreated = self._recreated_at.get(tp.topic, ())
            if any(at <= self.environment.world.now for at in recreated):
                allowed.add(None)
            if loaded.get(tp) not in allowed:
                raise ViolationError(f"{run.name} loads {loaded.get(tp)} for {tp}, not {allowed}")
        self._check_discarded(run, began, loaded)

    def _check_discarded(self, run: _Run, began: float, loaded: Mapping[TopicPartition, int]) -> None:
        """Check that no offset of a topic is loaded that was recreated since it was saved."""
        if not self.environment.cluster.settings.topic_ids or not self.is_calm:
            return
        for tp, offset in loaded.items():
            save = next(each for each in self.saves if each.offsets.get(tp) == offset)
            changed = [at for at in self._recreated_at.get(tp.topic, ()) if at < began - _LAG_SECONDS]
            if any(at > (save.ended_at or at) for at in changed):
                raise ViolationError(f"{run.name} loads {offset} of {tp}, which was saved before its topic existed")

    def _check_log(self) -> None:
        """Check what the topic has: each acknowledged save completely, no failed one, and nothing twice in a row."""
        records = self.environment.oracle.truth((_STORE, 0)).records(0, 1 << 60, READ_COMMITTED, 1e9)
        found: dict[tuple[str, str, int], list[tuple[int | None, str | None]]] = {}
        for record in records:
            assert record.key is not None
            key = json.loads(record.key)
            if len(key) == 3:
                value = None if record.value is None else json.loads(record.value)
                written = (None, None) if value is None else (value["offset"], value.get("topicId"))
                previous = found.setdefault(tuple(key), [])
                if written in previous[-1:] and written[0] is not None:
                    raise ViolationError(f"an offset is written again that was saved: {key} {value}")
                previous.append(written)
                self._check_id(key[1], written[1])
        for save in self.saves:
            states = [
                any(offset == each for each, _ in found.get((save.run.query, *tp), ()))
                for tp, offset in save.offsets.items()
                if offset is not None and not self._was_saved_before(save, tp, offset)
            ]
            if save.is_acknowledged and not all(states):
                raise ViolationError(f"an acknowledged save is lost: {save.offsets} of {save.run.name}")
            if len(set(states)) > 1:
                raise ViolationError(f"a save is visible in part: {save.offsets} of {save.run.name}")
            if any(states) and not save.may_be_saved:
                raise ViolationError(f"a save has failed and is visible: {save.offsets}, {save.error!r}")
            self._check_fenced(save)

    def _check_id(self, topic: str, topic_id: str | None) -> None:
        ids = {str(each) for each in self.environment.cluster.generations_by_id}
        if topic_id is not None and topic_id not in ids:
            raise ViolationError(f"an offset of {topic} is saved with an unknown topic id {topic_id}")
        current = self.environment.cluster.topics[topic].topic_id
        if topic not in self._recreated_at and topic_id not in (None, str(current)):
            raise ViolationError(f"an offset of {topic} is saved with the topic id of another topic")

    def _was_saved_before(self, save: _Save, tp: TopicPartition, offset: int) -> bool:
        return any(each is not save and each.offsets.get(tp) == offset for each in self.saves)

    def _check_fenced(self, save: _Save) -> None:
        for other in self._runs:
            opened_later = other.opened_at is not None and other.began_at > (save.run.opened_at or 0.0)
            if (
                other is not save.run
                and other.query == save.run.query
                and opened_later
                and other.opened_at is not None
                and save.began_at > other.opened_at
                and save.is_acknowledged
                and any(offset is not None for offset in save.offsets.values())
                and not all(self._was_saved_before(save, tp, each) for tp, each in save.offsets.items() if each)
            ):
                raise ViolationError(f"{save.run.name} saves {save.offsets} after {other.name} has opened the store")


def _last_steps(topics: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
    partitions = [[name, index] for name, count in topics.items() for index in range(count)]
    return tuple({"kind": kind, "pause": 0.1, "partitions": partitions} for kind in ("save", "again", "load", "delete"))
