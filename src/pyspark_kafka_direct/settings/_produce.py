"""Rules across settings that say how records are written: acknowledgement, idempotence, compression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._kinds import read_value
from pyspark_kafka_direct.settings.produce import ProduceSettings

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings._reader import Read

_ACKS: Final[dict[str | None, Literal[-1, 0, 1]]] = {"all": -1, "-1": -1, "1": 1, "0": 0}
_MOST_IN_FLIGHT: Final = 5  # so many batches of a partition a broker remembers (ProducerStateEntry)


def produce_settings(given: Read, warnings: list[str]) -> ProduceSettings:
    """Make typed settings of what was read.

    Args:
        given: What was given.
        warnings: Gets a line where a setting takes another one's effect away.

    Raises:
        OptionError: Settings contradict one another.
    """
    acks = _ACKS[given.text("acks")]
    fields = given.fields(ProduceSettings, "produce")
    return ProduceSettings(
        acks=acks,
        idempotent=_idempotent(given, acks, fields["max_in_flight"], warnings),
        level=_level(given, fields["codec"]),
        **fields,
    )


def _idempotent(given: Read, acks: int, in_flight: int, warnings: list[str]) -> bool:
    """Decide as Java's client does (``ProducerConfig.postProcessAndValidateIdempotenceConfigs``)."""
    setting = "enable.idempotence"
    if not given.flag(setting):
        return False
    if acks != -1:
        if setting in given.given:
            raise OptionError(
                f"{given.name(setting)}=true needs {given.name('acks')}=all, got {given.text('acks')}: leave one of "
                "them out"
            )
        warnings.append(
            f"{given.name('acks')}={given.text('acks')} turns idempotence off: records may be lost, and written twice "
            "when a request is sent again"
        )
        return False
    if in_flight > _MOST_IN_FLIGHT:
        raise OptionError(
            f"{given.name('max.in.flight.requests.per.connection')} must be at most {_MOST_IN_FLIGHT} with "
            f"idempotence, got {in_flight}; lower it, or set {given.name(setting)}=false"
        )
    return True


def _level(given: Read, codec: str) -> int | None:
    """Return the level of the codec that is used; those of others mean nothing, as in Java's client."""
    row = given.table.by_name.get(f"compression.{codec}.level")
    if row is None:
        return None
    level, own_default = given.number(row.name), codec == "gzip"
    if level is None and (text := given.texts.get("compression.level")) is not None:
        # librdkafka's name for all codecs, where -1 is always the default.
        own_default = True
        level = -1 if text.strip() == "-1" else int(str(read_value(row, text, given.name("compression.level"))))
    return None if level == -1 and own_default else level
