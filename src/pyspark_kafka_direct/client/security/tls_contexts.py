"""TLS contexts: loaded from certificates and keys, and loaded again when their files change.

Most programs do not replace files at once: a certificate is there before its key, or a file is truncated and then
written. Changed files are loaded once they have not been modified for a second. If they cannot be loaded, the context
stays as it was until they change again, or until a later attempt: the process may lack file descriptors, for example.
"""

from __future__ import annotations

import errno
import logging
import os
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyspark_kafka_direct.client.security.keystore import (
    ClientCertificate,
    certificate_files,
    load_ca_certificates,
    load_client_certificate,
    private_file,
    with_leaf_first,
)
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    import socket

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.security_settings import TlsSettings

_log = logging.getLogger("pyspark_kafka_direct.client")

_TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_UNMODIFIED_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 10.0  # after changed files could not be loaded

# A process that starts while the files are replaced waits for them for two seconds.
_MAX_FIRST_LOADS: Final = 21
_FIRST_LOAD_PAUSE: Final = 0.1


class _FileVersion(NamedTuple):
    """Changes when a file is written, replaced or made readable, or when a symbolic link points to another one."""

    modified_ns: int
    changed_ns: int  # of its permissions, too
    size: int
    inode: int


_FileVersions: TypeAlias = tuple[_FileVersion | None, ...]  # None: there is no such file


class TlsContext(ssl.SSLContext):
    """A context, and the versions of the files it was loaded from."""

    file_versions: _FileVersions = ()


def tls_context(tls: TlsSettings, system: System = SYSTEM) -> TlsContext:
    """Return the context of new connections with these settings.

    Raises:
        OptionError: The files cannot be loaded, and this process has not loaded them before.
    """
    return _file_context(tls).current(system)


def is_outdated(sock: socket.socket, tls: TlsSettings, system: System) -> bool:
    """Return whether new connections use other versions of the files than the connection of a socket."""
    context = getattr(sock, "context", None)
    try:
        # The context itself may be another one, because the number of cached contexts is limited.
        return isinstance(context, TlsContext) and tls_context(tls, system).file_versions != context.file_versions
    except (OptionError, OSError):
        return False


class _TlsSocket(ssl.SSLSocket):
    """Closes itself if the connection was reset before Python has created it: else the object is lost, unclosed."""

    def getpeername(self) -> Any:
        """Return the address; called while the socket is created, and by nothing afterwards."""
        try:
            return super().getpeername()
        except OSError as error:
            self.close()
            raise ConnectionResetError(errno.ECONNRESET, "the connection was reset") from error


class _FileContext:
    """The context of some settings, loaded again when their files change."""

    # Threads need no lock: those that find the same change load equal contexts.

    def __init__(self, tls: TlsSettings) -> None:
        self._tls = tls
        self._loaded: TlsContext | None = None
        self._unreadable: _FileVersions | None = None  # versions that could not be loaded
        self._retry_at = 0.0  # monotonic
        self._unreadable_reason = ""
        self._seen: tuple[_FileVersions, float] = ((), 0.0)  # the last versions, and since when (monotonic)

    def current(self, system: System) -> TlsContext:
        loaded = self._loaded
        if loaded is None:
            loaded = self._loaded = self._load_first(system)
            return loaded
        versions = self._file_versions()
        if versions == loaded.file_versions:
            return loaded
        if versions == self._unreadable and system.monotonic() < self._retry_at:
            return loaded
        if not self._are_complete(versions, system):
            return loaded
        self._loaded = loaded = self._reload(versions, system) or loaded
        return loaded

    def _load_first(self, system: System) -> TlsContext:
        for remaining_loads in reversed(range(_MAX_FIRST_LOADS)):
            versions = self._file_versions()
            try:
                return _new_context(self._tls, versions)
            except OptionError:
                is_changing = _was_just_modified(versions, system) or self._file_versions() != versions
                if remaining_loads == 0 or not is_changing:
                    raise
            system.sleep(_FIRST_LOAD_PAUSE)
        raise AssertionError("the last load returns or raises")

    def _reload(self, versions: _FileVersions, system: System) -> TlsContext | None:
        """Return a new context, or None if the files cannot be loaded, or change meanwhile."""
        try:
            context = _new_context(self._tls, versions)
        except (OptionError, OSError) as error:
            if self._file_versions() == versions:
                self._unreadable = versions
                self._retry_at = system.monotonic() + _RETRY_SECONDS
                self._warn(error.message if isinstance(error, OptionError) else str(error))
            return None
        if self._file_versions() != versions:
            return None
        self._unreadable_reason = ""
        _log.info("The files of %sssl.* have changed. New connections use them.", self._tls.prefix)
        return context

    def _warn(self, reason: str) -> None:
        if reason == self._unreadable_reason:
            return
        self._unreadable_reason = reason
        _log.warning(
            "TLS files have changed, but cannot be loaded: %s. Connections use the earlier certificates and keys. The "
            "files are loaded again when they change, and every %g seconds.",
            reason,
            _RETRY_SECONDS,
        )

    def _are_complete(self, versions: _FileVersions, system: System) -> bool:
        """Return whether the files have not been modified for a second."""
        now = system.monotonic()
        seen_versions, seen_at = self._seen
        if versions != seen_versions:
            self._seen = (versions, now)
        elif now - seen_at >= _UNMODIFIED_SECONDS:  # also for missing files, and with another clock on a file server
            return True
        return None not in versions and not _was_just_modified(versions, system)

    def _file_versions(self) -> _FileVersions:
        return tuple(_file_version(path) for path in certificate_files(self._tls))


