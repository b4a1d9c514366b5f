"""Every setting of today's tables with the values, contexts and spellings it is tried in.

Used when the record is made, and to see that it is complete. Comparing needs only what was recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.behaviour import values
from tests.behaviour.doors import PARAMETER_DOORS, SOURCE_DOORS

from pyspark_kafka_direct._option_table import TABLE
from pyspark_kafka_direct._option_table import Kind as OptionKind
from pyspark_kafka_direct.direct import _conf, parameters, rates
from pyspark_kafka_direct.wire._setting import Kind, Setting, Use
from pyspark_kafka_direct.wire._table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct._option_table import Option

_ALL = " ".join((*SOURCE_DOORS, *PARAMETER_DOORS))
_ONE_OF_EACH = f"{SOURCE_DOORS[0]} {PARAMETER_DOORS[0]}"  # spellings are not read again by their twins

_GAINS = ("proportional", "integral", "derived", "minRate")


class Case(NamedTuple):
    """One setting in one context.

    Attributes:
        setting: Its name, without ``kafka.``.
        context: What stands beside it, see ``contexts``.
        values: One text, or two where the setting is written twice.
        spelled: Ways to write it, separated by blanks, see ``contexts.written``.
        doors: Where it is tried, separated by blanks.
    """

    setting: str
    context: str
    values: tuple[str, ...]
    spelled: str
    doors: str


def all_cases() -> list[Case]:
    """Of every table."""
    found = [case for setting in SETTINGS.values() for case in _of_setting(setting)]
    found += [case for option in TABLE if not option.name.startswith("kafka.") for case in _of_option(option)]
    found += [case for name in _spark_keys() for case in _of_spark_key(name)]
    inside = {name: _values_of(row) for name, row in SETTINGS.items() if name.startswith("ssl.")} | values.JAAS
    for name, texts in inside.items():
        context = "inside jaas, unsigned" if name.startswith("unsecured") else "inside jaas"
        found += [Case(name, context, (text,), "j", "batch") for text in texts if '"' not in text]
    return found


def _of_setting(row: Setting) -> Iterator[Case]:
    texts, contexts = _values_of(row), _contexts_of(row.name)
    for context in contexts:
        for text in texts if context == contexts[-1] or len(contexts) > 2 else texts[:1]:
            yield Case(row.name, context, (text,), "k", _ALL)
    context = contexts[-1]
    if row.use is not Use.APPLIED:
        yield Case(row.name, context, texts[:1], "n N K p", _ONE_OF_EACH)
        yield Case(row.name, context, ("1", "2"), "k+n n+N", _ONE_OF_EACH)
        return
    yield Case(row.name, context, texts[:1], "n N K p _ k_ t", _ONE_OF_EACH)
    yield Case(row.name, context, texts[-1:], "n N K", _ONE_OF_EACH)
    yield from (Case(row.name, context, (text,), "v", PARAMETER_DOORS[0]) for text in values.TYPED)
    yield Case(row.name, context, ("null",), "v", SOURCE_DOORS[0])
    ways = " ".join(["k+n", "k+K", "n+N", *(f"n+={alias}" for alias in row.aliases)])
    good = _twice(texts)
    yield Case(row.name, context, (good[0], good[0]), ways, _ONE_OF_EACH)
    yield Case(row.name, context, good, ways, _ONE_OF_EACH)
    for alias in row.aliases:
        yield from (Case(alias, context, (text,), "k n N", _ALL) for text in (texts[0], texts[-1]))


def _of_option(option: Option) -> Iterator[Case]:
    texts = _values_of_option(option)
    contexts = _contexts_of_option(option.name)
    for context in contexts:
        for text in texts:
            yield Case(option.name, context, (text,), "n", " ".join(SOURCE_DOORS))
    for text in texts if option.name.lower() in parameters._HANDLED else texts[:1]:
        yield Case(option.name, contexts[-1], (text,), "n", " ".join(PARAMETER_DOORS))
    if option.name.lower() in parameters._HANDLED:
        yield from (Case(option.name, contexts[-1], (text,), "v", PARAMETER_DOORS[0]) for text in values.TYPED)
    yield Case(option.name, contexts[-1], ("null",), "v", " ".join(SOURCE_DOORS))
    good = _twice(texts)
    other = "N k p t _ k_" if "." in option.name else "N k p t"
    yield Case(option.name, contexts[-1], (texts[0],), other, _ONE_OF_EACH)
    yield Case(option.name, contexts[-1], (good[0], good[0]), "n+N n+k", "batch stream")
    yield Case(option.name, contexts[-1], good, "n+N n+k", "batch stream direct")


def _of_spark_key(name: str) -> Iterator[Case]:
    texts = next(texts for prefix, texts in values.BY_PREFIX.items() if name.startswith(prefix))
    for context in ("nothing", "spark backpressure"):
        yield from (Case(name, context, (text,), "n", "conf") for text in texts)
    yield Case(name, "nothing", texts[:1], "N", "conf")


def _values_of(row: Setting) -> tuple[str, ...]:
    if row.name in values.BY_HAND:
        return values.BY_HAND[row.name]
    if row.use is not Use.APPLIED:
        told = (text for word in row.harmless for text in (word, word.upper()))
        return tuple(dict.fromkeys(("1", "", "true", "false", *told)))
    match row.kind:
        case Kind.SECRET:
            return values.SECRETS
        case Kind.INT:
            low = -(2**63) if row.low is None else row.low
            high = 2**63 - 1 if row.high is None else row.high
            return values.numbers(low, high, row.default if isinstance(row.default, int) else None)
        case Kind.FLAG:
            return values.FLAGS
        case Kind.LIST:
            return values.LISTS
        case Kind.TEXT:
            return values.words(tuple(word for word in row.allowed if word)) if row.allowed else values.WORDS


def _values_of_option(option: Option) -> tuple[str, ...]:
    if option.name in values.BY_HAND:
        return values.BY_HAND[option.name]
    match option.kind:
        case OptionKind.FLAG:
            return values.FLAGS
        case OptionKind.NUMBER:
            return values.numbers(option.least, option.most, int(option.default) if option.default else None)
        case OptionKind.DECIMAL:
            return values.DECIMALS
        case OptionKind.DURATION:
            return values.DURATIONS
        case _:
            return values.WORDS


def _twice(texts: tuple[str, ...]) -> tuple[str, str]:
    """Two values that are different and, if possible, good."""
    second = texts[1] if len(texts) > 1 and texts[1].strip() else f"{texts[0]}2"
    return texts[0], second


def _contexts_of(name: str) -> tuple[str, ...]:
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


def _contexts_of_option(name: str) -> tuple[str, ...]:
    more = {
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
    return ("plain", *more.get(name, ()))


def _spark_keys() -> list[str]:
    """Constants of the modules that read the Spark configuration; there is no table of these."""
    found = {
        text
        for module in (_conf, rates)
        for text in vars(module).values()
        if isinstance(text, str) and text.startswith("spark.")
    }
    prefixes = {text for text in found if text.endswith(".")}
    return sorted(found - prefixes | {prefix + gain for prefix in prefixes for gain in _GAINS})
