"""What is left of a selection when topics or partitions of it are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.planning.select import Assign, Selection, Subscribe, SubscribePattern

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def existing(selection: Selection, topics: Mapping[str, Collection[int]]) -> Selection:
    """Return the part of a selection that exists.

    A running stream must not fail because a topic it subscribed to is gone: whether that is a loss depends on what it
    had read of it, and on ``failOnDataLoss``.

    Args:
        selection: What the user asked for.
        topics: Partition numbers of the topics that exist.
    """
    match selection:
        case Assign(partitions):
            return Assign(tuple(tp for tp in partitions if tp.partition in topics.get(tp.topic, ())))
        case Subscribe(names):
            return Subscribe(tuple(name for name in names if name in topics))
        case SubscribePattern():
            return selection
