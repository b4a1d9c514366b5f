"""Tokens from an endpoint over HTTP(S) (KIP-768); ``token_grants`` has the grants.

POST <url>                                                       RFC 6749, 4.4
[Authorization: Basic base64(client id ":" client secret)]
grant_type=...[&scope=...]

200 {"access_token":"...","expires_in":3600}      or      4xx {"error":"...","error_description":"..."}
"""

from __future__ import annotations

import http.client
import itertools
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from pyspark_kafka_direct.client.deadline import Backoff
from pyspark_kafka_direct.client.http_opener import (
    failure_description,
    failure_reason,
    invalid_request,
    is_final,
    is_transient,
    proxy_of,
    proxy_rejection,
    request_opener,
    through_proxy,
)
from pyspark_kafka_direct.client.security.jwt import json_object, read_expiry
from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken, finite_or_none
from pyspark_kafka_direct.client.security.token_grants import grant_request
from pyspark_kafka_direct.errors import AuthenticationError, printable
from pyspark_kafka_direct.options.security_settings import MASK, Secret

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.security.oauth_tokens import TokenRetriever
    from pyspark_kafka_direct.client.security.token_grants import GrantRequest
    from pyspark_kafka_direct.options.security_settings import EndpointTokens

_MAX_CONNECT_ATTEMPTS: Final = 3
_MAX_RETRY_SECONDS: Final = 10.0  # for which server errors (5xx, 429) are retried, as in Java
_BACKOFF: Final = Backoff(0.1, 2.0)  # Java's sasl.login.retry.backoff.ms
_MAX_RESPONSE_BYTES: Final = 1 << 20


def endpoint_token_retriever(source: EndpointTokens) -> TokenRetriever:
    """Return a function that requests a token from an endpoint."""
    return lambda deadline: _TokenEndpoint(source).token(deadline)


class _TokenEndpoint:
    """Requests tokens from one URL."""

    def __init__(self, source: EndpointTokens) -> None:
        self._source = source
        self._host = urlsplit(source.url).hostname or ""
        self._proxy = proxy_of(source.url)

    def token(self, deadline: Deadline) -> OAuthBearerToken:
        """Return a token. Server errors are retried for ten seconds, failed connections twice.

        The sum of the connect and the read timeout bounds all attempts together.
        """
        seconds = (self._source.connect_timeout_ms + self._source.read_timeout_ms) / 1000
        total_deadline = deadline.limited_to(seconds)
        retry_deadline = total_deadline.limited_to(_MAX_RETRY_SECONDS)
        grant = grant_request(self._source.grant, deadline.system)
        open_request = request_opener(self._source.url, self._source.tls, total_deadline)
        for attempt in itertools.count():
            pause = _BACKOFF.pause(attempt, deadline.system)
            is_last_attempt = pause >= retry_deadline.remaining()
            try:
                with open_request(self._request(grant)) as response:
                    response_body = response.read(_MAX_RESPONSE_BYTES)
            except urllib.error.HTTPError as error:
                with error:  # closes the response
                    if is_last_attempt or not is_transient(error.code):
                        raise self._http_error(error, grant) from None
            except OSError as error:
                reason = failure_reason(error)
                if is_last_attempt or attempt + 1 == _MAX_CONNECT_ATTEMPTS or is_final(reason):
                    raise self._error(self._failure_description(reason)) from None
            except (http.client.InvalidURL, ValueError) as error:
                through = through_proxy(self._proxy)
                raise self._error(f"cannot be requested ({invalid_request(error)}){through}") from None
            except http.client.HTTPException as error:
                raise self._error(f"does not respond with HTTP ({type(error).__name__})") from None
            else:
                return self._parse_response(response_body, deadline.system.wall_time())
            deadline.system.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _request(self, grant: GrantRequest) -> urllib.request.Request:
        form = dict(grant.form)
        if self._source.scope:
            form["scope"] = self._source.scope
        if self._source.audience:
            form["audience"] = self._source.audience
        return urllib.request.Request(  # noqa: S310 - the settings allow http and https only
            self._source.url,
            data=urlencode(form).encode(),
            method="POST",
            headers={
                **grant.headers,
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )

    def _parse_response(self, response_body: bytes, now: float) -> OAuthBearerToken:
        content = json_object(response_body) or {}
        # Java also accepts an id_token if there is no access_token.
        token = content.get("access_token") or content.get("id_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise self._error("returned no access_token")
        expires_in = content.get("expires_in")
        lifetime = finite_or_none(expires_in) if isinstance(expires_in, int | float | str) else None
        # Java reads the expiry time in the token only. Endpoints may return a longer one, such as in milliseconds.
        times = (read_expiry(token), None if lifetime is None else now + lifetime)
        return OAuthBearerToken(Secret(token), min((time for time in times if time is not None), default=None))

    def _http_error(self, error: urllib.error.HTTPError, grant: GrantRequest) -> AuthenticationError:
        if error.code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:  # token endpoints do not return it
            return self._error(proxy_rejection(error.code, self._proxy))
        content = json_object(_error_body(error)) or {}
        error_fields = (content.get(key) for key in ("error", "error_description"))
        description = ": ".join(field for field in error_fields if isinstance(field, str) and field)
        for secret in grant.secrets:
            description = description.replace(secret, MASK)
        if 300 <= error.code < 400:
            advice = "redirects are not followed because the request has a secret; set the address it redirects to"
        elif error.code in (400, 401, 403):
            advice = grant.advice
        elif error.code == 404:
            advice = "check the path of the URL"
        else:
            advice = "the endpoint itself failed"
        quoted = f' "{printable(description)}"' if description else ""
        return self._error(f"returned HTTP {error.code}{quoted}{through_proxy(self._proxy)}; {advice}")

    def _failure_description(self, reason: object) -> str:
        return failure_description(
            reason, self._proxy, timeout_options=self._source.timeout_options, ca_advice=self._source.ca_advice
        )

    def _error(self, problem: str) -> AuthenticationError:
        return AuthenticationError(
            f"No token: the token endpoint on {self._host} ({self._source.url_option}) {problem}."
        )


def _error_body(error: urllib.error.HTTPError) -> bytes:
    """Return the body of an error response, or nothing if the rest of it does not arrive."""
    try:
        return error.read(_MAX_RESPONSE_BYTES)
    except (OSError, http.client.HTTPException):
        return b""
