"""The time zone of a session, in which ``from_json`` reads timestamps without an offset."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pyspark_kafka_direct.payloads.json.utc_offsets import utc_offsets

TIME_ZONE_CONF: Final = "spark.sql.session.timeZone"

_ZONE_FOLDER: Final = "/zoneinfo/"
_LOCAL_TIME: Final = Path("/etc/localtime")


def session_time_zone() -> str:
    """Return the time zone of this process's session; without a session, that of the host."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    return host_time_zone() if session is None else str(session.conf.get(TIME_ZONE_CONF))


def task_time_zone(default: str) -> str:
    """Return the time zone of the query of this task, or the default if the session does not set one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    # Spark sets the session's configuration as local properties, without defaults.
    zone = None if context is None else context.getLocalProperty(TIME_ZONE_CONF)
    return zone or default


def host_time_zone() -> str:
    """Return the time zone of this host, which is the default of Java and so of sessions."""
    # TZ is the name of a zone or the path of its file, perhaps after a colon; /etc/localtime is a link to such a file.
    name = os.environ.get("TZ", "").removeprefix(":") or str(_LOCAL_TIME.resolve())
    name = name.rpartition(_ZONE_FOLDER)[2].removeprefix("posix/").removeprefix("right/")
    try:
        utc_offsets(name)
    except ValueError:  # this host does not have the zone
        return "UTC"
    return name
