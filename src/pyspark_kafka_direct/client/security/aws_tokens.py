"""Tokens of Amazon MSK: a request to ``kafka-cluster:Connect`` that is signed but never sent.

    base64url(https://kafka.REGION.amazonaws.com/?Action=kafka-cluster%3AConnect&X-Amz-Algorithm=AWS4-HMAC-SHA256
        &X-Amz-Credential=KEY%2FDATE%2FREGION%2Fkafka-cluster%2Faws4_request&X-Amz-Date=...&X-Amz-Expires=900
        &X-Amz-SignedHeaders=host[&X-Amz-Security-Token=...]&X-Amz-Signature=...&User-Agent=...)      without padding

AWS's signers for Python, Java and Go create the same tokens; the user agent is not signed. botocore resolves the
credentials, assumes roles and signs.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from pyspark_kafka_direct._version import __version__
from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken
from pyspark_kafka_direct.client.security.optional_library import missing_library
from pyspark_kafka_direct.errors import AuthenticationError, OptionError, printable
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.security.oauth_tokens import TokenRetriever
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.security_settings import AwsAccessKey, AwsRole, AwsTokens

_log = logging.getLogger("pyspark_kafka_direct.client")

_TOKEN_SECONDS: Final = 900  # the maximum
_EXPIRY_STEP_SECONDS: Final = 30
_STS_TIMEOUT_SECONDS: Final = 10
# Codes with which STS rejects a signature. A clock that is wrong is the most frequent reason of the first two.
_SIGNATURE_CODES: Final = ("SignatureDoesNotMatch", "RequestExpired", "InvalidClientTokenId", "ExpiredToken")


def aws_token_retriever(source: AwsTokens) -> TokenRetriever:
    """Return a function that signs a token with the current credentials."""
    refreshable: list[Any] = []  # credentials that renew themselves, such as those of a role

    def retrieve(deadline: Deadline) -> OAuthBearerToken:
        with _aws_errors(source, deadline.system):
            # Keys of files and variables are read each time, because another program may replace them.
            # Those that renew themselves have a lock, so no other thread has them until they are renewed.
            try:
                credentials = refreshable.pop()
            except IndexError:
                credentials = _load_credentials(source)
            keys = credentials.get_frozen_credentials()
            if hasattr(credentials, "refresh_needed"):
                refreshable[:] = [credentials]
            if source.log_identity:
                _log_identity(source, keys)
            return _signed_token(keys, source.region, _lifetime(credentials))

    return retrieve


def _signed_token(keys: Any, region: str, max_seconds: int) -> OAuthBearerToken:
    """Return a token that is valid for 15 minutes, and used for at most ``max_seconds``."""
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    host = f"https://kafka.{region}.amazonaws.com/"  # also in China
    request = AWSRequest(method="GET", url=host, params={"Action": "kafka-cluster:Connect"})
    SigV4QueryAuth(keys, "kafka-cluster", region, expires=_TOKEN_SECONDS).add_auth(request)
    date = parse_qs(urlsplit(request.url).query)["X-Amz-Date"][0]
    signed_at = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    url = f"{request.url}&{urlencode({'User-Agent': f'pyspark-kafka-direct/{__version__}'})}"
    token = base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
    return OAuthBearerToken(Secret(token), signed_at + min(_TOKEN_SECONDS, max_seconds))


def _lifetime(credentials: Any) -> int:
    """Return the seconds for which credentials are valid, rounded down, at most those of a token."""
    if not hasattr(credentials, "refresh_needed"):  # these do not expire
        return _TOKEN_SECONDS
    steps = range(_TOKEN_SECONDS, 0, -_EXPIRY_STEP_SECONDS)
    return next((seconds for seconds in steps if not credentials.refresh_needed(seconds)), 0)


def _load_credentials(source: AwsTokens) -> Any:
    """Return the credentials of the role, the profile, or AWS's default provider chain."""
    session = _session(source)
    if source.role is not None:
        from botocore.credentials import DeferredRefreshableCredentials

        role = source.role
        return DeferredRefreshableCredentials(lambda: _assume_role(session, source, role), "sts-assume-role")
    credentials = session.get_credentials()
    if credentials is None:
        raise AuthenticationError(
            f"No token: {_identity(source)} has no credentials on {socket.gethostname()}. Set environment variables, a "
            "profile, a web identity or the role of the container or instance; each process that connects has its own "
            "environment."
        )
    return credentials


def _session(source: AwsTokens) -> Any:
    try:
        import botocore.session
    except ImportError as error:
        raise missing_library("botocore", extra="msk", purpose="the login to Amazon MSK") from error
    session = botocore.session.Session(profile=source.profile)
    # Instance metadata rejects requests while many processes start. botocore's default is a single attempt.
    session.set_config_variable("metadata_service_num_attempts", source.max_retries + 1)
    session.set_config_variable("sts_regional_endpoints", "regional")  # older versions prefer the global endpoint
    if session.get_config_variable("region") is None:  # a profile can assume a role, whose STS needs a region
        session.set_config_variable("region", source.region)
    return session


