"""Client settings of fetching and of consumer groups (sources: see ``connection_definitions``)."""

from __future__ import annotations

from functools import partial
from typing import Final

from pyspark_kafka_direct.options.config_option import (
    FETCH_APIS,
    PARAMS_APIS,
    RANGE_APIS,
    SOURCE_APIS,
    STREAM_APIS,
    Api,
    ConfigOption,
    UnsupportedPolicy,
)
from pyspark_kafka_direct.options.value_types import BOOLEAN, INT32, STRING, Enum

NO_GROUP_REASON: Final = "records are read by partition and offset, without a consumer group"
NO_COMMITS_OF_LOG_REASON: Final = "a log is always read from its start, so it commits no offsets"
READS_FROM_LEADERS: Final = UnsupportedPolicy(
    "a continuous query reads from partition leaders, because followers receive new records later"
)

_NO_GROUP: Final = UnsupportedPolicy(NO_GROUP_REASON)
_USE_STARTING_OFFSETS: Final = UnsupportedPolicy(
    "set startingOffsets to earliest or latest instead; the client never resets offsets because Spark manages them",
    reject=True,
)
_NO_COMMITS: Final = UnsupportedPolicy(
    "reads commit no offsets to Kafka because Spark manages them; remove the option", reject=True
)
_FROM_START: Final = UnsupportedPolicy(
    "a log is always read from its start", reject=True, accepted_values=("earliest",)
)
_NO_COMMITS_OF_LOG: Final = UnsupportedPolicy(NO_COMMITS_OF_LOG_REASON, accepted_values=("false",))
_FROM_LEADERS: Final[dict[Api, UnsupportedPolicy]] = {
    "continuous": READS_FROM_LEADERS,
    "log": UnsupportedPolicy("a log reads from partition leaders"),
}

_fetch: Final = partial(ConfigOption, role="fetch", apis=FETCH_APIS, is_client=True)
_group: Final = partial(ConfigOption, role="group", is_client=True)

# A table, formatted by hand: a line for each option, and its documentation.
# fmt: off
CONSUMER_OPTIONS: Final = (
    _fetch("isolation.level", Enum(("read_uncommitted", "read_committed")), "read_uncommitted",
        changes_results=True,
        doc="`read_uncommitted`, or `read_committed` to skip records of aborted and open transactions."),
    _fetch("client.rack", STRING, "", apis=(*RANGE_APIS, *PARAMS_APIS), unsupported=_FROM_LEADERS,
        doc="Rack of the reader, to fetch from the closest replica (KIP-392)."),
    _fetch("fetch.min.bytes", INT32, "1",
        doc="Minimum size of a fetch response in bytes, unless fetch.max.wait.ms expires first."),
    _fetch("fetch.max.wait.ms", INT32, "500", aliases=("fetch.wait.max.ms",),
        doc="Maximum time that a broker waits for fetch.min.bytes, in ms."),
    _fetch("fetch.max.bytes", INT32, "52428800",
        doc="Maximum size of a fetch response in bytes. A larger record batch is still returned."),
    _fetch("max.partition.fetch.bytes", INT32, "4194304", aliases=("fetch.message.max.bytes",),
        doc="Maximum bytes of one partition in a fetch response (1 MiB in the Java client). A larger record batch "
            "is still returned."),
    _fetch("check.crcs", BOOLEAN, "true", doc="Whether to verify the CRC-32C checksum of each record batch."),
    _group("group.id", apis=(*PARAMS_APIS, *STREAM_APIS), unsupported={"batch": _NO_GROUP, "log": _NO_GROUP},
        changes_results=True,
        doc="Consumer group whose committed offsets are read, and for which commitAsync and commitSync commit. In "
            "streams and continuous queries, only for `startingOffsets=committed`. Readers do not join the group."),
    _group("auto.offset.reset", STRING, "latest", aliases=("topic.auto.offset.reset",), field="",
        apis=PARAMS_APIS, unsupported={**dict.fromkeys(SOURCE_APIS, _USE_STARTING_OFFSETS), "log": _FROM_START},
        changes_results=True,
        doc="Where a partition without a given or a committed offset starts: `earliest`, `latest`, or `none`, which "
            "is an error."),
    _group("enable.auto.commit", BOOLEAN, "false", aliases=("auto.commit.enable",),
        apis=PARAMS_APIS, unsupported={**dict.fromkeys(SOURCE_APIS, _NO_COMMITS), "log": _NO_COMMITS_OF_LOG},
        doc="Always false. Only commitAsync and commitSync commit offsets."),
)
