"""Parameters under their Java names: what the driver and the executors make of a ``kafkaParams`` map.

Spark's ``KafkaUtils.fixKafkaParams`` changes the executors' copy; here too, and each change is told once:

| parameter | driver | executors |
|---|---|---|
| ``enable.auto.commit`` | false | false |
| ``auto.offset.reset`` | where a partition without an offset begins; Java's default is ``latest`` | none |
| ``group.id`` | whose committed offsets to begin at, and for whom to commit | none |
| ``receive.buffer.bytes`` | as given | at least 65536, if given (KAFKA-3135) |

Executors read without a consumer group. Beside the client settings there are some options of the data source, under
their names there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._messages import bad_value, warn_once
from pyspark_kafka_direct.settings._reader import read
from pyspark_kafka_direct.settings._table import TABLE
from pyspark_kafka_direct.settings.client import client_settings
from pyspark_kafka_direct.settings.row import Origin

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings._reader import Read
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.settings.row import Door

Reset = Literal["earliest", "latest", "none"]

_LEAST_RECEIVE_BUFFER: Final = 65536
_RESETS: Final = ("earliest", "latest", "none")


@dataclass(frozen=True, slots=True)
class KafkaParameters:
    """What a ``kafkaParams`` map says. Picklable; secrets are not shown, but a pickled one holds them.

    Attributes:
        settings: How the driver reaches the cluster.
        fetch: How executors fetch.
        group_id: The consumer group whose offsets are looked up and committed, if any.
        auto_offset_reset: Where a partition begins that has neither a given nor a committed offset.
        oauth_token_provider: ``module:factory``, as the option ``oauthTokenProvider`` of the data source.
        rack_environment_variable: Where an executor finds its rack, as the option ``rackEnvironmentVariable``.
        fail_on_data_loss: Whether a task fails where records are gone, or passes over them with a warning, as the
            option ``failOnDataLoss``.
        poll_timeout: Seconds without any progress after which a task fails, as the option
            ``kafkaConsumer.pollTimeoutMs``; ``None``: what the Spark configuration says.
        texts: What was given of what the data source has too, by its names there; may hold secrets.
        max_record_batch_bytes: Most bytes that a record batch may decompress to, as the option ``maxRecordBatchBytes``.
    """

    settings: ConnectionSettings
    fetch: FetchSettings
    group_id: str | None = None
    auto_offset_reset: Reset = "latest"
    oauth_token_provider: str | None = None
    rack_environment_variable: str | None = None
    fail_on_data_loss: bool = True
    poll_timeout: float | None = None
    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    max_record_batch_bytes: int = 1 << 30

    @property
    def executor_settings(self) -> ConnectionSettings:
        """Return how the executors reach the cluster."""
        size = self.settings.receive_buffer_bytes
        if not 0 <= size < _LEAST_RECEIVE_BUFFER:
            return self.settings
        warn_once(
            f"receive.buffer.bytes={size} is raised to {_LEAST_RECEIVE_BUFFER} on executors: smaller ones stall "
            "Kafka's clients (KAFKA-3135)"
        )
        return dataclasses.replace(self.settings, receive_buffer_bytes=_LEAST_RECEIVE_BUFFER)

    def source_options(self) -> dict[str, str]:
        """Return the same as options of the data source ``kafka-direct``; may hold secrets."""
        return dict(self.texts)


def driver_parameters(params: Mapping[str, object], door: Door = "direct") -> KafkaParameters:
    """Read parameters by their Java names; the map itself is left as it is.

    Values may be texts, or what Java's client takes in their place: numbers, booleans, lists of texts, classes. A name
    may begin with ``kafka.``, as for the data source. ``None`` means "not given".

    Args:
        params: The parameters.
        door: What they are for.

    Raises:
        OptionError: A parameter is missing, refused, or has a value that can't be used.
    """
    if not isinstance(params, Mapping):
        raise OptionError(f"kafkaParams must be a dict of client settings, got {type(params).__name__}")
    given = read(params, door=door, origin=Origin.PARAMETER)
    client, notes = client_settings(given)
    for note in (*given.notes, *notes):
        warn_once(note)
    if given.flag("enable.auto.commit"):
        warn_once(
            "enable.auto.commit is overridden to false: only commitAsync and commitSync commit, after your output is "
            "written"
        )
    poll_timeout_ms = given.number("kafkaConsumer.pollTimeoutMs")
    return KafkaParameters(
        client.connection,
        client.fetch,
        auto_offset_reset=_reset(given),
        poll_timeout=None if poll_timeout_ms is None else poll_timeout_ms / 1000,
        texts=_for_source(given),
        **given.fields(KafkaParameters, "connect", "fetch", "group", "plan"),
    )


def _for_source(given: Read) -> tuple[tuple[str, str], ...]:
    return tuple(
        (TABLE.as_written(row, Origin.OPTION), given.texts[row.name])
        for row in TABLE.rows
        if row.name in given.texts and "batch" in row.doors and row.written(Origin.OPTION)
    )


def _reset(given: Read) -> Reset:
    text = given.text("auto.offset.reset") or ""
    name = given.name("auto.offset.reset")
    if text.lower() in _RESETS:
        return cast("Reset", text.lower())
    if text.lower().startswith("by_duration:"):
        raise OptionError(
            f"{name}={text} is not supported: look up the offsets of that time with a Kafka admin client, "
            "and give them to the consumer strategy as its offsets"
        )
    raise bad_value(name, text, "earliest, latest or none", words=_RESETS)
