"""The metadata of committed offsets, and when these take precedence over the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.continuous.group_offsets import (
    BEFORE_FIRST_EPOCH,
    EpochMetadata,
    EpochOffset,
    foreign_offsets,
    offsets_ahead,
    offsets_group_id,
    parse_epoch_metadata,
    prefix_in_use_error,
    reset_token,
    transactional_id,
)
from pyspark_kafka_direct.errors import TransactionStateError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = UUID(int=1), UUID(int=2)
IDS: Mapping[str, UUID | None] = {"t": NEW}


def committed(offset: int, epoch: int, query: str = "q", topic_id: UUID | None = NEW) -> EpochOffset:
    return EpochOffset(offset, EpochMetadata(query, epoch, topic_id))


def test_names_start_with_the_prefix() -> None:
    assert offsets_group_id("alerts") == "alerts.cont"
    assert transactional_id("alerts", 3) == "alerts.cont.3"


@given(st.text(), st.integers(-1, 2**62), st.uuids() | st.none())
def test_metadata_round_trips(query: str, epoch: int, topic_id: UUID | None) -> None:
    metadata = EpochMetadata(query, epoch, topic_id)
    assert parse_epoch_metadata(metadata.to_json()) == metadata


def test_metadata_is_short() -> None:
    assert len(EpochMetadata(str(UUID(int=2**128 - 1)), 2**63, UUID(int=2**128 - 1)).to_json()) < 200


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "null",
        "7",
        "{}",
        '{"v":2,"query":"q","epoch":1,"topic":null}',
        '{"v":1,"epoch":1,"topic":null}',
        '{"v":1,"query":7,"epoch":1,"topic":null}',
        '{"v":1,"query":"q","epoch":true,"topic":null}',
        '{"v":1,"query":"q","epoch":"1","topic":null}',
        '{"v":1,"query":"q","epoch":1,"topic":"no id"}',
        '{"v":1,"query":"q","epoch":1,"topic":7}',
        "[" * 100_000,
    ],
)
def test_invalid_metadata_is_none(text: str) -> None:
    assert parse_epoch_metadata(text) is None


@pytest.mark.parametrize(
    ("found", "last", "counts"),
    [
        (committed(9, 5), 4, True),
        (committed(9, 5), None, True),
        (committed(9, 5), 5, False),
        (committed(9, 5), 6, False),
        (committed(9, BEFORE_FIRST_EPOCH), None, False),
        (committed(9, 5, query="other"), 4, False),
        (committed(9, 5, topic_id=OLD), 4, False),
        (committed(9, 5, topic_id=None), 4, False),
        (EpochOffset(9, None), 4, False),
    ],
)
def test_which_offsets_count(found: EpochOffset, last: int | None, counts: bool) -> None:
    assert offsets_ahead({A: found}, query="q", topic_ids=IDS, last_epoch=last, logged_offsets={A: 9}) == (
        {A: 9} if counts else {}
    )


def test_offsets_of_a_deleted_topic_do_not_count() -> None:
    assert offsets_ahead({A: committed(9, 5)}, query="q", topic_ids={}, last_epoch=4, logged_offsets={A: 3}) == {}


def test_offsets_count_without_topic_ids() -> None:
    assert offsets_ahead(
        {A: committed(9, 5, topic_id=None)}, query="q", topic_ids={"t": None}, last_epoch=4, logged_offsets={A: 3}
    ) == {A: 9}


def test_a_lower_offset_counts() -> None:
    """The query continued in a recreated topic."""
    assert offsets_ahead({A: committed(2, 5)}, query="q", topic_ids=IDS, last_epoch=4, logged_offsets={A: 9}) == {A: 2}


def test_a_restored_checkpoint_resumes_at_the_committed_offsets() -> None:
    assert offsets_ahead({A: committed(90, 180)}, query="q", topic_ids=IDS, last_epoch=100, logged_offsets={A: 9}) == {
        A: 90
    }


def test_a_restored_checkpoint_with_later_micro_batches_is_rejected() -> None:
    with pytest.raises(
        TransactionStateError, match=r"offset 90 of t-0 for epoch 180 .* higher offset 95 for the earlier epoch"
    ):
        offsets_ahead({A: committed(90, 180)}, query="q", topic_ids=IDS, last_epoch=150, logged_offsets={A: 95})
    assert offsets_ahead({A: committed(95, 180)}, query="q", topic_ids=IDS, last_epoch=150, logged_offsets={A: 95}) == {
        A: 95
    }


@pytest.mark.parametrize("ahead", [1, 2])
def test_a_topic_that_was_recreated_in_the_last_epochs_counts(ahead: int) -> None:
    assert offsets_ahead(
        {A: committed(2, 4 + ahead)}, query="q", topic_ids=IDS, last_epoch=4, logged_offsets={A: 9}
    ) == {A: 2}


def test_logs_that_contradict_the_transactions_are_rejected() -> None:
    with pytest.raises(
        TransactionStateError, match=r"offset 9 of t-0 for epoch 5 of query q, .* lower offset 8 for epoch 5\."
    ) as caught:
        offsets_ahead({A: committed(9, 5)}, query="q", topic_ids=IDS, last_epoch=5, logged_offsets={A: 8})
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 9)
    assert (
        offsets_ahead(
            {A: committed(9, 5, topic_id=OLD), B: committed(9, 5)},
            query="q",
            topic_ids=IDS,
            last_epoch=5,
            logged_offsets={A: 8},
        )
        == {}
    )
    assert (
        offsets_ahead(
            {A: committed(9, BEFORE_FIRST_EPOCH)}, query="q", topic_ids=IDS, last_epoch=5, logged_offsets={A: 8}
        )
        == {}
    )


def test_foreign_offsets_are_all_but_the_querys_own() -> None:
    found = {A: committed(1, 2), B: committed(1, 2, query="other"), TopicPartition("u", 0): EpochOffset(5, None)}
    assert list(foreign_offsets(found, "q")) == [B, TopicPartition("u", 0)]


def test_the_error_names_the_owner_and_the_reset_token() -> None:
    foreign = {B: committed(7, 2, query="other"), A: committed(6, 3, query="other")}
    message = str(prefix_in_use_error(foreign, "q", "alerts"))
    assert "'alerts.cont'" in message
    assert "offset 6 of t-0, which query other has committed in epoch 3" in message
    assert f"resetTransactionState to {reset_token(foreign, 'q')}," in message
    assert "was not committed by a continuous query" in str(
        prefix_in_use_error({A: EpochOffset(6, None)}, "q", "alerts")
    )


def test_a_reset_token_is_valid_for_one_case() -> None:
    foreign = {A: committed(6, 3, query="other")}
    token = reset_token(foreign, "q")
    assert token == reset_token(dict(foreign), "q")
    different = [
        *(reset_token({**foreign, B: committed(offset, 3, query="other")}, "q") for offset in (7, 8)),
        reset_token(foreign, "r"),
        reset_token({A: committed(6, 4, query="other")}, "q"),
        reset_token({A: committed(7, 3, query="other")}, "q"),
        reset_token({B: committed(6, 3, query="other")}, "q"),
        reset_token({A: EpochOffset(6, None)}, "q"),
    ]
    assert len({token, *different}) == 8
