"""What ``stagingLocation`` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.writing._staging_files import FileLocation
from pyspark_kafka_direct.writing._staging_topic import TopicLocation

if TYPE_CHECKING:
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.writing.staging import Location

_TOPIC: Final = "topic:"


def open_location(
    text: str, cluster: Cluster, *, transactional_id: str, run: str, probe: str | None = None
) -> Location:
    """Return the place that an option names: ``topic:NAME``, an absolute path, or a URI that pyarrow.fs knows.

    Args:
        text: The option's value.
        cluster: The cluster, which has the topic.
        transactional_id: Under which the batches will be sent.
        run: The run that stages and commits.
        probe: In a task, what ``prepare`` has returned on the driver.

    Raises:
        OptionError: There is no such place.
    """
    if not text.startswith(_TOPIC):
        return FileLocation(text, transactional_id, run, probe)
    if text == _TOPIC:
        raise OptionError("stagingLocation is topic: without a name; write topic:NAME.")
    return TopicLocation(cluster, text.removeprefix(_TOPIC))
