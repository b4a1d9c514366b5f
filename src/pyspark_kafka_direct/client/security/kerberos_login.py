"""Kerberos logins with a keytab or a ticket cache, by the library ``gssapi`` (MIT Kerberos).

A keytab login has a ticket cache in the memory of the process: the user's cache is neither read nor changed. A new
login precedes the first authentication after ``renew_window_factor`` of the ticket's lifetime.
"""

from __future__ import annotations

import itertools
import logging
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from pyspark_kafka_direct.client.system import after_fork
from pyspark_kafka_direct.client.unbounded_call import UnboundedCalls
from pyspark_kafka_direct.errors import (
    AuthenticationError,
    BrokerTimeoutError,
    KafkaDirectError,
    OptionError,
    printable,
)

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.security_settings import KerberosSettings

_log = logging.getLogger("pyspark_kafka_direct.client")

_T = TypeVar("_T")

# Error codes of MIT Kerberos (krb5_err.et).
_CLIENT_UNKNOWN: Final = -1765328378
_SERVER_UNKNOWN: Final = -1765328377
_PREAUTHENTICATION_FAILED: Final = -1765328360
_WRONG_KEY: Final = -1765328353
_TICKET_EXPIRED: Final = -1765328352
_CLOCK_SKEW: Final = -1765328347
_CLOCK_SKEW_OF_KDC: Final = -1765328236
_REALM_UNKNOWN: Final = -1765328230
_KDC_UNREACHABLE: Final = -1765328228
_NO_TICKET_CACHE: Final = -1765328189
_NO_DEFAULT_REALM: Final = -1765328160

_KRB5_CONF: Final = "krb5.conf (the environment variable KRB5_CONFIG names another file)"
_CLOCKS: Final = "Synchronize the clocks of this host, the KDC and the brokers."
_WRONG_KEY_ADVICE: Final = "The keytab has another key than the KDC: export it again."
_ADVICE: Final = {
    _CLIENT_UNKNOWN: "Check the name and the realm of the principal.",
    _SERVER_UNKNOWN: (
        "The principal of a broker consists of serviceName (or kafka.sasl.kerberos.service.name) and the host name in "
        "kafka.bootstrap.servers or in advertised.listeners of the brokers: use names for which the KDC has principals."
    ),
    _PREAUTHENTICATION_FAILED: _WRONG_KEY_ADVICE,
    _WRONG_KEY: _WRONG_KEY_ADVICE,
    _TICKET_EXPIRED: "Renew the ticket cache with kinit, or use a keytab.",
    _CLOCK_SKEW: _CLOCKS,
    _CLOCK_SKEW_OF_KDC: _CLOCKS,
    _REALM_UNKNOWN: f"Add the realm and its KDC to [realms] in {_KRB5_CONF}.",
    _KDC_UNREACHABLE: f"Check the KDC in [realms] in {_KRB5_CONF}, and that this host can connect to it.",
    _NO_DEFAULT_REALM: f"Write the principal with its realm, or set default_realm in {_KRB5_CONF}.",
}

# Each login has a new cache, because connections use the old one until they are authenticated. MIT Kerberos keeps the
# old caches until the process ends, a few KiB for each login.
_cache_numbers: Final = itertools.count()


class KerberosCredentials(NamedTuple):
    """The tickets of a principal."""

    store: dict[str, str] | None  # the ticket cache; None: the default one
    principal: str  # with its realm
    expires_at: float  # seconds since 1970


def kerberos_credentials(kerberos: KerberosSettings, deadline: Deadline, broker: str) -> KerberosCredentials:
    """Return unexpired credentials; the process logs in once for all connections with these settings."""
    return _login(kerberos, deadline.system).credentials(deadline, broker)


def renew_credentials(kerberos: KerberosSettings, deadline: Deadline) -> None:
    """Log in again before the next connection: a broker rejects tickets for a key that it has replaced."""
    _login(kerberos, deadline.system).renew_next(deadline)


def open_tickets(credentials: KerberosCredentials) -> Any:
    """Return ``gssapi.Credentials`` for one exchange, without a request to the KDC.

    MIT Kerberos locks such an object while it waits for the KDC. A shared one would let a login that hangs block the
    logins at brokers whose tickets are in the cache.
    """
    gssapi = load_gssapi()
    name = gssapi.Name(credentials.principal, gssapi.NameType.kerberos_principal)
    return gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=credentials.store)


