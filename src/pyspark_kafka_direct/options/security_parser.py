"""Parser of the security settings: the protocol, SASL mechanisms and credentials."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.cloud_parser import check_login_handler
from pyspark_kafka_direct.options.connection_definitions import HOST_PORT, LOOPBACK_HOSTS
from pyspark_kafka_direct.options.hints import either
from pyspark_kafka_direct.options.jaas import LoginModule, jaas_value, parse_jaas
from pyspark_kafka_direct.options.kerberos_parser import IBM_KERBEROS_MODULE, KERBEROS_MODULE, parse_kerberos
from pyspark_kafka_direct.options.oauth_parser import parse_oauth
from pyspark_kafka_direct.options.security_settings import (
    NO_SECRET,
    SaslSettings,
    Secret,
    SecurityProtocol,
    SecuritySettings,
)
from pyspark_kafka_direct.options.tls_parser import parse_tls
from pyspark_kafka_direct.options.token_clusters import CLUSTERS_PREFIX, TARGET_PROPERTY, find_token_cluster
from pyspark_kafka_direct.options.value_types import invalid_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.token_clusters import TokenCluster

_LOGIN_OPTIONS: Final = (
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.keytab",  # with the default mechanism, too
    "oauthTokenProvider",
)

_APIS_OF_ENABLE: Final = ("batch", "stream", "sink")  # whose planners know the clusters of tokens from enable(spark)

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")

# Those that log in with a token. The listeners of Amazon MSK offer both, and accept a token of AWS_MSK_IAM's signature.
_TOKEN_MECHANISMS: Final = ("OAUTHBEARER", "AWS_MSK_IAM")

# Login modules by class name. Databricks and others prefix the names of their relocated client ("kafkashaded.").
_MECHANISMS_BY_MODULE: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
    IBM_KERBEROS_MODULE: ("GSSAPI",),
    KERBEROS_MODULE: ("GSSAPI",),
    "software.amazon.msk.auth.iam.IAMLoginModule": ("AWS_MSK_IAM",),
}
_MODULE_BY_MECHANISM: Final = {
    mechanism: name for name, mechanisms in _MECHANISMS_BY_MODULE.items() for mechanism in mechanisms
}


def parse_security(
    parsed: ParsedConfig, token_clusters: Sequence[TokenCluster] = ()
) -> tuple[SecuritySettings, tuple[str, ...]]:
    """Return the security settings, and warnings about options that have no effect or weaken security.

    A query without a login uses the delegation token of the cluster that its bootstrap servers match.
    """
    protocol = cast("SecurityProtocol", parsed.get_string("security.protocol"))
    cluster = None
    if token_clusters and not _has_login(parsed):
        servers = parsed.get_list("bootstrap.servers")
        cluster = find_token_cluster(token_clusters, servers, parsed.name_of("bootstrap.servers"))
        if cluster is None and protocol.startswith("SASL"):
            raise OptionError(
                f"the query has no login ({parsed.name_of('sasl.jaas.config')}), and {TARGET_PROPERTY} of no cluster "
                f"in {CLUSTERS_PREFIX}* matches {parsed.name_of('bootstrap.servers')}; correct the expression, or add "
                "a login"
            )
        if cluster is not None and "security.protocol" not in parsed.given_names:
            protocol = cluster.protocol
    warnings: list[str] = []
    tls = sasl = None
    if protocol in ("SSL", "SASL_SSL"):
        tls = parse_tls(parsed, warnings)
    else:
        warnings += _no_effect_warnings(parsed, protocol, prefix="ssl.", required_protocols="SSL or SASL_SSL")
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL") and cluster is not None:
        warnings += _unencrypted_warnings(parsed, cluster.mechanism, is_encrypted=tls is not None)
        sasl = SaslSettings(cluster.mechanism, token_login=cluster.login)
    elif protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        sasl = _parse_sasl(parsed, warnings, is_encrypted=tls is not None)
    else:
        if "oauthTokenProvider" in parsed.given_names:
            name = parsed.name_of("security.protocol")
            raise OptionError(
                f"oauthTokenProvider requires SASL, but {name} is {protocol}; set {name}=SASL_SSL and "
                f"{parsed.name_of('sasl.mechanism')}=OAUTHBEARER"
            )
        warnings += _no_effect_warnings(
            parsed, protocol, prefix="sasl.", required_protocols="SASL_SSL or SASL_PLAINTEXT"
        )
    return SecuritySettings(protocol, tls, sasl), tuple(warnings)


def _no_effect_warnings(parsed: ParsedConfig, protocol: str, *, prefix: str, required_protocols: str) -> list[str]:
    """Return a warning if options with this prefix are given, which only other protocols use."""
    given_names = [given_name for name, given_name in parsed.given_names.items() if name.startswith(prefix)]
    if not given_names:
        return []
    verb = "has" if len(given_names) == 1 else "have"
    name = parsed.name_of("security.protocol")
    return [f"{', '.join(given_names)} {verb} no effect with {name}={protocol}; did you mean {required_protocols}?"]


def _parse_sasl(parsed: ParsedConfig, warnings: list[str], *, is_encrypted: bool) -> SaslSettings:
    module = _parse_login_module(parsed)
    mechanism = _parse_mechanism(parsed, module)
    check_login_handler(parsed, mechanism)
    if "oauthTokenProvider" in parsed.given_names and mechanism not in _TOKEN_MECHANISMS:
        raise OptionError(
            f"oauthTokenProvider is for OAUTHBEARER, but {parsed.name_of('sasl.mechanism')} is {mechanism}; change or "
            "remove one of them"
        )
    if mechanism == "GSSAPI":  # which sends nothing that an eavesdropper could log in with
        return SaslSettings(mechanism, kerberos=parse_kerberos(parsed, module, warnings))
    warnings += _unencrypted_warnings(parsed, mechanism, is_encrypted=is_encrypted)
    if mechanism in _TOKEN_MECHANISMS:
        options = module.options if module else {}
        return SaslSettings("OAUTHBEARER", oauth=parse_oauth(parsed, options, warnings, mechanism=mechanism))
    username, password = _parse_credentials(parsed, module, mechanism)
    if mechanism.startswith("SCRAM"):
        # Only a login module can say that the credentials are those of a delegation token (KIP-48).
        is_token = module is not None and module.options.get("tokenauth", "").lower() == "true"
        return SaslSettings(mechanism, username, password, is_delegation_token=is_token)
    if "\0" in username + password.reveal():
        raise OptionError("the user name and the password for PLAIN cannot contain the character NUL (RFC 4616)")
    return SaslSettings(mechanism, username, password)


def _has_login(parsed: ParsedConfig) -> bool:
    """Return whether the options have a login; SCRAM without a user is none, because delegation tokens use it."""
    mechanism = (parsed.get_string("sasl.mechanism") or "SCRAM").upper()
    return not mechanism.startswith("SCRAM") or any(name in parsed.given_names for name in _LOGIN_OPTIONS)


def _unencrypted_warnings(parsed: ParsedConfig, mechanism: str, *, is_encrypted: bool) -> list[str]:
    if is_encrypted or _is_local(parsed):
        return []
    protocol = parsed.name_of("security.protocol")
    return [f"{protocol}=SASL_PLAINTEXT sends {_sent_credential(mechanism)} unencrypted over the network; use SASL_SSL"]


def _is_local(parsed: ParsedConfig) -> bool:
    """Return whether all bootstrap servers are on this host."""
    matches = [HOST_PORT.fullmatch(server) for server in parsed.get_list("bootstrap.servers")]
    return all(match is not None and match[1].lower() in LOOPBACK_HOSTS for match in matches)


def _sent_credential(mechanism: str) -> str:
    if mechanism.startswith("SCRAM"):
        return "a hash that reveals weak passwords"
    return "the password" if mechanism == "PLAIN" else "the token"


def _parse_login_module(parsed: ParsedConfig) -> LoginModule | None:
    config = parsed.get_secret("sasl.jaas.config")
    return None if config is None else parse_jaas(config.reveal(), parsed.name_of("sasl.jaas.config"))


def _parse_mechanism(parsed: ParsedConfig, module: LoginModule | None) -> str:
    """Return the mechanism, or raise an error if it is missing, not supported, or not that of the login module."""
    name, config = parsed.name_of("sasl.mechanism"), parsed.name_of("sasl.jaas.config")
    module_mechanisms = () if module is None else _module_mechanisms(module, config)
    value = parsed.get_string("sasl.mechanism")
    if value is None:
        has_kerberos_option = any(option.startswith("sasl.kerberos.") for option in parsed.given_names)
        if "GSSAPI" in module_mechanisms or (module is None and has_kerberos_option):
            return "GSSAPI"  # Java's default
        supported = " or ".join(module_mechanisms or MECHANISMS)
        raise OptionError(f"{name} is missing; set it to {supported} (Java's default is GSSAPI){_token_advice(parsed)}")
    mechanism = value.upper()
    if mechanism not in MECHANISMS:
        raise invalid_value(name, value, either(MECHANISMS), candidates=MECHANISMS)
    if module_mechanisms and mechanism not in module_mechanisms:
        raise OptionError(
            f"{name} is {mechanism}, but {config} contains a login module for {' and '.join(module_mechanisms)}; "
            f"{mechanism} needs {_MODULE_BY_MECHANISM[mechanism]}"
        )
    return mechanism


def _module_mechanisms(module: LoginModule, config: str) -> tuple[str, ...]:
    """Return the mechanisms of a login module; ``config`` is the option's name, for errors."""
    for name, mechanisms in _MECHANISMS_BY_MODULE.items():
        if module.name == name or module.name.endswith(f".{name}"):
            return mechanisms
    supported = ", ".join(
        name for name, mechanisms in _MECHANISMS_BY_MODULE.items() if set(mechanisms) & set(MECHANISMS)
    )
    # The name may be a misplaced secret, so it is shown only if it looks like a class name.
    shown_name = f" {module.name!r}" if re.fullmatch(r"[\w$]+(?:\.[\w$]+)+", module.name) else ""
    raise OptionError(f"{config}: the login module{shown_name} is not supported; use one of {supported}")


