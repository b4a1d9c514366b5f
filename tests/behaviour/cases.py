"""Every setting of today's table with the values, contexts and spellings it is tried in.

Used when the record is made, and to see that it is complete. Comparing needs only what was recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.behaviour import values
from tests.behaviour.doors import PARAMETER_DOORS, SOURCE_DOORS

from pyspark_kafka_direct.settings._table import TABLE
from pyspark_kafka_direct.settings.row import Kind, Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.settings.row import Setting

_ALL = " ".join((*SOURCE_DOORS, *PARAMETER_DOORS))
_ONE_OF_EACH = f"{SOURCE_DOORS[0]} {PARAMETER_DOORS[0]}"  # spellings are not read again by their twins


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
    """Of all settings."""
    rows = TABLE.rows
    found = [case for row in rows if row.client for case in _of_client_setting(row)]
    found += [case for row in rows if not row.client and row.written(Origin.OPTION) for case in _of_option(row)]
    found += [case for name in sorted(TABLE.names(Origin.SPARK)) for case in _of_spark_key(name)]
    inside = {row.name: _values_of(row) for row in rows if row.name.startswith("ssl.")} | values.JAAS
    for name, texts in inside.items():
        context = "inside jaas, unsigned" if name.startswith("unsecured") else "inside jaas"
        found += [Case(name, context, (text,), "j", "batch") for text in texts if '"' not in text]
    return found


def _of_client_setting(row: Setting) -> Iterator[Case]:
    texts, contexts = _values_of(row), _contexts_of(row.name)
    for context in contexts:
        for text in texts if context == contexts[-1] or len(contexts) > 2 else texts[:1]:
            yield Case(row.name, context, (text,), "k", _ALL)
    context = contexts[-1]
    if "batch" not in row.doors:
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


def _of_option(option: Setting) -> Iterator[Case]:
    texts = _values_of(option)
    parameter = PARAMETER_DOORS[0] in option.doors and option.written(Origin.PARAMETER) is not None
    contexts = _contexts_of_option(option.name)
    for context in contexts:
        for text in texts:
            yield Case(option.name, context, (text,), "n", " ".join(SOURCE_DOORS))
    for text in texts if parameter else texts[:1]:
        yield Case(option.name, contexts[-1], (text,), "n", " ".join(PARAMETER_DOORS))
    if parameter:
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
    if row.client and "batch" not in row.doors:
        told = (text for word in row.fate("batch").harmless for text in (word, word.upper()))
        return tuple(dict.fromkeys(("1", "", "true", "false", *told)))
    if row.secret:
        return values.SECRETS
    default = next((int(text) for text in row.doors.values() if text and text.isdigit()), None)
    match row.kind:
        case Kind.NUMBER | Kind.TIMESTAMP:
            low = (0 if row.kind is Kind.TIMESTAMP else -(2**63)) if row.low is None else row.low
            return values.numbers(low, 2**63 - 1 if row.high is None else row.high, default)
        case Kind.FLAG:
            return values.FLAGS
        case Kind.DECIMAL:
            return values.DECIMALS
        case Kind.DURATION:
            return values.DURATIONS
        case Kind.LIST:
            return values.LISTS
        case Kind.WORD:
            return values.words(tuple(word for word in row.allowed if word))
        case Kind.TEXT | Kind.JSON:
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
