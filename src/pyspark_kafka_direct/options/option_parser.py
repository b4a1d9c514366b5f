"""The table of all options, and their parser: given names and values become the typed values of one API."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import unquote, urlsplit

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.config_option import (
    LOG_API,
    RANGE_APIS,
    READ_APIS,
    SINK_API,
    ConfigSource,
    UnsupportedPolicy,
)
from pyspark_kafka_direct.options.connection_definitions import CONNECTION_OPTIONS
from pyspark_kafka_direct.options.consumer_definitions import CONSUMER_OPTIONS
from pyspark_kafka_direct.options.hints import did_you_mean, is_misspelt, is_misspelt_setting
from pyspark_kafka_direct.options.producer_definitions import PRODUCER_OPTIONS, SINK_OPTIONS
from pyspark_kafka_direct.options.registry_definitions import REGISTRY_OPTIONS, SUBJECT_OPTIONS
from pyspark_kafka_direct.options.registry_settings import REGISTRY_PREFIX
from pyspark_kafka_direct.options.security_definitions import SASL_OPTIONS, TLS_OPTIONS
from pyspark_kafka_direct.options.source_definitions import BATCH_LIMIT_OPTIONS, SOURCE_OPTIONS
from pyspark_kafka_direct.options.spark_definitions import SPARK_OPTIONS
from pyspark_kafka_direct.options.unsupported_definitions import UNSUPPORTED_OPTIONS
from pyspark_kafka_direct.options.value_types import Duration, ListOf, Text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pyspark_kafka_direct.options.config_option import Api, ConfigOption, Role, SourceKey
    from pyspark_kafka_direct.options.security_settings import Secret
    from pyspark_kafka_direct.options.value_types import OptionValue

_T = TypeVar("_T")

_KAFKA_PREFIX: Final = "kafka."
_JAAS_SUFFIX: Final = " inside sasl.jaas.config"

# Spark adds these to the options of every data source.
_SPARK_OPTIONS: Final = frozenset({"path", "paths", "checkpointlocation", "queryname"})


class OptionMatch(NamedTuple):
    """The option that a name resolves to."""

    canonical_name: str  # the same for all names of an option
    display_name: str
    option: ConfigOption | None  # None: the name is unknown
    source_key: SourceKey | None = None  # None: the option cannot be set in this source


class OptionTable:
    """Options and their names."""

    def __init__(self, options: Iterable[ConfigOption]) -> None:
        self.options: Final = tuple(options)
        self.by_name: Final[Mapping[str, ConfigOption]] = {option.name: option for option in self.options}
        self._by_any_name = {
            name.lower(): option
            for option in self.options
            for name in (option.name, *option.aliases, *_names_outside_jaas(option))
            if name
        }
        self._by_jaas_name = {
            source_key.name: option
            for option in self.options
            for source_key in option.source_keys
            if source_key.source is ConfigSource.JAAS and source_key.name
        }
        data_source_names = [
            option.name.lower()
            for option in self.options
            if not option.is_client and option.key_in(ConfigSource.OPTION)
        ]
        # The first words of data source options with a dot, such as `schema`. All other names with a dot are client
        # settings, with or without `kafka.`.
        self._data_source_prefixes = {name.split(".")[0] for name in data_source_names if "." in name}

    def find(self, source: ConfigSource, given_name: str) -> OptionMatch:
        """Resolve a name; case and surrounding blanks matter only in names that login modules define.

        The match has no option if the name is unknown, and no key if the option exists but not in this source.
        """
        trimmed_name = given_name.strip()
        name = trimmed_name.lower()
        unprefixed_name = name.removeprefix(_KAFKA_PREFIX)
        option = self._by_jaas_name.get(given_name) if source is ConfigSource.JAAS else None
        option = option or self._by_any_name.get(unprefixed_name)
        is_prefixed = name != unprefixed_name
        if option is not None and source is ConfigSource.OPTION and not _may_be_named(option, name, is_prefixed):
            option = None
        if option is None:
            # `kafka.a.b` and `a.b` are the same unknown client setting; `debug` and `kafka.debug` are two names.
            canonical_name = f"unknown {unprefixed_name if '.' in unprefixed_name else name}"
            return OptionMatch(canonical_name, format_name(source, trimmed_name), None)
        display_name = trimmed_name
        if unprefixed_name == option.name.lower():  # Spark converts the names of options to lower case
            display_name = trimmed_name[: len(trimmed_name) - len(unprefixed_name)] + option.name
        source_key = next(
            (
                source_key
                for source_key in option.source_keys
                if source_key.source is source and _matches_key(option, source_key, unprefixed_name)
            ),
            None,
        )
        return OptionMatch(option.name, format_name(source, display_name), option, source_key)

    def is_client_option(self, given_name: str) -> bool:
        """Return whether a name, known or not, has the form of a client setting."""
        name = given_name.strip().lower()
        return name.startswith(_KAFKA_PREFIX) or ("." in name and name.split(".")[0] not in self._data_source_prefixes)

    def names(
        self,
        source: ConfigSource,
        *,
        is_client: bool | None = None,  # whether only client settings, or only others; None: both
        apis: Collection[Api] = (),  # only options that one of them applies; empty: all
        not_misspelt_in: Api | None = None,  # only options for whose misspelt names this API raises an error; None: all
    ) -> list[str]:
        """Return the names that can be used in a source, without ``kafka.``."""
        return [
            name
            for option in self.options
            if (is_client is None or option.is_client is is_client)
            and (not apis or any(api in option.apis for api in apis))
            and (not_misspelt_in is None or option.rejects_misspelling(not_misspelt_in))
            for source_key in option.source_keys
            if source_key.source is source
            for name in ([source_key.name] if source_key.name else [option.name, *option.aliases])
        ]

    def key_for(self, option: ConfigOption, source: ConfigSource) -> str:
        """Return the name that users set the option by in a source."""
        source_key = option.key_in(source)
        if source_key is not None and source_key.name:
            name = source_key.name
        elif option.is_client and source is ConfigSource.OPTION:
            name = _KAFKA_PREFIX + option.name
        else:
            name = option.name
        return format_name(source, name)

    def other_source_policy(self, option: ConfigOption) -> UnsupportedPolicy:
        """Return the policy for an option that is set in the wrong source."""
        sources = dict.fromkeys(source_key.source for source_key in option.source_keys)
        return UnsupportedPolicy(
            "set it as " + " or ".join(f"{source.value} {self.key_for(option, source)}" for source in sources)
        )


def format_name(source: ConfigSource, name: str) -> str:
    """Return a name as messages show it."""
    return name + _JAAS_SUFFIX if source is ConfigSource.JAAS else name


def _may_be_named(option: ConfigOption, name: str, is_prefixed: bool) -> bool:
    """Return whether an option may have a name with the prefix ``kafka.``, or one without it."""
    if is_prefixed:
        return option.is_client
    # A client setting without a dot needs the prefix: `debug` would look like an option of the data source.
    return not option.is_client or "." in name


def _matches_key(option: ConfigOption, source_key: SourceKey, name: str) -> bool:
    return name == source_key.name.lower() if source_key.name else name in (option.name.lower(), *option.aliases)


def _names_outside_jaas(option: ConfigOption) -> list[str]:
    # Names of login module options are short words, which mean nothing in other sources.
    return [source_key.name for source_key in option.source_keys if source_key.source is not ConfigSource.JAAS]


OPTION_TABLE: Final = OptionTable(
    (
        *CONNECTION_OPTIONS,
        *TLS_OPTIONS,
        *SASL_OPTIONS,
        *CONSUMER_OPTIONS,
        *PRODUCER_OPTIONS,
        *UNSUPPORTED_OPTIONS,
        *SOURCE_OPTIONS,
        *SUBJECT_OPTIONS,
        *REGISTRY_OPTIONS,
        *BATCH_LIMIT_OPTIONS,
        *SINK_OPTIONS,
        *SPARK_OPTIONS,
    ),
)


class UnknownOption(NamedTuple):
    """The value of an option that the table does not have, and the warnings about it."""

    value: str
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True)
class ParsedConfig:
    """The parsed options of one API."""

    api: Api
    source: ConfigSource
    table: OptionTable
    # By the table's names, including defaults, and what a batch ignores although a stream applies it, or vice versa.
    values: Mapping[str, OptionValue]
    given_names: Mapping[str, str]  # the table's names to the names that the user gave, for the options that apply
    strings: Mapping[str, str] = dataclasses.field(repr=False)  # the given values by the table's names; may be secrets
    warnings: tuple[str, ...]  # about ignored and unknown options; they never contain a value
    unknown: Mapping[str, UnknownOption] = dataclasses.field(repr=False)  # by the given names; may be secrets
    ignored_names: tuple[str, ...]  # the given names of options that the API does not apply
    prefix: str = ""  # of the table's names, which the names of this config lack

    def name_of(self, option_name: str) -> str:
        """Return the name that the user gave, or else has to use."""
        option = self.table.by_name[self.prefix + option_name]
        return self.given_names.get(option_name) or self.table.key_for(option, self.source)

    def below(self, prefix: str) -> ParsedConfig:
        """Return the options whose names begin with a prefix, by their names without it."""

        def strip(values: Mapping[str, _T]) -> dict[str, _T]:
            return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}

        return dataclasses.replace(
            self,
            values=strip(self.values),
            given_names=strip(self.given_names),
            strings=strip(self.strings),
            prefix=prefix,
        )

    def get_string(self, option_name: str) -> str | None:
        """Return a string, an enum value, JSON or a timestamp."""
        return cast("str | None", self.values.get(option_name))

    def get_secret(self, option_name: str) -> Secret | None:
        """Return a secret."""
        return cast("Secret | None", self.values.get(option_name))

    def get_optional_int(self, option_name: str) -> int | None:
        """Return an integer."""
        return cast("int | None", self.values.get(option_name))

    def get_int(self, option_name: str) -> int:
        """Return an integer of an option with a default."""
        return cast("int", self.values[option_name])

    def get_double(self, option_name: str) -> float:
        """Return a number, or a duration in seconds, of an option with a default."""
        return cast("float", self.values[option_name])

    def get_boolean(self, option_name: str) -> bool:
        """Return a boolean of an option with a default."""
        return cast("bool", self.values[option_name])

    def get_list(self, option_name: str) -> tuple[str, ...]:
        """Return a list."""
        return cast("tuple[str, ...]", self.values.get(option_name, ()))

    def fields_for(self, settings_class: type, *, roles: Collection[Role]) -> dict[str, Any]:
        """Return the values of those fields of a dataclass that each hold the value of one option with these roles."""
        names_by_field = _names_by_field(settings_class, self.api, frozenset(roles), self.table)
        return {field: self.values[name] for field, name in names_by_field.items() if name in self.values}


def parse_config(
    given_options: Mapping[str, object], *, api: Api, source: ConfigSource, table: OptionTable = OPTION_TABLE
) -> ParsedConfig:
    """Parse names and values of options; a value of None means "not given"."""
    required_options, defaults = _defaults(api, source, table)
    values = dict(defaults)
    given_names: dict[str, str] = {}
    strings: dict[str, str] = {}
    warnings: list[str] = []
    rejections: list[str] = []
    unknown: dict[str, UnknownOption] = {}
    ignored_names: list[str] = []
    for name, value, match in _matches(given_options, api, source, table):
        option, display_name = match.option, match.display_name
        if option is None:
            unknown_warnings = _unknown_option_warnings(table, api, source, display_name, name)
            unknown[display_name] = UnknownOption(value, unknown_warnings)
            warnings += unknown_warnings
        elif match.source_key is not None and api in option.apis:
            values[option.name] = parse_value(option, value, display_name, match.source_key.default_unit)
            given_names[option.name] = display_name
            strings[option.name] = value
        else:
            policy = table.other_source_policy(option) if match.source_key is None else option.unsupported_policy(api)
            if policy.accepts(value):
                continue
            if policy.rejects(value):
                rejections.append(option_messages.unsupported_option(source, display_name, policy))
            else:
                if match.source_key is not None and api in RANGE_APIS and set(option.apis) & set(RANGE_APIS):
                    # When Spark calls load(), a batch cannot be told from a stream. So each rejects an invalid value of
                    # an option that only the other applies; otherwise the error would come when the query runs.
                    values[option.name] = parse_value(option, value, display_name, match.source_key.default_unit)
                ignored_names.append(display_name)
                warnings.append(option_messages.ignored_warning(source, display_name, policy.reason))
    if rejections:
        raise OptionError(". ".join(rejections))
    for option in required_options:
        if not values.get(option.name):
            raise _missing_option(
                table, source, option, unknown, has_lost_options=_has_lost_options(given_options, api, source)
            )
    return ParsedConfig(
        api, source, table, values, given_names, strings, tuple(warnings), unknown, tuple(ignored_names)
    )


def _matches(
    given_options: Mapping[str, object], api: Api, source: ConfigSource, table: OptionTable
) -> Iterator[tuple[str, str, OptionMatch]]:
    """Return the given names and values, and their options, each option once."""
    first_given: dict[str, tuple[str, str]] = {}  # canonical names to the display name and the value given first
    for given_name, given_value in given_options.items():
        if given_value is None:
            continue
        name = _check_name(given_name)
        value = _as_string(given_name, given_value)
        match = table.find(source, name)
        option = match.option
        if option is not None and option.is_client and not value.strip() and option.default_in(api) is None:
            continue  # not given: a template for all clients may have empty settings
        if match.canonical_name not in first_given:
            first_given[match.canonical_name] = match.display_name, value
            yield name.strip(), value, match
        else:
            first_name, first_value = first_given[match.canonical_name]
            if value != first_value:
                raise option_messages.duplicate_option(first_name, match.display_name)


@functools.lru_cache(maxsize=64)
def _defaults(
    api: Api, source: ConfigSource, table: OptionTable
) -> tuple[tuple[ConfigOption, ...], Mapping[str, OptionValue]]:
    """Return the required options of an API, and the values of all options that it applies and that have a default."""
    applied_options = [option for option in table.options if api in option.apis and option.key_in(source)]
    values = {
        option.name: parse_value(option, default, option.name)
        for option in applied_options
        if (default := option.default_in(api)) is not None
    }
    return tuple(option for option in applied_options if option.required), values


@functools.lru_cache(maxsize=64)
def _names_by_field(settings_class: type, api: Api, roles: frozenset[Role], table: OptionTable) -> Mapping[str, str]:
    """Return the names of the options whose values are in fields of a dataclass, by these fields."""
    field_names = {field.name for field in dataclasses.fields(settings_class)}
    return {
        option.field: option.name
        for option in table.options
        if option.field in field_names and option.role in roles and api in option.apis
    }


def parse_value(option: ConfigOption, value: str, name: str, default_unit: str = "ms") -> OptionValue:
    """Parse the value of an option that is given under a name."""
    if not option.verbatim:
        value = value.strip()
    if not option.secret and has_private_key(value):
        raise option_messages.misplaced_private_key(name)
    if isinstance(option.value_type, Duration):
        return option.value_type.parse(value, name, default_unit)
    return option.value_type.parse(value, name)


def has_private_key(value: str) -> bool:
    """Return whether a string contains a private key in PEM format, encrypted or not."""
    return "PRIVATE KEY-----" in value


def environment_variable(variables: Mapping[str, str], name: str) -> str | None:
    """Parse an environment variable; return None if it is not set or empty."""
    return _parse_environment(variables, name).get_string(name)


def environment_list(variables: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Parse an environment variable with a list; it is empty if the variable is not set."""
    return _parse_environment(variables, name).get_list(name)


