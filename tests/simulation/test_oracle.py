"""The oracle's questions, on hand-written histories."""

from __future__ import annotations

from tests.simulation.cluster.stored_batch import encode_batch, encode_marker
from tests.simulation.oracle import READ_COMMITTED, READ_UNCOMMITTED, Oracle

PARTITION = ("t", 0)
READ = [(0, b"a"), (1, b"b"), (2, b"c")]


class Writer:
    """Reports appends of records to an oracle."""

    def __init__(self) -> None:
        self.oracle = Oracle()
        self.oracle.topic_created("t", 1, 1, 0.0)
        self.elect(0, 0)

    def elect(self, epoch: int, start: int, now: float = 0.0, parent: int | None = None) -> None:
        self.epoch, self.end = epoch, start
        self.oracle.epoch_started("t", 1, 0, epoch, start, start, now, parent=epoch - 1 if parent is None else parent)

    def append(self, *values: bytes, producer: int = -1, now: float = 1.0) -> None:
        batch = encode_batch(values, producer_id=producer, producer_epoch=0, transactional=producer >= 0)
        self.oracle.appended("t", 1, 0, batch.at(self.end, self.epoch), now)
        self.end += len(values)
        self.oracle.high_watermark("t", 1, 0, self.epoch, self.end, now)

    def mark(self, producer: int, *, commit: bool, now: float = 1.0) -> None:
        marker = encode_marker(producer, 0, commit=commit, timestamp=0)
        self.oracle.appended("t", 1, 0, marker.at(self.end, self.epoch), now)
        self.end += 1
        self.oracle.high_watermark("t", 1, 0, self.epoch, self.end, now)

    def check(
        self, returned: list[tuple[int, bytes | None]], end: int, isolation: int = READ_UNCOMMITTED, since: float = 5.0
    ) -> list[str]:
        return self.oracle.check_range(PARTITION, 1, 0, end, returned, isolation, since, 10.0)


def test_a_correct_read() -> None:
    writer = Writer()
    writer.append(b"a", b"b", b"c")

    assert writer.check([*READ], 3) == []


def test_missing_double_disordered_and_wrong_records() -> None:
    writer = Writer()
    writer.append(b"a", b"b", b"c")

    assert "offset 1 is missing" in writer.check([READ[0], READ[2]], 3)[0]
    assert writer.check([READ[0], *READ], 3) == ["offset 0 is returned twice"]
    assert writer.check([READ[1], READ[0], READ[2]], 3) == ["offset 0 is returned after 1"]
    assert writer.check([READ[0], (1, b"x"), READ[2]], 3) == ["offset 1 has the value b'x' instead of b'b' of epoch 0"]
    assert writer.check([*READ], 2) == ["offset 2 is at or after the end 2"]


def test_a_marker_counts_once_it_is_replicated() -> None:
    writer = Writer()
    writer.append(b"a", producer=5, now=1.0)
    marker = encode_marker(5, 0, commit=True, timestamp=0)
    writer.oracle.appended("t", 1, 0, marker.at(1, 0), 2.0)
    truth = writer.oracle.truth(PARTITION)

    assert truth.end_offset(READ_COMMITTED, 3.0) == 0
    writer.oracle.high_watermark("t", 1, 0, 0, 2, 4.0)
    assert (truth.end_offset(READ_COMMITTED, 3.0), truth.end_offset(READ_COMMITTED, 4.0)) == (0, 2)


def test_uncommitted_records_are_not_returned() -> None:
    writer = Writer()
    writer.append(b"a", producer=5)
    writer.mark(5, commit=False)
    writer.append(b"b", producer=6)
    writer.mark(6, commit=True)
    writer.append(b"c", producer=7)

    assert writer.check([(2, b"b")], 4, READ_COMMITTED) == []
    assert "aborted" in writer.check([(0, b"a"), (2, b"b")], 4, READ_COMMITTED)[0]
    assert "undecided" in writer.check([(2, b"b"), (4, b"c")], 5, READ_COMMITTED)[0]
    assert writer.oracle.truth(PARTITION).end_offset(READ_COMMITTED) == 4
    assert writer.oracle.may_be_missing(PARTITION, 0) == "its transaction was not committed"
    assert writer.oracle.may_be_missing(PARTITION, 1) == "it is a marker"
    assert writer.oracle.may_be_missing(PARTITION, 2) is None


def test_deleted_and_compacted_records_may_be_missing() -> None:
    writer = Writer()
    writer.append(b"a", b"b", b"c")
    writer.oracle.log_start("t", 1, 0, 1, "retention", 7.0)
    writer.oracle.compacted("t", 1, 0, [1], 7.0)

    assert writer.check([(2, b"c")], 3) == []
    assert writer.check([*READ], 3) == []  # they were there when the read started
    assert writer.oracle.loss_reasons(PARTITION, 0, 3) == ["retention raised the log start offset to 1"]
    assert writer.oracle.loss_reasons(PARTITION, 1, 3) == []


def test_compaction_removes_the_records_of_the_current_log_only() -> None:
    writer = Writer()
    writer.append(b"a", b"b", b"c")
    writer.elect(1, 1, now=6.0)
    writer.append(b"x", b"y", now=7.0)
    writer.oracle.compacted("t", 1, 0, [1], 8.0)
    writer.elect(2, 3, now=9.0, parent=0)  # a replica of the deposed leader is elected

    assert [offset for offset, _ in writer.oracle.records(PARTITION, 0, 3, READ_UNCOMMITTED)] == [0, 1, 2]


