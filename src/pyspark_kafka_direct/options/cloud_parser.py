"""Parser of the tokens of cloud providers: Amazon MSK, Azure Event Hubs and Google Cloud.

They are selected by ``oauthTokenProvider``, by the mechanism ``AWS_MSK_IAM``, or by the provider's Java class in
``sasl.login.callback.handler.class``. The options of the login module are those of AWS's library for Java.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, cast, get_args

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.connection_definitions import HOST_PORT
from pyspark_kafka_direct.options.hints import did_you_mean
from pyspark_kafka_direct.options.option_parser import environment_list
from pyspark_kafka_direct.options.security_settings import (
    AwsAccessKey,
    AwsRole,
    AwsTokens,
    AzureTokens,
    GoogleTokens,
    Secret,
    TokenVendor,
)
from pyspark_kafka_direct.options.spark_definitions import AWS_IDENTITIES_VARIABLE, TOKEN_HOSTS_VARIABLE
from pyspark_kafka_direct.options.token_hosts import REGION, region_of_hosts, token_host_problem
from pyspark_kafka_direct.options.unsupported_definitions import PROVIDER_ADVICE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.option_parser import ParsedConfig

_LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"

# Kafka's classes, whose function is built in, are accepted, so that settings for Java can be reused.
# The options of Strimzi's handler become those of Kafka's (strimzi_options.py).
_OTHER_HANDLERS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
    "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
)

# By Java's class name. Azure's is a sample in its documentation that its users copy, mostly without a package.
_VENDORS_BY_HANDLER: Final[Mapping[str, TokenVendor]] = {
    "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler": "msk",
    "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler": "gcp",
    "CustomAuthenticateCallbackHandler": "azure",
    "com.azure.spring.cloud.service.implementation.kafka.KafkaOAuth2AuthenticateCallbackHandler": "azure",
}
_EVENT_HUBS_HOST: Final = re.compile(
    r"[a-z0-9-]+\.servicebus\.(?:windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)", re.IGNORECASE
)

# The options of AWS's login module, and `awsRegion`, which is not in Java's.
_AWS_OPTIONS: Final = (
    "awsProfileName",
    "awsRoleArn",
    "awsRoleSessionName",
    "awsRoleExternalId",
    "awsRoleAccessKeyId",
    "awsRoleSecretAccessKey",
    "awsRoleSessionToken",
    "awsStsRegion",
    "awsDebugCreds",
    "awsMaxRetries",
    "awsMaxBackOffTimeMs",
    "awsAddDefaultProviders",  # no effect: the default provider chain never replaces a role or profile that fails
    "awsRegion",
)
# As AWS checks them, so that errors occur on the driver.
_ROLE_FORMATS: Final = {
    "awsRoleArn": (
        r"arn:[\w-]+:iam::[0-9]{12}:role/[\w+=,.@/-]+",
        "an ARN such as arn:aws:iam::123456789012:role/x",
    ),
    "awsRoleSessionName": (r"[\w+=,.@-]{2,64}", "2 to 64 letters, digits and _+=,.@-"),
    "awsRoleExternalId": (r"[\w+=,.@:/-]{2,1224}", "2 to 1224 letters, digits and _+=,.@:/-"),
}


def check_login_handler(parsed: ParsedConfig, mechanism: str) -> None:
    """Reject a Java class without an equivalent in this package."""
    name, handler = parsed.name_of(_LOGIN_HANDLER), parsed.get_string(_LOGIN_HANDLER)
    if not handler or any(_is_class(handler, each) for each in _OTHER_HANDLERS):
        return
    if _vendor_of_handler(handler, parsed) is None:
        raise OptionError(f"{name}: {PROVIDER_ADVICE}")
    if mechanism != "OAUTHBEARER":
        raise OptionError(f"{name} is for OAUTHBEARER, but {parsed.name_of('sasl.mechanism')} is {mechanism}")


def token_vendor(parsed: ParsedConfig, mechanism: str) -> tuple[TokenVendor, str] | None:
    """Return the cloud provider that the options select, and the option that selects it; None: another source."""
    provider, handler = parsed.get_string("oauthTokenProvider"), parsed.get_string(_LOGIN_HANDLER)
    selected: dict[TokenVendor, str] = {}
    if provider in get_args(TokenVendor):
        selected[cast("TokenVendor", provider)] = f"oauthTokenProvider={provider}"
    if mechanism == "AWS_MSK_IAM":
        selected["msk"] = f"{parsed.name_of('sasl.mechanism')}={mechanism}"
    if handler and (vendor := _vendor_of_handler(handler, parsed)):
        selected.setdefault(vendor, parsed.name_of(_LOGIN_HANDLER))
    if len(selected) > 1:
        raise OptionError(f"{' and '.join(selected.values())} exclude each other; set only one of them")
    return next(iter(selected.items()), None)


def parse_vendor_tokens(
    vendor: TokenVendor, parsed: ParsedConfig, jaas_options: Mapping[str, str], warnings: list[str]
) -> AwsTokens | AzureTokens | GoogleTokens:
    """Parse the tokens of a cloud provider; the login module may have options for them."""
    source: AwsTokens | AzureTokens | GoogleTokens
    match vendor:
        case "msk":
            source = _parse_aws(parsed, jaas_options, warnings)
        case "gcp":
            source = GoogleTokens(environment_list(os.environ, TOKEN_HOSTS_VARIABLE))
        case "azure":
            source = AzureTokens()
    for host in _hosts(parsed):
        if problem := token_host_problem(source, host):
            raise OptionError(f"{parsed.name_of('bootstrap.servers')}: {problem}")
    return source


def _vendor_of_handler(handler: str, parsed: ParsedConfig) -> TokenVendor | None:
    """Return the cloud provider of a Java class."""
    vendor = next((vendor for name, vendor in _VENDORS_BY_HANDLER.items() if _is_class(handler, name)), None)
    if vendor == "azure" and not all(_EVENT_HUBS_HOST.fullmatch(host) for host in _hosts(parsed)):
        return None  # other classes have the sample's name, too
    return vendor


def _is_class(value: str, name: str) -> bool:
    return value == name or value.endswith(f".{name}")  # Databricks and others prefix the names of relocated classes


def _hosts(parsed: ParsedConfig) -> list[str]:
    matches = (HOST_PORT.fullmatch(server) for server in parsed.get_list("bootstrap.servers"))
    return [match[1] for match in matches if match is not None]


def _parse_aws(parsed: ParsedConfig, jaas_options: Mapping[str, str], warnings: list[str]) -> AwsTokens:
    config = parsed.name_of("sasl.jaas.config")
    options = {name: value for name, value in jaas_options.items() if name.lower().startswith("aws") and value}
    for name in [name for name in options if name not in _AWS_OPTIONS]:
        # A misspelt role would let the client log in as the identity of the machine.
        if hint := did_you_mean(name, _AWS_OPTIONS):
            raise OptionError(f"{config}: the login module has no option {name}{hint}")
        warnings.append(f"{config}: {name} has no effect")
    if "awsMaxBackOffTimeMs" in options:
        warnings.append(
            f"{config}: awsMaxBackOffTimeMs has no effect; kafka.socket.connection.setup.timeout.ms limits all attempts"
        )
    profile, role = options.get("awsProfileName"), _parse_role(options, config)
    if profile and role:
        warnings.append(f"{config}: awsRoleArn has no effect, because awsProfileName is set (as in Java)")
        role = None
    _check_identity(profile or (role.arn if role else None), config)
    return AwsTokens(
        _parse_region(options, parsed, config),
        profile=profile,
        role=role,
        sts_region=_parse_sts_region(options, config),
        max_retries=_parse_retries(options, config),
        log_identity=options.get("awsDebugCreds") == "true",
        allowed_hosts=environment_list(os.environ, TOKEN_HOSTS_VARIABLE),
    )


def _parse_role(options: Mapping[str, str], config: str) -> AwsRole | None:
    arn = options.get("awsRoleArn")
    if arn is None:
        without_arn = [name for name in options if name.startswith("awsRole")]
        if without_arn:
            raise OptionError(f"{config}: {without_arn[0]} needs awsRoleArn, which is missing")
        return None
    for name, (pattern, expected) in _ROLE_FORMATS.items():
        if name in options and re.fullmatch(pattern, options[name], re.ASCII) is None:
            raise OptionError(f"{config}: {name} must be {expected}")
    key_id, secret = options.get("awsRoleAccessKeyId"), options.get("awsRoleSecretAccessKey")
    if bool(key_id) != bool(secret):
        raise OptionError(f"{config}: awsRoleAccessKeyId and awsRoleSecretAccessKey need each other; set both, or none")
    access_key = None
    if key_id and secret:
        session_token = options.get("awsRoleSessionToken")
        access_key = AwsAccessKey(key_id, Secret(secret), Secret(session_token) if session_token else None)
    return AwsRole(
        arn,
        session_name=options.get("awsRoleSessionName", "aws-msk-iam-auth"),  # Java's default
        external_id=options.get("awsRoleExternalId"),
        access_key=access_key,
    )


def _check_identity(identity: str | None, config: str) -> None:
    """Reject a role or profile that the driver's environment does not list, if it has a list."""
    allowed = environment_list(os.environ, AWS_IDENTITIES_VARIABLE)
    if identity and allowed and identity not in allowed:
        raise OptionError(
            f"{config}: the environment variable {AWS_IDENTITIES_VARIABLE} of the driver does not list {identity!r}; "
            "use one of the roles and profiles in it, or add it there"
        )


