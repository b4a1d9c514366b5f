"""Tokens of Amazon MSK, with botocore's real credentials and signatures, and an STS of this process."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import pickle
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

import botocore.auth
import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore import exceptions
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.http_services import HttpService, Request, Response, SecurityTokenService

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security import aws_tokens
from pyspark_kafka_direct.client.security.oauth_login import retrieve_token
from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError, KafkaDirectError, OptionError
from pyspark_kafka_direct.options.security_settings import AwsAccessKey, AwsRole, AwsTokens, OAuthSettings, Secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken
    from pyspark_kafka_direct.client.system import System

BROKER = "b-1.flights.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098"
SECONDS = 120.0
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "hunter2/+", "AWS_SESSION_TOKEN": "session+/="}
SOURCE = AwsTokens("eu-west-1")
ROLE = AwsRole("arn:aws:iam::123456789012:role/reader", "my-session", external_id="ext-1")
WITH_ROLE = AwsTokens("eu-west-1", role=ROLE)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only the credentials that a test sets exist."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", *KEYS):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch, keys: None) -> Iterator[SecurityTokenService]:
    with SecurityTokenService() as service:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", service.url)
        yield service


def token_of(source: AwsTokens = SOURCE, system: System | None = None, broker: str = BROKER) -> OAuthBearerToken:
    """Return a token; without a system, nothing is cached."""
    return retrieve_token(OAuthSettings(source), Deadline.after(SECONDS, system=system or RealSystem()), broker)


def token_error(source: AwsTokens = SOURCE, broker: str = BROKER) -> KafkaDirectError:
    with pytest.raises(KafkaDirectError) as caught:
        token_of(source, broker=broker)
    assert "hunter2" not in str(caught.value)
    assert "role-secret" not in str(caught.value)
    return caught.value


def url_of(token: OAuthBearerToken | str) -> str:
    text = token if isinstance(token, str) else token.value.reveal()
    assert "=" not in text
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def fields_of(token: OAuthBearerToken) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url_of(token)).query))


# The signature


def expected_signature(fields: dict[str, str], secret: str) -> str:
    """Compute the signature by AWS's description of Signature Version 4, without botocore."""
    signed = sorted((k, v) for k, v in fields.items() if k not in ("X-Amz-Signature", "User-Agent"))
    query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in signed)
    empty = hashlib.sha256(b"").hexdigest()
    canonical = f"GET\n/\n{query}\nhost:kafka.eu-west-1.amazonaws.com\n\nhost\n{empty}"
    date = fields["X-Amz-Date"]
    scope = f"{date[:8]}/eu-west-1/kafka-cluster/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest()


@pytest.mark.usefixtures("keys")
def test_a_token_is_a_signed_request_to_connect() -> None:
    token = token_of()
    url, fields = url_of(token), fields_of(token)
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect&X-Amz-Algorithm=")
    assert fields["X-Amz-Expires"] == "900"
    assert fields["X-Amz-SignedHeaders"] == "host"
    assert fields["X-Amz-Security-Token"] == KEYS["AWS_SESSION_TOKEN"]
    assert fields["User-Agent"].startswith("pyspark-kafka-direct/")
    assert fields["X-Amz-Signature"] == expected_signature(fields, KEYS["AWS_SECRET_ACCESS_KEY"])


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/St_Johns"])
def test_tokens_are_those_of_the_signer_of_aws_in_every_time_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 11, 30, 2, 20, 29, tzinfo=UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: now.replace(tzinfo=None))
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        ours = token_of()
        theirs, expires_at_ms = MSKAuthTokenProvider.generate_auth_token("eu-west-1")
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    assert url_of(ours).partition("&User-Agent=")[0] == url_of(theirs).partition("&User-Agent=")[0]
    assert ours.expires_at == expires_at_ms / 1000 == now.timestamp() + 900


