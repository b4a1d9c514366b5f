"""Where the planner finds how long batches took; ``planning.feedback`` says how it uses that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.planning.feedback import Backpressure, MeasuredLimit, Measurement, file_name
from pyspark_kafka_direct.runtime.shared_folder import find_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.offsets import TopicPartition

_NOT_ENABLED = (
    "backpressure=true needs to know how long batches take, and Spark tells that to a query listener only: call "
    "pyspark_kafka_direct.enable(spark) before the query starts, or leave backpressure out. Over Spark Connect "
    "there is no backpressure, as no listener there reaches the process that plans: set maxOffsetsPerTrigger"
)


def measured_limit(options: Backpressure, warn: Callable[[str], None]) -> MeasuredLimit:
    """Return the limit by backpressure, in the process that plans a query.

    Args:
        options: The options.
        warn: Tells the user.

    Raises:
        OptionError: Nobody measures: ``enable(spark)`` was not called.
    """
    folder = find_folder()
    if folder is None:
        raise OptionError(_NOT_ENABLED)

    def find(end: Mapping[TopicPartition, int]) -> Measurement | None:
        try:
            return Measurement.from_text((folder / file_name(end)).read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            warn(f"backpressure: a measurement can't be read: {error}")
            return None

    return MeasuredLimit(options, find, warn)
