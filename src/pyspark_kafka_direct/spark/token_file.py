"""The file by which the driver's process passes delegation tokens to the processes that plan queries.

The file is in a folder beside that of the listener (``listener_files``), and only its owner can read it. The driver's
process writes it as a whole each time that a token or an error changes.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.atomic_file import write_atomically
from pyspark_kafka_direct.options.security_settings import (
    TOKENS,
    DelegationToken,
    DelegationTokenLogin,
    Secret,
    TokenState,
)
from pyspark_kafka_direct.options.token_clusters import TokenCluster
from pyspark_kafka_direct.spark.listener_files import find_shared_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_log = logging.getLogger("pyspark_kafka_direct.spark")

TOKEN_FOLDER_NAME: Final = "pyspark-kafka-direct-tokens"  # noqa: S105 - a folder's name
"""Not the listener's, whose existence shows that ``enable(spark)`` was called: direct streams obtain tokens without it.
"""

_FILE_NAME: Final = "delegation-tokens"

_readers: dict[Path, TokenFile] = {}  # of this process, by folder


class TokenFile:
    """The file in a folder, which is read again only after it was replaced."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE_NAME
        self._read_version: tuple[int, int] | None = None
        self._content: dict[str, Any] = {}

    def clusters(self) -> tuple[TokenCluster, ...]:
        """Return the clusters, none without the file, and let logins of this process read their tokens here."""
        content = self._load()
        if not content:
            return ()
        application = content["application"]
        TOKENS.read_by(application, self.state)
        return tuple(
            TokenCluster(
                DelegationTokenLogin(application, name),
                protocol=entry["protocol"],
                mechanism=entry["mechanism"],
                target=entry["target"],
            )
            for name, entry in content["clusters"].items()
        )

    def state(self, cluster: str) -> TokenState:
        """Return the newest token of a cluster."""
        entry = self._load().get("clusters", {}).get(cluster)
        if entry is None:
            return TokenState(error="the application has ended", is_final=True, is_driver=True)
        token = entry["token"]
        return TokenState(
            None
            if token is None
            else DelegationToken(token["serial"], Secret(token["id"]), Secret(token["hmac"]), token["expires_at"]),
            error=entry["error"],
            is_final=entry["is_final"],
            is_driver=True,
        )

    def write(self, states: Mapping[TokenCluster, TokenState]) -> None:
        """Replace the file."""
        (application,) = {cluster.login.application for cluster in states}
        entries = {
            cluster.login.cluster: {
                "protocol": cluster.protocol,
                "mechanism": cluster.mechanism,
                "target": cluster.target,
                "token": None if state.token is None else _token_fields(state.token),
                "error": state.error,
                "is_final": state.is_final,
            }
            for cluster, state in states.items()
        }
        write_atomically(self._path, json.dumps({"application": application, "clusters": entries}), private=True)

    def _load(self) -> dict[str, Any]:
        try:
            status = self._path.stat()
            version = (status.st_ino, status.st_mtime_ns)
            if version != self._read_version:
                self._content = json.loads(self._path.read_text(encoding="utf-8"))
                self._read_version = version
        except OSError:  # the file does not exist: no clusters, or Spark has deleted the application's folder
            self._content, self._read_version = {}, None
        return self._content


def token_file(folder: Path) -> TokenFile:
    """Return the file in a folder; the same object for each call."""
    return _readers.setdefault(folder, TokenFile(folder))


def token_clusters() -> tuple[TokenCluster, ...]:
    """Return the clusters of the application for which it has delegation tokens; none if it has not enabled them."""
    try:
        folder = find_shared_folder(name=TOKEN_FOLDER_NAME)
    except Exception as error:  # no Spark application, as in tests
        _log.debug("no delegation tokens: %r", error)
        return ()
    return () if folder is None else token_file(folder).clusters()


def _token_fields(token: DelegationToken) -> dict[str, Any]:
    return {
        "serial": token.serial,
        "id": token.id.reveal(),
        "hmac": token.hmac.reveal(),
        "expires_at": token.expires_at,
    }