@pytest.mark.usefixtures("keys")
def test_a_token_is_reused_until_80_percent_of_its_15_minutes_have_passed() -> None:
    system = FakeTimeSystem(time.time())
    first = token_of(system=system)
    system.now += 700
    assert token_of(system=system) is first
    system.now += 30
    assert token_of(system=system) is not first


# Credentials


def test_a_profile(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id=AKIDDEFAULT\naws_secret_access_key=hunter2\n"
        "[team]\naws_access_key_id=AKIDTEAM\naws_secret_access_key=hunter2\n"
    )
    for profile, key in ((None, "AKIDDEFAULT/"), ("team", "AKIDTEAM/")):
        fields = fields_of(token_of(AwsTokens("eu-west-1", profile=profile)))
        assert fields["X-Amz-Credential"].startswith(key)
        assert "X-Amz-Security-Token" not in fields


def test_changed_keys_in_a_file_are_read(tmp_path: Path) -> None:
    system = FakeTimeSystem(time.time())
    for key in ("AKIDONE", "AKIDTWO"):
        text = f"[default]\naws_access_key_id={key}\naws_secret_access_key=hunter2\n"
        (tmp_path / "credentials").write_text(text)
        assert fields_of(token_of(system=system))["X-Amz-Credential"].startswith(f"{key}/")
        system.now += 800


def test_a_profile_that_assumes_a_role_needs_no_region(sts: SecurityTokenService, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"[profile p]\nrole_arn={ROLE.arn}\ncredential_source=Environment\n")
    fields = fields_of(token_of(AwsTokens("eu-west-1", profile="p")))
    assert fields["X-Amz-Credential"].startswith("ASIAROLE1/")
    assert "/eu-west-1/sts/" in sts.requests[0].headers["Authorization"]


@pytest.mark.parametrize("is_in_environment", [False, True])
def test_the_region_of_a_profile_that_assumes_a_role(
    sts: SecurityTokenService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_environment: bool
) -> None:
    region = "" if is_in_environment else "region=ap-south-1\n"
    (tmp_path / "config").write_text(f"[profile p]\nrole_arn={ROLE.arn}\ncredential_source=Environment\n{region}")
    if is_in_environment:
        monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    token = token_of(AwsTokens("eu-west-1", profile="p"))
    assert "/eu-west-1/kafka-cluster/" in fields_of(token)["X-Amz-Credential"]
    assert "/ap-south-1/sts/" in sts.requests[0].headers["Authorization"]
    sts.error = "AccessDenied", "no"
    assert "AssumeRole for the AWS profile 'p' with AccessDenied" in token_error(AwsTokens("eu-west-1", "p")).message


def test_a_web_identity(sts: SecurityTokenService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    (tmp_path / "identity").write_text("a-jwt")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "identity"))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE.arn)
    assert fields_of(token_of())["X-Amz-Credential"].startswith("ASIAROLE1/")
    assert sts.requests[0].form["WebIdentityToken"] == "a-jwt"


