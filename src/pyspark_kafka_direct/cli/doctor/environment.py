"""The Python of a process: interpreter, PySpark, package, kernel, codecs, and the files of TLS settings."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct._version import __version__
from pyspark_kafka_direct.cli.doctor.findings import Finding
from pyspark_kafka_direct.errors import KafkaDirectError, KernelMissingError, OptionError, SparkVersionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.options.security_settings import TlsSettings
    from pyspark_kafka_direct.options.settings import CompressionType, ConnectionSettings

SUBJECT: Final = "this Python"


def check_environment(settings: ConnectionSettings) -> list[Finding]:
    """Check what a query needs of this process."""
    import pyspark_kafka_direct

    version = f"{platform.python_implementation()} {platform.python_version()}"
    return [
        Finding(SUBJECT, "interpreter", "ok", f"{version}, {sys.executable}"),
        _check_pyspark(),
        Finding(SUBJECT, "package", "ok", f"pyspark-kafka-direct {__version__}, {pyspark_kafka_direct.__path__[0]}"),
        *_check_kernel(),
        *([] if settings.security.tls is None else _check_tls_files(settings.security.tls)),
    ]


def _check_pyspark() -> Finding:
    from pyspark_kafka_direct.spark.spark_versions import require_spark

    try:
        return Finding(SUBJECT, "pyspark", "ok", f"PySpark {require_spark('A query')}")
    except SparkVersionError as error:
        return Finding(SUBJECT, "pyspark", "warning", f"{error.message} The other checks do not need it.")


def _check_kernel() -> Iterator[Finding]:
    try:
        from pyspark_kafka_direct.records import native_kernel
    except KernelMissingError as error:
        yield Finding(SUBJECT, "kernel", "problem", error.message)
        return
    except ModuleNotFoundError as error:
        text = f"{error.name} is missing, which the package needs: install the package with its dependencies."
        yield Finding(SUBJECT, "kernel", "problem", text)
        return
    yield Finding(SUBJECT, "kernel", "ok", f"loaded from {native_kernel.native.__file__}")
    yield _check_codecs()


def _check_codecs() -> Finding:
    from pyspark_kafka_direct.options.settings import COMPRESSION_TYPE_IDS

    codecs = tuple(COMPRESSION_TYPE_IDS)
    failed = [codec for codec in codecs if not _can_read_back(codec)]
    if failed:
        return Finding(
            SUBJECT,
            "codecs",
            "problem",
            f"Records that are compressed with {', '.join(failed)} cannot be read back: install the package again.",
        )
    return Finding(SUBJECT, "codecs", "ok", ", ".join(codec for codec in codecs if codec != "none"))


def _can_read_back(codec: CompressionType) -> bool:
    """Return whether a record is the same after it was encoded and decoded."""
    import pyarrow as pa

    from pyspark_kafka_direct.records import RecordDecoder, RecordEncoder

    value = b"doctor " * 100
    rows = pa.record_batch({"value": pa.array([value]), "timestamp": pa.array([0], pa.int64())})
    try:
        encoder = RecordEncoder(topic="doctor", partitions=1, codec=codec)
        (batch,) = (*encoder.add(rows), *encoder.flush())
        decoder = RecordDecoder(topic="doctor", partition=0, from_offset=0, until_offset=1, columns=("value",))
        decoder.feed(batch.data)
        decoded = decoder.read()
    except (KafkaDirectError, ValueError):
        return False
    return decoded is not None and decoded.column("value").to_pylist() == [value]


def _check_tls_files(tls: TlsSettings) -> Iterator[Finding]:
    from pyspark_kafka_direct.cli.doctor.certificates import client_certificate_finding
    from pyspark_kafka_direct.client.security.tls_contexts import tls_context

    try:
        tls_context(tls)
        yield from client_certificate_finding(SUBJECT, tls)
    except OptionError as error:
        yield Finding(SUBJECT, "tls files", "problem", f"{error.message}.")
