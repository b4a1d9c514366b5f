"""The log of one simulated replica, and its batches."""

from __future__ import annotations

import pytest
from tests.simulation.cluster.partition_log import ReplicaLog
from tests.simulation.cluster.stored_batch import encode_batch, encode_marker, parse_batches
from tests.unit.records.batches import CODECS, Batch, Rec


def filled(*epochs: tuple[int, int]) -> ReplicaLog:
    """Return a log with batches of one record: epoch and number of batches."""
    log = ReplicaLog()
    for epoch, count in epochs:
        for number in range(count):
            log.append(encode_batch([b"%d-%d" % (epoch, number)]), epoch)
    log.advance_high_watermark(log.end)
    return log


def append_transactional(log: ReplicaLog, producer_id: int, sequence: int = 0, count: int = 1) -> None:
    values = [b"t%d" % number for number in range(count)]
    log.append(
        encode_batch(values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True), 0
    )


def end_transaction(log: ReplicaLog, producer_id: int, *, commit: bool) -> None:
    log.append(encode_marker(producer_id, 0, commit=commit, timestamp=0), 0)


def test_a_batch_is_encoded_like_the_reference() -> None:
    ours = encode_batch([b"a", None], keys=[None, b"k"], timestamps=[1_000, 1_007], base_offset=5, epoch=3)
    reference = Batch(
        (Rec(b"a"), Rec(None, b"k", time=7)), base_offset=5, base_timestamp=1_000, max_timestamp=1_007, leader_epoch=3
    )

    assert ours.data == reference.encode()


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_a_parsed_batch_equals_the_encoded_one(codec: str) -> None:
    encoded = encode_batch(
        [b"a", None, b"c"],
        keys=[b"k", None, None],
        timestamps=[9, 8, 7],
        producer_id=4,
        producer_epoch=1,
        base_sequence=6,
        transactional=True,
        codec=codec,
    )
    (parsed,) = parse_batches(encoded.data)

    assert (list(parsed.keys), list(parsed.values)) == ([b"k", None, None], [b"a", None, b"c"])
    assert (parsed.offsets, list(parsed.timestamps)) == ([0, 1, 2], [9, 8, 7])
    assert (parsed.producer_id, parsed.producer_epoch, parsed.base_sequence, parsed.last_sequence) == (4, 1, 6, 8)
    assert (parsed.is_transactional, parsed.commit) == (True, None)


def test_a_damaged_batch_is_rejected() -> None:
    data = encode_batch([b"a"]).data

    with pytest.raises(ValueError, match="checksum"):
        parse_batches(data[:-1] + b"\xff")
    with pytest.raises(ValueError, match="incomplete"):
        parse_batches(data[:-1])


def test_offset_and_epoch_are_assigned_outside_the_checksum() -> None:
    moved = encode_batch([b"a", b"b"]).at(100, 7)
    (parsed,) = parse_batches(moved.data)

    assert (parsed.base_offset, parsed.last_offset, parsed.epoch, parsed.offsets) == (100, 101, 7, [100, 101])


def test_the_end_of_an_epoch() -> None:
    log = filled((2, 3), (5, 2))

    assert log.end_offset_for_epoch(1) == (1, 0)  # before all epochs: the first one's start
    assert log.end_offset_for_epoch(2) == (2, 3)
    assert log.end_offset_for_epoch(4) == (2, 3)  # the next lower one
    assert log.end_offset_for_epoch(5) == (5, 5)
    assert log.end_offset_for_epoch(6) == (-1, -1)
    assert [log.epoch_at(offset) for offset in (0, 2, 3, 4)] == [2, 2, 5, 5]


def test_a_follower_truncates_what_the_leader_does_not_have() -> None:
    follower, leader = filled((0, 10)), filled((0, 10))
    follower.append(encode_batch([b"lost"]), 0)
    leader.assign_epoch_start(1)
    leader.append(encode_batch([b"new"]), 1)

    follower.follow(leader)

    assert [batch.values[0] for batch in follower.batches][-2:] == [b"0-9", b"new"]
    assert follower.epoch_starts == leader.epoch_starts == [(0, 0), (1, 10)]


