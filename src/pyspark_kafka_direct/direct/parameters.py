"""Parameters under their Java names: what the driver and the executors make of a ``kafkaParams`` map.

Spark's ``KafkaUtils.fixKafkaParams`` changes the executors' copy; here too, and each change is told once:

| parameter | driver | executors |
|---|---|---|
| ``enable.auto.commit`` | false | false |
| ``auto.offset.reset`` | where a partition without an offset begins; Java's default is ``latest`` | none |
| ``group.id`` | whose committed offsets to begin at, and for whom to commit | ``spark-executor-`` + group |
| ``receive.buffer.bytes`` | as given | at least 65536, if given (KAFKA-3135) |

Executors read without a consumer group, so their group's name is nothing but a name. Beside the client settings there
are five options of the data source: ``failOnDataLoss``, ``kafkaConsumer.pollTimeoutMs``, ``maxRecordBatchBytes``,
``oauthTokenProvider`` and ``rackEnvironmentVariable``.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, cast

from pyspark_kafka_direct.direct._conf import flag
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.wire.settings import connection_settings

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import FetchSettings

_log = logging.getLogger("pyspark_kafka_direct.direct")

_LEAST_RECEIVE_BUFFER: Final = 65536
_DEFAULT_LARGEST: Final = 1 << 30

_PREFIX: Final = re.compile(r"\Akafka[.]", re.IGNORECASE)
_GROUP: Final = "group.id"
_RESET: Final = "auto.offset.reset"
_AUTO_COMMIT: Final = "enable.auto.commit"
_DESERIALIZERS: Final = {"key.deserializer": "keyDecoder", "value.deserializer": "valueDecoder"}
_PROVIDER: Final = "oauthtokenprovider"
_RACK: Final = "rackenvironmentvariable"
_FAIL: Final = "failondataloss"
_POLL: Final = "kafkaconsumer.polltimeoutms"
_LARGEST: Final = "maxrecordbatchbytes"

_HANDLED: Final = frozenset({_GROUP, _RESET, _AUTO_COMMIT, *_DESERIALIZERS, _PROVIDER, _RACK, _FAIL, _POLL, _LARGEST})


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
        texts: The client settings as the data source takes them, without ``kafka.``; may hold secrets.
        max_record_batch_bytes: Most bytes that a record batch may decompress to, as the option ``maxRecordBatchBytes``.
    """

    settings: ConnectionSettings
    fetch: FetchSettings
    group_id: str | None = None
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    oauth_token_provider: str | None = None
    rack_environment_variable: str | None = None
    fail_on_data_loss: bool = True
    poll_timeout: float | None = None
    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    max_record_batch_bytes: int = _DEFAULT_LARGEST

    @property
    def executor_group_id(self) -> str | None:
        """The name Spark gives to the executors' group; nobody joins it."""
        return None if self.group_id is None else f"spark-executor-{self.group_id}"

    @property
    def executor_settings(self) -> ConnectionSettings:
        """How the executors reach the cluster."""
        size = self.settings.receive_buffer_bytes
        if not 0 <= size < _LEAST_RECEIVE_BUFFER:
            return self.settings
        _tell_once(
            f"receive.buffer.bytes={size} is raised to {_LEAST_RECEIVE_BUFFER} on executors: smaller ones stall "
            "Kafka's clients (KAFKA-3135)"
        )
        return dataclasses.replace(self.settings, receive_buffer_bytes=_LEAST_RECEIVE_BUFFER)

    def source_options(self) -> dict[str, str]:
        """The same as options of the data source ``kafka-direct``; may hold secrets."""
        options = {f"kafka.{name}": text for name, text in self.texts}
        options["failOnDataLoss"] = str(self.fail_on_data_loss).lower()
        if self.max_record_batch_bytes != _DEFAULT_LARGEST:
            options["maxRecordBatchBytes"] = str(self.max_record_batch_bytes)
        if self.oauth_token_provider is not None:
            options["oauthTokenProvider"] = self.oauth_token_provider
        if self.rack_environment_variable is not None:
            options["rackEnvironmentVariable"] = self.rack_environment_variable
        return options


