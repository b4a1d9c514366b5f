"""Finds the folder where an exactly-once write stages its batches, on the driver before tasks run."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import stat
import tempfile
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.producer.file_systems import arrow_uri, open_file_system

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.datasource.write_task import StagingConfig

_log = logging.getLogger("pyspark_kafka_direct.datasource")

_CHECKPOINT_SUBFOLDER: Final = "kafka-direct-staging"
_RECHECK_SECONDS: Final = 300.0  # after a checkpoint could not be opened; an object store may be down for a moment


def prepare_staging(staging: StagingConfig, checkpoint: str | None, system: System = SYSTEM) -> StagingConfig:
    """Return the configuration with a folder that the driver can use; raise ``OptionError`` if there is none.

    The folder is ``stagingLocation``, or else within the checkpoint, or else a temporary one. Tasks check that they
    see the same folder.
    """
    if staging.location is not None:
        return _prepare(staging)
    folder = _checkpoint_subfolder(checkpoint, system) if checkpoint else None
    if folder is not None:
        try:
            return _prepare(dataclasses.replace(staging, location=folder, is_default=True))
        except OptionError as error:
            _log.info("%s", error)
    folder = os.path.join(tempfile.gettempdir(), f"pyspark-kafka-direct-staging-{os.getuid()}")
    _create_own_folder(folder)
    return _prepare(dataclasses.replace(staging, location=folder, is_default=True))


def _prepare(staging: StagingConfig) -> StagingConfig:
    """Check that the driver can use the folder, and add the probe by which tasks recognize it."""
    location = staging.open()
    assert location is not None
    return dataclasses.replace(staging, probe=location.prepare())


def _checkpoint_subfolder(checkpoint: str, system: System) -> str | None:
    """Return the folder for staged batches in a checkpoint, ``None`` if Python cannot open the checkpoint."""
    # Spark writes the file `metadata` before the first batch. If Python does not find it, a path without a scheme means
    # another file system to Spark than to Python, and the folder would not be in the checkpoint.
    uri = arrow_uri(checkpoint, is_escaped=False)
    uri = (uri if ":" in uri else os.path.abspath(uri)).rstrip("/")
    if not _is_openable(uri, int(system.monotonic() / _RECHECK_SECONDS)):
        return None
    try:
        files, path = open_file_system(uri)
        is_checkpoint = files.get_file_info(f"{path}/metadata").is_file
    except (OptionError, OSError) as error:
        _log.info("Batches are not staged in the checkpoint: %s", error)
        return None
    return f"{uri}/{_CHECKPOINT_SUBFOLDER}" if is_checkpoint else None


@functools.lru_cache(maxsize=64)  # without credentials for an object store, it takes seconds to fail
def _is_openable(uri: str, _period: int) -> bool:
    """Return whether Python can open a checkpoint; the cached result of a period is not used in the next one."""
    try:
        open_file_system(uri)
    except OptionError as error:
        _log.info("Batches are not staged in the checkpoint: %s", error)
        return False
    return True


def _create_own_folder(folder: str) -> None:
    """Create a folder in which only this user can read and write; raise if an existing one allows more."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.lstat(folder)  # not of the target of a link, which its owner can change at any time
    except OSError as error:
        raise OptionError(
            f"stagingLocation is not set, and its default {folder!r} cannot be created: {error}. Set stagingLocation "
            "to a folder that the driver and all executors share."
        ) from None
    # Another user may have created it in /tmp, to replace staged files or to read them.
    is_shared = status.st_mode & 0o077 != 0
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or is_shared:
        raise OptionError(
            f"stagingLocation is not set, and other users of this host can change its default {folder!r}. Set "
            "stagingLocation to a folder that the driver and all executors share, or delete that one."
        )
