"""The direct streams of this process, by id.

Spark pickles each Python function of a stream's graph by itself into its checkpoint. If each held the stream, the
stream would come back as several copies that go their own ways. So only the carrier (``_carrier.py``) holds it;
everything else holds its id and finds it here. Reading the carrier back from a checkpoint enters the stream again, in
place of one that this process had before.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from pyspark_kafka_direct.direct._planner import StreamPlanner

_lock = threading.Lock()
_streams: dict[str, StreamPlanner] = {}


def enter(planner: StreamPlanner) -> None:
    """Make a stream known under its id."""
    with _lock:
        _streams[planner.stream_id] = planner


def stream_of(stream_id: str) -> StreamPlanner:
    """The stream with this id.

    Raises:
        OptionError: This process has none, as on an executor.
    """
    with _lock:
        found = _streams.get(stream_id)
    if found is None:
        raise OptionError(
            "a direct stream can only be used on the driver, in the process that runs its StreamingContext; call "
            "commitAsync in the function given to foreachRDD itself, not in one that runs on records"
        )
    return found


def streams() -> list[StreamPlanner]:
    """All streams of this process."""
    with _lock:
        return list(_streams.values())
