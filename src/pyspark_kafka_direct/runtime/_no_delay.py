"""Keep Spark and its Python worker from waiting for each other's TCP acknowledgements.

Both ends of a task's socket write several short messages in a row. By default TCP holds each back until the one before
is acknowledged (Nagle's algorithm). And an acknowledgement is put off for 40 ms, in the hope of an answer to send it
with. So a task began 40 ms late, and ended late too, while nobody worked.

The worker's own messages are sent at once with TCP_NODELAY. Those of the JVM are held back at its end, so here their
acknowledgement is hurried (TCP_QUICKACK, Linux only). The kernel falls back to putting it off with the next message
sent, so that must be asked for between a task's last message and the next task's first one. PySpark's daemon collects
garbage just there, and Python tells of each collection.
"""

from __future__ import annotations

import functools
import gc
import socket

from pyspark_kafka_direct.runtime._daemon import socket_to_jvm

_OLDEST = 2  # the generation of a full collection


@functools.cache
def send_at_once() -> None:
    """Turn the waiting off, once a process; do nothing outside a worker, or where Spark uses Unix sockets."""
    to_jvm = socket_to_jvm()
    if to_jvm is not None and to_jvm.family in (socket.AF_INET, socket.AF_INET6):
        to_jvm.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_QUICKACK"):
            gc.callbacks.append(functools.partial(_acknowledge_at_once, to_jvm))


def _acknowledge_at_once(to_jvm: socket.socket, phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == _OLDEST and to_jvm.fileno() >= 0:
        to_jvm.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