def file_url_path(url: str) -> str | None:
    """Return the path of a ``file:`` URL; ``None`` for any other string."""
    try:
        parts = urlsplit(url)
    except ValueError:  # such as a host with one bracket
        return None
    return unquote(parts.path) if parts.scheme == "file" else None


def _parse_environment(variables: Mapping[str, str], name: str) -> ParsedConfig:
    given_options = {name: variables[name]} if variables.get(name) else {}
    # All APIs apply the variables, so the API makes no difference.
    return parse_config(given_options, api="batch", source=ConfigSource.ENVIRONMENT)


def _check_name(name: object) -> str:
    # The keys of `kafkaParams` can be of any type.
    if not isinstance(name, str) or name.strip().lower() in ("", "kafka."):
        raise OptionError(f"the name of a setting must be a string such as bootstrap.servers, got {name!r}")
    return name


def _as_string(name: str, value: object) -> str:
    """Convert a value of a type that Java's client also accepts."""
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case type():  # such as a serializer
            return value.__name__
        case Sequence() if not isinstance(value, bytes) and all(isinstance(entry, str) for entry in value):
            return ",".join(cast("Sequence[str]", value))
    # The value is not shown because it may be a secret.
    raise OptionError(
        f"{name} must be a string, an integer, a boolean or a list of strings, got {type(value).__name__}"
    )


