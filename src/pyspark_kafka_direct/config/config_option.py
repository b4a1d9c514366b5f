"""The definition of an option: the APIs that apply it, its type, default and names, and its effect in other APIs.

The functions build definitions of similar options.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

Api: TypeAlias = Literal["batch", "stream", "continuous", "direct", "rdd", "sink", "log"]
"""Where options are given. A new API is added here, and to the groups below that it belongs to."""

Role: TypeAlias = Literal["connect", "fetch", "produce", "group", "plan"]
"""The typed settings that an option belongs to."""

APIS: Final[tuple[Api, ...]] = get_args(Api)
CONNECTION_APIS: Final = APIS
READ_APIS: Final[tuple[Api, ...]] = ("batch", "stream", "continuous", "direct", "rdd")
SOURCE_APIS: Final[tuple[Api, ...]] = ("batch", "stream", "continuous")  # they take the options of the data source
RANGE_APIS: Final[tuple[Api, ...]] = ("batch", "stream")  # each task reads one offset range
CONTINUOUS_API: Final[tuple[Api, ...]] = ("continuous",)
PARAMS_APIS: Final[tuple[Api, ...]] = ("direct", "rdd")
SINK_API: Final[tuple[Api, ...]] = ("sink",)
LOG_API: Final[tuple[Api, ...]] = ("log",)  # reads and writes
FETCH_APIS: Final[tuple[Api, ...]] = (*READ_APIS, *LOG_API)
PRODUCER_APIS: Final[tuple[Api, ...]] = (*SINK_API, *LOG_API)

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1


class ValueType(Enum):
    """The type of a value, as the documentation names it."""

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    DOUBLE = "number"
    ENUM = "enum"
    DURATION = "duration"
    LIST = "list"
    # The values of these types stay strings until the `planning` package parses them.
    JSON = "JSON"
    TIMESTAMP = "timestamp in ms"


class ConfigSource(Enum):
    """Where an option is set; the values introduce its name in messages."""

    OPTION = "the option"
    PARAMETER = "the parameter"
    SPARK = "the Spark configuration property"
    ENVIRONMENT = "the environment variable"
    JAAS = "the login module option"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedPolicy:
    """What to do with an option in an API that does not apply it: ignore it with a warning, or reject it."""

    reason: str  # or what to set instead
    reject: bool = False
    # Values with the effect that the API has anyway: they are accepted silently. A leading `*` is a wildcard.
    accepted_values: tuple[str, ...] = ()
    reasons_by_prefix: tuple[tuple[str, str], ...] = ()  # more specific reasons, by the prefix of the value

    def accepts(self, value: str) -> bool:
        """Return whether the value is accepted silently; case does not matter."""
        lower = value.strip().lower()
        return any(
            lower.endswith(accepted[1:].lower()) if accepted.startswith("*") else lower == accepted.lower()
            for accepted in self.accepted_values
        )

    def reason_for(self, value: str) -> str:
        """Return the most specific reason for a value."""
        reasons = (reason for prefix, reason in self.reasons_by_prefix if value.strip().startswith(prefix))
        return next(reasons, self.reason)


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """A pattern that a string, or each entry of a list, must match."""

    pattern: re.Pattern[str]
    description: str  # follows "must be" in messages


@dataclass(frozen=True, slots=True)
class SourceKey:
    """The name of an option in one source."""

    source: ConfigSource
    name: str = ""  # empty: the name of the option
    default_unit: str = "ms"  # of a duration without a unit


OPTION_OR_PARAMETER: Final = (SourceKey(ConfigSource.OPTION), SourceKey(ConfigSource.PARAMETER))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOption:
    """The definition of one option."""

    name: str  # of a client setting: Java's name if there is one, without `kafka.`
    role: Role
    apis: Mapping[Api, str | None]  # the APIs that apply it, with its default there
    doc: str = ""
    value_type: ValueType = ValueType.STRING
    field: str = ""  # the field of the typed settings with its value; empty if the field depends on several options
    # Whether it is a setting of Kafka clients. As an option, its name is prefixed with `kafka.`. An empty value means
    # "not given" unless there is a default.
    client: bool = False
    aliases: tuple[str, ...] = ()  # librdkafka's names
    low: int | None = None  # of a duration: the number without its unit
    high: int | None = None
    allowed: tuple[str, ...] = ()  # enum values in canonical case
    value_format: ValueFormat | None = None
    secret: bool = False  # whether its value must never be shown
    verbatim: bool = False  # whether blanks around its value count; all other values are trimmed, as in Java
    required: bool = False
    defined_by_spark: bool = False  # whether Spark's Kafka source or sink has an option of this name
    unsupported: Mapping[Api | Literal["*"], UnsupportedPolicy]  # for the other APIs; `*` is the default
    source_keys: tuple[SourceKey, ...] = OPTION_OR_PARAMETER  # the first key that is set takes precedence

    def unsupported_policy(self, api: Api) -> UnsupportedPolicy:
        """Return what to do with the option in an API that does not apply it."""
        return self.unsupported[api] if api in self.unsupported else self.unsupported["*"]

    def key_in(self, source: ConfigSource) -> SourceKey | None:
        """Return the preferred name in a source, or None if the option cannot be set there."""
        return next((source_key for source_key in self.source_keys if source_key.source is source), None)


READS_ONLY: Final = UnsupportedPolicy(reason="it applies to reads only")
WRITES_ONLY: Final = UnsupportedPolicy(reason="it applies to writes only")
DATA_SOURCE_ONLY: Final = UnsupportedPolicy(reason="it is a data source option and does not apply to a log")

_NO_APIS: Final[dict[Api, str | None]] = {}


def same_default(apis: tuple[Api, ...], default: str | None = None) -> dict[Api, str | None]:
    """Return the same default for several APIs."""
    return dict.fromkeys(apis, default)


def ignored_options(
    role: Role,
    reason: str,
    *names: str,
    accepted_values: tuple[str, ...] = (),
    log_reason: str = "",
    continuous_reason: str = "",
) -> tuple[ConfigOption, ...]:
    """Return client settings that every API ignores, for the same reason unless one is given for an API."""
    policy = UnsupportedPolicy(reason=reason, accepted_values=accepted_values)
    policies: dict[Api | Literal["*"], UnsupportedPolicy] = {"*": policy}
    if role in ("fetch", "group"):
        own_reasons: dict[Api, str] = {"log": log_reason, "continuous": continuous_reason}
        policies = {**dict.fromkeys(READ_APIS, policy), "*": READS_ONLY}
        policies.update(
            {
                api: UnsupportedPolicy(reason=own_reason or reason, accepted_values=accepted_values)
                for api, own_reason in own_reasons.items()
            }
        )
    return tuple(ConfigOption(name=name, role=role, apis=_NO_APIS, client=True, unsupported=policies) for name in names)


def rejected_option(
    role: Role,
    name: str,
    reason: str,
    *aliases: str,
    accepted_values: tuple[str, ...] = (),
    reasons_by_prefix: tuple[tuple[str, str], ...] = (),
    log_reason: str = "",
) -> ConfigOption:
    """Return a client setting that every API rejects."""
    policy = UnsupportedPolicy(
        reason=reason, reject=True, accepted_values=accepted_values, reasons_by_prefix=reasons_by_prefix
    )
    return ConfigOption(
        name=name,
        role=role,
        apis=_NO_APIS,
        client=True,
        aliases=aliases,
        unsupported={"log": replace(policy, reason=log_reason or reason), "*": policy},
    )


def unsupported_in_params(policy: UnsupportedPolicy) -> dict[Api | Literal["*"], UnsupportedPolicy]:
    """Return policies for a data source option: the given one applies to ``kafkaParams``."""
    return {**dict.fromkeys(PARAMS_APIS, policy), "log": DATA_SOURCE_ONLY, "*": READS_ONLY}


def connection_option(
    name: str,
    doc: str,
    *aliases: str,
    default: str | None = None,
    value_type: ValueType = ValueType.STRING,
    field: str = "",
    low: int | None = None,
    high: int | None = None,
    allowed: tuple[str, ...] = (),
    secret: bool = False,
    verbatim: bool = False,
    source_keys: tuple[SourceKey, ...] = OPTION_OR_PARAMETER,
) -> ConfigOption:
    """Return a client setting of connections, which all APIs apply."""
    return ConfigOption(
        name=name,
        role="connect",
        apis=same_default(CONNECTION_APIS, default),
        doc=doc,
        value_type=value_type,
        field=field,
        client=True,
        aliases=aliases,
        low=low,
        high=high,
        allowed=allowed,
        secret=secret,
        verbatim=verbatim,
        unsupported={},
        source_keys=source_keys,
    )


def millis_option(name: str, default: int, doc: str, *aliases: str, field: str, low: int = 0) -> ConfigOption:
    """Return a client setting of connections that is a time in ms."""
    return connection_option(
        name, doc, *aliases, default=str(default), value_type=ValueType.INTEGER, field=field, low=low, high=MAX_INT64
    )


def fetch_option(
    name: str,
    default: int | str,
    doc: str,
    *aliases: str,
    field: str,
    value_type: ValueType = ValueType.INTEGER,
    allowed: tuple[str, ...] = (),
    unsupported: Mapping[Api | Literal["*"], UnsupportedPolicy] | None = None,
) -> ConfigOption:
    """Return a client setting that all APIs that fetch records apply, except those with an unsupported policy."""
    is_integer = value_type is ValueType.INTEGER
    policies = unsupported or {}
    return ConfigOption(
        name=name,
        role="fetch",
        apis=same_default(tuple(api for api in FETCH_APIS if api not in policies), str(default)),
        doc=doc,
        value_type=value_type,
        field=field,
        client=True,
        aliases=aliases,
        low=0 if is_integer else None,
        high=MAX_INT32 if is_integer else None,
        allowed=allowed,
        unsupported={**policies, "*": READS_ONLY},
    )


def producer_option(
    name: str,
    default: int | str | None,
    doc: str,
    *aliases: str,
    field: str = "",
    value_type: ValueType = ValueType.INTEGER,
    low: int = 1,
    high: int = MAX_INT32,
    allowed: tuple[str, ...] = (),
    log_policy: UnsupportedPolicy | None = None,
) -> ConfigOption:
    """Return a client setting that the sink applies, and also the log unless it has an unsupported policy."""
    is_integer = value_type is ValueType.INTEGER
    return ConfigOption(
        name=name,
        role="produce",
        apis=same_default(SINK_API if log_policy else PRODUCER_APIS, None if default is None else str(default)),
        doc=doc,
        value_type=value_type,
        field=field,
        client=True,
        aliases=aliases,
        low=low if is_integer else None,
        high=high if is_integer else None,
        allowed=allowed,
        unsupported={**({"log": log_policy} if log_policy else {}), "*": WRITES_ONLY},
    )


def unsupported_producer_options(
    reason: str, *names: str, reject: bool = False, accepted_values: tuple[str, ...] = (), log_reason: str = ""
) -> tuple[ConfigOption, ...]:
    """Return client settings of producers that neither the sink nor a log applies."""
    policy = UnsupportedPolicy(reason=reason, reject=reject, accepted_values=accepted_values)
    policies: dict[Api | Literal["*"], UnsupportedPolicy] = {
        "sink": policy,
        "log": replace(policy, reason=log_reason or reason),
        "*": WRITES_ONLY,
    }
    return tuple(
        ConfigOption(name=name, role="produce", apis=_NO_APIS, client=True, unsupported=policies) for name in names
    )
