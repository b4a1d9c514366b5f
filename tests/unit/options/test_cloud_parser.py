"""Settings of Amazon MSK, Azure Event Hubs and Google Cloud, in the spellings of Java and in the short form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.settings import parse_client_params
from tests.unit.options.parsed_security import OAUTH_MODULE, TOKEN_URL, parse
from tests.unit.options.parsed_security import error as parse_error

from pyspark_kafka_direct.options.security_settings import (
    AwsAccessKey,
    AwsRole,
    AwsTokens,
    AzureTokens,
    GoogleTokens,
    OAuthSettings,
    SaslSettings,
    Secret,
)
from pyspark_kafka_direct.options.spark_definitions import (
    AWS_IDENTITIES_VARIABLE,
    TOKEN_HOSTS_VARIABLE,
    TOKEN_PROVIDERS_VARIABLE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MSK = "b-1.flights.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098"
EVENT_HUBS = "flights.servicebus.windows.net:9093"
GOOGLE = "bootstrap.flights.europe-west1.managedkafka.my-project.cloud.goog:9092"
IAM_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
IAM_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
IAM_OAUTH_HANDLER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
GOOGLE_HANDLER = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
AZURE_HANDLER = "CustomAuthenticateCallbackHandler"
ARN = "arn:aws:iam::123456789012:role/teams/reader"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = (AWS_IDENTITIES_VARIABLE, TOKEN_HOSTS_VARIABLE, TOKEN_PROVIDERS_VARIABLE)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", *variables):
        monkeypatch.delenv(name, raising=False)


def oauth_of(servers: str, params: Mapping[str, str], provider: str | None = None, *, warnings: int = 0) -> Any:
    all_params = {"bootstrap.servers": servers, "security.protocol": "SASL_SSL", **params}
    security, given_warnings = parse(all_params, provider)
    assert len(given_warnings) == warnings, given_warnings
    assert "hunter2" not in repr(security)
    assert security.sasl is not None
    assert security.sasl == SaslSettings("OAUTHBEARER", oauth=security.sasl.oauth)
    return security.sasl.oauth


def aws(jaas: str = "", servers: str = MSK, warnings: int = 0) -> AwsTokens:
    params = {"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": f"{IAM_MODULE} required {jaas};"}
    settings = oauth_of(servers, params, warnings=warnings)
    assert isinstance(settings.source, AwsTokens)
    return settings.source


def error(servers: str, params: Mapping[str, str], provider: str | None = None) -> str:
    return parse_error({"bootstrap.servers": servers, "security.protocol": "SASL_SSL", **params}, provider)


def aws_error(jaas: str, servers: str = MSK) -> str:
    return error(servers, {"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": f"{IAM_MODULE} required {jaas};"})


# Spellings


@pytest.mark.parametrize(
    ("params", "provider"),
    [
        (
            {
                "sasl.mechanism": "AWS_MSK_IAM",
                "sasl.jaas.config": f"{IAM_MODULE} required;",
                "sasl.client.callback.handler.class": IAM_HANDLER,
            },
            None,
        ),
        (
            {
                "sasl.mechanism": "AWS_MSK_IAM",
                "sasl.jaas.config": f"shadedmskiam.{IAM_MODULE} required;",
                "sasl.client.callback.handler.class": f"shadedmskiam.{IAM_HANDLER}",
            },
            None,
        ),
        ({"sasl.mechanism": "aws_msk_iam"}, None),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f"{OAUTH_MODULE} required;",
                "sasl.login.callback.handler.class": IAM_OAUTH_HANDLER,
            },
            None,
        ),
        ({"sasl.mechanism": "OAUTHBEARER"}, "msk"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "MSK"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "msk"),
    ],
    ids=["Java", "Databricks", "mechanism", "Java's OAUTHBEARER", "short", "upper case", "mechanism and short"],
)
def test_spellings_of_amazon_msk(params: Mapping[str, str], provider: str | None) -> None:
    assert oauth_of(MSK, params, provider) == OAuthSettings(AwsTokens("eu-west-1"))


@pytest.mark.parametrize(
    ("handler", "provider"),
    [
        (AZURE_HANDLER, None),
        (f"com.example.{AZURE_HANDLER}", None),
        ("com.azure.spring.cloud.service.implementation.kafka.KafkaOAuth2AuthenticateCallbackHandler", None),
        (None, "azure"),
    ],
)
def test_spellings_of_azure_event_hubs(handler: str | None, provider: str | None) -> None:
    params = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{OAUTH_MODULE} required;"}
    if handler:
        params["sasl.login.callback.handler.class"] = handler
    assert oauth_of(EVENT_HUBS, params, provider) == OAuthSettings(AzureTokens())


@pytest.mark.parametrize(("handler", "provider"), [(GOOGLE_HANDLER, None), (None, "gcp"), (GOOGLE_HANDLER, "gcp")])
def test_spellings_of_google_cloud(handler: str | None, provider: str | None) -> None:
    params = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{OAUTH_MODULE} required;"}
    if handler:
        params["sasl.login.callback.handler.class"] = handler
    assert oauth_of(GOOGLE, params, provider) == OAuthSettings(GoogleTokens())


def test_each_broker_has_to_be_one_of_azure_event_hubs() -> None:
    params = {"sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": AZURE_HANDLER}
    assert "Java classes cannot run here" in error(f"{EVENT_HUBS},kafka.example.com:9093", params)


def test_extensions_are_sent_with_the_token() -> None:
    params = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f'{OAUTH_MODULE} required extension_a="b";'}
    assert oauth_of(EVENT_HUBS, params, "azure").extensions == (("a", "b"),)


def test_parameters_of_other_apis_have_the_same_spellings() -> None:
    params = {"bootstrap.servers": MSK, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    connection = parse_client_params(params, oauth_token_provider="msk").connection
    assert connection.security.sasl is not None
    assert connection.security.sasl.oauth == OAuthSettings(AwsTokens("eu-west-1"))


@pytest.mark.parametrize(
    ("params", "provider", "expected"),
    [
        (
            {"sasl.jaas.config": f"{IAM_MODULE} required;"},
            None,
            "kafka.sasl.mechanism is missing; set it to AWS_MSK_IAM",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{IAM_MODULE} required;"},
            None,
            "contains a login module for AWS_MSK_IAM; OAUTHBEARER needs org.apache.kafka",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", TOKEN_URL: "https://idp.example.com"},
            "msk",
            f"oauthTokenProvider=msk and kafka.{TOKEN_URL} exclude each other",
        ),
        (
            {"sasl.mechanism": "AWS_MSK_IAM"},
            "my.tokens:provider",
            "kafka.sasl.mechanism=AWS_MSK_IAM and oauthTokenProvider exclude each other",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": GOOGLE_HANDLER},
            "msk",
            "oauthTokenProvider=msk and kafka.sasl.login.callback.handler.class exclude each other",
        ),
        (
            {"sasl.mechanism": "AWS_MSK_IAM", "sasl.login.callback.handler.class": IAM_OAUTH_HANDLER},
            None,
            "kafka.sasl.login.callback.handler.class is for OAUTHBEARER, but kafka.sasl.mechanism is AWS_MSK_IAM",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.login.callback.handler.class": "io.example.VaultHandler"},
            None,
            "Java classes cannot run here",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": AZURE_HANDLER},
            None,  # a class of another project with this name, because the host is none of Event Hubs
            "Java classes cannot run here",
        ),
        ({"sasl.mechanism": "OAUTHBEARER"}, "aws", "must be msk, azure, gcp or module:factory"),
        ({"sasl.mechanism": "SCRAM-SHA-512"}, "msk", "oauthTokenProvider is for OAUTHBEARER"),
    ],
)
def test_contradictions(params: Mapping[str, str], provider: str | None, expected: str) -> None:
    assert expected in error(MSK, params, provider)


# The login module of Amazon MSK


def test_a_role() -> None:
    source = aws(
        f'awsRoleArn="{ARN}" awsRoleSessionName="me" awsRoleExternalId="ext:1" awsStsRegion="us-east-2" '
        'awsDebugCreds="true" awsMaxRetries="7"'
    )
    role = AwsRole(ARN, "me", external_id="ext:1")
    assert source == AwsTokens("eu-west-1", role=role, sts_region="us-east-2", max_retries=7, log_identity=True)


def test_the_global_endpoint_of_sts() -> None:
    assert aws('awsStsRegion="aws-global"') == AwsTokens("eu-west-1", sts_region="aws-global")


def test_a_role_with_keys() -> None:
    source = aws(
        f'awsRoleArn="{ARN}" awsRoleAccessKeyId="AKID" awsRoleSecretAccessKey="hunter2" awsRoleSessionToken="hunter2"'
    )
    key = AwsAccessKey("AKID", Secret("hunter2"), Secret("hunter2"))
    assert source.role == AwsRole(ARN, "aws-msk-iam-auth", access_key=key)


def test_the_options_work_with_the_module_of_oauthbearer() -> None:
    params = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f'{OAUTH_MODULE} required awsProfileName="team";'}
    assert oauth_of(MSK, params, "msk").source == AwsTokens("eu-west-1", profile="team")


def test_a_profile_precedes_a_role_as_in_java() -> None:
    assert aws(f'awsProfileName="team" awsRoleArn="{ARN}"', warnings=1) == AwsTokens("eu-west-1", profile="team")


@pytest.mark.parametrize("option", ["awsMaxBackOffTimeMs", "awsSomethingElse"])
def test_options_without_effect_cause_a_warning(option: str) -> None:
    assert aws(f'{option}="1000"', warnings=1) == AwsTokens("eu-west-1")
    assert aws(f'awsOther="1" {option}="1000"', warnings=2) == AwsTokens("eu-west-1")


@pytest.mark.parametrize(
    ("jaas", "expected"),
    [
        (f'awsRoleARN="{ARN}"', "has no option awsRoleARN; did you mean 'awsRoleArn'?"),
        (f'AwsRoleArn="{ARN}"', "has no option AwsRoleArn; did you mean 'awsRoleArn'?"),
        (f'awsSomethingElse="x" AwsRoleArn="{ARN}"', "has no option AwsRoleArn; did you mean 'awsRoleArn'?"),
        (f'AWSROLEARN="{ARN}"', "has no option AWSROLEARN; did you mean 'awsRoleArn'?"),
        ('awsRoleArn="reader"', "awsRoleArn must be an ARN such as arn:aws:iam::123456789012:role/x"),
        (f'awsRoleArn="{ARN}" awsRoleSessionName="a b"', "awsRoleSessionName must be 2 to 64 letters"),
        (f'awsRoleArn="{ARN}" awsRoleExternalId="a\\nb"', "awsRoleExternalId must be 2 to 1224 letters"),
        ('awsRoleExternalId="ext"', "awsRoleExternalId needs awsRoleArn, which is missing"),
        ('awsDebugCreds="true" awsRoleExternalId="ext"', "awsRoleExternalId needs awsRoleArn, which is missing"),
        (f'awsRoleArn="{ARN}" awsRoleSecretAccessKey="hunter2"', "need each other"),
        ('awsMaxRetries="hunter2"', "awsMaxRetries must be an integer"),
        ('awsRegion="eu-west-1.example.com/"', "awsRegion must be an AWS region"),
        ('awsRegion="aws-global"', "awsRegion must be an AWS region"),
        ('awsStsRegion="a/b"', "awsStsRegion must be an AWS region"),
    ],
)
def test_invalid_options_of_the_login_module(jaas: str, expected: str) -> None:
    assert expected in aws_error(jaas)


def test_the_environment_of_the_driver_can_limit_roles_and_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AWS_IDENTITIES_VARIABLE, f"{ARN}, team")
    assert aws(f'awsRoleArn="{ARN}"').role == AwsRole(ARN, "aws-msk-iam-auth")
    assert aws('awsProfileName="team"').profile == "team"
    assert aws().profile is None
    for jaas in (f'awsRoleArn="{ARN}2"', 'awsProfileName="admin"'):
        assert f"{AWS_IDENTITIES_VARIABLE} of the driver does not list" in aws_error(jaas)


# The region


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        ("b-1-public.flights.abcdef.c2.kafka.us-gov-west-1.amazonaws.com:9198", "us-gov-west-1"),
        ("boot-abcdef.c1.kafka-serverless.ap-southeast-2.amazonaws.com:9098", "ap-southeast-2"),
        ("B-1.FLIGHTS.KAFKA.EU-WEST-1.AMAZONAWS.COM:9098", "eu-west-1"),
        ("b-1.flights.abcdef.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("b-1.scram.flights.abcdef.c2.kafka.me-central-1.amazonaws.com:14001", "me-central-1"),
        ("vpce-0a-1b.kafka.us-east-1.vpce.amazonaws.com:9098", "us-east-1"),
    ],
)
def test_the_region_of_a_host_name(servers: str, region: str) -> None:
    assert aws(servers=servers).region == region


@pytest.mark.parametrize(
    "server", ["kafka.example.com:9098", "vpce-0a-1b.vpce-svc-0c.eu-central-1.vpce.amazonaws.com:9098"]
)
def test_the_region_of_another_host_name(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_HOSTS_VARIABLE, "*.example.com,*.vpce.amazonaws.com")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert aws(servers=server).region == "eu-central-1"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    source = aws('awsRegion="eu-north-1"', servers=server)
    assert source.region == "eu-north-1"
    assert source.allowed_hosts == ("*.example.com", "*.vpce.amazonaws.com")


@pytest.mark.parametrize("server", [MSK, "vpce-0a-1b.vpce-svc-0c.eu-west-1.vpce.amazonaws.com:9098"])
def test_the_region_is_that_of_the_first_host_that_has_one(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_HOSTS_VARIABLE, "*.example.com,*.vpce.amazonaws.com")
    assert aws(servers=f"kafka.example.com:9098,{server}").region == "eu-west-1"


def test_the_order_of_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-2")
    monkeypatch.setenv(TOKEN_HOSTS_VARIABLE, "kafka.example.com")
    assert aws(servers="kafka.example.com:1").region == "us-east-1"
    assert aws().region == "eu-west-1"
    assert aws('awsRegion="eu-north-1"').region == "eu-north-1"


def test_a_missing_region(monkeypatch: pytest.MonkeyPatch) -> None:
    message = aws_error("", servers="kafka.example.com:9098")
    assert "kafka.bootstrap.servers does not contain the AWS region of the cluster" in message
    assert 'awsRegion="..." in kafka.sasl.jaas.config, or AWS_REGION' in message


# The hosts that receive tokens


@pytest.mark.parametrize(
    "server",
    [
        "kafka.example.com:9098",
        "b-1.kafka.eu-west-1.amazonaws.com.example.com:9098",
        "ec2-1-2-3-4.eu-west-1.compute.amazonaws.com:9098",
        "vpce-0a-1b.vpce-svc-0c.eu-west-1.vpce.amazonaws.com:9098",
        "evilkafka.eu-west-1.amazonaws.com:9098",
        "kafka.eu-west-1.amazonaws.com:9098",
        "10.0.0.1:9098",
        "localhost:9098",
    ],
)
def test_a_token_of_amazon_is_not_sent_to_other_hosts(server: str) -> None:
    message = aws_error('awsRegion="eu-west-1"', servers=f"{MSK},{server}")
    assert f"{server.rpartition(':')[0]!r} is no host of Amazon MSK" in message
    assert TOKEN_HOSTS_VARIABLE in message


def test_a_token_of_google_is_not_sent_to_names_of_customers() -> None:
    """Any customer can give names below `endpoints` an address (Cloud Endpoints)."""
    server = "bootstrap.flights.europe-west1.managedkafka.endpoints.my-project.cloud.goog:9092"
    assert "is no host of Google's Kafka service" in error(server, {"sasl.mechanism": "OAUTHBEARER"}, "gcp")


@pytest.mark.parametrize("server", ["kafka.example.com:9092", "bootstrap.managedkafka.p.cloud.goog.example.com:9092"])
def test_a_token_of_google_is_not_sent_to_other_hosts(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    params = {"sasl.mechanism": "OAUTHBEARER"}
    assert "is no host of Google's Kafka service" in error(f"{GOOGLE},{server}", params, "gcp")
    monkeypatch.setenv(TOKEN_HOSTS_VARIABLE, "*.example.com")
    assert oauth_of(server, params, "gcp").source == GoogleTokens(allowed_hosts=("*.example.com",))


def test_a_wildcard_does_not_allow_the_domain_of_another_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_HOSTS_VARIABLE, "*.example.com")
    assert "is no host of Google" in error("badexample.com:1", {"sasl.mechanism": "OAUTHBEARER"}, "gcp")
