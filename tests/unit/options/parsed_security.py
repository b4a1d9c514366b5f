"""Parses security settings for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.option_parser import parse_config
from pyspark_kafka_direct.options.security_parser import parse_security

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.security_settings import (
        OAuthSettings,
        SaslSettings,
        SecuritySettings,
        TlsSettings,
    )

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
CREDENTIALS = 'username="alice" password="hunter2";'
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"


def parse(params: Mapping[str, str], provider: str | None = None) -> tuple[SecuritySettings, tuple[str, ...]]:
    """Parse client settings without ``kafka.``; return the security settings and warnings."""
    options = {"kafka.bootstrap.servers": "a:1", **{f"kafka.{name}": value for name, value in params.items()}}
    parsed = parse_config({**options, "oauthTokenProvider": provider}, api="batch", source=ConfigSource.OPTION)
    security, warnings = parse_security(parsed)
    return security, (*parsed.warnings, *warnings)


def tls(**params: str) -> TlsSettings:
    """Parse TLS settings; ``ssl_key_password`` stands for ``ssl.key.password``."""
    security, _ = parse({"security.protocol": "SSL"} | {name.replace("_", "."): params[name] for name in params})
    assert security.tls is not None
    return security.tls


def sasl(mechanism: str, jaas: str = "", provider: str | None = None, **params: str) -> SaslSettings:
    """Parse SASL settings with TLS, and check that there are no warnings."""
    params = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas, **params}
    security, warnings = parse(params, provider)
    assert warnings == ()
    assert security.sasl is not None
    return security.sasl


def oauth(jaas: str = "", provider: str | None = None, **params: str) -> OAuthSettings:
    """Parse OAUTHBEARER settings with TLS, and check that there are no warnings."""
    settings = sasl("OAUTHBEARER", f"{OAUTH_MODULE} required {jaas};", provider, **params).oauth
    assert settings is not None
    return settings


def error(params: Mapping[str, str], provider: str | None = None) -> str:
    with pytest.raises(OptionError) as caught:
        parse(params, provider)
    assert "hunter2" not in str(caught.value)
    return caught.value.message