def _assume_role(session: Any, source: AwsTokens, role: AwsRole) -> dict[str, str]:
    """Return new credentials of the role, in the format of botocore's refreshable credentials."""
    external_id = {"ExternalId": role.external_id} if role.external_id else {}
    response = _sts_client(session, source, role.access_key).assume_role(
        RoleArn=role.arn, RoleSessionName=role.session_name, **external_id
    )
    credentials = response["Credentials"]
    return {
        "access_key": credentials["AccessKeyId"],
        "secret_key": credentials["SecretAccessKey"],
        "token": credentials["SessionToken"],
        "expiry_time": credentials["Expiration"].isoformat(),
    }


def _sts_client(session: Any, source: AwsTokens, key: AwsAccessKey | None) -> Any:
    from botocore.config import Config

    config = Config(
        connect_timeout=_STS_TIMEOUT_SECONDS,
        read_timeout=_STS_TIMEOUT_SECONDS,
        retries={"total_max_attempts": source.max_retries + 1, "mode": "standard"},
    )
    keys = {}
    if key is not None:
        keys = {
            "aws_access_key_id": key.id,
            "aws_secret_access_key": key.secret.reveal(),
            "aws_session_token": key.session_token.reveal() if key.session_token else None,
        }
    return session.create_client("sts", region_name=source.sts_region or source.region, config=config, **keys)


def _log_identity(source: AwsTokens, keys: Any) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    from pyspark_kafka_direct.options.security_settings import AwsAccessKey

    key = AwsAccessKey(keys.access_key, Secret(keys.secret_key), Secret(keys.token) if keys.token else None)
    try:
        identity = _sts_client(_session(source), source, key).get_caller_identity()
        _log.debug("awsDebugCreds: the identity of the AWS credentials is %s", printable(identity["Arn"]))
    except (BotoCoreError, ClientError) as error:
        _log.debug("awsDebugCreds: the identity of the AWS credentials is unknown (%s)", type(error).__name__)


@contextlib.contextmanager
def _aws_errors(source: AwsTokens, system: System) -> Iterator[None]:
    """Raise errors of botocore as errors of this package; those with foreign text that may be secret pass."""
    try:
        yield
    except Exception as error:
        if translated := _translated(error, source, system):
            raise translated from None
        raise


def _translated(error: Exception, source: AwsTokens, system: System) -> AuthenticationError | OptionError | None:
    if not type(error).__module__.startswith("botocore."):
        return None
    from botocore import exceptions

    host = socket.gethostname()
    match error:
        case exceptions.ClientError():
            return _rejection(error, source, system)
        case exceptions.ProfileNotFound():
            return OptionError(
                f"awsProfileName: the AWS configuration of {host} has no profile {source.profile!r}"
                if source.profile
                else f"the AWS configuration of {host} has no profile of the name in its environment (AWS_PROFILE)"
            )
        case exceptions.NoCredentialsError():  # of the identity that assumes the role
            return AuthenticationError(
                f"No token: {_identity(source)} cannot be assumed, because AWS's default provider chain has no "
                f"credentials on {host}."
            )
        case exceptions.ConnectionError() | exceptions.HTTPClientError():
            return AuthenticationError(
                f"No token: {_identity(source)} is not available, because AWS STS cannot be reached from {host} "
                f"({type(error).__name__}). Check the network, the proxy of the environment and awsStsRegion."
            )
    return None


def _rejection(error: Any, source: AwsTokens, system: System) -> AuthenticationError:
    """Return the error for a response of STS. Its message names the caller and the role, but no keys."""
    details = error.response.get("Error", {})
    code, message = str(details.get("Code", "")), str(details.get("Message", ""))
    if code in _SIGNATURE_CODES:
        now = datetime.fromtimestamp(system.wall_time(), UTC).strftime("%Y-%m-%d %H:%M:%S")
        advice = f"check the access key, and the clock of {socket.gethostname()}, which is {now} UTC"
    else:
        advice = "check the trust policy of the role, awsRoleArn and awsRoleExternalId"
    return AuthenticationError(
        f"No token: AWS STS rejected {error.operation_name} for {_identity(source)} with {printable(code)}: "
        f'"{printable(message, 500)}"; {advice}.'
    )


def _identity(source: AwsTokens) -> str:
    if source.role is not None:
        return f"the role {source.role.arn}"
    return f"the AWS profile {source.profile!r}" if source.profile else "AWS's default provider chain"
