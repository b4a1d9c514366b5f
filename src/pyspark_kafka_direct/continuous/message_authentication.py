"""Authentication between the driver and a task of a run, and of every message that they exchange later.

The handshake, one line of JSON each (see ``control_messages``):

    driver   HandshakeChallenge   the driver's nonce, and the protocol version
    task     TaskHandshake        the task's identity, its own nonce, and proof("task")
    driver   DriverHandshake      proof("driver"); or HandshakeRejected with the reason

    proof(label) = hex(HMAC-SHA256(secret of the run, JSON of package, version, label, driver's nonce, TaskHandshake))

The secret is part of Spark's task and never sent over this connection. A driver without a free place for the handshake
closes the connection, and the task connects again. Every later line is:

    hex(HMAC-SHA256(key, sequence number as 8 bytes + message)) + message + line feed

The key is computed like a proof, with the label of its direction. Sequence numbers count the lines of one direction
from 0. A third party can therefore not forge, change, omit, reorder or replay a message, whether from the same
direction, the other direction or another connection. It can still close the connection, which ends the run. Nothing is
encrypted: who controls the network between driver and executors can read offsets and topic names.
"""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING, Final, Literal

from pyspark_kafka_direct.continuous.control_messages import CONTROL_PROTOCOL_VERSION, decode_message, encode_message

if TYPE_CHECKING:
    from pyspark_kafka_direct.continuous.control_messages import ControlMessage, TaskHandshake
    from pyspark_kafka_direct.options.security_settings import Secret

_CODE_CHARS: Final = 64  # an HMAC-SHA256 in hexadecimal digits


def task_proof(secret: Secret, challenge: str, handshake: TaskHandshake) -> str:
    """Return the HMAC by which a task proves that it has the secret; ``challenge`` is the driver's nonce."""
    return _digest(secret, "task", challenge, handshake).hex()


def driver_proof(secret: Secret, challenge: str, handshake: TaskHandshake) -> str:
    """Return the HMAC by which the driver proves to a task that it has the secret."""
    return _digest(secret, "driver", challenge, handshake).hex()


def proofs_equal(first: str, second: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(first.encode(errors="replace"), second.encode(errors="replace"))


class MessageSession:
    """Encodes and decodes the messages of one side of a connection after the handshake."""

    def __init__(
        self, side: Literal["driver", "task"], secret: Secret, challenge: str, handshake: TaskHandshake
    ) -> None:
        peer = "task" if side == "driver" else "driver"
        self._sent = _MessageCodes(_digest(secret, f"messages of the {side}", challenge, handshake))
        self._received = _MessageCodes(_digest(secret, f"messages of the {peer}", challenge, handshake))

    def encode(self, message: ControlMessage) -> bytes:
        """Return the message as a line with its code."""
        line = encode_message(message)
        return self._sent.next_code(line[:-1]) + line

    def decode(self, line: bytes) -> ControlMessage:
        """Decode a line without its line feed; raise ``ValueError`` unless it is the peer's next message."""
        content = line[_CODE_CHARS:]
        if not hmac.compare_digest(line[:_CODE_CHARS], self._received.next_code(content)):
            raise ValueError("its authentication code is wrong, so another process interferes with the connection")
        return decode_message(content)


class _MessageCodes:
    """The codes of one direction."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._sequence_number = 0

    def next_code(self, content: bytes) -> bytes:
        numbered = self._sequence_number.to_bytes(8, "big") + content
        self._sequence_number += 1
        return hmac.digest(self._key, numbered, "sha256").hex().encode()


def _digest(secret: Secret, label: str, challenge: str, handshake: TaskHandshake) -> bytes:
    identity = (handshake.run, handshake.task, handshake.attempt, handshake.host, handshake.pid, handshake.nonce)
    content = json.dumps(["pyspark-kafka-direct", CONTROL_PROTOCOL_VERSION, label, challenge, *identity])
    return hmac.digest(secret.reveal().encode(), content.encode(), "sha256")
