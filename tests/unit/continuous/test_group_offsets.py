"""What is noted beside offsets, and when it counts more than the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.continuous._group_offsets import (
    BEFORE_ALL,
    Note,
    Noted,
    group_of,
    others,
    reached,
    read_note,
    refusal,
    reset_token,
    transactional_id,
)
from pyspark_kafka_direct.errors import DeliveryRefusedError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = UUID(int=1), UUID(int=2)
IDS: Mapping[str, UUID | None] = {"t": NEW}


def noted(offset: int, epoch: int, query: str = "q", topic_id: UUID | None = NEW) -> Noted:
    return Noted(offset, Note(query, epoch, topic_id))


def test_names_are_made_of_the_prefix() -> None:
    assert group_of("alerts") == "alerts.cont"
    assert transactional_id("alerts", 3) == "alerts.cont.3"


@given(st.text(), st.integers(-1, 2**62), st.uuids() | st.none())
def test_notes_are_read_back(query: str, epoch: int, topic_id: UUID | None) -> None:
    note = Note(query, epoch, topic_id)
    assert read_note(note.to_json()) == note


def test_a_note_fits_what_brokers_allow() -> None:
    assert len(Note(str(UUID(int=2**128 - 1)), 2**63, UUID(int=2**128 - 1)).to_json()) < 200


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
def test_what_is_no_note_is_none(text: str) -> None:
    assert read_note(text) is None


@pytest.mark.parametrize(
    ("found", "last", "counts"),
    [
        (noted(9, 5), 4, True),
        (noted(9, 5), None, True),
        (noted(9, 5), 5, False),
        (noted(9, 5), 6, False),
        (noted(9, BEFORE_ALL), None, False),
        (noted(9, 5, query="other"), 4, False),
        (noted(9, 5, topic_id=OLD), 4, False),
        (noted(9, 5, topic_id=None), 4, False),
        (Noted(9, None), 4, False),
    ],
)
def test_what_counts(found: Noted, last: int | None, counts: bool) -> None:
    assert reached({A: found}, "q", IDS, last, {A: 9}) == ({A: 9} if counts else {})


def test_a_topic_that_is_gone_counts_for_nothing() -> None:
    assert reached({A: noted(9, 5)}, "q", {}, 4, {A: 3}) == {}


def test_brokers_that_tell_no_ids_are_believed() -> None:
    assert reached({A: noted(9, 5, topic_id=None)}, "q", {"t": None}, 4, {A: 3}) == {A: 9}


def test_an_offset_that_went_back_counts_too() -> None:
    """The query has read on in a topic that was created again."""
    assert reached({A: noted(2, 5)}, "q", IDS, 4, {A: 9}) == {A: 2}


def test_a_restored_checkpoint_goes_on_where_transactions_got_to() -> None:
    assert reached({A: noted(90, 180)}, "q", IDS, 100, {A: 9}) == {A: 90}


def test_a_restored_checkpoint_on_which_a_micro_batch_query_has_gone_on_is_not_set_back() -> None:
    with pytest.raises(DeliveryRefusedError, match=r"Epoch 180 .* at offset 90 of t-0, and the logs have 95 for epoch"):
        reached({A: noted(90, 180)}, "q", IDS, 150, {A: 95})
    assert reached({A: noted(95, 180)}, "q", IDS, 150, {A: 95}) == {A: 95}


@pytest.mark.parametrize("ahead", [1, 2])
def test_a_topic_that_was_made_anew_in_the_epochs_that_the_logs_lag_behind_counts(ahead: int) -> None:
    assert reached({A: noted(2, 4 + ahead)}, "q", IDS, 4, {A: 9}) == {A: 2}


def test_logs_of_another_past_are_refused() -> None:
    with pytest.raises(
        DeliveryRefusedError, match=r"Epoch 5 of query q has ended at offset 9 of t-0, .* at 8\."
    ) as caught:
        reached({A: noted(9, 5)}, "q", IDS, 5, {A: 8})
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 9)
    assert reached({A: noted(9, 5, topic_id=OLD), B: noted(9, 5)}, "q", IDS, 5, {A: 8}) == {}
    assert reached({A: noted(9, BEFORE_ALL)}, "q", IDS, 5, {A: 8}) == {}


def test_others_are_all_but_the_querys_own() -> None:
    found = {A: noted(1, 2), B: noted(1, 2, query="other"), TopicPartition("u", 0): Noted(5, None)}
    assert list(others(found, "q")) == [B, TopicPartition("u", 0)]


def test_a_refusal_says_whose_it_is_and_how_to_take_it() -> None:
    theirs = {B: noted(7, 2, query="other"), A: noted(6, 3, query="other")}
    told = str(refusal(theirs, "q", "alerts"))
    assert "'alerts.cont'" in told
    assert "offset 6 of t-0, which epoch 3 of query other has committed" in told
    assert f"resetDelivery to {reset_token(theirs, 'q')};" in told
    assert "no continuous query has committed" in str(refusal({A: Noted(6, None)}, "q", "alerts"))


def test_a_token_is_for_one_case() -> None:
    theirs = {A: noted(6, 3, query="other")}
    token = reset_token(theirs, "q")
    assert token == reset_token(dict(theirs), "q")
    different = [
        reset_token(theirs, "r"),
        reset_token({A: noted(6, 4, query="other")}, "q"),
        reset_token({A: noted(7, 3, query="other")}, "q"),
        reset_token({B: noted(6, 3, query="other")}, "q"),
        reset_token({A: Noted(6, None)}, "q"),
    ]
    assert len({token, *different}) == 6
