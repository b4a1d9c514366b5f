"""Parser of ``spark.kafka.clusters.*``, which are named as in Spark's own connector.

The names and defaults are those of Spark's ``KafkaTokenSparkConf``. The order of logins is that of ``KafkaTokenUtil``:
the client settings of the cluster (``spark.kafka.clusters.<cluster>.kafka.*``), then the keytab of the application,
then the ticket cache of Kerberos.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.client_parser import parse_connection
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.hints import did_you_mean
from pyspark_kafka_direct.options.option_parser import parse_config
from pyspark_kafka_direct.options.security_settings import DelegationTokenLogin
from pyspark_kafka_direct.options.token_clusters import CLUSTERS_PREFIX, TARGET_PROPERTY, TokenCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.security_settings import SecurityProtocol
    from pyspark_kafka_direct.options.settings import ConnectionSettings

ENABLED_PROPERTY: Final = "spark.security.credentials.kafka.enabled"

# The names before Spark 3, which Spark accepts as well.
_OLD_ENABLED_PROPERTIES: Final = (
    "spark.yarn.security.credentials.kafka.enabled",
    "spark.yarn.security.tokens.kafka.enabled",
)

_KAFKA_PREFIX: Final = "kafka."
_SERVERS: Final = "auth.bootstrap.servers"
_PROTOCOL: Final = "security.protocol"
_SERVICE: Final = "sasl.kerberos.service.name"
_MECHANISM: Final = "sasl.token.mechanism"
_STORES: Final = tuple(
    f"ssl.{store}.{setting}" for store in ("truststore", "keystore") for setting in ("type", "location", "password")
)
_TLS: Final = (*_STORES, "ssl.key.password")
_NAMES: Final = (_SERVERS, TARGET_PROPERTY, _PROTOCOL, _SERVICE, _MECHANISM, *_TLS)
_PROTOCOLS: Final = ("SASL_SSL", "SASL_PLAINTEXT", "SSL")  # with another one, Spark obtains no token either
_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN_SETTINGS: Final = frozenset({"sasl.jaas.config", "sasl.username", "sasl.kerberos.keytab", "oauthTokenProvider"})
# Secrets that Spark does not mask by default, in its UI and its event log.
_SHOWN_SECRETS: Final = (
    "ssl.keystore.key",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
)
_REDACTION_PROPERTY: Final = "spark.redaction.regex"
_KEYTABS: Final = ("spark.kerberos.keytab", "spark.yarn.keytab")  # the second are the names before Spark 3
_PRINCIPALS: Final = ("spark.kerberos.principal", "spark.yarn.principal")
_KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"


@dataclass(frozen=True, slots=True)
class TokenClusterConfig:
    """A cluster, and the connections of the driver that create and renew its token."""

    cluster: TokenCluster
    connection: ConnectionSettings


def parse_token_clusters(
    properties: Mapping[str, str], application: str, warnings: list[str]
) -> tuple[TokenClusterConfig, ...]:
    """Parse the clusters in the Spark configuration, and add warnings; none if tokens are switched off."""
    switches = [ENABLED_PROPERTY] if ENABLED_PROPERTY in properties else _OLD_ENABLED_PROPERTIES
    if any(properties.get(name, "true").strip().lower() == "false" for name in switches):
        return ()
    by_cluster: dict[str, dict[str, str]] = {}
    for name, value in sorted(properties.items()):
        cluster, separator, setting = name.removeprefix(CLUSTERS_PREFIX).partition(".")
        if name.startswith(CLUSTERS_PREFIX) and cluster and separator:
            by_cluster.setdefault(cluster, {})[setting] = value
    configs = []
    for cluster, settings in by_cluster.items():
        own_warnings: list[str] = []
        try:
            config = _parse_cluster(DelegationTokenLogin(application, cluster), settings, properties, own_warnings)
        except OptionError as error:
            # What is missing may be given under a wrong name.
            reasons = [error.message, *(f"({warning})" for warning in own_warnings)]
            raise OptionError(f"{CLUSTERS_PREFIX}{cluster}: {' '.join(reasons)}") from None
        warnings += own_warnings
        if config is not None:
            configs.append(config)
    return tuple(configs)


def _parse_cluster(
    login: DelegationTokenLogin, settings: Mapping[str, str], properties: Mapping[str, str], warnings: list[str]
) -> TokenClusterConfig | None:
    prefix = f"{CLUSTERS_PREFIX}{login.cluster}."
    unknown = [name for name in settings if name not in _NAMES and not name.startswith(_KAFKA_PREFIX)]
    warnings += [f"{prefix}{name} is unknown, and ignored{_hint(name)}" for name in unknown]
    protocol = settings.get(_PROTOCOL, "SASL_SSL").strip().upper()
    mechanism = settings.get(_MECHANISM, "SCRAM-SHA-512").strip().upper()
    if _SERVERS not in settings:
        raise OptionError(
            f"{_SERVERS} is missing; set it to the brokers that create the delegation token (host:port,...), or set "
            f"{ENABLED_PROPERTY}=false"
        )
    if protocol not in _PROTOCOLS:
        warnings.append(f"{prefix}{_PROTOCOL} is {protocol}, so there is no delegation token for the cluster")
        return None
    if mechanism not in _MECHANISMS:
        raise OptionError(
            f"{_MECHANISM} is {mechanism}, but brokers accept delegation tokens with SCRAM only; set it to "
            f"{' or '.join(_MECHANISMS)}"
        )
    cluster = TokenCluster(
        login, cast("SecurityProtocol", protocol), mechanism, settings.get(TARGET_PROPERTY, ".*").strip()
    )
    cluster.matches(["host:9092"])  # rejects a malformed expression
    given = {
        name.removeprefix(_KAFKA_PREFIX): value for name, value in settings.items() if name.startswith(_KAFKA_PREFIX)
    }
    params = {"bootstrap.servers": settings[_SERVERS], _PROTOCOL: protocol}
    params |= {name: settings[name] for name in _TLS if name in settings}
    is_sasl = given.get(_PROTOCOL, protocol).strip().upper().startswith("SASL")
    is_kerberos = is_sasl and given.get("sasl.mechanism", "GSSAPI").strip().upper() == "GSSAPI"
    if is_kerberos and not _LOGIN_SETTINGS & given.keys():
        params |= _kerberos_login(properties, settings.get(_SERVICE, "kafka"))
    parsed = parse_config(params | given, api="log", source=ConfigSource.PARAMETER)
    warnings += [f"{prefix}kafka.*: {warning}" for warning in parsed.warnings]
    if _REDACTION_PROPERTY not in properties:
        warnings += [
            f"{prefix}kafka.{parsed.given_names[name]} is shown by Spark's UI and event log; use a file, or set "
            f"{_REDACTION_PROPERTY}"
            for name in _SHOWN_SECRETS
            if name in parsed.given_names
        ]
    connection = parse_connection(parsed, warnings)
    if connection.security.sasl is not None and connection.security.sasl.is_delegation_token:
        raise OptionError(
            "the login is a delegation token (tokenauth), which cannot create another one; log in with a password, "
            "Kerberos or a client certificate"
        )
    return TokenClusterConfig(cluster, connection)


def _hint(name: str) -> str:
    is_login = name in _LOGIN_SETTINGS or name == "sasl.mechanism"
    return f"; did you mean '{_KAFKA_PREFIX}{name}'?" if is_login else did_you_mean(name, _NAMES)


def _kerberos_login(properties: Mapping[str, str], service: str) -> dict[str, str]:
    """Return the login with the keytab of the application, or else with the ticket cache."""
    keytab = next((properties[name] for name in _KEYTABS if name in properties), None)
    principal = next((properties[name] for name in _PRINCIPALS if name in properties), None)
    source = "useTicketCache=true"
    if keytab is not None and principal is not None:
        source = f"useKeyTab=true keyTab={_quoted(keytab)} principal={_quoted(principal)}"
    jaas = f"{_KERBEROS_MODULE} required {source} serviceName={_quoted(service)};"
    return {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": jaas}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