def load_gssapi() -> Any:
    """Import the library, which is optional."""
    try:
        import gssapi
    except ImportError as error:
        reason = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        raise OptionError(
            f"kafka.sasl.mechanism=GSSAPI (Kerberos) needs the Python library gssapi on the driver and the "
            f"executors{reason}: pip install 'pyspark-kafka-direct[kerberos]', which needs the Debian packages gcc, "
            "python3-dev and libkrb5-dev, or the RHEL packages gcc, python3-devel and krb5-devel"
        ) from error
    return gssapi


def login_outcome(result: _T | BaseException | None, timeout: str, broker: str) -> _T:
    """Return the result of an ``UnboundedCalls``, or raise its error for this broker."""
    match result:
        case None:
            raise BrokerTimeoutError(
                f"{timeout} in time: check that this host can connect to the KDC and the name server; the limit is "
                "kafka.socket.connection.setup.timeout.ms.",
                broker=broker,
            )
        case OptionError() as error:
            raise error
        case KafkaDirectError() as error:  # a copy for this broker
            raise type(error)(error.message, broker=broker) from error.__cause__
        case BaseException() as error:
            raise error
        case value:
            return value


def gss_reason(error: Any) -> str:
    """Return the reason of a ``GSSError``, with names that a KDC may have sent."""
    # The reason of a code 0 is "Success".
    by_mechanism = error.get_all_statuses(error.min_code, False) if error.min_code else []
    reasons = by_mechanism or error.get_all_statuses(error.maj_code, True)
    return printable("; ".join(reasons))


def ticket_error(error: Any, principal: str, service: str) -> AuthenticationError:
    """Return the error for a ``GSSError`` about a broker's ticket."""
    return _error(f"{principal} gets no Kerberos ticket for {service}", error)


@lru_cache(maxsize=16)
def _login(kerberos: KerberosSettings, system: System) -> _KerberosLogin:
    return _KerberosLogin(kerberos, system)


after_fork(_login.cache_clear)


class _KerberosLogin:
    """The credentials of one principal in this process."""

    def __init__(self, kerberos: KerberosSettings, system: System) -> None:
        self._kerberos = kerberos
        self._system = system
        self._lock = system.lock()
        self._calls: UnboundedCalls[KerberosCredentials] = UnboundedCalls(system, "pyspark-kafka-direct-kerberos")
        self._current: KerberosCredentials | None = None
        self._renew_at = 0.0  # seconds since 1970
        self._has_warned = False

    def credentials(self, deadline: Deadline, broker: str) -> KerberosCredentials:
        if not self._system.acquire(self._lock, max(deadline.remaining(), 0.001)):
            return login_outcome(None, self._timeout(), broker)
        try:
            now = self._system.wall_time()
            current = self._current
            if current is None or now >= current.expires_at:
                self._log_in(deadline, broker)
            elif now >= self._renew_at:
                self._renew(current, deadline, broker)
            assert self._current is not None
            return self._current
        finally:
            self._lock.release()

    def renew_next(self, deadline: Deadline) -> None:
        if not self._system.acquire(self._lock, max(deadline.remaining(), 0.001)):
            return
        try:
            self._renew_at = 0.0
        finally:
            self._lock.release()

    def _log_in(self, deadline: Deadline, broker: str) -> None:
        result = self._calls.call(lambda: _log_in(self._kerberos, self._system), deadline)
        credentials = login_outcome(result, self._timeout(), broker)
        now = self._system.wall_time()
        _log.debug(
            "Kerberos login as %s, for %.0f seconds", credentials.principal, max(0.0, credentials.expires_at - now)
        )
        self._current = credentials
        self._has_warned = False
        # Another program renews a ticket cache, so it is read each time.
        lifetime = 0.0 if self._kerberos.keytab is None else credentials.expires_at - now
        self._renew_at = now + lifetime * self._kerberos.renew_window_factor

    def _renew(self, current: KerberosCredentials, deadline: Deadline, broker: str) -> None:
        """Log in again. If this fails, for example because the keytab is being written, the old tickets are used."""
        try:
            self._log_in(deadline.limited_to(deadline.remaining() / 2), broker)
        except (AuthenticationError, BrokerTimeoutError) as error:
            self._renew_at = self._system.wall_time() + self._kerberos.min_relogin_seconds
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "%s The old tickets of %s are used for %.0f more seconds.",
                    error.message,
                    current.principal,
                    current.expires_at - self._system.wall_time(),
                )

    def _timeout(self) -> str:
        return f"The Kerberos login{_of(self._kerberos)} did not end"