def test_credentials_of_a_container_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    system = FakeTimeSystem(time.time())

    def respond(_: Request) -> tuple[int, str]:
        expiration = datetime.fromtimestamp(time.time() + 600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        number = len(service.requests)
        keys = {"AccessKeyId": f"ASIA{number}", "SecretAccessKey": "hunter2", "Token": "t", "Expiration": expiration}
        return 200, json.dumps(keys)

    with HttpService(respond) as service:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{service.url}/credentials")
        tokens = []
        for _ in range(2):
            tokens.append(token_of(system=system))
            assert (tokens[-1].expires_at or 0) <= system.now + 601
            system.now += 500
    first, second = (fields_of(token)["X-Amz-Credential"] for token in tokens)
    assert first.startswith("ASIA")
    assert first.partition("/")[0] != second.partition("/")[0]


def test_a_role(sts: SecurityTokenService) -> None:
    fields = fields_of(token_of(WITH_ROLE))
    assert fields["X-Amz-Credential"].startswith("ASIAROLE1/")
    assert fields["X-Amz-Security-Token"] == "role-session-1"
    assert fields["X-Amz-Signature"] == expected_signature(fields, "role-secret")
    (request,) = sts.requests
    assert request.form["RoleArn"] == ROLE.arn
    assert request.form["RoleSessionName"] == "my-session"
    assert request.form["ExternalId"] == "ext-1"
    assert "Credential=AKIDEXAMPLE/" in request.headers["Authorization"]
    assert "/eu-west-1/sts/" in request.headers["Authorization"]


def test_a_role_with_given_keys_in_another_region(sts: SecurityTokenService) -> None:
    key = AwsAccessKey("AKIDGIVEN", Secret("hunter2"), Secret("given-session"))
    role = AwsRole(ROLE.arn, "a-session", access_key=key)
    token_of(AwsTokens("eu-west-1", role=role, sts_region="us-gov-west-1"))
    (request,) = sts.requests
    assert "ExternalId" not in request.form
    assert "Credential=AKIDGIVEN/" in request.headers["Authorization"]
    assert "/us-gov-west-1/sts/" in request.headers["Authorization"]
    assert request.headers["X-Amz-Security-Token"] == "given-session"


def test_a_token_of_a_role_does_not_outlive_its_session_and_is_renewed(sts: SecurityTokenService) -> None:
    sts.lifetime = 300
    system = FakeTimeSystem(time.time())
    token = token_of(WITH_ROLE, system)
    assert token.expires_at is not None
    assert system.now + 200 < token.expires_at <= system.now + 301
    system.now += 200
    assert token_of(WITH_ROLE, system) is token
    system.now += 60
    assert fields_of(token_of(WITH_ROLE, system))["X-Amz-Credential"].startswith("ASIAROLE2/")
    assert len(sts.requests) == 2


def test_a_session_of_an_hour_is_used_for_several_tokens(sts: SecurityTokenService) -> None:
    system = FakeTimeSystem(time.time())
    tokens = []
    for _ in range(3):
        tokens.append(token_of(WITH_ROLE, system).value)
        system.now += 800
    assert len(sts.requests) == 1
    assert all(url_of(token.reveal()).count("ASIAROLE1") == 1 for token in tokens)


def test_a_hundred_connections_request_one_token(sts: SecurityTokenService) -> None:
    system = RealSystem()
    with ThreadPoolExecutor(100) as threads:
        tokens = set(threads.map(lambda _: token_of(WITH_ROLE, system).value, range(100)))
    assert len(tokens) == 1
    assert len(sts.requests) == 1


def test_tokens_are_renewed_while_connections_use_them(sts: SecurityTokenService) -> None:
    sts.lifetime = 300
    system = FakeTimeSystem(time.time())
    stop, failures = threading.Event(), []

    def connect() -> None:
        while not stop.is_set():
            now = system.now
            token = token_of(WITH_ROLE, system)
            if token.expires_at is None or token.expires_at <= now:
                failures.append(token)

    with ThreadPoolExecutor(4) as threads:
        for _ in range(4):
            threads.submit(connect)
        for _ in range(4):
            token_of(WITH_ROLE, system)
            system.now += 220
        stop.set()
    assert failures == []
    assert 2 <= len(sts.requests) <= 5


# Secrets


def test_no_secret_is_shown(sts: SecurityTokenService, caplog: pytest.LogCaptureFixture) -> None:
    key = AwsAccessKey("AKIDGIVEN", Secret("hunter2"), Secret("given-session"))
    source = AwsTokens("eu-west-1", role=AwsRole(ROLE.arn, "a-session", access_key=key), log_identity=True)
    with caplog.at_level(logging.DEBUG):
        token = token_of(source)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("pyspark_kafka_direct")]
    assert any("arn:aws:sts::123456789012:assumed-role/reader/me" in message for message in ours)
    for text in (repr(source), repr(token), str(OAuthSettings(source)), *ours):
        assert not any(secret in text for secret in ("hunter2", "given-session", "role-secret", "role-session"))
    assert token.value.reveal() not in caplog.text
    assert pickle.loads(pickle.dumps(source)) == source