def _parse_credentials(parsed: ParsedConfig, module: LoginModule | None, mechanism: str) -> tuple[str, Secret]:
    """Return user name and password, from the login module or from librdkafka's options."""
    config = parsed.name_of("sasl.jaas.config")
    if module is not None:
        for option_name in ("sasl.username", "sasl.password"):
            if option_name in parsed.given_names:
                raise OptionError(
                    f"{config} and {parsed.name_of(option_name)} exclude each other; set only one of them"
                )
        username = jaas_value("sasl.username", module.options)
        password = Secret(jaas_value("sasl.password", module.options) or "")
    else:
        username = parsed.get_string("sasl.username")
        password = parsed.get_secret("sasl.password") or NO_SECRET
    if not username or not password:
        missing = "user name" if not username else "password"
        raise OptionError(
            f"{parsed.name_of('sasl.mechanism')} is {mechanism}, but the {missing} is missing; set {config}="
            f'{_MODULE_BY_MECHANISM[mechanism]} required username="..." password="...";{_token_advice(parsed)}'
        )
    return username, password


def _token_advice(parsed: ParsedConfig) -> str:
    """Return what to add to an error about a missing login, if a delegation token may have been meant."""
    if _has_login(parsed) or parsed.api not in _APIS_OF_ENABLE:
        return ""
    return f". For the delegation tokens of {CLUSTERS_PREFIX}*, call enable(spark) before the query"
