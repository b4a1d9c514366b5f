"""The table of all options, which resolves names to options and options to names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.config.config_option import ConfigSource, UnsupportedPolicy
from pyspark_kafka_direct.config.connection_definitions import CONNECTION_OPTIONS
from pyspark_kafka_direct.config.consumer_definitions import CONSUMER_OPTIONS
from pyspark_kafka_direct.config.producer_definitions import PRODUCER_OPTIONS, SINK_OPTIONS
from pyspark_kafka_direct.config.registry_definitions import REGISTRY_OPTIONS, SUBJECT_OPTIONS
from pyspark_kafka_direct.config.security_definitions import SASL_OPTIONS, TLS_OPTIONS
from pyspark_kafka_direct.config.source_definitions import BATCH_LIMIT_OPTIONS, SOURCE_OPTIONS
from pyspark_kafka_direct.config.spark_definitions import SPARK_OPTIONS
from pyspark_kafka_direct.config.unsupported_definitions import UNSUPPORTED_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark_kafka_direct.config.config_option import Api, ConfigOption, SourceKey

_PREFIX: Final = "kafka."
_JAAS_SUFFIX: Final = " inside sasl.jaas.config"


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
            option.name.lower() for option in self.options if not option.client and option.key_in(ConfigSource.OPTION)
        ]
        # All other names with a dot are client settings, with or without `kafka.`.
        self._data_source_prefixes = {name.split(".")[0] for name in data_source_names if "." in name}

    def find(self, source: ConfigSource, given_name: str) -> OptionMatch:
        """Resolve a name; case and surrounding blanks do not matter.

        The match has no option if the name is unknown, and no key if the option exists but not in this source.
        """
        trimmed_name = given_name.strip()
        name = trimmed_name.lower()
        unprefixed_name = name.removeprefix(_PREFIX)
        option = self._by_jaas_name.get(given_name) if source is ConfigSource.JAAS else None
        option = option or self._by_any_name.get(unprefixed_name)
        if source is ConfigSource.OPTION and option is not None:
            is_prefixed = name != unprefixed_name
            # A data source option has no prefix. A client setting without a dot needs it: `kafka.debug`, not `debug`.
            may_have_prefix, may_lack_prefix = option.client, not option.client or "." in name
            if not (may_have_prefix if is_prefixed else may_lack_prefix):
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
        return name.startswith(_PREFIX) or ("." in name and name.split(".")[0] not in self._data_source_prefixes)

    def names(self, source: ConfigSource, *, client: bool | None = None, apis: Collection[Api] = ()) -> list[str]:
        """Return the names that can be used in a source, without ``kafka.``, of the options of any of the APIs."""
        return [
            name
            for option in self.options
            if (client is None or option.client is client) and (not apis or any(api in option.apis for api in apis))
            for source_key in option.source_keys
            if source_key.source is source
            for name in ([source_key.name] if source_key.name else [option.name, *option.aliases])
        ]

    def key_for(self, option: ConfigOption, source: ConfigSource) -> str:
        """Return the name that users set the option by in a source."""
        source_key = option.key_in(source)
        if source_key is not None and source_key.name:
            return format_name(source, source_key.name)
        return format_name(
            source, _PREFIX + option.name if option.client and source is ConfigSource.OPTION else option.name
        )

    def other_source_policy(self, option: ConfigOption) -> UnsupportedPolicy:
        """Return the policy for an option that is set in the wrong source."""
        sources = dict.fromkeys(source_key.source for source_key in option.source_keys)
        return UnsupportedPolicy(
            "set it as " + " or ".join(f"{source.value} {self.key_for(option, source)}" for source in sources)
        )


def format_name(source: ConfigSource, name: str) -> str:
    """Return a name as messages show it."""
    return name + _JAAS_SUFFIX if source is ConfigSource.JAAS else name


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