@functools.lru_cache(maxsize=256)  # the options of a query are parsed several times, and a search takes milliseconds
def _hint(name: str, option_names: tuple[str, ...], prefix: str = "") -> str:
    return did_you_mean(name, option_names, prefix)


@functools.lru_cache(maxsize=256)
def _is_misspelt(name: str, option_names: tuple[str, ...]) -> bool:
    return is_misspelt(name, option_names)


def _unknown_option_warnings(
    table: OptionTable, api: Api, source: ConfigSource, display_name: str, name: str
) -> list[str]:
    """Return the warnings about an unknown name, or raise an error if it is a misspelled name that changes results."""
    _reject_misspelling(table, api, source, display_name)
    if source is not ConfigSource.OPTION:
        return [option_messages.unknown_warning(source, display_name, _hint(name, tuple(table.names(source))))]
    if table.is_client_option(display_name):
        unprefixed_name = display_name.lower().removeprefix(_KAFKA_PREFIX)
        hint = _hint(unprefixed_name, tuple(table.names(source, is_client=True)), _KAFKA_PREFIX)
        return [option_messages.unknown_warning(source, display_name, hint)]
    if display_name.lower() in _SPARK_OPTIONS:
        return []
    # A setting of brokers without `kafka.` resembles that of the registry, which has the same name behind its prefix.
    # So options of the registry are suggested only for names that begin like theirs.
    is_of_registry = display_name.lower().startswith(REGISTRY_PREFIX.partition(".")[0])
    is_of_keys = display_name.lower().startswith("key")  # `format` and `schema` are those of values
    names = tuple(
        name
        for name in table.names(source, is_client=False)
        if (is_of_registry or not name.startswith(REGISTRY_PREFIX)) and (is_of_keys or not name.startswith("key"))
    )
    hint = _hint(display_name, names) or _hint(display_name, tuple(table.names(source, is_client=True)), _KAFKA_PREFIX)
    return [option_messages.unknown_warning(source, display_name, hint)]


