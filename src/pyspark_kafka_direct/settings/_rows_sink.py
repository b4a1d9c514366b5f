"""Options of the data source ``kafka-direct`` for writing, in batches and streams."""

from __future__ import annotations

import re
from typing import Final

from pyspark_kafka_direct.settings._rows import FOR_WRITING, NOT_OF_A_LOG
from pyspark_kafka_direct.settings.row import INT64, WRITING, Fate, Form, Kind, Setting, at

_TOPIC: Final = Form(
    re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}"), "a topic's name: letters, digits, `.`, `_` and `-`"
)
_SOME_TEXT: Final = Form(re.compile(r".*\S.*", re.DOTALL), "a text that is not empty")
_TO_READ: Final = Fate(why="it names the topic to write to; to read, use subscribe")


def _sink(
    name: str,
    about: str,
    field: str,
    default: str | None = None,
    *,
    kind: Kind = Kind.TEXT,
    form: Form | None = None,
    allowed: tuple[str, ...] = (),
    spark: bool = False,
    elsewhere: Fate = FOR_WRITING,
) -> Setting:
    numeric = kind is Kind.NUMBER
    return Setting(
        name=name,
        role="produce",
        doors=at(WRITING, default),
        about=about,
        kind=kind,
        field=field,
        low=0 if numeric else None,
        high=INT64 if numeric else None,
        form=form,
        allowed=allowed,
        spark=spark,
        elsewhere={"log": NOT_OF_A_LOG, "*": elsewhere},
    )


SINK_ROWS: Final = (
    _sink(
        "topic",
        "The topic to write to. Comes before the column `topic`; without it there must be that column.",
        "topic",
        form=_TOPIC,
        spark=True,
        elsewhere=_TO_READ,
    ),
    _sink(
        "delivery",
        "`at-least-once`: a task that is run again writes its rows again. `exactly-once`: each batch is one "
        "transaction, and none is written twice; in a continuous query each epoch of a task is one.",
        "delivery",
        "at-least-once",
        kind=Kind.WORD,
        allowed=("at-least-once", "exactly-once"),
    ),
    _sink(
        "transactionalIdPrefix",
        "Required with `delivery=exactly-once`: a name of your choice for what writes here, the same at every start "
        "and no other writer's. The transactional id is this and `.sink`; those of a continuous query are this, "
        "`.cont.` and the number of the task.",
        "transactional_id_prefix",
        form=_SOME_TEXT,
    ),
    _sink(
        "markerTopic",
        "With `delivery=exactly-once`: the compacted topic that tells which batch was written last; made if it is not "
        "there.",
        "marker_topic",
        "pyspark-kafka-direct-markers",
        form=_TOPIC,
    ),
    _sink(
        "resetDelivery",
        "With `delivery=exactly-once`: the word that a refusal printed, to go on all the same. It works for that "
        "refusal only.",
        "reset_delivery",
        form=_SOME_TEXT,
    ),
    _sink(
        "jobId",
        "With `delivery=exactly-once`, for a batch: a name of this write, so that submitting it again writes nothing "
        "twice. The last 50 writes under the prefix are remembered. Without it each write has a new name.",
        "job_id",
        form=_SOME_TEXT,
    ),
    _sink(
        "stagingLocation",
        "With `delivery=exactly-once`: where tasks leave what is more than `stagingThreshold`. A folder as a URI that "
        "driver and executors share and pyarrow can open, or `topic:` and the name of a topic.",
        "staging_location",
        form=_SOME_TEXT,
    ),
    _sink(
        "stagingThreshold",
        "With `delivery=exactly-once`: up to so many bytes of a task, as they are sent, go through the driver; see "
        "`spark.driver.maxResultSize`.",
        "staging_threshold",
        "262144",
        kind=Kind.NUMBER,
    ),
    _sink(
        "stampBatch",
        "Add headers that tell which query, batch, partition and attempt wrote a record. They are no key to remove "
        "duplicates by, as rows may change places when a batch is run again.",
        "stamp_batch",
        "false",
        kind=Kind.FLAG,
    ),
)