# Errors


def test_missing_credentials() -> None:
    error = token_error()
    assert isinstance(error, AuthenticationError)
    assert "AWS's default provider chain has no credentials on " in error.message


def test_a_missing_profile() -> None:
    error = token_error(AwsTokens("eu-west-1", profile="team"))
    assert isinstance(error, OptionError)
    assert "has no profile 'team'" in error.message


def test_a_missing_profile_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert "(AWS_PROFILE)" in token_error().message


def test_a_role_without_credentials_that_assume_it() -> None:
    assert "the role arn:aws:iam::123456789012:role/reader cannot be assumed" in token_error(WITH_ROLE).message


def test_a_role_that_may_not_be_assumed(sts: SecurityTokenService) -> None:
    reason = "User: arn:aws:iam::1:user/me is not authorized to perform: sts:AssumeRole on resource: " + "r" * 300
    sts.error = "AccessDenied", f"{reason} with an explicit deny\n"
    message = token_error(WITH_ROLE).message
    assert 'AssumeRole for the role arn:aws:iam::123456789012:role/reader with AccessDenied: "User' in message
    assert "with an explicit deny" in message, "the end has the reason"
    assert "check the trust policy of the role, awsRoleArn and awsRoleExternalId" in message
    assert "\n" not in message


@pytest.mark.parametrize("code", ["SignatureDoesNotMatch", "RequestExpired", "InvalidClientTokenId", "ExpiredToken"])
def test_a_signature_that_is_rejected(sts: SecurityTokenService, code: str) -> None:
    sts.error = code, "Signature expired: 20261130T000000Z is now earlier than 20261130T010000Z"
    message = token_error(WITH_ROLE).message
    assert "check the access key, and the clock of " in message
    assert f"which is {datetime.now(UTC):%Y-%m-%d}" in message


def test_transient_errors_of_sts_are_retried(sts: SecurityTokenService) -> None:
    sts.error = "Throttling", "Rate exceeded"
    assert "Throttling" in token_error(AwsTokens("eu-west-1", role=ROLE, max_retries=1)).message
    assert len(sts.requests) == 2


