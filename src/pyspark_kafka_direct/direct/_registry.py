"""The direct streams of this process, by id.

Spark pickles each Python function of a stream's graph by itself into its checkpoint. If each held the stream, the
stream would come back as several copies that go their own ways. So only one of them (``_carrier.GenerationBegins``)
holds it; everything else holds its id and finds it here. A stream that comes back from a checkpoint is entered when
Spark first generates a batch of it, in place of one that this process had before. Until then the older one may well be
running, as when ``getOrCreate`` is called twice.
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from pyspark_kafka_direct.direct._stopping import FLUSH_SECONDS, flush
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from pyspark_kafka_direct.direct._carried import CarriedStream

_lock = threading.Lock()
_streams: dict[str, CarriedStream] = {}
_stopped: WeakValueDictionary[str, CarriedStream] = WeakValueDictionary()  # for as long as somebody has them


def enter(stream: CarriedStream) -> None:
    """Make a stream that is connected with its StreamingContext known under its id."""
    with _lock:
        _streams[stream.stream_id] = stream


def leave(stream: CarriedStream) -> None:
    """Hold a stream no longer, as its context is stopped; whoever has it may go on asking it."""
    with _lock:
        if _streams.get(stream.stream_id) is stream:
            _stopped[stream.stream_id] = _streams.pop(stream.stream_id)


def stream_of(stream_id: str) -> CarriedStream:
    """Return the stream with this id.

    Raises:
        OptionError: This process has none, as on an executor.
    """
    with _lock:
        found = _streams.get(stream_id) or _stopped.get(stream_id)
    if found is None:
        raise OptionError(
            "a direct stream can only be used on the driver, in the process that runs its StreamingContext; call "
            "commitAsync in the function given to foreachRDD itself, not in one that runs on records"
        )
    return found


def streams() -> list[CarriedStream]:
    """Return all streams of this process that somebody has."""
    with _lock:
        return [*_streams.values(), *_stopped.values()]


def _flush_at_exit() -> None:
    """Send queued commits of an application that ends without a stop, as after an error of ``awaitTermination``."""
    flush(streams(), FLUSH_SECONDS)


atexit.register(_flush_at_exit)