def _log_in(kerberos: KerberosSettings, system: System) -> KerberosCredentials:
    """Log in with the ticket cache or else, as Java, with the keytab."""
    load_gssapi()
    if kerberos.ticket_cache is not None:
        try:
            return _log_in_with_ticket_cache(kerberos, kerberos.ticket_cache, system)
        except AuthenticationError:
            if kerberos.keytab is None:
                raise
    return _log_in_with_keytab(kerberos, kerberos.keytab or "", system)


def _log_in_with_keytab(kerberos: KerberosSettings, keytab: str, system: System) -> KerberosCredentials:
    cache = f"MEMORY:pyspark-kafka-direct-{next(_cache_numbers)}"
    try:
        return _acquire(kerberos.principal, system, {"ccache": cache}, f"FILE:{keytab}")
    except load_gssapi().exceptions.GSSError as error:
        if _code(error) == _NO_TICKET_CACHE:  # the library did not try to log in, because it found no key
            raise AuthenticationError(
                f"The keytab {keytab!r} has no key for the login of {kerberos.principal}{_keytab_problem(kerberos)}. "
                "Check keyTab and principal in kafka.sasl.jaas.config (or kafka.sasl.kerberos.keytab and .principal); "
                "the file must exist on the driver and the executors (spark-submit --files)."
            ) from error
        raise _error(f"The Kerberos login{_of(kerberos)} failed", error) from error


def _log_in_with_ticket_cache(kerberos: KerberosSettings, path: str, system: System) -> KerberosCredentials:
    gssapi = load_gssapi()
    cache = f"The ticket cache {path!r}" if path else "The default ticket cache"
    try:
        return _acquire(kerberos.principal, system, {"ccache": f"FILE:{path}"} if path else None)
    except gssapi.exceptions.ExpiredCredentialsError as error:
        raise AuthenticationError(f"{cache} has only expired tickets. {_ADVICE[_TICKET_EXPIRED]}") from error
    except gssapi.exceptions.GSSError as error:
        if _code(error) in _ADVICE:
            raise _error(f"The Kerberos login{_of(kerberos)} failed", error) from error
        raise AuthenticationError(
            f"{cache} has no ticket for the login{_of(kerberos)}: {gss_reason(error)}. Create it with kinit on the "
            "driver and the executors, or use a keytab."
        ) from error


def _acquire(
    principal: str | None, system: System, store: dict[str, str] | None, keytab: str | None = None
) -> KerberosCredentials:
    gssapi = load_gssapi()
    name = None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal)
    login_store = store if keytab is None else {**(store or {}), "client_keytab": keytab}
    handle = gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=login_store)
    lifetime = handle.lifetime  # this logs in; None: without end
    return KerberosCredentials(
        store, str(handle.name), system.wall_time() + (math.inf if lifetime is None else lifetime)
    )


def _keytab_problem(kerberos: KerberosSettings) -> str:
    """Return why the library finds no key, in parentheses: only a server's credentials report it."""
    gssapi = load_gssapi()
    name = gssapi.Name(kerberos.principal, gssapi.NameType.kerberos_principal)
    store = {"keytab": f"FILE:{kerberos.keytab}"}
    try:
        gssapi.Credentials(name=name, usage="accept", mechs=[gssapi.MechType.kerberos], store=store)
    except gssapi.exceptions.GSSError as error:
        return f" ({gss_reason(error)})"
    return ""


def _error(problem: str, error: Any) -> AuthenticationError:
    advice = _ADVICE.get(_code(error), f"Check {_KRB5_CONF}, and the log of the KDC.")
    return AuthenticationError(f"{problem}: {gss_reason(error)}. {advice}")


def _code(error: Any) -> int:
    """Return the error code of Kerberos, which the library returns as an unsigned number."""
    return int(error.min_code % 2**32 - 2**32)


def _of(kerberos: KerberosSettings) -> str:
    return f" of {kerberos.principal}" if kerberos.principal else ""
