"""What writing records needs to know, beside the connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]

CODECS: Final[dict[Codec, int]] = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The codecs as record batches write them (protocol guide, "Record Batch", attributes)."""


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    """How records are written. Hashable and picklable.

    Attributes:
        acks: Whose acknowledgement counts: -1 all replicas in sync, 1 the leader, 0 nobody's (``acks``).
        idempotent: Whether a repeated request is recognised by its sequence numbers; needs acks -1
            (``enable.idempotence``).
        codec: How record batches are compressed (``compression.type``).
        level: The codec's level; ``None``: its default (``compression.<codec>.level``).
        batch_bytes: About how many bytes of records a record batch holds, before compression (``batch.size``).
        max_request_bytes: Most bytes of a request, and of a record (``max.request.size``).
        buffer_bytes: Most bytes of records that wait, in open batches and unacknowledged ones (``buffer.memory``).
        max_in_flight: Most requests under way to one broker (``max.in.flight.requests.per.connection``).
        delivery_timeout_ms: After how long a record batch that was not acknowledged fails (``delivery.timeout.ms``).
        ignore_keys: Whether keys have no say in the choice of a partition (``partitioner.ignore.keys``).
    """

    acks: Literal[-1, 0, 1] = -1
    idempotent: bool = True
    codec: Codec = "none"
    level: int | None = None
    batch_bytes: int = 524_288
    max_request_bytes: int = 1_048_576
    buffer_bytes: int = 33_554_432
    max_in_flight: int = 5
    delivery_timeout_ms: int = 120_000
    ignore_keys: bool = False
