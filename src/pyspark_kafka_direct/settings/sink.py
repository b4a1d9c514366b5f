"""The options of the data source for writing, checked and typed.

Options of Spark's own Kafka sink keep their names and refusals (``org.apache.spark.sql.kafka010.KafkaSourceProvider``);
as there, options for reading mean nothing to a sink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings import _messages
from pyspark_kafka_direct.settings._messages import warn_once
from pyspark_kafka_direct.settings._produce import produce_settings
from pyspark_kafka_direct.settings._reader import read
from pyspark_kafka_direct.settings.client import connection_of
from pyspark_kafka_direct.settings.row import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.settings._reader import Read
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.produce import ProduceSettings

__all__ = ["Delivery", "SinkOptions", "parse_sink_options", "warn_once"]

Delivery = Literal["at-least-once", "exactly-once"]

_PREFIX: Final = "transactionalIdPrefix"
_ASYNC_PROGRESS: Final = "asyncProgressTrackingEnabled"
_EXACTLY_ONCE_ONLY: Final = (
    _PREFIX,
    "markerTopic",
    "resetDelivery",
    "jobId",
    "stagingLocation",
    "stagingThreshold",
    "transaction.timeout.ms",
)


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The options of a query that writes.

    Attributes:
        connection: How to reach the cluster.
        produce: How to write records.
        topic: The topic to write to; ``None``: the column ``topic`` names it.
        delivery: What is promised.
        transactional_id_prefix: What the transactional id begins with; never ``None`` with exactly-once.
        marker_topic: Where the marker of the last batch is.
        reset_delivery: The token of a refusal that is overruled.
        job_id: What a batch write is known by.
        staging_location: Where large parts of a batch wait, if anywhere.
        staging_threshold: Most bytes of a task that go through the driver.
        transaction_timeout_ms: After how long the broker aborts a transaction.
        stamp_batch: Add headers that tell who wrote a record.
        warnings: What the user should be told once.
    """

    connection: ConnectionSettings
    produce: ProduceSettings
    topic: str | None
    delivery: Delivery
    transactional_id_prefix: str | None
    marker_topic: str
    reset_delivery: str | None
    job_id: str | None
    staging_location: str | None
    staging_threshold: int
    transaction_timeout_ms: int
    stamp_batch: bool
    warnings: tuple[str, ...] = ()


def parse_sink_options(raw: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Check and type the options of a query that writes.

    Args:
        raw: Options as Spark hands them over.
        streaming: Whether a stream is written, or a batch.

    Raises:
        OptionError: A required option is missing, or one has a value that cannot be used; the message has the
            option's name, what was given and what is allowed.
    """
    given = read(raw, door="sink", origin=Origin.OPTION)
    connection, notes = connection_of(given)
    warnings = [*given.notes, *notes]
    produce = produce_settings(given, warnings)
    unused: tuple[str, ...]
    if given.text("delivery") == "exactly-once":
        _check_exactly_once(given, produce)
        _check_progress(raw)
        unused, why = (("jobId",) if streaming else ()), "a streaming query is known by its own id"
    else:
        unused, why = _EXACTLY_ONCE_ONLY, "delivery is not exactly-once"
    warnings += [_messages.ignored(given.origin, given.given[name], why) for name in unused if name in given.given]
    return SinkOptions(
        connection=connection,
        produce=produce,
        warnings=tuple(warnings),
        **given.fields(SinkOptions, "produce"),
    )


def _check_exactly_once(given: Read, produce: ProduceSettings) -> None:
    if given.text(_PREFIX) is None:
        raise OptionError(
            f"{_PREFIX} is missing: delivery=exactly-once needs a name for what writes here, the same at every start "
            "and no other writer's"
        )
    if produce.acks != -1:
        _refuse_with_exactly_once(given, "acks", "all")
    if not produce.idempotent:
        _refuse_with_exactly_once(given, "enable.idempotence", "true")


def _check_progress(raw: Mapping[str, str]) -> None:
    """Refuse an option that Spark hands on; it refuses it by itself, unless a switch for its own tests is set."""
    written = next((name for name in raw if name.lower() == _ASYNC_PROGRESS.lower()), None)
    if written is not None and raw[written].strip().lower() == "true":
        raise OptionError(
            f"{written}=true cannot be used with delivery=exactly-once: the checkpoint then lags behind what was "
            "written, and after a crash batches of the same numbers have other records. Leave one of them out"
        )


def _refuse_with_exactly_once(given: Read, setting: str, wanted: str) -> NoReturn:
    raise _messages.bad_value(given.name(setting), given.texts[setting], f"{wanted} with delivery=exactly-once")
