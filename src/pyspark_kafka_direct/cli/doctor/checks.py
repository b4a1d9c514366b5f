"""All checks of a process, which are the same on the driver and on executors."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

from pyspark_kafka_direct.cli.doctor.broker_check import Wanted
from pyspark_kafka_direct.cli.doctor.cluster_check import check_cluster
from pyspark_kafka_direct.cli.doctor.environment import check_environment
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.kafka_params import parse_kafka_params

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.cli.doctor.findings import Finding


def check_all(settings: Mapping[str, str], wanted: Wanted, timeout: float) -> list[Finding]:
    """Check this process and the cluster.

    Raises:
        OptionError: The settings are invalid.
    """
    connection = parse_kafka_params(settings).connection
    return [*check_environment(connection), *check_cluster(connection, wanted, timeout)]


def check_on_executor(
    settings: Mapping[str, str], wanted: tuple[tuple[str, ...], tuple[str, ...], bool], timeout: float
) -> list[tuple[str, str, str, str]]:
    """Check this executor; arguments and result are plain values, because other versions of the package send them."""
    try:
        findings = check_all(settings, Wanted(*wanted), timeout)
    except OptionError as error:
        return [("settings", "options", "problem", error.message)]
    return [astuple(finding) for finding in findings]