def test_a_follower_whose_epoch_wrote_nothing_has_no_trace_of_it() -> None:
    follower, leader = filled((0, 10)), filled((0, 10))
    follower.assign_epoch_start(1)
    leader.append(encode_batch([b"new"]), 2)

    follower.follow(leader)

    assert follower.epoch_starts == [(0, 0), (2, 10)]
    assert follower.end == 11


def test_a_follower_below_the_leaders_start_restarts_there() -> None:
    follower, leader = filled((0, 2)), filled((0, 9))
    leader.advance_start(5)

    follower.follow(leader)

    assert (follower.start, follower.end) == (5, 9)
    assert [batch.base_offset for batch in follower.batches] == [5, 6, 7, 8]


def test_reads_end_at_the_limit_and_at_the_bytes() -> None:
    log = filled((0, 5))
    size = len(log.batches[0].data)

    assert [batch.base_offset for batch in log.read(1, 4, 10_000, at_least_one=True)] == [1, 2, 3]
    assert [batch.base_offset for batch in log.read(1, 4, 1, at_least_one=True)] == [1]
    assert log.read(1, 4, 1, at_least_one=False) == []
    assert sum(len(batch.data) for batch in log.read(0, 5, 2 * size, at_least_one=True)) == 2 * size


def test_the_last_stable_offset_waits_for_markers_below_the_high_watermark() -> None:
    log = filled((0, 2))
    append_transactional(log, 7, count=2)
    log.append(encode_batch([b"x"]), 0)
    log.advance_high_watermark(log.end)
    assert log.last_stable_offset == 2

    end_transaction(log, 7, commit=True)
    assert log.last_stable_offset == 2

    log.advance_high_watermark(log.end)
    assert log.last_stable_offset == log.end == 6


def test_aborted_transactions_are_found_by_offset() -> None:
    log = filled((0, 1))
    append_transactional(log, 7, count=2)
    end_transaction(log, 7, commit=False)
    append_transactional(log, 7, sequence=2)
    end_transaction(log, 7, commit=True)

    assert [each[:3] for each in log.aborted_between(0, 2)] == [(7, 1, 3)]
    assert log.aborted_between(4, 6) == []


def test_truncation_reopens_a_transaction() -> None:
    log = filled((0, 1))
    append_transactional(log, 7)
    end_transaction(log, 7, commit=False)
    log.advance_high_watermark(log.end)

    log.truncate_to(2)

    assert (log.aborted, log.producers[7].first_open_offset, log.last_stable_offset) == ([], 1, 1)


def test_the_last_five_batches_of_a_producer_are_retained() -> None:
    log = ReplicaLog()
    batches = [encode_batch([b"v"], producer_id=3, producer_epoch=0, base_sequence=number) for number in range(7)]
    for batch in batches:
        log.append(batch, 0)

    entry = log.producers[3]
    assert entry.last_sequence == 6
    assert entry.duplicate_of(batches[1]) is None
    found = entry.duplicate_of(batches[2])
    assert found is not None
    assert found.first_offset == 2


def test_a_new_producer_epoch_starts_its_sequence_again() -> None:
    log = ReplicaLog()
    log.append(encode_batch([b"v"], producer_id=3, producer_epoch=0, base_sequence=8), 0)
    log.append(encode_batch([b"v"], producer_id=3, producer_epoch=1, base_sequence=0), 0)

    assert (log.producers[3].epoch, log.producers[3].last_sequence) == (1, 0)


def test_the_log_start_removes_batches_and_keeps_epochs() -> None:
    log = filled((0, 3), (1, 3))
    log.advance_start(4)

    assert ([batch.base_offset for batch in log.batches], log.epoch_starts) == ([4, 5], [(1, 4)])
    assert not log.advance_start(2)


def test_offsets_by_timestamp() -> None:
    log = ReplicaLog()
    log.append(encode_batch([b"a", b"b"], timestamps=[10, 30]), 0)
    log.append(encode_batch([b"c"], timestamp=20), 0)

    assert log.offset_for_timestamp(11) == (30, 1)
    assert log.offset_for_timestamp(31) is None
    assert log.offset_of_max_timestamp() == (30, 1)
