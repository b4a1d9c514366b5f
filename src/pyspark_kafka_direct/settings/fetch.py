"""What fetching records needs to know, beside the connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

IsolationLevel = Literal["read_uncommitted", "read_committed"]

ISOLATION_LEVELS: Final[dict[IsolationLevel, int]] = {"read_uncommitted": 0, "read_committed": 1}
"""The levels as requests write them (protocol guide, Fetch and ListOffsets)."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How records are fetched. Hashable and picklable.

    All times are milliseconds, all sizes bytes. Each field has the meaning and default of the client setting of that
    name.
    """

    isolation_level: IsolationLevel = "read_uncommitted"
    client_rack: str = ""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 4_194_304
    check_crcs: bool = True
