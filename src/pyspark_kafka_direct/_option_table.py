"""The table of the data source's options; parsing, messages and docs/options.md are made from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    DECIMAL = "number"
    WORD = "word"
    DURATION = "duration"
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
        refused: Whether it is refused there instead, as Spark refuses it.
        stream_default: The default in a stream, where it is another.
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
    refused: bool = False
    stream_default: str = ""
    secret: bool = False
    least: int = 1
    most: int = MAX_INT


_READ: frozenset[Use] = frozenset({"batch", "stream"})
_BATCH: frozenset[Use] = frozenset({"batch"})
_STREAM: frozenset[Use] = frozenset({"stream"})
_NOWHERE: frozenset[Use] = frozenset()
_STREAM_ONLY = "it shapes micro-batches, and a batch query is one batch"
_NO_END = "a stream has no end; limit a batch of it with maxOffsetsPerTrigger, or stop it with Trigger.AvailableNow"
_NO_GROUP = "reading by partition and offset needs no consumer group"
_TO_WRITE = "it names the topic to write to; to read, use subscribe"


def _option(name: str, kind: Kind, default: str, about: str, *, least: int = 1, most: int = MAX_INT) -> Option:
    return Option(name, kind, default, _READ, True, about, least=least, most=most)


def _own(name: str, kind: Kind, default: str, about: str) -> Option:
    return Option(name, kind, default, _READ, False, about)


def _ending(option: Option, *, refused: bool) -> Option:
    return replace(option, uses=_BATCH, ignored=_NO_END, refused=refused)


def _batching(name: str, kind: Kind, default: str, about: str) -> Option:
    return Option(name, kind, default, _STREAM, True, about, ignored=_STREAM_ONLY, most=MAX_OFFSET)


def _pressing(name: str, kind: Kind, default: str, about: str) -> Option:
    return Option(name, kind, default, _STREAM, False, about, ignored=_STREAM_ONLY, most=MAX_OFFSET)


def _accepted(name: str, reason: str) -> Option:
    return Option(name, Kind.TEXT, "", _NOWHERE, True, "", ignored=reason)


TABLE: tuple[Option, ...] = (
    Option(
        "kafka.*",
        Kind.TEXT,
        "",
        _READ,
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
        "Topics to read: those in whose name this Java regular expression is found, internal topics apart; `^` and `$` "
        "tie it to the whole name.",
    ),
    replace(
        _option(
            "startingOffsets",
            Kind.JSON,
            "earliest",
            "First offsets: `earliest`, `latest` and `committed` (not in a batch) or JSON that names every assigned "
            'partition, `{"topicA":{"0":23,"1":-2}}` (-2 is earliest, -1 latest), or a whole topic, '
            '`{"topicA":"earliest"}`. In a '
            "stream only for the first start of a query; partitions found later are read from their start. `committed` "
            "starts where the group of `commitGroupId`, or else of `kafka.group.id`, has committed.",
        ),
        stream_default="latest",
    ),
    _ending(
        _option(
            "endingOffsets",
            Kind.JSON,
            "latest",
            "Offsets to stop before: `latest` or JSON as in `startingOffsets` (-1 is latest).",
        ),
        refused=True,
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
        "What to do in a partition where no record is as new as the starting timestamp: `error`, or `latest` to start "
        "at its end.",
    ),
    _ending(
        _option(
            "endingTimestamp",
            Kind.NUMBER,
            "",
            "Milliseconds since 1970: stop every partition before its first record that is not older, or at the latest "
            "offset if there is none. Comes before the next option and `endingOffsets`.",
            most=MAX_OFFSET,
            least=0,
        ),
        refused=False,  # Spark does not refuse it either
    ),
    _ending(
        _option(
            "endingOffsetsByTimestamp", Kind.JSON, "", "The same for each partition. Comes before `endingOffsets`."
        ),
        refused=True,
    ),
    _ending(
        _own(
            "offsetRanges",
            Kind.JSON,
            "",
            'Exactly these ranges: `[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]`, several per '
            "partition if you like. Takes the place of all options above but `kafka.*`.",
        ),
        refused=True,
    ),
    _batching(
        "maxOffsetsPerTrigger",
        Kind.NUMBER,
        "",
        "A micro-batch has at most about this many offsets, divided over the partitions in proportion to what they "
        "have; a partition with very little gets one more.",
    ),
    Option(
        "maxBytesPerTrigger",
        Kind.NUMBER,
        "",
        _STREAM,
        False,
        "A micro-batch has about this many bytes at most, as the brokers keep them (compressed). Estimated from a "
        "sample of the partitions with the most to read, taken before each micro-batch.",
        ignored=_STREAM_ONLY,
        most=MAX_OFFSET,
    ),
    _batching(
        "minOffsetsPerTrigger",
        Kind.NUMBER,
        "",
        "A micro-batch waits until there are this many offsets. Not with Trigger.AvailableNow, which would never end.",
    ),
    _batching(
        "maxTriggerDelay",
        Kind.DURATION,
        "15m",
        "How long after the last micro-batch `minOffsetsPerTrigger` may hold the next one back: a whole number and "
        "`ms`, `s`, `m`, `h` or `d`.",
    ),
    _pressing(
        "backpressure",
        Kind.FLAG,
        "false",
        "Limit micro-batches to as many offsets as can be processed within the trigger's interval (1 s where it has "
        "none), measured from batch to batch; see docs/monitoring.md. Needs "
        "`pyspark_kafka_direct.enable(spark)`. `maxOffsetsPerTrigger` still holds.",
    ),
    _pressing(
        "backpressureInitialRate",
        Kind.NUMBER,
        "",
        "Offsets per second until two micro-batches were measured; without it, those are not limited.",
    ),
    _pressing(
        "backpressureMinRate", Kind.NUMBER, "100", "The measured rate never goes below this, in offsets per second."
    ),
    _pressing(
        "backpressureProportional",
        Kind.DECIMAL,
        "1.0",
        "Weight of the difference between the last rate and the measured one, as in Spark Streaming's PID controller.",
    ),
    _pressing("backpressureIntegral", Kind.DECIMAL, "0.2", "Weight of what piles up while micro-batches start late."),
    _pressing("backpressureDerived", Kind.DECIMAL, "0.0", "Weight of how fast the difference changes."),
    _option(
        "failOnDataLoss",
        Kind.FLAG,
        "true",
        "Fail when records that were asked for are gone (aged out, topic deleted or recreated); `false` reads what is "
        "left and warns.",
    ),
    Option(
        "commitGroupId",
        Kind.TEXT,
        "",
        _STREAM,
        False,
        "Commit the next offset to read, after each finished micro-batch, for this consumer group, so that lag tools "
        "see the query. Nothing depends on it: a commit that fails is a warning. Give each query a group of its own.",
        ignored=_STREAM_ONLY,
    ),
    Option(
        "committedOffsetsFallback",
        Kind.WORD,
        "error",
        _STREAM,
        False,
        "With `startingOffsets=committed`, where partitions start that the group has no offset for: `error`, "
        "`earliest` or `latest`.",
        ignored=_STREAM_ONLY,
    ),
    _option("minPartitions", Kind.NUMBER, "", "Split large offset ranges until there are about this many tasks."),
    _option("maxRecordsPerPartition", Kind.NUMBER, "", "No task spans more offsets than this.", most=MAX_OFFSET),
    _own(
        "maxRecordBatchBytes",
        Kind.NUMBER,
        "1073741824",
        "The most bytes that a record batch may decompress to, and that a record may take; a larger one fails the "
        "query. Where headers are read, their bytes count three times, and each for 12 more. Lower it where Python "
        "workers have little memory: a task needs a few MiB beside its fetches, and as much as its largest record.",
    ),
    _option("includeHeaders", Kind.FLAG, "false", "Add the column `headers`."),
    Option(
        "pushDownFilters",
        Kind.FLAG,
        "false",
        _BATCH,
        False,
        "Let filters on `partition`, `offset` and `timestamp` narrow what is read. Needs "
        "`spark.sql.python.filterPushdown.enabled=true`. Call `load()` for each query: Spark keeps one plan per "
        "`load()`, so the same frame filtered otherwise would silently give the rows of the first filter.",
        ignored="Spark pushes no filters into a stream",
    ),
    _option(
        "kafkaConsumer.pollTimeoutMs",
        Kind.NUMBER,
        "120000",
        "How long a task waits for records that should be there; half as long where a log seems to end in a hole.",
        most=MAX_OFFSET,
    ),
    _option(
        "fetchOffset.numRetries",
        Kind.NUMBER,
        "",
        "How often looking up offsets is tried. By default as often as `kafka.default.api.timeout.ms` (60 s) allows, "
        "so that a broker's restart goes unnoticed; Spark's own source gives up after 3 tries. In a stream also how "
        "often the brokers are asked, 3 times by default, before partitions that seem to be gone, or to have gone "
        "back, are believed to have.",
    ),
    _option(
        "fetchOffset.retryIntervalMs",
        Kind.NUMBER,
        "",
        "The pause between two tries; by default growing from `kafka.retry.backoff.ms`, and a second where a loss is "
        "suspected.",
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
        "with its defaults and refusals. A value that cannot be used is refused with the option's name, what was given",
        "and what is allowed. An option a letter away from one of these (`startingOffset`), or two from a long one, is",
        "refused too, as ignoring it could skip records; any other unknown option is ignored with a warning.",
        "",
        "## Reading",
        "",
        "| option | for | value | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for option in TABLE:
        if option.uses:
            name = f"`{option.name}`" if option.spark else f"*`{option.name}`*"
            uses = ", ".join(sorted(option.uses))
            default = f"`{option.default}`" if option.default else ""
            if option.stream_default:
                default += f", stream `{option.stream_default}`"
            about = option.about.replace("|", chr(92) + "|")
            lines.append(f"| {name} | {uses} | {option.kind.value} | {default} | {about} |")
    lines += ["", "## Where an option does not apply", "", "| option | |", "|---|---|"]
    for option in TABLE:
        if option.ignored:
            where = " in a stream" if option.uses == _BATCH else " in a batch" if option.uses == _STREAM else ""
            outcome = "Refused" if option.refused else "Ignored with a warning"
            lines.append(f"| `{option.name}` | {outcome}{where}: {option.ignored}. |")
    return "\n".join(lines) + "\n"
