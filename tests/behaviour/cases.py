"""The cases of the record: each option of the table with values, contexts and spellings.

Used to write the record and to check that it is complete. A comparison uses the recorded cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.behaviour import option_values
from tests.behaviour.apis import PARAMS_APIS, SOURCE_APIS

from pyspark_kafka_direct.options import value_types
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.options.config_option import ConfigOption

_ALL = " ".join((*SOURCE_APIS, *PARAMS_APIS))
_ONE_OF_EACH = f"{SOURCE_APIS[0]} {PARAMS_APIS[0]}"  # the other APIs resolve spellings in the same way


class Case(NamedTuple):
    """One option in one context."""

    option: str  # its name without `kafka.`
    context: str  # see `contexts`
    option_values: tuple[str, ...]  # two if the option is given twice
    spelled: str  # spellings separated by blanks, see `contexts.spelled_name`
    apis: str  # separated by blanks


def all_cases() -> list[Case]:
    options = OPTION_TABLE.options
    cases = [case for option in options if option.is_client for case in _client_option_cases(option)]
    cases += [
        case
        for option in options
        if not option.is_client and option.key_in(ConfigSource.OPTION)
        for case in _data_source_option_cases(option)
    ]
    cases += [case for name in sorted(OPTION_TABLE.names(ConfigSource.SPARK)) for case in _spark_conf_cases(name)]
    tls_options = {option.name: _values_for(option) for option in options if option.name.startswith("ssl.")}
    for name, values in (tls_options | option_values.JAAS).items():
        context = "inside jaas, unsigned" if name.startswith("unsecured") else "inside jaas"
        cases += [Case(name, context, (value,), "j", "batch") for value in values if '"' not in value]
    return cases


def _client_option_cases(option: ConfigOption) -> Iterator[Case]:
    values, contexts = _values_for(option), _client_option_contexts(option.name)
    for context in contexts:
        for value in values if context == contexts[-1] or len(contexts) > 2 else values[:1]:
            yield Case(option.name, context, (value,), "k", _ALL)
    context = contexts[-1]
    if "batch" not in option.apis:
        yield Case(option.name, context, values[:1], "n N K p", _ONE_OF_EACH)
        yield Case(option.name, context, ("1", "2"), "k+n n+N", _ONE_OF_EACH)
        return
    yield Case(option.name, context, values[:1], "n N K p _ k_ t", _ONE_OF_EACH)
    yield Case(option.name, context, values[-1:], "n N K", _ONE_OF_EACH)
    yield from (Case(option.name, context, (value,), "v", PARAMS_APIS[0]) for value in option_values.TYPED)
    yield Case(option.name, context, ("null",), "v", SOURCE_APIS[0])
    spellings = " ".join(["k+n", "k+K", "n+N", *(f"n+={alias}" for alias in option.aliases)])
    valid = _two_values(values)
    yield Case(option.name, context, (valid[0], valid[0]), spellings, _ONE_OF_EACH)
    yield Case(option.name, context, valid, spellings, _ONE_OF_EACH)
    for alias in option.aliases:
        yield from (Case(alias, context, (value,), "k n N", _ALL) for value in (values[0], values[-1]))


def _data_source_option_cases(option: ConfigOption) -> Iterator[Case]:
    values = _values_for(option)
    is_parameter = PARAMS_APIS[0] in option.apis and option.key_in(ConfigSource.PARAMETER) is not None
    contexts = _data_source_option_contexts(option.name)
    for context in contexts:
        for value in values:
            yield Case(option.name, context, (value,), "n", " ".join(SOURCE_APIS))
    for value in values if is_parameter else values[:1]:
        yield Case(option.name, contexts[-1], (value,), "n", " ".join(PARAMS_APIS))
    if is_parameter:
        yield from (Case(option.name, contexts[-1], (value,), "v", PARAMS_APIS[0]) for value in option_values.TYPED)
    yield Case(option.name, contexts[-1], ("null",), "v", " ".join(SOURCE_APIS))
    valid = _two_values(values)
    spellings = "N k p t _ k_" if "." in option.name else "N k p t"
    yield Case(option.name, contexts[-1], (values[0],), spellings, _ONE_OF_EACH)
    yield Case(option.name, contexts[-1], (valid[0], valid[0]), "n+N n+k", "batch stream")
    yield Case(option.name, contexts[-1], valid, "n+N n+k", "batch stream direct")


def _spark_conf_cases(name: str) -> Iterator[Case]:
    values = next(values for prefix, values in option_values.BY_PREFIX.items() if name.startswith(prefix))
    for context in ("nothing", "spark backpressure"):
        yield from (Case(name, context, (value,), "n", "conf") for value in values)
    yield Case(name, "nothing", values[:1], "N", "conf")


def _values_for(option: ConfigOption) -> tuple[str, ...]:
    if option.name in option_values.BY_NAME:
        return option_values.BY_NAME[option.name]
    if option.is_client and "batch" not in option.apis:
        accepted = (
            value for word in option.unsupported_policy("batch").accepted_values for value in (word, word.upper())
        )
        return tuple(dict.fromkeys(("1", "", "true", "false", *accepted)))
    if option.secret:
        return option_values.SECRETS
    defaults = [option.default_in(api) for api in option.apis]
    default = next((int(value) for value in defaults if value and value.isdigit()), None)
    match option.value_type:
        case value_types.Integer(low, high):
            return option_values.integers(low, high, default)
        case value_types.TIMESTAMP:
            return option_values.integers(0, value_types.MAX_INT64, default)
        case value_types.BOOLEAN:
            return option_values.BOOLEANS
        case value_types.NUMBER:
            return option_values.DOUBLES
        case value_types.Duration():
            return option_values.DURATIONS
        case value_types.ListOf():
            return option_values.LISTS
        case value_types.Enum(allowed):
            return option_values.enum_values(tuple(word for word in allowed if word))
        case _:
            return option_values.STRINGS


def _two_values(values: tuple[str, ...]) -> tuple[str, str]:
    """Two different values, valid if possible."""
    second = values[1] if len(values) > 1 and values[1].strip() else f"{values[0]}2"
    return values[0], second


def _client_option_contexts(name: str) -> tuple[str, ...]:
    partners = {
        "ssl.keystore.certificate.chain": "ssl, key",
        "ssl.keystore.key": "ssl, chain",
        "ssl.certificate.location": "ssl, key file",
        "ssl.key.location": "ssl, chain file",
    }
    if name in partners:
        return "plain", "ssl", partners[name]
    if name.startswith("ssl."):
        return "plain", "ssl"
    if name in ("sasl.mechanism", "sasl.jaas.config"):
        return "plain", "jaas", "password", "oauth", "oauth, no source"
    if name == "security.protocol":
        return "plain", "password"
    if name.startswith(("sasl.oauthbearer.", "sasl.login.")):
        return "plain", "oauth"
    return ("plain", "password") if name.startswith("sasl.") else ("plain",)


def _data_source_option_contexts(name: str) -> tuple[str, ...]:
    additional = {
        "assign": ("bare",),
        "subscribePattern": ("bare",),
        "offsetRanges": ("bare",),
        "startingOffsetsByTimestampStrategy": ("from a timestamp",),
        "startingOffsets": ("from a timestamp", "from committed"),
        "startingOffsetsByTimestamp": ("from a timestamp",),
        "committedOffsetsFallback": ("from committed",),
        "commitGroupId": ("from committed",),
        "minOffsetsPerTrigger": ("with a maximum",),
        "oauthTokenProvider": ("oauth, no source", "oauth"),
    }
    if name.startswith("backpressure"):
        return "plain", "with backpressure"
    return ("plain", *additional.get(name, ()))
