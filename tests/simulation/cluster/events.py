"""What happens to a cluster: events by kind, with arguments of plain data.

An event that does not apply (the topic was deleted, there is no other replica) has no effect. Numbers that choose a
broker or replica count modulo the candidates, so that any draw is valid.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.compaction import compact
from tests.simulation.cluster.coordinator_events import COORDINATOR_EVENT_KINDS, heal_coordinators
from tests.simulation.cluster.foreign_broker import ForeignBroker
from tests.simulation.cluster.topics import NO_LEADER

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from tests.simulation.cluster.broker import SimulatedBroker
    from tests.simulation.cluster.cluster import SimulatedCluster
    from tests.simulation.cluster.partition_log import ReplicaLog
    from tests.simulation.cluster.topics import SimulatedPartition


_LONGEST_WITHOUT_METADATA = 30.0  # in seconds
_WITHHOLD_PAUSE = 60.0  # seconds between two moments without records; then every reader has seen that there are some


def apply_event(cluster: SimulatedCluster, kind: str, args: Mapping[str, Any]) -> None:
    """Apply an event now; its arguments are those of the function in ``EVENT_KINDS`` or ``COORDINATOR_EVENT_KINDS``."""
    cluster.world.trace("event", kind, *(f"{name}={args[name]}" for name in sorted(args)))
    (EVENT_KINDS.get(kind) or PRODUCER_EVENT_KINDS.get(kind) or COORDINATOR_EVENT_KINDS[kind])(cluster, **args)
    cluster.notify()


def heal(cluster: SimulatedCluster) -> None:
    """End all faults at once: brokers are up, partitions get leaders, recreated topics exist; all images are new."""
    now = cluster.world.now
    cluster.unauthorized.clear()
    for broker in cluster.brokers.values():
        broker.isolated_until = min(broker.isolated_until, now)
        broker.image_stuck_until = min(broker.image_stuck_until, now)
        broker.throttled_until = min(broker.throttled_until, now)
        broker.down = False
        _end_reuse(cluster, broker)
        if broker.paused:
            _resume_broker(cluster, broker)
    _end_rebootstraps(cluster)
    for topic in sorted(cluster.absent_topics):
        _create_absent_topic(cluster, topic)
    for broker in cluster.brokers.values():
        broker.apply_image(cluster.image)
        cluster.unfence(broker.id)
    for target in cluster.all_partitions():
        target.stuck.clear()
        for replica in target.replicas.values():
            replica.remote_until = min(replica.remote_until, now)
            replica.withheld_until = min(replica.withheld_until, now)
        _find_leader(cluster, target, next(iter(target.replicas)))
        cluster.replicate_later(target)
    heal_coordinators(cluster)
    cluster.notify()


# Topics.


def create_topic(cluster: SimulatedCluster, topic: str, partitions: int = 1) -> None:
    cluster.create_topic(topic, partitions, configs=cluster.deleted_configs.get(topic))


def delete_topic(cluster: SimulatedCluster, topic: str) -> None:
    cluster.delete_topic(topic)


def recreate_topic(cluster: SimulatedCluster, topic: str, partitions: int = 1, seconds: float = 0.0) -> None:
    """Delete a topic and create it some seconds later."""
    if cluster.delete_topic(topic):
        cluster.absent_topics[topic] = partitions
        if seconds > 0:
            cluster.world.after(seconds, _create_absent_topic, cluster, topic)
        else:
            _create_absent_topic(cluster, topic)


def expand_topic(cluster: SimulatedCluster, topic: str, count: int = 1) -> None:
    """Add partitions."""
    existing = cluster.topics.get(topic)
    if existing is not None:
        cluster.expand_topic(topic, len(existing.partitions) + count)


def deny_topic(cluster: SimulatedCluster, topic: str, seconds: float, error_code: int = 29) -> None:
    """Respond with an authorization error for a while."""
    cluster.unauthorized[topic] = (cluster.world.now + seconds, error_code)
    cluster.world.after(seconds, cluster.notify)


def _create_absent_topic(cluster: SimulatedCluster, topic: str) -> None:
    partitions = cluster.absent_topics.pop(topic, None)
    if partitions is not None:
        cluster.create_topic(topic, partitions, configs=cluster.deleted_configs.get(topic))


# Elections.


def elect_leader(cluster: SimulatedCluster, topic: str, partition: int, choice: int = 0) -> None:
    """Elect another in-sync replica, or the same leader again if there is none, with the next epoch."""
    target = cluster.partition((topic, partition))
    if target is None:
        return
    others = [each for each in target.in_sync_replicas if each != target.leader and cluster.is_connected(each)]
    cluster.elect(target, others[choice % len(others)] if others else target.leader)


def elect_unclean_leader(
    cluster: SimulatedCluster, topic: str, partition: int, choice: int = 0, shortest: bool = False
) -> None:
    """Elect any other replica, or that with the shortest log; records that it lacks are lost."""
    target = cluster.partition((topic, partition))
    if target is None:
        return
    others = [each for each in target.replicas if each != target.leader and cluster.is_connected(each)]
    if shortest:
        others.sort(key=lambda each: target.replicas[each].end)
        choice = 0
    if others:
        cluster.elect(target, others[choice % len(others)], unclean=True)


def lose_leader(cluster: SimulatedCluster, topic: str, partition: int, seconds: float) -> None:
    """Leave a partition without a leader for a while."""
    target = cluster.partition((topic, partition))
    if target is None or target.leader == NO_LEADER:
        return
    leader = target.leader
    if cluster.elect(target, NO_LEADER):
        cluster.world.after(seconds, _find_leader, cluster, target, leader)


def _find_leader(cluster: SimulatedCluster, target: SimulatedPartition, preferred: int) -> None:
    if target.leader != NO_LEADER or target.topic.deleted:
        return
    candidates = [each for each in target.in_sync_replicas if cluster.is_connected(each)]
    if candidates:
        cluster.elect(target, preferred if preferred in candidates else candidates[0])
    else:
        cluster.world.after(1.0, _find_leader, cluster, target, preferred)


def stick_follower(
    cluster: SimulatedCluster,
    topic: str,
    partition: int,
    seconds: float,
    choice: int = 0,
    in_sync: bool = False,
    deposed: bool = False,
) -> None:
    """Stop a follower's replication for a while; unless ``in_sync``, the leader no longer waits for it.

    With ``deposed`` the leader too will not replicate, and not truncate its log, if it becomes a follower in that time.
    """
    target = cluster.partition((topic, partition))
    if target is None:
        return
    followers = [each for each in target.replicas if each != target.leader]
    if not followers or target.leader == NO_LEADER:
        return
    if deposed:
        target.stuck[target.leader] = cluster.world.now + seconds
    follower = followers[choice % len(followers)]
    target.stuck[follower] = cluster.world.now + seconds
    if not in_sync and follower in target.in_sync_replicas and len(target.in_sync_replicas) > 1:
        target.in_sync_replicas.remove(follower)
        cluster.publish()
        cluster.replicate_later(target)
    cluster.world.after(seconds, cluster.replicate_later, target)


# Brokers.


def stop_broker(cluster: SimulatedCluster, broker: int, seconds: float) -> None:
    """Stop a broker and start it again."""
    target = _broker(cluster, broker)
    if target.down:
        return
    target.down = True
    cluster.on_broker_down(target)
    cluster.world.after(cluster.settings.failure_detection, cluster.fence, target.id)
    cluster.world.after(seconds, _start_broker, cluster, target)


def reuse_address(cluster: SimulatedCluster, broker: int, seconds: float) -> None:
    """Stop a broker; a broker of another cluster uses its address until it starts again."""
    target = _broker(cluster, broker)
    if target.down:
        return
    stop_broker(cluster, broker, seconds)
    target.foreign = ForeignBroker(target)


def _end_reuse(cluster: SimulatedCluster, broker: SimulatedBroker) -> None:
    if broker.foreign is not None:
        broker.foreign = None
        cluster.on_broker_down(broker)  # closes connections to the other broker


def _start_broker(cluster: SimulatedCluster, broker: SimulatedBroker) -> None:
    broker.down = False
    _end_reuse(cluster, broker)
    # A broker applies all metadata before the controller unfences it.
    broker.image_stuck_until = min(broker.image_stuck_until, cluster.world.now)
    broker.apply_image(cluster.image)
    cluster.unfence(broker.id)
    cluster.notify()


def isolate_broker(cluster: SimulatedCluster, broker: int, seconds: float) -> None:
    """Cut a broker off from the controller and other brokers; clients still reach it, and it acts on its old image."""
    target = _broker(cluster, broker)
    target.isolated_until = max(target.isolated_until, cluster.world.now + seconds)
    cluster.world.after(cluster.settings.failure_detection, cluster.fence, target.id)
    cluster.world.after(seconds, _heal_broker, cluster, target)


def _heal_broker(cluster: SimulatedCluster, broker: SimulatedBroker) -> None:
    broker.apply_image(cluster.image)
    cluster.unfence(broker.id)


def stick_image(cluster: SimulatedCluster, broker: int, seconds: float) -> None:
    """Let a broker apply no metadata for a while."""
    target = _broker(cluster, broker)
    target.image_stuck_until = max(target.image_stuck_until, cluster.world.now + seconds)


def require_rebootstrap(
    cluster: SimulatedCluster, broker: int, seconds: float, others: bool = False, forever: bool = False
) -> None:
    """Let a broker, or all ``others`` if there are any, respond with REBOOTSTRAP_REQUIRED to Metadata for a while.

    ``forever`` means after the faults too. If no other broker returns metadata, it is some seconds at most: the retries
    of many tasks would need too many calls.
    """
    now, chosen = cluster.world.now, _broker(cluster, broker)
    rest = [each for each in cluster.brokers.values() if each is not chosen]
    targets = rest if others and rest else [chosen]
    until = math.inf if forever else now + seconds
    if all(each in targets or each.rebootstrap_until > now for each in cluster.brokers.values()):
        until = min(until, now + _LONGEST_WITHOUT_METADATA)
    for target in targets:
        target.rebootstrap_until = max(target.rebootstrap_until, until)


def _end_rebootstraps(cluster: SimulatedCluster) -> None:
    for broker in cluster.brokers.values():
        if broker.rebootstrap_until < math.inf:
            broker.rebootstrap_until = min(broker.rebootstrap_until, cluster.world.now)


def pause_broker(cluster: SimulatedCluster, broker: int, seconds: float) -> None:
    """Let a broker accept connections and requests, but handle none for a while."""
    target = _broker(cluster, broker)
    if not target.paused:
        target.paused = True
        cluster.world.after(seconds, _resume_broker, cluster, target)


def _resume_broker(cluster: SimulatedCluster, broker: SimulatedBroker) -> None:
    broker.paused = False
    cluster.on_broker_resumed(broker)


def throttle_broker(
    cluster: SimulatedCluster, broker: int, seconds: float, ms: int, with_partitions: bool = False
) -> None:
    """Return throttle times for a while, and no records (KIP-219).

    Kafka returns no partitions either; with ``with_partitions`` the broker returns their offsets.
    """
    target = _broker(cluster, broker)
    target.throttled_with_partitions = with_partitions
    target.throttled_until = cluster.world.now + seconds
    target.throttle_ms = ms


def _broker(cluster: SimulatedCluster, number: int) -> SimulatedBroker:
    broker_ids = list(cluster.brokers)
    return cluster.brokers[broker_ids[number % len(broker_ids)]]


# Logs.


def delete_records(cluster: SimulatedCluster, topic: str, partition: int, fraction: float) -> None:
    """Delete the records below an offset between the log start offset (0) and the high watermark (1)."""
    target = cluster.partition((topic, partition))
    if target is None or target.leader_log is None:
        return
    log = target.leader_log
    offset = log.start + int((log.high_watermark - log.start) * fraction)
    cluster.advance_log_start(target, offset, "DeleteRecords")


def expire_records(
    cluster: SimulatedCluster, topic: str, partition: int, fraction: float, deposed: bool = False
) -> None:
    """Delete whole batches from the start, as retention deletes segments; if ``deposed``, only of deposed leaders."""
    target = cluster.partition((topic, partition))
    if target is None or target.leader_log is None:
        return
    if deposed:
        _expire_at_deposed_leaders(cluster, target, fraction)
        return
    ends = _ends_of_first_batches(target.leader_log, fraction)
    if ends:
        cluster.advance_log_start(target, ends[-1], "retention")


def _expire_at_deposed_leaders(cluster: SimulatedCluster, target: SimulatedPartition, fraction: float) -> None:
    for broker_id, log in target.replicas.items():
        image = cluster.brokers[broker_id].image.partition(target.topic.name, target.index)
        ends = _ends_of_first_batches(log, fraction)
        if ends and image is not None and image.leader == broker_id != target.leader:
            log.advance_start(ends[-1])
            log.has_lost_start = True


def compact_log(cluster: SimulatedCluster, topic: str, partition: int, fraction: float, draw: int = 0) -> None:
    """Remove a fraction of the records below the last stable offset, and batches that are empty then."""
    target = cluster.partition((topic, partition))
    if target is not None:
        compact(cluster, target, fraction, draw)


def tier_log(cluster: SimulatedCluster, topic: str, partition: int, fraction: float) -> None:
    """Move a part of the log to tiered storage."""
    target = cluster.partition((topic, partition))
    if target is None or target.leader_log is None:
        return
    ends = _ends_of_first_batches(target.leader_log, fraction)
    for replica in target.replicas.values():
        if ends and ends[-1] <= replica.high_watermark:
            replica.local_start = max(replica.local_start, ends[-1])


def lose_tiered_storage(cluster: SimulatedCluster, topic: str, partition: int, seconds: float) -> None:
    """Return no records from tiered storage for a while."""
    target = cluster.partition((topic, partition))
    if target is not None:
        for replica in target.replicas.values():
            replica.remote_until = cluster.world.now + seconds


def forget_producers(cluster: SimulatedCluster, topic: str, partition: int) -> None:
    """Forget the producer ids without an open transaction, as after ``producer.id.expiration.ms``."""
    target = cluster.partition((topic, partition))
    if target is None:
        return
    cluster.state("forgotten producers", list).append((cluster.world.now, topic, partition))
    for replica in target.replicas.values():
        replica.producers = {
            each: entry for each, entry in replica.producers.items() if entry.first_open_offset is not None
        }


def withhold_records(cluster: SimulatedCluster, topic: str, partition: int, seconds: float) -> None:
    """Return no records of a log for a moment, such as while a broker moves it to another disk."""
    target = cluster.partition((topic, partition))
    now = cluster.world.now
    if target is None or any(now < replica.withheld_until + _WITHHOLD_PAUSE for replica in target.replicas.values()):
        return  # two moments in a row would look like an offset gap
    for replica in target.replicas.values():
        replica.withheld_until = now + seconds
    cluster.world.after(seconds, cluster.notify)


def _ends_of_first_batches(log: ReplicaLog, fraction: float) -> list[int]:
    """Return the ends of the batches that lie in the first part of the offsets below the high watermark."""
    limit = log.start + int((log.high_watermark - log.start) * fraction)
    return [batch.last_offset + 1 for batch in log.batches if batch.last_offset < limit]


def draw_event(rng: random.Random, kind: str, topics: Mapping[str, int], seconds: float) -> dict[str, Any]:
    """Draw the arguments of an event; ``topics`` has numbers of partitions, ``seconds`` is the history's length."""
    topic = rng.choice(tuple(topics))
    partition = {"topic": topic, "partition": rng.randrange(topics[topic])}
    duration = round(rng.choice((0.02, 0.6, 4.0, 15.0, seconds)) * (0.5 + rng.random()), 3)
    match kind:
        case "create_topic":
            return {"topic": topic, "partitions": topics[topic]}
        case "delete_topic":
            return {"topic": topic}
        case "recreate_topic":
            return {"topic": topic, "partitions": rng.randint(1, 3), "seconds": rng.choice((0.0, duration))}
        case "expand_topic":
            return {"topic": topic, "count": rng.randint(1, 2)}
        case "deny_topic":
            return {"topic": topic, "seconds": duration}
        case "elect_leader":
            return {**partition, "choice": rng.randrange(3)}
        case "elect_unclean_leader":
            return {**partition, "choice": rng.randrange(3), "shortest": rng.random() < 0.6}
        case "lose_leader":
            return {**partition, "seconds": duration}
        case "stick_follower":
            return {
                **partition,
                "seconds": duration,
                "choice": rng.randrange(3),
                "in_sync": rng.random() < 0.3,
                "deposed": rng.random() < 0.3,
            }
        case "stop_broker" | "reuse_address" | "isolate_broker" | "stick_image" | "pause_broker":
            return {"broker": rng.randrange(3), "seconds": duration}
        case "require_rebootstrap":
            scope = {"others": rng.random() < 0.5, "forever": rng.random() < 0.3}
            return {"broker": rng.randrange(3), "seconds": duration, **scope}
        case "throttle_broker":
            ms = rng.choice((10, 900, 5_000))
            # A client sends a request after each throttle time; 100 of them are enough.
            return {
                "broker": rng.randrange(3),
                "seconds": min(duration, ms / 10),
                "ms": ms,
                "with_partitions": rng.random() < 0.3,
            }
        case "delete_records" | "expire_records" | "tier_log":
            return {**partition, "fraction": rng.choice((1.0, round(rng.random(), 2)))}
        case "compact_log":
            return {**partition, "fraction": rng.choice((1.0, round(rng.random(), 2))), "draw": rng.randrange(1000)}
        case "lose_tiered_storage":
            return {**partition, "seconds": duration}
        case "withhold_records":
            return {**partition, "seconds": round(rng.choice((0.3, 3.0)) * (0.5 + rng.random()), 3)}
    raise ValueError(f"no arguments are drawn for {kind}")


EVENT_KINDS: dict[str, Callable[..., None]] = {
    "create_topic": create_topic,
    "delete_topic": delete_topic,
    "recreate_topic": recreate_topic,
    "expand_topic": expand_topic,
    "deny_topic": deny_topic,
    "elect_leader": elect_leader,
    "elect_unclean_leader": elect_unclean_leader,
    "lose_leader": lose_leader,
    "stick_follower": stick_follower,
    "stop_broker": stop_broker,
    "reuse_address": reuse_address,
    "isolate_broker": isolate_broker,
    "stick_image": stick_image,
    "require_rebootstrap": require_rebootstrap,
    "pause_broker": pause_broker,
    "throttle_broker": throttle_broker,
    "delete_records": delete_records,
    "expire_records": expire_records,
    "compact_log": compact_log,
    "tier_log": tier_log,
    "lose_tiered_storage": lose_tiered_storage,
    "withhold_records": withhold_records,
}

PRODUCER_EVENT_KINDS: dict[str, Callable[..., None]] = {"forget_producers": forget_producers}
"""Events that only scenarios of producers draw."""
