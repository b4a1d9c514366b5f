"""Opens the locations that Spark's users name with pyarrow.fs: Python processes have no Hadoop file system."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from pyarrow import fs

DBFS_MOUNT: Final = "/dbfs"  # of Databricks

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/]*)?(.*)", re.DOTALL)
_ARROW_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
# Its groups are secret: a password (not a port), whose slashes may not be escaped, and a query, such as a SAS token.
_SECRETS: Final = re.compile(r"[^/:?]+://(?:[^/:@?]*:(?!\d*(?:/|$))([^@]+)@)?[^?]*(?:\?(.+))?", re.DOTALL)


def arrow_uri(location: str, *, is_escaped: bool) -> str:
    """Return the path, or the URI for pyarrow.fs, of a location; a path of Hadoop is not escaped."""
    match = _URI.fullmatch(location)
    if match is None:
        return location
    scheme, authority, path = match[1].lower(), match[2] or "", match[3]
    if scheme == "dbfs":
        return f"{DBFS_MOUNT}/{path.lstrip('/')}"
    if scheme == "file":  # its host, if any, is this one
        return f"file://{path}" if is_escaped else path
    return f"{_ARROW_SCHEMES.get(scheme, scheme)}:{authority}{path if is_escaped else quote(path)}"


def mask_secrets(message: str, location: str) -> str:
    """Return a message without the secrets that the URI of a location may contain, as they are spelled in the URI."""
    match = _SECRETS.fullmatch(location)
    if match is not None:
        for secret in filter(None, match.groups()):
            message = message.replace(secret, "***")
    return message


def masked_repr(location: str) -> str:
    """Return a location in quotes, without its secrets: in its ``repr`` they may be spelled otherwise."""
    return repr(mask_secrets(location, location))


def open_file_system(
    location: str,  # a URI is escaped
    *,
    subject: str = "",  # of the error message; by default the location
) -> tuple[fs.FileSystem, str]:
    """Return the file system of a location and the path in it, or raise ``OptionError``."""
    from pyarrow import fs

    try:
        files, path = fs.FileSystem.from_uri(arrow_uri(location, is_escaped=True))
    except (ValueError, OSError, NotImplementedError) as error:
        subject = subject or masked_repr(location)
        message = (
            f"{subject} cannot be opened: {error}. Use an absolute path, or a URI that pyarrow.fs "
            "supports (file:, s3:, gs:, hdfs:, abfs:)."
        )
        raise OptionError(mask_secrets(message, location)) from None
    return files, path
