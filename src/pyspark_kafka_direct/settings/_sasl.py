"""SASL settings: mechanism, credentials, where tokens come from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._jaas import LoginModule, inside, parse_jaas
from pyspark_kafka_direct.settings._messages import bad_value
from pyspark_kafka_direct.settings._oauth import read_oauth
from pyspark_kafka_direct.settings._rows_sasl import MSK
from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.settings.security import NO_SECRET, SaslSettings

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings._reader import Read

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_MSK_MODULE: Final = "software.amazon.msk.auth.iam.IAMLoginModule"

# Log-in modules by class name; Databricks and others prefix the names of their relocated client ("kafkashaded.").
_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
    "com.sun.security.auth.module.Krb5LoginModule": ("GSSAPI",),
    "com.ibm.security.auth.module.Krb5LoginModule": ("GSSAPI",),
    _MSK_MODULE: ("AWS_MSK_IAM",),
}
_MODULE_OF: Final = {mechanism: name for name, mechanisms in _MODULES.items() for mechanism in mechanisms}

_REFUSED: Final = {
    "GSSAPI": (
        "Kerberos (GSSAPI) is not supported; use a listener with SCRAM-SHA-512, OAUTHBEARER, or client certificates "
        "(kafka.security.protocol=SSL with kafka.ssl.keystore.*)"
    ),
    "AWS_MSK_IAM": MSK,
}


def read_sasl(read: Read, notes: list[str], *, encrypted: bool) -> SaslSettings:
    """Build SASL settings.

    Args:
        read: What was given.
        notes: Gets a line for each setting that has no effect or weakens security.
        encrypted: Whether TLS lies underneath.

    Raises:
        OptionError: Something is missing, unsupported, or contradicts another setting.
    """
    module = _login_module(read)
    mechanism = _mechanism(read, module)
    if "oauthTokenProvider" in read.given and mechanism != "OAUTHBEARER":
        raise OptionError(
            f"oauthTokenProvider gives tokens for OAUTHBEARER, but {read.name('sasl.mechanism')} is {mechanism}; "
            "leave one of them out"
        )
    if not encrypted and not mechanism.startswith("SCRAM"):
        what = "the password" if mechanism == "PLAIN" else "the token"
        protocol = read.name("security.protocol")
        notes.append(f"{protocol}=SASL_PLAINTEXT sends {what} over the network in clear; use SASL_SSL")
    if mechanism == "OAUTHBEARER":
        options = module.options if module else {}
        return SaslSettings(mechanism, oauth=read_oauth(read, options, notes))
    username, password = _credentials(read, module, mechanism)
    delegation_token = module is not None and module.options.get("tokenauth", "").lower() == "true"
    if mechanism.startswith("SCRAM"):
        return SaslSettings(mechanism, username, password, delegation_token)
    if "\0" in username + password.reveal():
        raise OptionError("user name and password for PLAIN can't hold the character NUL (RFC 4616)")
    return SaslSettings(mechanism, username, password)


def _login_module(read: Read) -> LoginModule | None:
    text = read.secret("sasl.jaas.config")
    return None if text is None else parse_jaas(text.reveal(), read.name("sasl.jaas.config"))


def _mechanism(read: Read, module: LoginModule | None) -> str:
    name, config = read.name("sasl.mechanism"), read.name("sasl.jaas.config")
    fitting = () if module is None else _mechanisms_of(module, config)
    text = read.text("sasl.mechanism")
    if fitting == _MODULES[_MSK_MODULE]:
        raise OptionError(f"{config}: {MSK}")
    if text is None:
        known = [mechanism for mechanism in fitting if mechanism in MECHANISMS] or list(MECHANISMS)
        raise OptionError(f"{name} is missing; write {' or '.join(known)} (Java's default, GSSAPI, is not supported)")
    mechanism = text.upper()
    if mechanism in _REFUSED:
        raise OptionError(f"{name}: {_REFUSED[mechanism]}")
    if mechanism not in MECHANISMS:
        raise bad_value(name, text, f"{', '.join(MECHANISMS[:-1])} or {MECHANISMS[-1]}", words=MECHANISMS)
    if fitting and mechanism not in fitting:
        raise OptionError(
            f"{name} is {mechanism}, but {config} names a log-in module "
            f"for {' and '.join(fitting)}; {mechanism} needs {_MODULE_OF[mechanism]}"
        )
    return mechanism


def _mechanisms_of(module: LoginModule, config: str) -> tuple[str, ...]:
    for name, mechanisms in _MODULES.items():
        if module.name == name or module.name.endswith(f".{name}"):
            return mechanisms
    supported = ", ".join(name for name, mechanisms in _MODULES.items() if set(mechanisms) & set(MECHANISMS))
    # The name is the first word of a text full of secrets: show it only if it looks like a class name.
    shown = f" {module.name!r}" if re.fullmatch(r"[\w$]+(?:\.[\w$]+)+", module.name) else ""
    raise OptionError(f"{config}: the log-in module{shown} is not supported; write one of {supported}")


def _credentials(read: Read, module: LoginModule | None, mechanism: str) -> tuple[str, Secret]:
    config = read.name("sasl.jaas.config")
    if module is not None:
        for setting in ("sasl.username", "sasl.password"):
            if setting in read.given:
                raise OptionError(f"{config} and {read.name(setting)} exclude each other; give one of them")
        username = inside("sasl.username", module.options)
        password = Secret(inside("sasl.password", module.options) or "")
    else:
        username = read.text("sasl.username")
        password = read.secret("sasl.password") or NO_SECRET
    if not username or not password:
        lacking = "user name" if not username else "password"
        raise OptionError(
            f"{read.name('sasl.mechanism')} is {mechanism}, but the {lacking} is missing; write {config}="
            f'{_MODULE_OF[mechanism]} required username="..." password="...";'
        )
    return username, password
