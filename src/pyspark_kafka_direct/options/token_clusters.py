"""The clusters for which an application has delegation tokens (``spark.kafka.clusters.*``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.java_regex import translate_java_regex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.options.security_settings import DelegationTokenLogin, SecurityProtocol

CLUSTERS_PREFIX: Final = "spark.kafka.clusters."
TARGET_PROPERTY: Final = "target.bootstrap.servers.regex"

_ANY_SERVER: Final = ".*"
_MAX_MATCH_SECONDS: Final = 1.0  # nested repetitions take exponential time


@dataclass(frozen=True, slots=True)
class TokenCluster:
    """A cluster, and how queries use its delegation token."""

    login: DelegationTokenLogin
    protocol: SecurityProtocol = "SASL_SSL"  # of queries that set none
    mechanism: str = "SCRAM-SHA-512"
    target: str = _ANY_SERVER  # a Java regular expression for the bootstrap servers of queries

    def matches(self, servers: Sequence[str]) -> bool:
        """Return whether the token is for one of the bootstrap servers, as in Spark's own connector."""
        if self.target == _ANY_SERVER:
            return True
        import regex  # only few clusters need it

        name = f"{CLUSTERS_PREFIX}{self.login.cluster}.{TARGET_PROPERTY}"
        pattern = regex.compile(translate_java_regex(self.target, name), regex.VERSION1 | regex.ASCII)
        try:
            return any(pattern.fullmatch(server, timeout=_MAX_MATCH_SECONDS) for server in servers)
        except TimeoutError:
            raise OptionError(
                f"{name} takes more than {_MAX_MATCH_SECONDS:g} second to match a bootstrap server; write an "
                "expression that matches each server in only one way"
            ) from None


def find_token_cluster(clusters: Sequence[TokenCluster], servers: Sequence[str], option: str) -> TokenCluster | None:
    """Return the cluster whose token is for these bootstrap servers; ``option`` names them in errors."""
    matching = [cluster for cluster in clusters if cluster.matches(servers)]
    if len(matching) > 1:
        names = " and ".join(CLUSTERS_PREFIX + cluster.login.cluster for cluster in matching)
        raise OptionError(
            f"{option} matches the delegation tokens of {names}; let {TARGET_PROPERTY} of each match only the servers "
            "of its cluster, or give the query a login (sasl.jaas.config)"
        )
    return matching[0] if matching else None
