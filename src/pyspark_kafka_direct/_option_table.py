"""The table of the data source's options; parsing, messages and docs/options.md are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from pyspark_kafka_direct.offsets import MAX_OFFSET

Use: TypeAlias = Literal["batch", "stream", "sink"]

MAX_INT = (1 << 31) - 1


class Kind(Enum):
    """What an option's value looks like; the text is for messages and documentation."""

    TEXT = "text"
    FLAG = "true or false"
    NUMBER = "whole number"
    WORD = "word"
    JSON = "JSON"


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table.

    Attributes:
        name: As it is documented.
        kind: What its value looks like.
        default: As it is documented and parsed; empty when there is none.
        uses: Where it has an effect.
        spark: Whether Spark's own source has an option of this name.
        about: One line of prose.
        ignored: Why it has no effect where it does not apply; it is then ignored with a warning.
        secret: Whether its value must not be shown.
        least: Smallest number allowed.
        most: Largest number allowed.
    """

    name: str
    kind: Kind
    default: str
    uses: frozenset[Use]
    spark: bool
    about: str
    ignored: str = ""
    secret: bool = False
    least: int = 1
    most: int = MAX_INT


_BATCH: frozenset[Use] = frozenset({"batch"})
_NOWHERE: frozenset[Use] = frozenset()
_STREAM_ONLY = "it shapes micro-batches, and a batch query is one batch"
_NO_GROUP = "reading by partition and offset needs no consumer group"
_TO_WRITE = "it names the topic to write to; to read, use subscribe"


def _option(name: str, kind: Kind, default: str, about: str, *, least: int = 1, most: int = MAX_INT) -> Option:
    return Option(name, kind, default, _BATCH, True, about, least=least, most=most)


def _own(name: str, kind: Kind, default: str, about: str) -> Option:
    return Option(name, kind, default, _BATCH, False, about)


def _accepted(name: str, reason: str) -> Option:
    return Option(name, Kind.TEXT, "", _NOWHERE, True, "", ignored=reason)


TABLE: tuple[Option, ...] = (
    Option(
        "kafka.*",
        Kind.TEXT,
        "",
        _BATCH,
        True,
        "A client setting by its Java name, `kafka.security.protocol` for instance; `kafka.` may be left out.",
        secret=True,
    ),
    _option("kafka.bootstrap.servers", Kind.TEXT, "", "Required: `host:port`, separated by commas."),
    _option(
        "assign",
        Kind.JSON,
        "",
        'Topic-partitions to read: `{"topicA":[0,1],"topicB":[2]}`. Exactly one of `assign`, `subscribe` and '
        "`subscribePattern` must be given.",
    ),
    _option("subscribe", Kind.TEXT, "", "Topics to read, separated by commas."),
    _option(
        "subscribePattern",
        Kind.TEXT,
        "",
        "Topics to read: those whose whole name matches this Java regular expression, internal topics apart.",
    ),
    _option(
        "startingOffsets",
        Kind.JSON,
        "earliest",
        'First offsets: `earliest` or JSON that names every assigned partition, `{"topicA":{"0":23,"1":-2}}` (-2 is '
        'earliest), or a whole topic, `{"topicA":"earliest"}`.',
    ),
    _option(
        "endingOffsets",
        Kind.JSON,
        "latest",
        "Offsets to stop before: `latest` or JSON as in `startingOffsets` (-1 is latest).",
    ),
    _option(
        "startingTimestamp",
        Kind.NUMBER,
        "",
        "Milliseconds since 1970: start every partition at its first record that is not older. Comes before the next "
        "two options and `startingOffsets`.",
        most=MAX_OFFSET,
        least=0,
    ),
    _option(
        "startingOffsetsByTimestamp",
        Kind.JSON,
        "",
        'The same for each partition: `{"topicA":{"0":1700000000000}}`. Comes before `startingOffsets`.',
    ),
    _option(
        "startingOffsetsByTimestampStrategy",
        Kind.WORD,
        "error",
        "What to do in a partition where no record is as new as the starting timestamp: `error`, or `latest` to read "
        "nothing of it.",
    ),
    _option(
        "endingTimestamp",
        Kind.NUMBER,
        "",
        "Milliseconds since 1970: stop every partition before its first record that is not older, or at the latest "
        "offset if there is none. Comes before the next option and `endingOffsets`.",
        most=MAX_OFFSET,
        least=0,
    ),
    _option("endingOffsetsByTimestamp", Kind.JSON, "", "The same for each partition. Comes before `endingOffsets`."),
    _own(
        "offsetRanges",
        Kind.JSON,
        "",
        'Exactly these ranges: `[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]`, several per partition '
        "if you like. Takes the place of all options above but `kafka.*`.",
    ),
    _option(
        "failOnDataLoss",
        Kind.FLAG,
        "true",
        "Fail when records that were asked for are gone (aged out, topic deleted or recreated); `false` reads what is "
        "left and warns.",
    ),
    _option("minPartitions", Kind.NUMBER, "", "Split large offset ranges until there are about this many tasks."),
    _option("maxRecordsPerPartition", Kind.NUMBER, "", "No task spans more offsets than this.", most=MAX_OFFSET),
    _option("includeHeaders", Kind.FLAG, "false", "Add the column `headers`."),
    _own(
        "pushDownFilters",
        Kind.FLAG,
        "false",
        "Let filters on `partition`, `offset` and `timestamp` narrow what is read. Needs "
        "`spark.sql.python.filterPushdown.enabled=true`.",
    ),
    _option(
        "kafkaConsumer.pollTimeoutMs",
        Kind.NUMBER,
        "120000",
        "How long a task waits for records that should be there.",
        most=MAX_OFFSET,
    ),
    _option(
        "fetchOffset.numRetries",
        Kind.NUMBER,
        "",
        "How often looking up offsets is tried. By default as often as `kafka.default.api.timeout.ms` (60 s) allows, "
        "so that a broker's restart goes unnoticed; Spark's own source gives up after 3 tries.",
    ),
    _option(
        "fetchOffset.retryIntervalMs",
        Kind.NUMBER,
        "",
        "The pause between two tries; by default growing from `kafka.retry.backoff.ms`.",
        most=MAX_OFFSET,
        least=0,
    ),
    _own(
        "oauthTokenProvider",
        Kind.TEXT,
        "",
        "`module:factory`, which makes the provider of OAUTHBEARER tokens; imported where it is used, executors too.",
    ),
    _own(
        "rackEnvironmentVariable",
        Kind.TEXT,
        "",
        "Environment variable in which an executor finds its rack, for fetching from a near replica (KIP-392).",
    ),
    _accepted("maxOffsetsPerTrigger", _STREAM_ONLY),
    _accepted("minOffsetsPerTrigger", _STREAM_ONLY),
    _accepted("maxTriggerDelay", _STREAM_ONLY),
    _accepted("groupIdPrefix", _NO_GROUP),
    _accepted("topic", _TO_WRITE),
)

BY_NAME = {option.name.lower(): option for option in TABLE}
"""The rows by lower-case name."""


def options_markdown() -> str:
    """Render docs/options.md."""
    lines = [
        "# Options",
        "",
        "Made by `python -m pyspark_kafka_direct.options > docs/options.md`; a test checks that it is current.",
        "",
        "Names are case-insensitive. An option in *italics* is ours, the others are those of Spark's own Kafka source,",
        "with its defaults and refusals. An unknown option is ignored with a warning; a value that cannot be used is",
        "refused with the option's name, what was given and what is allowed.",
        "",
        "## Reading",
        "",
        "| option | value | default | meaning |",
        "|---|---|---|---|",
    ]
    for option in TABLE:
        if option.uses:
            name = f"`{option.name}`" if option.spark else f"*`{option.name}`*"
            default = f"`{option.default}`" if option.default else ""
            lines.append(f"| {name} | {option.kind.value} | {default} | {option.about.replace('|', chr(92) + '|')} |")
    lines += ["", "## Accepted without effect", "", "Each brings a warning.", "", "| option | reason |", "|---|---|"]
    lines += [f"| `{option.name}` | {option.ignored} |" for option in TABLE if not option.uses]
    return "\n".join(lines) + "\n"