# Creating a context takes milliseconds (tens of them to parse the system's CAs), and a cluster has many brokers. A
# context survives fork.
@lru_cache(maxsize=64)
def _file_context(tls: TlsSettings) -> _FileContext:
    return _FileContext(tls)


def _was_just_modified(versions: _FileVersions, system: System) -> bool:
    """Return whether one of the files that exist may be half written."""
    latest = system.wall_time() - _UNMODIFIED_SECONDS
    return any(version is not None and version.modified_ns / 1e9 > latest for version in versions)


def _file_version(path: str) -> _FileVersion | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return _FileVersion(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def _new_context(tls: TlsSettings, file_versions: _FileVersions) -> TlsContext:
    context = TlsContext(ssl.PROTOCOL_TLS_CLIENT)
    context.file_versions = file_versions
    context.sslsocket_class = _TlsSocket
    context.minimum_version = _TLS_VERSIONS[tls.minimum_version]
    context.maximum_version = _TLS_VERSIONS[tls.maximum_version]
    context.check_hostname = tls.check_hostname
    context.verify_mode = ssl.CERT_REQUIRED
    # As in Java, any certificate in the truststore is trusted: a root, an intermediate, or a broker's own.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # As in Java, certificates of older tools are accepted, which lack identifiers of keys that RFC 5280 requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    _choose_ciphers(context, tls)
    ca_certificates = load_ca_certificates(tls)
    if ca_certificates is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _add_ca_certificates(context, ca_certificates, tls)
    client_certificate = load_client_certificate(tls)
    if client_certificate is not None:
        _add_client_certificate(context, client_certificate)
    return context


def _choose_ciphers(context: ssl.SSLContext, tls: TlsSettings) -> None:
    if not tls.cipher_suites:
        return
    try:
        context.set_ciphers(":".join(tls.cipher_suites))
    except ssl.SSLError:
        raise OptionError(
            f"option {tls.prefix}ssl.cipher.suites: this OpenSSL supports none of {', '.join(tls.cipher_suites)}"
        ) from None


def _add_ca_certificates(context: ssl.SSLContext, ca_certificates: str, tls: TlsSettings) -> None:
    setting = "location" if tls.truststore_certificates is None else "certificates"
    try:
        context.load_verify_locations(cadata=ca_certificates)
    except ssl.SSLError as error:
        raise OptionError(
            f"option {tls.prefix}ssl.truststore.{setting} has an unreadable certificate ({error.reason})"
        ) from None


def _add_client_certificate(context: ssl.SSLContext, client_certificate: ClientCertificate) -> None:
    def password() -> str:
        # Without this function, OpenSSL would ask for the password on the terminal.
        if client_certificate.password is None:
            raise OptionError(
                f"option {client_certificate.key_option}: the private key is encrypted; set "
                f"{client_certificate.password_option}"
            )
        return client_certificate.password.reveal()

    def load(pem: bytes) -> None:
        with private_file(pem) as path:
            context.load_cert_chain(path, password=password)

    try:
        try:
            load(client_certificate.pem)
        except ssl.SSLError as error:
            if error.reason != "KEY_VALUES_MISMATCH":
                raise
            load(with_leaf_first(client_certificate.pem))  # OpenSSL expects the key of the first certificate
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem = "the private key does not belong to the certificate"
        elif client_certificate.password is not None:
            problem = f"the private key cannot be decrypted; check {client_certificate.password_option}"
        else:
            problem = f"the certificate or private key cannot be read ({error.reason or 'unknown format'})"
        raise OptionError(f"option {client_certificate.key_option}: {problem}") from None
