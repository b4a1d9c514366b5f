"""The rack of the process that reads, from its environment."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.settings import FetchSettings

_RACK: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def with_client_rack(fetch: FetchSettings) -> FetchSettings:
    """Return the settings with the rack from this process's environment (``rackEnvironmentVariable``)."""
    variable = fetch.rack_environment_variable
    rack = os.environ.get(variable, "").strip() if variable else ""
    if not rack:
        return fetch
    # Any user who sets options can name any variable, and the broker gets its value.
    if _RACK.fullmatch(rack) is None:
        raise OptionError(
            f"option rackEnvironmentVariable: the value of {variable} on {socket.gethostname()} is not a rack (1 to 64 "
            "letters, digits and ._-), so it is not sent to the brokers; set it to broker.rack of the closest brokers, "
            "or unset it there"
        )
    return replace(fetch, client_rack=rack)