def test_a_read_is_of_one_epochs_log() -> None:
    writer = Writer()
    writer.oracle.epoch_applied("t", 1, 0, 1, 0, 0.0)
    writer.append(b"a", b"b", b"c")
    writer.elect(1, 1, now=6.0)
    writer.append(b"x", b"y", now=7.0)

    assert writer.check([(0, b"a"), (1, b"x"), (2, b"y")], 3) == []
    assert writer.check([*READ], 3) == []  # the deposed leader served it
    assert writer.check([(0, b"a"), (1, b"b"), (2, b"y")], 3) != []
    assert len(writer.oracle.loss_reasons(PARTITION, 0, 3)) == 1
    assert writer.oracle.loss_reasons(PARTITION, 0, 1) == []


def test_a_truncation_counts_while_a_replica_serves_the_old_log() -> None:
    writer = Writer()
    for broker in (1, 2):
        writer.oracle.epoch_applied("t", 1, 0, broker, 0, 0.0)
    writer.append(b"a", b"b")
    writer.elect(1, 1, now=6.0)
    writer.oracle.epoch_applied("t", 1, 0, 1, 1, 6.0)
    assert writer.oracle.loss_reasons(PARTITION, 0, 2, since=9.0)

    writer.oracle.epoch_applied("t", 1, 0, 2, 1, 8.0)
    assert writer.oracle.loss_reasons(PARTITION, 0, 2, since=7.0)
    assert not writer.oracle.loss_reasons(PARTITION, 0, 2, since=9.0)


def test_a_read_after_all_replicas_know_the_truncation_returns_the_new_log() -> None:
    writer = Writer()
    writer.oracle.epoch_applied("t", 1, 0, 1, 0, 0.0)
    writer.append(b"a", b"b", b"c")
    writer.elect(1, 1, now=6.0)
    writer.append(b"x", b"y", now=6.5)
    writer.oracle.epoch_applied("t", 1, 0, 1, 1, 7.0)

    assert writer.check([*READ], 3, since=7.0) == []
    assert writer.check([*READ], 3, since=8.0) != []


def test_a_leader_elected_again_before_it_truncated_keeps_its_records() -> None:
    writer = Writer()
    writer.append(b"a", b"b")
    writer.oracle.truth(PARTITION).visible[0] = 1  # the second record was not replicated
    writer.elect(1, 1, now=2.0)
    writer.oracle.epoch_started("t", 1, 0, 2, 2, 1, 3.0, parent=0)
    writer.epoch, writer.end = 2, 2
    writer.append(b"c", now=4.0)

    assert writer.check([*READ], 3) == []
    assert writer.oracle.loss_reasons(PARTITION, 0, 3) == []


def test_a_prefix_needs_no_records_after_it() -> None:
    writer = Writer()
    writer.append(b"a", b"b", b"c")

    assert writer.oracle.check_range(PARTITION, 1, 0, 3, READ[:1], READ_UNCOMMITTED, 5.0, 10.0, is_prefix=True) == []


def test_a_deleted_topic() -> None:
    writer = Writer()
    writer.append(b"a")
    writer.oracle.topic_deleted("t", 1, 8.0)
    writer.oracle.topic_created("t", 2, 1, 9.0)
    writer.oracle.epoch_started("t", 2, 0, 0, 0, 0, 9.0)

    assert writer.oracle.loss_reasons(PARTITION, 0, 1, generation=1) == ["the topic was deleted"]
    assert writer.oracle.records(PARTITION, 0, 1, READ_UNCOMMITTED) == []
    assert writer.oracle.records(PARTITION, 0, 1, READ_UNCOMMITTED, generation=1) == [(0, b"a")]


def test_offsets_are_those_of_a_log_that_a_broker_knew() -> None:
    writer = Writer()
    writer.append(b"a", b"b", now=1.0)
    writer.oracle.topic_deleted("t", 1, 8.0)
    writer.oracle.topic_created("t", 2, 1, 9.0)
    writer.oracle.epoch_started("t", 2, 0, 0, 0, 0, 9.0)

    def check(start: int, end: int, *, since: float = 7.0, oldest: int = 1) -> list[str]:
        return writer.oracle.check_offsets(
            PARTITION, start, end, READ_UNCOMMITTED, started_at=since, ended_at=10.0, oldest_generation=oldest
        )

    assert check(0, 2) == []  # a broker that lagged reported the end of the deleted topic
    assert check(0, 0) == []
    assert "the end of t-0 is 1" in check(0, 1)[0]
    assert "the start of t-0 is 2" in check(2, 2)[0]
    assert check(0, 2, oldest=2) == ["the end of t-0 is 2, and those of its logs were [(0, 0)]"]
    assert check(0, 0, oldest=2) == []


def test_offsets_are_not_checked_while_a_deposed_leader_may_have_reported_them() -> None:
    writer = Writer()
    writer.oracle.epoch_applied("t", 1, 0, 1, 0, 0.0)
    writer.append(b"a", b"b", b"c")
    writer.elect(1, 1, now=6.0)
    writer.oracle.epoch_applied("t", 1, 0, 1, 1, 8.0)

    def check(end: int, since: float) -> list[str]:
        return writer.oracle.check_offsets(
            PARTITION, 0, end, READ_UNCOMMITTED, started_at=since, ended_at=10.0, oldest_generation=1
        )

    assert check(3, since=7.0) == []
    assert check(1, since=9.0) == []
    assert check(3, since=9.0) != []
