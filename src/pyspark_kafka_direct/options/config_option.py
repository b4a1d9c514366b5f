"""The definition of an option: its type, its defaults, the APIs that apply it, its effect in others, and its names."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from pyspark_kafka_direct.options import value_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.value_types import ValueType

Api: TypeAlias = Literal["batch", "stream", "continuous", "direct", "rdd", "sink", "log"]
"""The places where options are given. A new API is added here, and to the groups below that it belongs to."""

Role: TypeAlias = Literal["connect", "fetch", "produce", "group", "plan"]
"""The typed settings that an option belongs to."""

APIS: Final[tuple[Api, ...]] = get_args(Api)
READ_APIS: Final[tuple[Api, ...]] = ("batch", "stream", "continuous", "direct", "rdd")
SOURCE_APIS: Final[tuple[Api, ...]] = ("batch", "stream", "continuous")  # they take the options of the data source
RANGE_APIS: Final[tuple[Api, ...]] = ("batch", "stream")  # each task reads one offset range
STREAM_APIS: Final[tuple[Api, ...]] = ("stream", "continuous")
PARAMS_APIS: Final[tuple[Api, ...]] = ("direct", "rdd")
SINK_API: Final[tuple[Api, ...]] = ("sink",)
LOG_API: Final[tuple[Api, ...]] = ("log",)  # reads and writes
FETCH_APIS: Final[tuple[Api, ...]] = (*READ_APIS, *LOG_API)
PRODUCER_APIS: Final[tuple[Api, ...]] = (*SINK_API, *LOG_API)


class ConfigSource(Enum):
    """The place where an option is set; the values introduce its name in messages."""

    OPTION = "the option"
    PARAMETER = "the parameter"
    SPARK = "the Spark configuration property"
    ENVIRONMENT = "the environment variable"
    JAAS = "the login module option"


@dataclass(frozen=True, slots=True)
class UnsupportedPolicy:
    """The rule for an option in an API that does not apply it: ignore it with a warning, or reject it.

    It is rejected if the API could otherwise read or write other records than the user wants, with a weaker guarantee,
    in another order, or less securely. Options that Spark's own connector ignores, too, are ignored.
    """

    reason: str  # or what to set instead
    _: KW_ONLY
    reject: bool = False
    rejected_values: tuple[str, ...] = ()  # although other values are ignored
    # Values with the effect that the API has anyway: they are accepted silently. A leading `*` is a wildcard.
    accepted_values: tuple[str, ...] = ()

    def accepts(self, value: str) -> bool:
        """Return whether the value is accepted silently; case does not matter."""
        lower = value.strip().lower()
        return any(
            lower.endswith(accepted[1:].lower()) if accepted.startswith("*") else lower == accepted.lower()
            for accepted in self.accepted_values
        )

    def rejects(self, value: str) -> bool:
        """Return whether the value is an error; case does not matter."""
        return self.reject or value.strip().lower() in self.rejected_values


READS_ONLY: Final = UnsupportedPolicy("it applies to reads only")
WRITES_ONLY: Final = UnsupportedPolicy("it applies to writes only")
DATA_SOURCE_ONLY: Final = UnsupportedPolicy("it is a data source option and does not apply to a log", reject=True)


@dataclass(frozen=True, slots=True)
class SourceKey:
    """The name of an option in one source."""

    source: ConfigSource
    name: str = ""  # empty: the name of the option
    default_unit: str = "ms"  # of a duration without a unit


_NAMED_AS_OPTION: Final = "named as the option"

OPTION_OR_PARAMETER: Final = (SourceKey(ConfigSource.OPTION), SourceKey(ConfigSource.PARAMETER))


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """The definition of one option."""

    name: str  # of a client setting: Java's name if there is one, without `kafka.`
    value_type: ValueType = value_types.STRING
    default: str | None = None
    _: KW_ONLY
    role: Role | None  # None: no API applies it
    apis: tuple[Api, ...]  # the APIs that apply it
    api_defaults: Mapping[Api, str | None] = dataclasses.field(default_factory=dict)  # that differ from `default`
    doc: str = ""
    # Of the typed settings: `fetch_min_bytes` for `fetch.min.bytes`, unless it has another name. Empty: there is none.
    field: str = _NAMED_AS_OPTION
    # Whether it is a setting of Kafka clients. As an option, its name is prefixed with `kafka.`. An empty value means
    # "not given" unless there is a default.
    is_client: bool = False
    aliases: tuple[str, ...] = ()  # librdkafka's names
    # Whether a client setting decides which records are read, with which guarantee they are written, or about security.
    changes_results: bool = False
    verbatim: bool = False  # whether blanks around its value count; all other values are trimmed, as in Java
    required: bool = False
    defined_by_spark: bool = False  # whether Spark's Kafka source or sink has an option of this name
    # For APIs in which `unsupported_policy` does not follow from the role.
    unsupported: Mapping[Api, UnsupportedPolicy] = dataclasses.field(default_factory=dict)
    source_keys: tuple[SourceKey, ...] = OPTION_OR_PARAMETER  # the first key that is set takes precedence

    def __post_init__(self) -> None:
        if self.field == _NAMED_AS_OPTION:
            snake_case = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", self.name.replace(".", "_"))
            object.__setattr__(self, "field", snake_case)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The values of an enum, in canonical case."""
        if not isinstance(self.value_type, value_types.Enum):
            return ()
        other = self.value_type.other
        return (*self.value_type.allowed, *([] if other is None else [other.expected]))

    @property
    def secret(self) -> bool:
        """Whether the value must never be shown."""
        return self.value_type is value_types.SECRET

    def default_in(self, api: Api) -> str | None:
        """Return the default in an API, or None if there is none, or if the API does not apply the option."""
        return self.api_defaults.get(api, self.default) if api in self.apis else None

    def unsupported_policy(self, api: Api) -> UnsupportedPolicy:
        """Return what to do with the option in an API that does not apply it."""
        if api in self.unsupported:
            return self.unsupported[api]
        if api == "log" and not self.is_client:
            return DATA_SOURCE_ONLY
        return WRITES_ONLY if self.role == "produce" else READS_ONLY

    def rejects_misspelling(self, api: Api) -> bool:
        """Return whether an unknown name that resembles this one is an error, because ignoring it changes results."""
        return self.changes_results if api in self.apis else self.unsupported_policy(api).reject

    def key_in(self, source: ConfigSource) -> SourceKey | None:
        """Return the preferred name in a source, or None if the option cannot be set there."""
        return next((source_key for source_key in self.source_keys if source_key.source is source), None)