def reject_misspelt_arguments(parsed: ParsedConfig, arguments: Iterable[str]) -> None:
    """Raise an error if an unknown name is almost that of an argument of the function that has parsed the names."""
    for name in parsed.unknown:
        if hint := did_you_mean(name, arguments):
            raise option_messages.misspelled_option(parsed.source, name, hint)


def _has_lost_options(given_options: Mapping[str, object], api: Api, source: ConfigSource) -> bool:
    """Return whether Spark may have dropped the user's options, as it does for tables of its catalog: none arrived."""
    from_spark = source is ConfigSource.OPTION and api in (*RANGE_APIS, *SINK_API)
    return from_spark and all(name.strip().lower() in _SPARK_OPTIONS for name in given_options)


def _reject_misspelling(table: OptionTable, api: Api, source: ConfigSource, display_name: str) -> None:
    """Raise an error if an unknown name is almost that of an option that changes results.

    A warning is not enough: ignoring `startingOffset=earliest` would silently skip all existing records.
    """
    if source not in (ConfigSource.OPTION, ConfigSource.PARAMETER):
        return
    name = display_name.lower().removeprefix(_KAFKA_PREFIX)
    if name == display_name.lower():
        apis = next((apis for apis in (SINK_API, LOG_API) if api in apis), READ_APIS)
        names = tuple(table.names(source, is_client=False, apis=apis))
        if _is_misspelt(display_name, names):
            raise option_messages.misspelled_option(source, display_name, _hint(display_name, names))
    if source is ConfigSource.PARAMETER or table.is_client_option(display_name):
        names = tuple(table.names(source, is_client=True, not_misspelt_in=api))
        if is_misspelt_setting(name, names):
            prefix = _KAFKA_PREFIX if source is ConfigSource.OPTION else ""
            raise option_messages.misspelled_option(source, display_name, _hint(name, names, prefix))


def _missing_option(
    table: OptionTable,
    source: ConfigSource,
    option: ConfigOption,
    unknown_names: Iterable[str],
    *,
    has_lost_options: bool,
) -> OptionError:
    """Return the error for a required option, which may be given under one of the unknown names by mistake."""
    name = table.key_for(option, source)
    hints = {unknown_name: did_you_mean(unknown_name, [name]) for unknown_name in unknown_names}
    hint = next(
        (f"; {source.value} {unknown_name} is unknown{hint}" for unknown_name, hint in hints.items() if hint), ""
    )
    value_type = option.value_type.entry if isinstance(option.value_type, ListOf) else option.value_type
    expected = value_type.expected if isinstance(value_type, Text) else value_type.name
    return option_messages.missing_option(
        name, expected, hint + (option_messages.LOST_OPTIONS if has_lost_options else "")
    )
