"""Lets a Python worker's last words reach Spark at once.

A worker ends a task with a few short messages. By default TCP holds each back until the one before is acknowledged,
and the JVM's side acknowledges late (Nagle's algorithm and delayed acknowledgements): some 10 ms per task were
measured in which nobody works.
"""

from __future__ import annotations

import functools
import socket

from pyspark_kafka_direct.reading._daemon import socket_to_jvm


@functools.cache
def send_at_once() -> None:
    """Turns the waiting off, once a process; does nothing outside a worker, or where Spark uses Unix sockets."""
    to_jvm = socket_to_jvm()
    if to_jvm is not None and to_jvm.family in (socket.AF_INET, socket.AF_INET6):
        to_jvm.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
