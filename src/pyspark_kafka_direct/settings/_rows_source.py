"""Options of the data source ``kafka-direct``; some are parameters of the direct stream and of KafkaRDD too.

Options of Spark's own Kafka source keep their names, defaults and refusals
(``org.apache.spark.sql.kafka010.KafkaSourceProvider``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from pyspark_kafka_direct.offsets import MAX_OFFSET
from pyspark_kafka_direct.settings._rows import FOR_READING, NOT_OF_A_LOG, as_parameter
from pyspark_kafka_direct.settings._rows_limits import STREAM_ONLY
from pyspark_kafka_direct.settings._rows_read import FROM_LEADERS
from pyspark_kafka_direct.settings.row import (
    CONNECTING,
    CONTINUOUS,
    FETCHING,
    INT32,
    PARAMETERS,
    RANGES,
    READING,
    SOURCE,
    Fate,
    Form,
    Kind,
    Setting,
    at,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.settings.row import Door, Role

_PROVIDER: Final = Form(re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*"), "module:factory")
_VARIABLE: Final = Form(re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII), "an environment variable's name")
_GROUP_NAME: Final = Form(re.compile(r"\S(?:.*\S)?", re.DOTALL), "the name of a consumer group")

_NO_END: Final = Fate(
    why="a stream has no end; limit a batch of it with maxOffsetsPerTrigger, or stop it with Trigger.AvailableNow"
)
_REFUSED_NO_END: Final = Fate(why=_NO_END.why, refuse=True)
_NO_END_AT_ALL: Final = "a continuous query has no end; call its stop()"
_STRATEGY: Final = Fate(why="the consumer strategy, or the list of offset ranges, says what is read")
_TASKS_MAX: Final = Fate(why="a continuous query has a task for each topic-partition, or as many as tasksMax allows")
_ONE_TASK: Final = Fate(why="each offset range is read by one task")
_NO_LOOKUP: Final = Fate(why="kafka.default.api.timeout.ms limits how long offsets are looked up")
_GOES_ON: Final = Fate(why="where records of a log are gone, it goes on with what is left")
_COMMITS: Final = Fate(why="commitAsync and commitSync commit, for the group of group.id")


def _selecting(name: str, about: str, kind: Kind = Kind.TEXT, *, verbatim: bool = False) -> Setting:
    return Setting(
        name=name,
        role="plan",
        doors=at(SOURCE),
        about=about,
        kind=kind,
        verbatim=verbatim,
        spark=True,
        elsewhere=as_parameter(_STRATEGY),
    )


def _starting(name: str, about: str, kind: Kind, default: str | None = None, stream: str | None = None) -> Setting:
    return Setting(
        name=name,
        role="plan",
        doors={"batch": default, **dict.fromkeys(("stream", *CONTINUOUS), stream or default)},
        about=about,
        kind=kind,
        allowed=("error", "latest") if kind is Kind.WORD else (),
        spark=True,
        elsewhere=as_parameter(_STRATEGY),
    )


def _ending(
    name: str, about: str, kind: Kind, default: str | None = None, *, in_stream: Fate, spark: bool = True
) -> Setting:
    return Setting(
        name=name,
        role="plan",
        doors=at(("batch",), default),
        about=about,
        kind=kind,
        spark=spark,
        elsewhere={
            "stream": in_stream,
            "continuous": Fate(why=_NO_END_AT_ALL, refuse=in_stream.refuse),
            **as_parameter(_STRATEGY),
        },
    )


def _common(
    name: str,
    field: str,
    about: str,
    default: str | None = None,
    *,
    kind: Kind = Kind.NUMBER,
    role: Role = "plan",
    low: int = 1,
    high: int = INT32,
    doors: tuple[Door, ...] = SOURCE,
    form: Form | None = None,
    spark: bool = True,
    elsewhere: Mapping[Door | Literal["*"], Fate],
) -> Setting:
    numeric = kind is Kind.NUMBER
    return Setting(
        name=name,
        role=role,
        doors=at(doors, default),
        about=about,
        kind=kind,
        field=field,
        low=low if numeric else None,
        high=high if numeric else None,
        form=form,
        spark=spark,
        elsewhere=elsewhere,
    )


SOURCE_ROWS: Final = (
    _selecting(
        "assign",
        'Topic-partitions to read: `{"topicA":[0,1],"topicB":[2]}`. Exactly one of `assign`, `subscribe` and '
        "`subscribePattern` must be given.",
        Kind.JSON,
    ),
    _selecting("subscribe", "Topics to read, separated by commas."),
    _selecting(
        "subscribePattern",
        "Topics to read: those in whose name this Java regular expression is found, internal topics apart; `^` and `$` "
        "tie it to the whole name.",
        verbatim=True,
    ),
    _starting(
        "startingOffsets",
        "First offsets: `earliest`, `latest` and `committed` (not in a batch) or JSON that names every assigned "
        'partition, `{"topicA":{"0":23,"1":-2}}` (-2 is earliest, -1 latest), or a whole topic, '
        '`{"topicA":"earliest"}`. In a '
        "stream only for the first start of a query; partitions found later are read from their start. `committed` "
        "starts where the group of `commitGroupId`, or else of `kafka.group.id`, has committed.",
        Kind.JSON,
        "earliest",
        "latest",
    ),
    _ending(
        "endingOffsets",
        "Offsets to stop before: `latest` or JSON as in `startingOffsets` (-1 is latest).",
        Kind.JSON,
        "latest",
        in_stream=_REFUSED_NO_END,
    ),
    _starting(
        "startingTimestamp",
        "Milliseconds since 1970: start every partition at its first record that is not older. Comes before the next "
        "two options and `startingOffsets`.",
        Kind.TIMESTAMP,
    ),
    _starting(
        "startingOffsetsByTimestamp",
        'The same for each partition: `{"topicA":{"0":1700000000000}}`. Comes before `startingOffsets`.',
        Kind.JSON,
    ),
    _starting(
        "startingOffsetsByTimestampStrategy",
        "What to do in a partition where no record is as new as the starting timestamp: `error`, or `latest` to start "
        "at its end.",
        Kind.WORD,
        "error",
    ),
    _ending(
        "endingTimestamp",
        "Milliseconds since 1970: stop every partition before its first record that is not older, or at the latest "
        "offset if there is none. Comes before the next option and `endingOffsets`.",
        Kind.TIMESTAMP,
        in_stream=_NO_END,  # Spark does not refuse it either
    ),
    _ending(
        "endingOffsetsByTimestamp",
        "The same for each partition. Comes before `endingOffsets`.",
        Kind.JSON,
        in_stream=_REFUSED_NO_END,
    ),
    _ending(
        "offsetRanges",
        'Exactly these ranges: `[{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]`, several per '
        "partition if you like. Says all about what is read: refused together with other options that do.",
        Kind.JSON,
        in_stream=_REFUSED_NO_END,
        spark=False,
    ),
    _common(
        "failOnDataLoss",
        "fail_on_data_loss",
        "Fail when records that were asked for are gone (aged out, topic deleted or recreated); `false` reads what is "
        "left and warns.",
        "true",
        kind=Kind.FLAG,
        doors=READING,
        elsewhere={"log": _GOES_ON, "*": FOR_READING},
    ),
    _common(
        "commitGroupId",
        "commit_group_id",
        "Commit the next offset to read, after each finished micro-batch or epoch, for this consumer group, so that "
        "lag tools see the query. Nothing depends on it: a commit that fails is a warning. Give each query a group of "
        "its own.",
        kind=Kind.TEXT,
        role="group",
        doors=("stream", *CONTINUOUS),
        form=_GROUP_NAME,
        spark=False,
        elsewhere={"batch": STREAM_ONLY, **as_parameter(_COMMITS)},
    ),
    Setting(
        name="committedOffsetsFallback",
        role="group",
        doors=at(("stream", *CONTINUOUS), "error"),
        about="With `startingOffsets=committed`, where partitions start that the group has no offset for: `error`, "
        "`earliest` or `latest`.",
        kind=Kind.WORD,
        allowed=("error", "earliest", "latest"),
        elsewhere={"batch": STREAM_ONLY, **as_parameter(Fate(why="set auto.offset.reset instead"))},
    ),
    _common(
        "minPartitions",
        "min_partitions",
        "Split large offset ranges until there are about this many tasks.",
        doors=RANGES,
        elsewhere={"continuous": _TASKS_MAX, **as_parameter(_ONE_TASK)},
    ),
    _common(
        "maxRecordsPerPartition",
        "max_records_per_partition",
        "No task spans more offsets than this.",
        high=MAX_OFFSET,
        doors=RANGES,
        elsewhere={"continuous": _TASKS_MAX, **as_parameter(_ONE_TASK)},
    ),
    _common(
        "maxRecordBatchBytes",
        "max_record_batch_bytes",
        "The most bytes that a record batch may decompress to, and that a record may take; a larger one fails the "
        "query. Where headers are read, their bytes count three times, and each for 12 more. Lower it where Python "
        "workers have little memory: a task needs a few MiB beside its fetches, and as much as its largest record.",
        "1073741824",
        role="fetch",
        doors=FETCHING,
        spark=False,
        elsewhere={"*": FOR_READING},
    ),
    _common(
        "includeHeaders",
        "include_headers",
        "Add the column `headers`.",
        "false",
        kind=Kind.FLAG,
        elsewhere=as_parameter(Fate(why="a record always has its headers")),
    ),
    _common(
        "pushDownFilters",
        "push_down_filters",
        "Let filters on `partition`, `offset` and `timestamp` narrow what is read. Needs "
        "`spark.sql.python.filterPushdown.enabled=true`. Call `load()` for each query: Spark keeps one plan per "
        "`load()`, so the same frame filtered otherwise would silently give the rows of the first filter.",
        "false",
        kind=Kind.FLAG,
        doors=("batch",),
        spark=False,
        elsewhere={
            "stream": Fate(why="Spark pushes no filters into a stream"),
            "continuous": Fate(why="filter records in the query's function"),
            **as_parameter(Fate(why="filter records with a Python function")),
        },
    ),
    Setting(
        name="kafkaConsumer.pollTimeoutMs",
        role="fetch",
        doors={**at(RANGES, "120000"), **at(PARAMETERS)},
        about="How long a task waits for records that should be there; half as long where a log seems to end in a "
        "hole.",
        kind=Kind.NUMBER,
        field="poll_timeout_ms",
        low=1,
        high=MAX_OFFSET,
        spark=True,
        elsewhere={
            "continuous": Fate(why="a continuous query waits for records for as long as it runs"),
            "log": NOT_OF_A_LOG,
            "*": FOR_READING,
        },
    ),
    _common(
        "fetchOffset.numRetries",
        "fetch_tries",
        "How often looking up offsets is tried. By default as often as `kafka.default.api.timeout.ms` (60 s) allows, "
        "so that a broker's restart goes unnoticed; Spark's own source gives up after 3 tries. In a stream also how "
        "often the brokers are asked, 3 times by default, before partitions that seem to be gone, or to have gone "
        "back, are believed to have.",
        elsewhere=as_parameter(_NO_LOOKUP),
    ),
    _common(
        "fetchOffset.retryIntervalMs",
        "fetch_retry_interval_ms",
        "The pause between two tries; by default growing from `kafka.retry.backoff.ms`, and a second where a loss is "
        "suspected.",
        low=0,
        high=MAX_OFFSET,
        elsewhere=as_parameter(_NO_LOOKUP),
    ),
    _common(
        "oauthTokenProvider",
        "oauth_token_provider",
        "`module:factory`, which makes the provider of OAUTHBEARER tokens; imported where it is used, executors too.",
        kind=Kind.TEXT,
        role="connect",
        doors=CONNECTING,
        form=_PROVIDER,
        spark=False,
        elsewhere={},
    ),
    _common(
        "rackEnvironmentVariable",
        "rack_environment_variable",
        "Environment variable in which an executor finds its rack, for fetching from a near replica (KIP-392).",
        kind=Kind.TEXT,
        role="fetch",
        doors=(*RANGES, *PARAMETERS),
        form=_VARIABLE,
        spark=False,
        elsewhere={"continuous": FROM_LEADERS, "log": NOT_OF_A_LOG, "*": FOR_READING},
    ),
    Setting(
        name="groupIdPrefix",
        role="group",
        doors={},
        spark=True,
        elsewhere={
            **dict.fromkeys(READING, Fate(why="reading by partition and offset needs no consumer group")),
            "log": NOT_OF_A_LOG,
            "*": FOR_READING,
        },
    ),
)
