"""SASL settings from the values of the table: mechanism, credentials, where tokens come from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.settings.security import SaslSettings
from pyspark_kafka_direct.wire.security._jaas import LoginModule, parse_jaas
from pyspark_kafka_direct.wire.security._oauth_reader import read_oauth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.wire._setting import Value

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

# Log-in modules by class name; Databricks and others prefix the names of their relocated client ("kafkashaded.").
_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
    "com.sun.security.auth.module.Krb5LoginModule": ("GSSAPI",),
    "com.ibm.security.auth.module.Krb5LoginModule": ("GSSAPI",),
    "software.amazon.msk.auth.iam.IAMLoginModule": ("AWS_MSK_IAM",),
}
_MODULE_OF: Final = {mechanism: name for name, mechanisms in _MODULES.items() for mechanism in mechanisms}

_REFUSED: Final = {
    "GSSAPI": (
        "Kerberos (GSSAPI) is not supported; use a listener with SCRAM-SHA-512, OAUTHBEARER, or client certificates "
        "(kafka.security.protocol=SSL with kafka.ssl.keystore.*)"
    ),
    "AWS_MSK_IAM": (
        "AWS_MSK_IAM is Java only; MSK takes the same credentials over OAUTHBEARER: write "
        "kafka.sasl.mechanism=OAUTHBEARER and an oauthTokenProvider that calls aws-msk-iam-sasl-signer-python "
        "(docs/security.md has it in full)"
    ),
}


def read_sasl(
    values: Mapping[str, Value],
    given: Mapping[str, str],
    oauth_token_provider: str | None,
    notes: list[str],
    *,
    encrypted: bool,
) -> SaslSettings:
    """Build SASL settings from values of the table.

    Args:
        values: Values by table name.
        given: Table name to the name it was given under.
        oauth_token_provider: The option ``oauthTokenProvider``.
        notes: Gets a line for each setting that has no effect or weakens security.
        encrypted: Whether TLS lies underneath.

    Raises:
        OptionError: Something is missing, unsupported, or contradicts another setting.
    """
    module = _login_module(values, given)
    mechanism = _mechanism(values, given, module)
    if oauth_token_provider and mechanism != "OAUTHBEARER":
        raise OptionError(
            f"option oauthTokenProvider gives tokens for OAUTHBEARER, but kafka.sasl.mechanism is {mechanism}; "
            "leave one of them out"
        )
    if not encrypted and not mechanism.startswith("SCRAM"):
        what = "the password" if mechanism == "PLAIN" else "the token"
        notes.append(f"kafka.security.protocol=SASL_PLAINTEXT sends {what} over the network in clear; use SASL_SSL")
    if mechanism == "OAUTHBEARER":
        options = module.options if module else {}
        return SaslSettings(mechanism, oauth=read_oauth(values, given, options, oauth_token_provider, notes))
    username, password = _credentials(values, given, module, mechanism)
    delegation_token = module is not None and module.options.get("tokenauth", "").lower() == "true"
    if mechanism.startswith("SCRAM"):
        return SaslSettings(mechanism, username, password, delegation_token)
    if "\0" in username + password.reveal():
        raise OptionError("user name and password for PLAIN can't hold the character NUL (RFC 4616)")
    return SaslSettings(mechanism, username, password)


def _login_module(values: Mapping[str, Value], given: Mapping[str, str]) -> LoginModule | None:
    text = cast("Secret | None", values.get("sasl.jaas.config"))
    return None if text is None else parse_jaas(text.reveal(), given["sasl.jaas.config"])


def _mechanism(values: Mapping[str, Value], given: Mapping[str, str], module: LoginModule | None) -> str:
    written_as = given.get("sasl.mechanism", "sasl.mechanism")
    fitting = () if module is None else _mechanisms_of(module, given["sasl.jaas.config"])
    text = cast("str | None", values.get("sasl.mechanism"))
    if text is None:
        known = [mechanism for mechanism in fitting if mechanism in MECHANISMS] or list(MECHANISMS)
        raise OptionError(
            f"option kafka.{written_as} is missing; write {' or '.join(known)} (Java's default, GSSAPI, is not "
            "supported)"
        )
    mechanism = text.upper()
    if mechanism in _REFUSED:
        raise OptionError(f"option kafka.{written_as}: {_REFUSED[mechanism]}")
    if mechanism not in MECHANISMS:
        raise OptionError(f"option kafka.{written_as}: {text!r} is not allowed; write {', '.join(MECHANISMS)}")
    if fitting and mechanism not in fitting:
        raise OptionError(
            f"option kafka.{written_as} is {mechanism}, but kafka.{given['sasl.jaas.config']} names a log-in module "
            f"for {' and '.join(fitting)}; {mechanism} needs {_MODULE_OF[mechanism]}"
        )
    return mechanism


def _mechanisms_of(module: LoginModule, written_as: str) -> tuple[str, ...]:
    for name, mechanisms in _MODULES.items():
        if module.name == name or module.name.endswith(f".{name}"):
            return mechanisms
    supported = ", ".join(name for name, mechanisms in _MODULES.items() if set(mechanisms) & set(MECHANISMS))
    # The name is the first word of a text full of secrets: show it only if it looks like a class name.
    shown = f" {module.name!r}" if re.fullmatch(r"[\w$]+(?:\.[\w$]+)+", module.name) else ""
    raise OptionError(f"option kafka.{written_as}: the log-in module{shown} is not supported; write one of {supported}")


def _credentials(
    values: Mapping[str, Value], given: Mapping[str, str], module: LoginModule | None, mechanism: str
) -> tuple[str, Secret]:
    if module is not None and ("sasl.username" in given or "sasl.password" in given):
        own = given.get("sasl.username") or given["sasl.password"]
        raise OptionError(
            f"options kafka.{given['sasl.jaas.config']} and kafka.{own} exclude each other; give one of them"
        )
    if module is not None:
        username: str | None = module.options.get("username")
        password = Secret(module.options["password"]) if "password" in module.options else None
    else:
        username = cast("str | None", values.get("sasl.username"))
        password = cast("Secret | None", values.get("sasl.password"))
    if not username or not password:
        lacking = "user name" if not username else "password"
        raise OptionError(
            f"kafka.sasl.mechanism is {mechanism}, but the {lacking} is missing; write kafka.sasl.jaas.config="
            f'{_MODULE_OF[mechanism]} required username="..." password="...";'
        )
    return username, password