def _parse_region(options: Mapping[str, str], parsed: ParsedConfig, config: str) -> str:
    """Return the region of the cluster: of the login module, of a host name, or of the driver's environment."""
    environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    region = (
        _checked_region(options.get("awsRegion"), "awsRegion", config)
        or region_of_hosts(_hosts(parsed))
        or _checked_region(environment, "AWS_REGION", "the environment")
    )
    if region is None:
        raise OptionError(
            f"{parsed.name_of('bootstrap.servers')} does not contain the AWS region of the cluster; set "
            f'awsRegion="..." in {config}, or AWS_REGION in the environment of the driver'
        )
    return region


def _checked_region(region: str | None, name: str, where: str) -> str | None:
    # It becomes a part of host names.
    if region and REGION.fullmatch(region) is None:
        raise OptionError(f"{where}: {name} must be an AWS region such as eu-west-1, not {region!r}")
    return region or None


def _parse_sts_region(options: Mapping[str, str], config: str) -> str | None:
    region = options.get("awsStsRegion")
    return region if region == "aws-global" else _checked_region(region, "awsStsRegion", config)


def _parse_retries(options: Mapping[str, str], config: str) -> int:
    retries = options.get("awsMaxRetries") or "3"
    if re.fullmatch(r"[0-9]{1,3}", retries) is None:
        raise OptionError(f"{config}: awsMaxRetries must be an integer from 0 to 999")
    return int(retries)