def test_an_sts_that_cannot_be_reached(sts: SecurityTokenService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    message = token_error(AwsTokens("eu-west-1", role=ROLE, max_retries=0)).message
    assert "AWS STS cannot be reached from " in message
    assert "EndpointConnectionError" in message


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ReadTimeoutError(endpoint_url="https://sts"),
        exceptions.ConnectTimeoutError(endpoint_url="https://sts"),
        exceptions.ConnectionClosedError(endpoint_url="https://sts"),
        exceptions.ProxyConnectionError(proxy_url="http://proxy"),
        exceptions.SSLError(endpoint_url="https://sts", error="it is self-signed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_each_failure_of_a_connection_to_sts(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(aws_tokens, "_sts_client", fail)
    message = token_error(WITH_ROLE).message
    assert "AWS STS cannot be reached from " in message
    assert f"({type(error).__name__})" in message


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ClientError({"Error": {"Code": "AccessDenied"}}, "GetCallerIdentity"),
        exceptions.EndpointConnectionError(endpoint_url="https://sts"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_identity_that_cannot_be_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setattr(aws_tokens, "_sts_client", fail)
    with caplog.at_level(logging.DEBUG, "pyspark_kafka_direct"):
        assert token_of(AwsTokens("eu-west-1", log_identity=True)).expires_at is not None
    assert f"the identity of the AWS credentials is unknown ({type(error).__name__})" in caplog.text


def test_an_unknown_error_shows_only_its_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\ncredential_process = sh -c 'echo hunter2 >&2; exit 1'\n")
    message = token_error().message
    assert message.startswith(
        "The source of AWS credentials, such as STS or the metadata of the instance, failed with "
    )
    assert "CredentialRetrievalError. Set PYSPARK_KAFKA_DIRECT_LOG_LEVEL=DEBUG" in message


def test_an_sts_that_does_not_respond(sts: SecurityTokenService, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.getsockname()[1]}")
        deadline = Deadline.after(1, system=RealSystem())
        with pytest.raises(BrokerTimeoutError, match=r"such as STS .*, returned no token in time"):
            retrieve_token(OAuthSettings(AwsTokens("eu-west-1", role=ROLE, max_retries=0)), deadline, BROKER)


def test_missing_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    error = token_error()
    assert isinstance(error, OptionError)
    assert "the login to Amazon MSK requires botocore, which is not installed on " in error.message
    assert "pip install 'pyspark-kafka-direct[msk]' on the driver and on every executor" in error.message


@pytest.mark.usefixtures("keys")
def test_a_token_is_not_sent_to_hosts_of_others() -> None:
    error = token_error(broker="b-1.kafka.eu-west-1.amazonaws.com.example.com:9098")
    assert "is no host of Amazon MSK" in error.message
    assert "PYSPARK_KAFKA_DIRECT_TOKEN_HOSTS" in error.message
    assert error.broker == "b-1.kafka.eu-west-1.amazonaws.com.example.com:9098"
    assert token_of(AwsTokens("eu-west-1", allowed_hosts=("*.example.com",)), broker="kafka.example.com:9098")


# The network


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("region", "sts_region", "endpoint"),
    [
        ("eu-west-1", None, "sts.eu-west-1.amazonaws.com:443"),
        ("cn-north-1", None, "sts.cn-north-1.amazonaws.com.cn:443"),
        ("eu-west-1", "us-east-2", "sts.us-east-2.amazonaws.com:443"),
        ("eu-west-1", "aws-global", "sts.amazonaws.com:443"),
    ],
)
def test_sts_is_requested_in_its_region_through_the_proxy_of_the_environment(
    region: str, sts_region: str | None, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = AwsTokens(region, role=ROLE, sts_region=sts_region, max_retries=0)
    with HttpService(lambda _: (403, "no")) as proxy:
        monkeypatch.setenv("https_proxy", f"http://user:hunter2@{proxy.address}")
        message = token_error(source, f"b-1.kafka.{region}.amazonaws.com:9098").message
    assert [(request.method, request.target) for request in proxy.requests] == [("CONNECT", endpoint)]
    assert "ProxyConnectionError" in message


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "renewal"])
def test_a_login_does_not_wait_for_an_earlier_request_to_sts(
    is_first: bool, sts: SecurityTokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore's credentials have a lock, which a request that hangs holds."""
    monkeypatch.setattr(aws_tokens, "_STS_TIMEOUT_SECONDS", 300)
    system, arrived, ended, respond = RealSystem(), threading.Event(), threading.Event(), sts._respond_to
    hung = 1 if is_first else 2

    def log_in(seconds: float) -> OAuthBearerToken:
        return retrieve_token(OAuthSettings(WITH_ROLE), Deadline.after(seconds, system=system), BROKER)

    def respond_late(request: Request) -> Response:
        if len(sts.requests) == hung:
            arrived.set()
            ended.wait(120)
        return respond(request)

    monkeypatch.setattr(sts, "respond", respond_late)
    try:
        if not is_first:
            sts.lifetime = 25  # the keys are renewed at once
            log_in(SECONDS)
        with pytest.raises(BrokerTimeoutError):
            log_in(0.5)
        assert arrived.wait(SECONDS)
        assert len(sts.requests) == hung
        sts.lifetime = 3600.0
        assert log_in(60.0)
        assert len(sts.requests) == hung + 1
    finally:
        ended.set()
