"""No secret of a documented configuration is in a representation, a warning, a log line or an error, in any API."""

from __future__ import annotations

import logging
import re
import traceback
from typing import TYPE_CHECKING

import pytest
from tests.jvm_configurations.configuration import JvmConfiguration
from tests.jvm_configurations.table import CONFIGURATIONS
from tests.unit.options.test_jvm_configurations import PARSERS

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Options = dict[str, str]

SECRET = "hush-Xq7-secret"
_SECRET_NAME = re.compile(
    r"password|secret|passphrase|private.key(.pem)?$|keystore.key$|assertion$|token$", re.IGNORECASE
)
JAAS = "kafka.sasl.jaas.config"


def with_secrets(configuration: JvmConfiguration) -> Options:
    """Return the options with the same value for each secret, also those of the login module."""
    options = configuration.options()
    for name in options:
        if _SECRET_NAME.search(name):
            options[name] = (
                f"-----BEGIN PRIVATE KEY-----\n{SECRET}" if name.endswith(("keystore.key", "key.pem")) else SECRET
            )
    if JAAS in options:
        options[JAAS] = re.sub(
            r"([\w.]+)=(\"[^\"]*\"|'[^']*'|\w+)",
            lambda match: f'{match[1]}="{SECRET}"' if _SECRET_NAME.search(match[1]) else match[0],
            options[JAAS],
        )
    return options


OTHER_SPELLINGS = (
    JvmConfiguration(
        name="Amazon MSK: keys of the identity that assumes a role",
        title="",
        url="",
        properties=r"""
bootstrap.servers=b-1.mycluster.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn="arn:aws:iam::123456789012:role/x" \
awsRoleAccessKeyId="key" awsRoleSecretAccessKey="secret" awsRoleSessionToken="token";
""",
    ),
    JvmConfiguration(
        name="Apache Kafka: a client assertion with a key as text",
        title="",
        url="",
        properties=r"""
bootstrap.servers=broker.example.com:9093
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.token.endpoint.url=https://idp.example.com/token
sasl.oauthbearer.client.credentials.client.id=me
sasl.oauthbearer.assertion.private.key.pem=key
sasl.oauthbearer.assertion.private.key.passphrase=passphrase
sasl.oauthbearer.assertion.claim.iss=me
""",
    ),
)
WITH_SECRETS = [each for each in (*CONFIGURATIONS, *OTHER_SPELLINGS) if SECRET in str(with_secrets(each))]

MISTAKES: dict[str, Callable[[str], str]] = {
    "none": str,
    "no semicolon": lambda jaas: jaas.rstrip().rstrip(";"),
    "no closing quote": lambda jaas: jaas.replace(f'{SECRET}"', SECRET),
    "no quotes": lambda jaas: jaas.replace(f'"{SECRET}"', SECRET + "/x"),
    "no equals sign": lambda jaas: jaas.replace("=", " "),
    "no control flag": lambda jaas: jaas.replace("required", ""),
    "two modules": lambda jaas: f"{jaas} {jaas}",
    "only the secret": lambda _: SECRET,
    "the secret as a module": lambda jaas: f"{SECRET} {jaas}",
    "a file": lambda jaas: f"KafkaClient {{ {jaas} }};",
    "another module": lambda jaas: jaas.replace("LoginModule", "LoginModules"),
    "another option": lambda jaas: re.sub(r"([\w.]+)=(\"hush)", r"\1x=\2", jaas),
    "wrong TLS options": lambda jaas: jaas.replace(";", ' ssl.protocol="none";'),
}


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG):
        yield


@pytest.mark.parametrize("api", PARSERS)
@pytest.mark.parametrize("configuration", WITH_SECRETS, ids=lambda each: each.name)
def test_settings_and_mistakes_show_no_secret(
    configuration: JvmConfiguration, api: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = with_secrets(configuration)
    variants = [{**options, JAAS: mistake(options[JAAS])} for mistake in MISTAKES.values()] if JAAS in options else []
    others: list[Options] = [
        {**options, "kafka.sasl.mechanism": "SCRAM-SHA-1"},
        {**options, "kafka.security.protocol": "PLAINTEXT"},
        {**options, "kafka.sasl.jaas.confg": SECRET},
        {**options, "kafka.ssl.truststore.pasword": SECRET},
    ]
    for variant in (options, *variants, *others):
        assert SECRET not in shown_by(PARSERS[api], variant)
    assert SECRET not in caplog.text


def shown_by(parser: Callable[[Options], object], options: Options) -> str:
    """Return the representations of the settings, or of the error with its causes."""
    try:
        settings = parser(options)
    except OptionError as error:
        return "".join(traceback.format_exception(error)) + repr(error)
    return f"{settings!r} {settings!s}"


def test_secrets_are_found() -> None:
    assert len(WITH_SECRETS) > 15
