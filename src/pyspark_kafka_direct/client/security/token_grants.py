"""The requests of a token endpoint: one form for each grant, as Kafka's ``HttpRequestFormatter``s write them.

client credentials   grant_type=client_credentials        Authorization: Basic ...        (RFC 6749, 4.4)
client assertion     grant_type=client_credentials        client_assertion=...            (RFC 7523, 2.2)
JWT bearer           grant_type=urn:...:jwt-bearer        assertion=...                   (RFC 7523, 2.1)
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, assert_never
from urllib.parse import quote, quote_plus

from pyspark_kafka_direct.client.security.assertion import create_assertion
from pyspark_kafka_direct.options.security_settings import ClientAssertion, ClientCredentials, JwtBearer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.security_settings import Grant

JWT_BEARER_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """The part of a request that depends on the grant; its ``repr`` has no secret."""

    form: Mapping[str, str] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)  # the forms in which an endpoint could echo them, longest first
    advice: str  # if the endpoint rejects it


def grant_request(grant: Grant, system: System) -> GrantRequest:
    """Return the request of a grant, with a new assertion if the grant has one."""
    match grant:
        case ClientCredentials():
            return _client_credentials_request(grant)
        case ClientAssertion():
            assertion = create_assertion(grant.assertion, system)
            form = {
                "grant_type": "client_credentials",
                "client_assertion_type": _CLIENT_ASSERTION,
                "client_assertion": assertion,
                **({"client_id": grant.client_id} if grant.client_id else {}),
            }
            return _assertion_request(form, assertion)
        case JwtBearer():
            assertion = create_assertion(grant.assertion, system)
            return _assertion_request({"grant_type": JWT_BEARER_GRANT, "assertion": assertion}, assertion)
        case unknown:
            assert_never(unknown)


def _client_credentials_request(grant: ClientCredentials) -> GrantRequest:
    secret = grant.client_secret.reveal()
    id_and_secret = [grant.client_id, secret]
    if grant.urlencode_header:
        id_and_secret = [quote_plus(part) for part in id_and_secret]
    credentials = _base64(":".join(id_and_secret))
    encodings = [secret, quote(secret, safe=""), quote_plus(secret), _base64(secret), credentials]
    encodings += [text.rstrip("=") for text in encodings[-2:]] + [quote_plus(credentials)]
    return GrantRequest(
        {"grant_type": "client_credentials"},
        {"Authorization": f"Basic {credentials}"},
        tuple(sorted(set(filter(None, encodings)), key=len, reverse=True)),
        "check client id, client secret and scope",
    )


def _assertion_request(form: Mapping[str, str], assertion: str) -> GrantRequest:
    # The signature alone is a secret, too: who has it can restore the assertion.
    secrets = (assertion, assertion.rpartition(".")[2])
    return GrantRequest(
        form,
        {},
        tuple(filter(None, secrets)),
        "check the key and the claims of the assertion (kafka.sasl.oauthbearer.assertion.*), and the scope",
    )


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