def driver_parameters(params: Mapping[str, object]) -> KafkaParameters:
    """Reads parameters by their Java names; the map itself is left as it is.

    Values may be texts, or what Java's client takes in their place: numbers, booleans, lists of texts. A name may begin
    with ``kafka.``, as for the data source. ``None`` means "not given".

    Raises:
        OptionError: A parameter is missing, refused, or has a value that can't be used.
    """
    texts = _texts(params)
    given = {name.lower(): text for name, text in texts.items()}
    for name, instead in _DESERIALIZERS.items():
        if name in given and given[name].rpartition(".")[2] != "ByteArrayDeserializer":
            _tell_once(
                f"{name} is ignored: there is no Java here. Keys and values are bytes, or what a Python function makes "
                f"of them: give {instead}=..., for example {instead}=bytes.decode for texts"
            )
    if flag(_AUTO_COMMIT, given.get(_AUTO_COMMIT, "false")):
        _tell_once(
            "enable.auto.commit is overridden to false: only commitAsync and commitSync commit, after your output is "
            "written"
        )
    provider = given.get(_PROVIDER) or None
    client = {name: text for name, text in texts.items() if name.lower() not in _HANDLED}
    return KafkaParameters(
        *connection_settings(client, oauth_token_provider=provider),
        group_id=given.get(_GROUP, "").strip() or None,
        auto_offset_reset=_reset(given.get(_RESET)),
        oauth_token_provider=provider,
        rack_environment_variable=given.get(_RACK) or None,
        fail_on_data_loss=flag("failOnDataLoss", given.get(_FAIL, "true")),
        poll_timeout=_seconds("kafkaConsumer.pollTimeoutMs", given.get(_POLL)),
        texts=tuple(client.items()),
        max_record_batch_bytes=_bytes("maxRecordBatchBytes", given.get(_LARGEST)),
    )


def _texts(params: Mapping[str, object]) -> dict[str, str]:
    if not isinstance(params, Mapping):
        raise OptionError(f"kafkaParams must be a dict of client settings, got {type(params).__name__}")
    texts: dict[str, str] = {}
    for key, value in params.items():
        name = _PREFIX.sub("", key.strip(), count=1) if isinstance(key, str) else ""
        if not name:
            raise OptionError(f"a parameter's name must be a text such as bootstrap.servers, got {key!r}")
        if value is None:
            continue
        text = _text(name, value)
        if any(name.lower() == other.lower() and text != texts[other] for other in texts):
            raise OptionError(f"the parameter {name} is given twice with different values; names are case-insensitive")
        texts[name] = text
    return texts


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if name.lower() in _DESERIALIZERS:
        return str(getattr(value, "__name__", type(value).__name__))
    if isinstance(value, Sequence) and not isinstance(value, bytes) and all(isinstance(part, str) for part in value):
        return ",".join(cast("Sequence[str]", value))
    # The value itself is not shown: it may be a secret.
    raise OptionError(
        f"the parameter {name} must be a text, a number, a boolean or a list of texts, got {type(value).__name__}"
    )


def _seconds(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,18}", text.strip(), re.ASCII) is None or int(text) == 0:
        raise OptionError(f"{name} must be a number of milliseconds, at least 1, got {text!r}")
    return int(text) / 1000


def _bytes(name: str, text: str | None) -> int:
    if text is None:
        return _DEFAULT_LARGEST
    if re.fullmatch(r"[0-9]{1,10}", text.strip(), re.ASCII) is None or not 1 <= int(text) < 1 << 31:
        raise OptionError(f"{name} must be a number of bytes from 1 to 2147483647, got {text!r}")
    return int(text)


def _reset(text: str | None) -> Literal["earliest", "latest", "none"]:
    word = (text or "").strip().lower() or "latest"
    if word in ("earliest", "latest", "none"):
        return cast("Literal['earliest', 'latest', 'none']", word)
    if word.startswith("by_duration:"):
        raise OptionError(
            f"auto.offset.reset={text} is not supported: look up the offsets of that time with a Kafka admin client, "
            "and give them to the consumer strategy as its offsets"
        )
    raise OptionError(f"auto.offset.reset must be earliest, latest or none, got {text!r}")


@lru_cache(maxsize=256)
def _tell_once(note: str) -> None:
    # The cache is the memory of what was said.
    _log.warning("%s", note)
