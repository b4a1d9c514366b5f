"""Tokens from a URL: the client-credentials grant over HTTP(S), or a file (KIP-768).

POST <url>                                                       RFC 6749, 4.4
Authorization: Basic base64(client id ":" client secret)
grant_type=client_credentials[&scope=...]

200 {"access_token":"...","expires_in":3600}      or      4xx {"error":"...","error_description":"..."}
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus, unquote, urlencode, urlsplit

from pyspark_kafka_direct.errors import AuthenticationError, OptionError
from pyspark_kafka_direct.settings.secret import MASK, Secret
from pyspark_kafka_direct.wire.security._token import Token, finite
from pyspark_kafka_direct.wire.security.tls import tls_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.settings.security import OAuthSettings
    from pyspark_kafka_direct.wire.deadline import Deadline

_ATTEMPTS: Final = 3  # where nobody answers
_LONGEST_TROUBLE: Final = 10.0  # seconds for which an endpoint may say that it has trouble, as in Java
_FIRST_PAUSE: Final = 0.1  # seconds; doubles (Java's sasl.login.retry.backoff.ms)
_LONGEST_PAUSE: Final = 2.0
_LARGEST_ANSWER: Final = 1 << 20
_LONGEST_REASON: Final = 300


def from_url(oauth: OAuthSettings) -> Callable[[Deadline], Token]:
    """Give a function that fetches a token from ``oauth.token_endpoint_url``."""
    url = oauth.token_endpoint_url or ""
    if urlsplit(url).scheme == "file":
        return lambda _: _from_file(unquote(urlsplit(url).path), oauth)
    return lambda deadline: _Endpoint(oauth, url).token(deadline)


class _Endpoint:
    def __init__(self, oauth: OAuthSettings, url: str) -> None:
        self._oauth = oauth
        self._url = url
        self._host = urlsplit(url).hostname or ""

    def token(self, deadline: Deadline) -> Token:
        seconds = (self._oauth.connect_timeout_ms + self._oauth.read_timeout_ms) / 1000
        limit = deadline.sooner(seconds)
        patience = limit.sooner(_LONGEST_TROUBLE)
        for attempt in itertools.count():
            pause = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
            last = pause >= patience.remaining()
            try:
                answer = self._post(limit)
            except urllib.error.HTTPError as error:
                with error:
                    if last or (error.code < 500 and error.code != 429):
                        raise self._refused(error) from None
            except OSError as error:
                reason = error.reason if isinstance(error, urllib.error.URLError) else error
                if last or attempt + 1 == _ATTEMPTS or isinstance(reason, ssl.SSLCertVerificationError):
                    raise self._error(self._failure(reason)) from None
            except http.client.HTTPException as error:
                raise self._error(f"does not speak HTTP ({type(error).__name__})") from None
            else:
                return self._read(answer, deadline.system.wall_time())
            deadline.system.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _secret(self) -> str:
        return self._oauth.client_secret.reveal() if self._oauth.client_secret else ""

    def _credentials(self) -> str:
        pair = (self._oauth.client_id or "", self._secret())
        if self._oauth.urlencode_header:
            pair = (quote_plus(pair[0]), quote_plus(pair[1]))
        return base64.b64encode(":".join(pair).encode()).decode()

    def _forms_of_the_secret(self) -> list[str]:
        """Return all that an endpoint may show of what it was sent, the longest first."""
        plain = self._secret()
        if not plain:
            return []
        encoded = base64.b64encode(plain.encode()).decode()
        forms = {plain, quote(plain, safe=""), quote_plus(plain), encoded, encoded.rstrip("=")}
        forms |= {self._credentials(), self._credentials().rstrip("="), quote_plus(self._credentials())}
        return sorted(forms, key=len, reverse=True)

    def _post(self, limit: Deadline) -> bytes:
        oauth = self._oauth
        form = {"grant_type": "client_credentials"}
        if oauth.scope:
            form["scope"] = oauth.scope
        request = urllib.request.Request(  # noqa: S310 - the settings allow http and https only
            self._url,
            data=urlencode(form).encode(),
            method="POST",
            headers={
                "Authorization": "Basic " + self._credentials(),
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=tls_context(oauth.endpoint_tls)), _NoRedirects()
        )
        with limit.system.open_url(opener, request, max(limit.remaining(), 0.001)) as response:
            answer: bytes = response.read(_LARGEST_ANSWER)
            return answer

    def _read(self, answer: bytes, now: float) -> Token:
        content = _json_object(answer)
        # Java also takes an id_token where there is no access_token.
        text = content.get("access_token") or content.get("id_token")
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            raise self._error("answered without an access_token")
        told = content.get("expires_in")
        lifetime = finite(told) if isinstance(told, int | float | str) else None
        return Token(Secret(text), None if lifetime is None else now + lifetime, self._oauth.extensions)

    def _refused(self, error: urllib.error.HTTPError) -> AuthenticationError:
        content = _json_object(_body(error))
        told = (content.get(key) for key in ("error", "error_description"))
        said = ": ".join(text for text in told if isinstance(text, str) and text)
        for secret in self._forms_of_the_secret():
            said = said.replace(secret, MASK)
        said = "".join(character if character.isprintable() else " " for character in said)[:_LONGEST_REASON]
        if 300 <= error.code < 400:
            check = "it redirects, which is not followed with a secret in hand; write the address it redirects to"
        elif error.code in (400, 401, 403):
            check = "check client id, client secret and scope"
        elif error.code == 404:
            check = "check the path of the address"
        else:
            check = "the endpoint has a problem of its own"
        return self._error(f"answered HTTP {error.code}" + (f' "{said}"' if said else "") + f"; {check}")

    def _failure(self, reason: object) -> str:
        if isinstance(reason, ssl.SSLCertVerificationError):
            return (
                f"has a certificate that cannot be verified ({reason.verify_message}); give its CA as "
                'ssl.truststore.location="..." inside kafka.sasl.jaas.config'
            )
        if isinstance(reason, TimeoutError):
            return "did not answer in time (kafka.sasl.login.connect.timeout.ms and kafka.sasl.login.read.timeout.ms)"
        text = reason.strerror or str(reason) if isinstance(reason, OSError) else str(reason)
        return f"cannot be reached ({text})"

    def _error(self, what: str) -> AuthenticationError:
        return AuthenticationError(
            f"No token: the token endpoint on {self._host} (kafka.sasl.oauthbearer.token.endpoint.url) {what}."
        )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Client id and secret are for one address: a redirect is an error, not a hint."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nothing; the answer itself becomes an ``HTTPError``."""


def _from_file(path: str, oauth: OAuthSettings) -> Token:
    # Read each time: whoever put the token there (Kubernetes, a sidecar) renews it there.
    option = "option kafka.sasl.oauthbearer.token.endpoint.url"
    try:
        with open(path, encoding="ascii") as file:
            text = file.read(_LARGEST_ANSWER).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        raise OptionError(f"{option}: the token file {path!r} cannot be read ({reason})") from None
    if not text or not text.isprintable():
        raise OptionError(f"{option}: the token file {path!r} holds no token")
    return Token(Secret(text), None, oauth.extensions)


def _body(error: urllib.error.HTTPError) -> bytes:
    """Return what an endpoint says beside its status, which counts also where the rest does not come."""
    try:
        return error.read(_LARGEST_ANSWER)
    except (OSError, http.client.HTTPException):
        return b""


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # the second: thousands of brackets
        return {}
    return content if isinstance(content, dict) else {}
