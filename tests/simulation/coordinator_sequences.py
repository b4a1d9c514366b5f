"""The sequences of requests whose responses must equal a real broker's; see ``coordinator_cases``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.coordinator_cases import Caller, producer_batch

if TYPE_CHECKING:
    from collections.abc import Callable


LAST_EPOCH = 32_766


def empty_transactions(caller: Caller) -> None:
    producer = caller.init()
    caller.end(producer, True)
    producer = caller.end(producer, False)
    producer = caller.end(producer, False)
    caller.end(producer, True)
    caller.init()


def repeated_ends(caller: Caller) -> None:
    first = caller.init()
    _write(caller, first, 0)
    second = caller.end(first, True)
    caller.end(first, True)
    caller.end(first, False)
    caller.end(second, True)
    _write(caller, second, 0 if caller.kip_890 else 1)
    third = caller.end(second, False)
    caller.end(second, False)
    caller.end(second, True)
    caller.end(third, False)
    caller.end(first, True)
    caller.init()


def ends_after_init(caller: Caller) -> None:
    first = caller.init()
    _write(caller, first, 0)
    second = caller.init()
    caller.end(first, True)
    caller.end(first, False)
    caller.produce(first, 1)
    _write(caller, second, 0)
    caller.produce(first, 1)
    caller.add(first, 0)
    caller.add_offsets(first)
    third = caller.end(second, True)
    caller.end(third, True)
    caller.init()


def init_with_producer(caller: Caller) -> None:
    first = caller.init()
    second = caller.init(producer=first)
    caller.init(producer=first)
    caller.init(producer=second)
    caller.init(producer=first)
    third = caller.init()
    caller.init(producer=second)
    caller.init(producer=(third[0] + 1_000_000, 0))
    caller.init(producer=(third[0], third[1] + 5))
    caller.init(producer=(-1, 3))
    caller.init(producer=(7, -1))


def init_with_old_producer(caller: Caller) -> None:
    """An old producer id and epoch abort the live transaction, and the response is PRODUCER_FENCED."""
    first = caller.init()
    second = caller.init()
    _write(caller, second, 0)
    caller.init(producer=first)
    caller.init(producer=first, version=3)
    caller.produce(second, 1)
    caller.end(second, True)


def init_with_current_producer(caller: Caller) -> None:
    """The current producer id and epoch abort an ongoing transaction too."""
    first = caller.init()
    _write(caller, first, 0)
    caller.init(producer=first)
    caller.produce(first, 1)
    caller.end(first, True)
    second = caller.init()
    _write(caller, second, 0)
    third = caller.end(second, True)
    fourth = caller.init(producer=third)
    caller.init(producer=third)
    caller.init(producer=second)
    caller.end(third, True)
    caller.end(fourth, True)


def init_with_unknown_producer(caller: Caller) -> None:
    producer = caller.init(producer=(123_456_789, 7))
    caller.end((producer[0] + 1_000_000, 0), True)
    caller.end((producer[0] + 1_000_000, 0), True, version=4)
    caller.end(producer, True, transactional_id="unknown-id")


def invalid_inits(caller: Caller) -> None:
    caller.init(timeout=0)
    caller.init(timeout=-1)
    caller.init(timeout=900_000)
    caller.init(timeout=900_001)
    producer = caller.init(transactional_id=None)
    caller.init(transactional_id=None)
    caller.produce(producer, 0, transactional_id=None, attributes=0)


def late_requests_after_commit(caller: Caller) -> None:
    first = caller.init()
    _write(caller, first, 0)
    second = caller.end(first, True)
    caller.pause(0.5)
    caller.produce(first, 1, version=11)
    if caller.kip_890:
        caller.produce(first, 1)
    caller.add(first, 0)
    caller.produce(first, 0)
    caller.produce(second, 7)
    _write(caller, second, 0 if caller.kip_890 else 1)
    caller.add(first, 1)
    caller.produce(first, 1)
    caller.end(first, False)
    caller.end(second, True)


def late_requests_after_abort(caller: Caller) -> None:
    first = caller.init()
    _write(caller, first, 0)
    second = caller.end(first, False)
    caller.pause(0.5)
    caller.produce(first, 1)
    caller.produce(first, 1, partition=1)
    caller.add(first, 0)
    caller.add_offsets(first)
    caller.txn_commit(first, 5)
    caller.end(first, True)
    caller.produce(second, 0)


def sequences(caller: Caller) -> None:
    producer = caller.init()
    if not caller.kip_890:
        caller.add(producer, 0, 1)
    for sequence in range(7):
        caller.produce(producer, sequence)
    for sequence in range(7):
        caller.produce(producer, sequence)
    caller.produce(producer, 5, values=(b"a", b"b"))
    caller.produce(producer, 9)
    caller.produce(producer, 3, partition=1)
    caller.produce(producer, 4, partition=1)
    caller.produce(producer, 1, partition=1)
    producer = caller.end(producer, True)
    if not caller.kip_890:
        caller.add(producer, 0, 1)
    caller.produce(producer, 3)
    caller.produce(producer, 7)
    caller.produce(producer, 0)


def idempotent_sequences(caller: Caller) -> None:
    def produce(producer: tuple[int, int], sequence: int, *values: bytes) -> None:
        caller.produce(producer, sequence, transactional_id=None, attributes=0, values=values or (b"v",))

    producer = caller.init(transactional_id=None)
    produce(producer, 4)
    produce(producer, 5, b"a", b"b", b"c")
    produce(producer, 5, b"d", b"e", b"f")
    produce(producer, 6)
    produce(producer, 8)
    produce((producer[0], 1), 3)
    produce((producer[0], 1), 0)
    produce((producer[0], 0), 9)
    produce((producer[0], 1), 0)


def invalid_batches(caller: Caller) -> None:
    producer = caller.init()
    if not caller.kip_890:
        caller.add(producer, 0)
    good = producer_batch((b"v",), *producer, 0)
    caller.produce(records=good + good)
    caller.produce(records=b"")
    caller.produce(records=good[:40] + b"x" + good[41:])
    caller.produce(records=good[:-1])
    caller.produce(records=good[:16] + b"\x01" + good[17:])
    caller.produce(producer, 0, acks=2)
    caller.produce(producer, 0, topic="no-such-topic")
    caller.produce(producer, 0, partition=9)
    caller.produce(producer, 0, values=(b"x" * 1_100_000,))
    caller.produce(producer, 0, attributes=0)
    caller.produce(producer, 1, attributes=0)
    caller.produce(producer, 2)
    caller.produce(producer, 3, attributes=0)
    caller.produce(transactional_id=None, attributes=0)
    caller.produce(transactional_id=None, attributes=0, acks=1)
    caller.end(producer, True)


def damaged_batches(caller: Caller) -> None:
    """Batches that are not transactional, so that each has only one defect."""

    def produce(records: bytes, version: int | None = None) -> None:
        caller.produce(records=records, transactional_id=None, version=version)

    plain = producer_batch(attributes=0)
    produce(producer_batch(attributes=0, base_offset=5))
    produce(producer_batch(attributes=0, last_offset_delta=3))
    produce(producer_batch(attributes=0, count=2))
    produce(producer_batch((), attributes=0))
    produce(producer_batch((), attributes=0, last_offset_delta=0))
    produce(producer_batch(attributes=0, records=b"\xff" * 20))
    produce(producer_batch(attributes=0x20))
    produce(producer_batch(attributes=5))
    produce(producer_batch(attributes=4), version=6)
    produce(producer_batch(attributes=1))
    produce(plain + b"\0" * 20)
    produce(plain[:20])
    produce(producer_batch((b"a", b"b"), attributes=0))
    producer = caller.init(transactional_id=None)
    produce(producer_batch((b"v",), *producer, -1, attributes=0))
    produce(producer_batch((b"v",), producer[0], -1, 0, attributes=0))
    produce(producer_batch((b"a", b"b"), *producer, 0, attributes=0))
    produce(producer_batch((b"c",), *producer, 1, attributes=0))
    produce(producer_batch((b"c",), *producer, 2, attributes=0))
    produce(producer_batch((b"v",), *producer, 3))


def topic_settings(caller: Caller) -> None:
    compacted = caller.create("compacted", cleanup_policy="compact")
    for keys in ((None, None), (b"k", None), (b"k", b"k")):
        records = producer_batch((b"a", b"b"), attributes=0, keys=keys)
        caller.produce(records=records, transactional_id=None, topic=compacted)
    timed = caller.create("timed", message_timestamp_type="LogAppendTime")
    caller.produce(attributes=0, transactional_id=None, topic=timed)
    producer = caller.init(transactional_id=None)
    for _ in range(2):
        caller.produce(producer, 0, attributes=0, transactional_id=None, topic=timed)
    small = caller.create("small", max_message_bytes="100")
    caller.produce(attributes=0, transactional_id=None, topic=small, values=(b"x" * 20,))
    caller.produce(attributes=0, transactional_id=None, topic=small, values=(b"x" * 40,))
    replicated = caller.create("replicated", min_insync_replicas="2")
    caller.produce(attributes=0, transactional_id=None, topic=replicated)
    caller.produce(attributes=0, transactional_id=None, topic=replicated, acks=1)


def several_partitions(caller: Caller) -> None:
    producer = caller.init()
    other = caller.init(transactional_id=None)
    if not caller.kip_890:
        caller.add(producer, 0)

    def batch(sequence: int, producer: tuple[int, int] = producer, attributes: int = 0x10) -> bytes:
        return producer_batch((b"v",), *producer, sequence, attributes=attributes)

    caller.produce_many((0, batch(0)), (1, batch(0)))
    caller.produce_many((0, batch(1)), (1, batch(5)), (9, batch(0)))
    caller.produce_many((0, batch(1)), (1, batch(1)), transactional_id=None)
    caller.produce_many((0, batch(2)), (1, batch(0, other, attributes=0)))
    caller.produce_many((0, batch(3)), (1, batch(0, attributes=0)))
    if caller.kip_890:
        caller.produce_many((0, batch(3)), (1, batch(1)), version=11)
    caller.end(producer, True)


def empty_names(caller: Caller) -> None:
    producer = caller.init(transactional_id="")
    producer = caller.init()
    caller.end(producer, True, transactional_id="")
    caller.produce(producer, 0, transactional_id="")


def offsets_twice(caller: Caller) -> None:
    """Two offsets of a partition in one transaction, and two transactions of one group."""
    producer = caller.init()
    if not caller.kip_890:
        caller.add_offsets(producer)
    caller.commit(1)
    caller.txn_commit(producer, 5)
    caller.txn_commit(producer, 6, metadata="second")
    caller.txn_commit(producer, 7, partition=1)
    caller.fetch_offsets()
    caller.fetch_offsets(stable=True)
    caller.fetch_offsets(0, 1, stable=True)
    second = caller.end(producer, True)
    caller.pause(0.5)
    caller.fetch_offsets(stable=True)
    caller.txn_commit(producer, 9)
    if not caller.kip_890:
        caller.add_offsets(second)
    caller.txn_commit(second, 9, version=3)
    caller.txn_commit(second, 9)
    caller.init()
    caller.txn_commit(second, 10)
    caller.pause(0.5)
    caller.fetch_offsets(stable=True)


def unknown_producers(caller: Caller) -> None:
    producer = caller.init()
    caller.produce((producer[0] + 1_000_000, 0), 0)
    caller.produce(producer, 0, transactional_id="unknown-id")
    caller.produce((producer[0], 4), 0)
    caller.add((producer[0] + 1_000_000, 0), 0)
    caller.add((producer[0], 4), 0)
    caller.add(producer, 0, topic="no-such-topic")
    caller.add(producer, 0, 9)
    caller.add(producer, 9, version=1)
    caller.add((producer[0], 4), 0, version=1)
    caller.add(producer, 0)
    caller.add(producer, 0, 1)
    caller.end((producer[0], 4), True)
    caller.end((producer[0], 4), True, version=1)
    caller.end(producer, True)


def old_requests(caller: Caller) -> None:
    """Requests of both protocols in one transaction."""
    producer = caller.init()
    caller.produce(producer, 0, version=11)
    caller.txn_commit(producer, 5, version=4)
    caller.end(producer, True)
    caller.produce(producer, 0, version=12)
    caller.txn_commit(producer, 5, version=5)
    caller.add(producer, 1)
    caller.produce(producer, 0, partition=1, version=10)
    producer = caller.end(producer, True, version=4)
    caller.end(producer, True, version=4)
    caller.end(producer, False, version=4)
    caller.end(producer, True, version=5)
    caller.add(producer, 1)
    producer = caller.end(producer, True, version=5)
    caller.end(producer, True, version=4)
    caller.end(producer, False, version=4)
    caller.init()


def transactional_offsets(caller: Caller) -> None:
    producer = caller.init()
    caller.fetch_offsets(0, 1)
    if not caller.kip_890:
        caller.add_offsets(producer)
    caller.txn_commit(producer, 5, metadata="m")
    caller.fetch_offsets(0, stable=False)
    caller.fetch_offsets(0, 1, stable=True)
    caller.fetch_offsets(stable=True)
    second = caller.end(producer, True)
    caller.pause(0.5)
    caller.fetch_offsets(0, stable=True)
    if not caller.kip_890:
        caller.add_offsets(second)
    caller.txn_commit(second, 9)
    third = caller.end(second, False)
    caller.pause(0.5)
    caller.fetch_offsets(0, stable=True)
    caller.txn_commit(second, 11)
    caller.txn_commit((third[0], third[1] + 3), 11)
    caller.txn_commit((third[0] + 1_000_000, 0), 11)
    if not caller.kip_890:
        caller.add_offsets(third)
    caller.txn_commit(third, 5, metadata="m" * 4097)
    caller.txn_commit(third, 5, topic="no-such-topic")
    caller.txn_commit(third, 5, partition=9)
    caller.txn_commit(third, 5, generation=3)
    caller.txn_commit(third, 5, member="member")
    caller.commit(77)
    caller.fetch_offsets(0)
    caller.fetch_offsets(0, stable=True)
    caller.end(third, True)
    caller.pause(0.5)
    caller.fetch_offsets(0)


def group_offsets(caller: Caller) -> None:
    caller.fetch_offsets(0)
    caller.fetch_offsets()
    caller.commit(3, generation=4)
    caller.commit(3, generation=4, version=8)
    caller.commit(3, metadata="about")
    caller.fetch_offsets(0, 1)
    caller.fetch_offsets()
    caller.fetch_offsets(0, version=3)
    caller.commit(4, metadata=None, version=2)
    caller.fetch_offsets(0)
    caller.commit(4, metadata="m" * 4097)
    caller.commit(4, topic="no-such-topic")
    caller.commit(4, partition=9)
    caller.commit(4, generation=4)
    caller.commit(4, generation=4, member="member")
    caller.commit(4, member="member")
    caller.commit(-5)
    caller.fetch_offsets(0, topic="no-such-topic")
    caller.commit(1, group="")
    caller.fetch_offsets(0, group="")
    caller.find(caller.group, 0)
    caller.find(caller.transactional_id, 1)
    caller.find("", 0)
    caller.find("", 1)
    caller.find("key", 7)


def timed_out_transaction(caller: Caller) -> None:
    producer = caller.init(timeout=1_000)
    _write(caller, producer, 0)
    caller.pause(25)
    caller.produce(producer, 1)
    caller.add(producer, 0)
    caller.end(producer, True)
    caller.end(producer, False)
    caller.init()


def exhausted_epochs(caller: Caller) -> None:
    producer = _exhaust_epochs(caller)
    if not caller.kip_890:
        second = caller.init(producer=producer)
        caller.init(producer=producer)
        caller.end(second, False)
        return
    _write(caller, producer, 0)
    second = caller.end(producer, True)
    caller.end(producer, True)
    caller.end(producer, False)
    _write(caller, second, 0)
    caller.end(second, True)


def fenced_at_exhausted_epoch(caller: Caller) -> None:
    producer = _exhaust_epochs(caller)
    _write(caller, producer, 0)
    second = caller.init()
    caller.end(producer, True)
    caller.end(producer, False)
    _write(caller, second, 0)
    caller.end(second, True)


def _write(caller: Caller, producer: tuple[int, int], sequence: int) -> None:
    """Write one batch to partition 0, after AddPartitionsToTxn if the protocol needs it."""
    if not caller.kip_890:
        caller.add(producer, 0)
    caller.produce(producer, sequence)


def _exhaust_epochs(caller: Caller) -> tuple[int, int]:
    """Return a producer with the last epoch of its producer id."""
    producer = caller.init()
    if caller.exhaust_epochs is not None:
        caller.exhaust_epochs(caller.transactional_id)
        producer = (producer[0], LAST_EPOCH)
    noted = len(caller.transcript)
    while producer[1] < LAST_EPOCH:
        producer = caller.end(producer, False) if caller.kip_890 else caller.init(producer=producer)
        del caller.transcript[noted:]
    caller.transcript.append(f"epoch {producer[1]}")
    return producer


_FOR_BOTH: tuple[Callable[[Caller], None], ...] = (
    empty_transactions,
    repeated_ends,
    ends_after_init,
    init_with_producer,
    init_with_old_producer,
    init_with_current_producer,
    init_with_unknown_producer,
    invalid_inits,
    late_requests_after_commit,
    late_requests_after_abort,
    sequences,
    idempotent_sequences,
    invalid_batches,
    damaged_batches,
    topic_settings,
    several_partitions,
    empty_names,
    offsets_twice,
    unknown_producers,
    old_requests,
    transactional_offsets,
    group_offsets,
    timed_out_transaction,
    exhausted_epochs,
    fenced_at_exhausted_epoch,
)
CASES = {case.__name__.replace("_", "-"): case for case in _FOR_BOTH}
