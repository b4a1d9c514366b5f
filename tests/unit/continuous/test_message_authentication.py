"""The proofs of the handshake, and the codes of later messages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.continuous.control_messages import (
    DriverHandshake,
    EpochRequest,
    HandshakeChallenge,
    StartTask,
    TaskHandshake,
    encode_message,
)
from pyspark_kafka_direct.continuous.message_authentication import (
    MessageSession,
    driver_proof,
    proofs_equal,
    task_proof,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from pyspark_kafka_direct.continuous.control_messages import ControlMessage

HANDSHAKE = TaskHandshake("run", 1, 0, "host", 42, "task nonce")
SECRET = Secret("hush")
MESSAGE = EpochRequest(7, stop=False)


def sessions(
    secret: Secret = SECRET, challenge: str = "driver nonce", **changes: Any
) -> tuple[MessageSession, MessageSession]:
    """Return the two ends of a connection."""
    handshake = replace(HANDSHAKE, **changes)
    return MessageSession("driver", secret, challenge, handshake), MessageSession("task", secret, challenge, handshake)


class TestProofs:
    def test_a_proof_depends_on_the_secret_both_nonces_and_all_handshake_fields(self) -> None:
        proof = task_proof(SECRET, "driver nonce", HANDSHAKE)
        changes: list[dict[str, Any]] = [
            {"run": "other"},
            {"task": 2},
            {"attempt": 1},
            {"host": "there"},
            {"pid": 43},
            {"nonce": "m"},
        ]
        others = [task_proof(SECRET, "driver nonce", replace(HANDSHAKE, **change)) for change in changes]
        others += [task_proof(Secret("hash"), "driver nonce", HANDSHAKE), task_proof(SECRET, "other", HANDSHAKE)]
        assert len({proof, *others}) == 1 + len(others)
        assert not any(proofs_equal(proof, other) for other in others)
        assert proofs_equal(proof, task_proof(SECRET, "driver nonce", replace(HANDSHAKE, proof=proof)))

    def test_a_proof_cannot_be_reflected(self) -> None:
        assert not proofs_equal(
            task_proof(SECRET, "driver nonce", HANDSHAKE), driver_proof(SECRET, "driver nonce", HANDSHAKE)
        )

    def test_field_boundaries_are_unambiguous(self) -> None:
        one, other = replace(HANDSHAKE, run="a", host="b"), replace(HANDSHAKE, run='a", "b', host="")
        assert task_proof(SECRET, "n", one) != task_proof(SECRET, "n", other)

    @pytest.mark.parametrize("proof", ["", "é", "\ud800", "0" * 64])
    def test_any_string_can_be_compared(self, proof: str) -> None:
        assert not proofs_equal(proof, task_proof(SECRET, "driver nonce", HANDSHAKE))

    def test_no_message_contains_the_secret(self) -> None:
        handshake = replace(HANDSHAKE, proof=task_proof(SECRET, "driver nonce", HANDSHAKE))
        sent = (
            encode_message(HandshakeChallenge("driver nonce"))
            + encode_message(handshake)
            + encode_message(DriverHandshake(driver_proof(SECRET, "driver nonce", HANDSHAKE)))
        )
        assert b"hush" not in sent


class TestSessions:
    def test_both_sides_exchange_messages(self) -> None:
        driver, task = sessions()
        messages: list[ControlMessage] = [MESSAGE, StartTask(3, {TopicPartition("t", 0): 9}), MESSAGE, MESSAGE]
        for sender, receiver in ((driver, task), (task, driver)):
            lines = [sender.encode(message) for message in messages]
            assert [receiver.decode(line[:-1]) for line in lines] == messages
            assert [(line[64:], line.count(b"\n")) for line in lines] == [
                (encode_message(each), 1) for each in messages
            ]

    def test_the_wire_format(self) -> None:
        """The code was computed by hand from the description of the module."""
        driver, _ = sessions()
        assert driver.encode(
            MESSAGE
        ) == b"192cc9507eb0c840fc4bd4e8de43f75e8cf3bd1531389ee1fe61e672e27f5e1a" + encode_message(MESSAGE)

    @pytest.mark.parametrize("position", range(0, 110, 7))
    def test_a_changed_line_is_rejected(self, position: int) -> None:
        driver, task = sessions()
        line = bytearray(driver.encode(MESSAGE)[:-1])
        line[position] ^= 1
        with pytest.raises(ValueError, match="authentication code is wrong"):
            task.decode(bytes(line))

    @pytest.mark.parametrize("line", [b"", b"0" * 64, encode_message(MESSAGE)[:-1], b"\xff" * 100])
    def test_a_line_without_a_code_is_rejected(self, line: bytes) -> None:
        with pytest.raises(ValueError, match="authentication code is wrong"):
            sessions()[1].decode(line)

    @pytest.mark.parametrize("order", [[0, 0], [1], [0, 2]], ids=["repeated", "reordered", "omitted"])
    def test_a_line_out_of_order_is_rejected(self, order: list[int]) -> None:
        driver, task = sessions()
        lines = [driver.encode(MESSAGE)[:-1] for _ in range(3)]
        for index in order[:-1]:
            task.decode(lines[index])
        with pytest.raises(ValueError, match="authentication code is wrong"):
            task.decode(lines[order[-1]])

    def test_a_reflected_line_is_rejected(self) -> None:
        driver, _ = sessions()
        with pytest.raises(ValueError, match="authentication code is wrong"):
            driver.decode(driver.encode(MESSAGE)[:-1])

    @pytest.mark.parametrize(
        "other",
        [
            {"secret": Secret("hash")},
            {"challenge": "other"},
            {"nonce": "other"},
            {"run": "other"},
            {"task": 2},
            {"pid": 1},
        ],
    )
    def test_a_line_of_another_connection_is_rejected(self, other: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="authentication code is wrong"):
            sessions()[1].decode(sessions(**other)[0].encode(MESSAGE)[:-1])

    def test_no_line_or_representation_contains_the_secret(self) -> None:
        driver, task = sessions()
        assert b"hush" not in driver.encode(MESSAGE)
        assert "hush" not in f"{driver!r} {task!s}"
